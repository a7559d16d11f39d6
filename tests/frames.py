"""Cuts a stream of bytes into frames, for the tests. Nodes do it with `common/net/frame_reader.py`, which copies less."""

from common.parts import Buffer
from common.protocol.framing import LENGTH_SIZE


class Frames:
    """The frames of one direction of a connection. Each has memory of its own."""

    def __init__(self) -> None:
        # What has arrived of the next frame.
        self._rest = bytearray()

    def receive(self, data: Buffer) -> list[memoryview]:
        """Adds received bytes. Returns the frames that are complete now, without their lengths."""
        self._rest += data
        found = []
        while len(self._rest) >= LENGTH_SIZE:
            end = LENGTH_SIZE + int.from_bytes(self._rest[:LENGTH_SIZE], "big")
            if len(self._rest) < end:
                break
            found.append(memoryview(self._rest[LENGTH_SIZE:end]))
            del self._rest[:end]
        return found
