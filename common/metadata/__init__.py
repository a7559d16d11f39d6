"""The cluster's metadata: registrations, topics, and the replay that builds them from the metadata log (core)."""
