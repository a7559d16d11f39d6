"""Compaction of a log: keeps the latest record of each key."""
