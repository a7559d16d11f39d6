"""Bytes in memory, and the parts of a message to be sent (core).

A message is sent as a list of parts. A part is either bytes or a `FileRegion`, a range of a log file whose bytes need not
pass through Python. Only the environment that created a region can write the region's bytes to a socket; other code only
sees its size.
"""

# What holds bytes in memory.
Buffer = bytes | bytearray | memoryview


class FileRegion:
    """A range of an open log file, created by `LogDir.region`. `size` is in bytes."""

    size: int

    def __len__(self) -> int:
        return self.size


Part = Buffer | FileRegion
