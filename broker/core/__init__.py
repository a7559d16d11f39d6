"""Decisions of the broker, without clock, network or disks (core)."""
