"""A node's log directories as a whole: start-up scan, which are online, how a failure is noticed and handed on.

Both daemons use it: the broker for its data directories, the controller for its metadata directory.
"""
