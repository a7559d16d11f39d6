"""The group coordinator: groups and committed offsets of the partitions of `__consumer_offsets` that this broker leads."""
