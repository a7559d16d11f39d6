"""The broker daemon: serves clients and keeps this node's replicas in its log directories."""
