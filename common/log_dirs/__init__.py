"""A node's log directories: the start-up scan, which of them are online, how failures are detected and handled.

Used by both daemons, by the broker for its data directories and by the controller for its metadata directory.
"""
