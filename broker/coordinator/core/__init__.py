"""Decisions of the group coordinator, without clock, network or disks (core)."""
