"""The pieces a response is sent in (core).

A response is a list of parts. Bytes are bytes; a `FileRegion` stands for a range of a log file whose bytes need not pass
through Python. Only the environment that made a region can turn it into bytes on a socket; everyone else knows its size.
"""

from abc import ABC


class FileRegion(ABC):
    """A range of an open log file, made by `LogDir.region`. `size` is in bytes."""

    size: int

    def __len__(self) -> int:
        return self.size


Part = bytes | bytearray | memoryview | FileRegion
