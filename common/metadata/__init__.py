"""The cluster as its metadata log describes it: registrations, topics and the replay that builds them (core)."""
