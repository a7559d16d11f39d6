"""The broker daemon: what serves clients and keeps the replicas of this node on its log directories."""
