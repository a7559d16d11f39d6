"""A node's log directories: scans them at start, tracks which are online, detects and handles failures.

Both daemons use this package: the broker for its data directories, the controller for its metadata directory.
"""
