"""Splits the bytes received on a connection into frames whose memory stays valid (core).

Counterpart of Kafka's `NetworkReceive`, but it never allocates memory for the length that a peer claims: a partial frame
takes only as much memory as has arrived. A large frame that arrived whole in one view is not copied; we take the receive
buffer over from the connection instead. A received view is ours only during `data_received`, so `keep_rest` must be called
before that method returns.
"""

import struct
from collections.abc import Callable
from typing import Final

from common.protocol.errors import FrameTooLarge, RemoteProtocolError
from common.protocol.framing import LENGTH_SIZE

_LENGTH: Final = struct.Struct(">i")
# Below this size, copying a frame is cheaper than giving the connection a new receive buffer.
TAKEN_FROM: Final = 64 * 1024
# A frame is copied if it fills less than 1/TAKEN_FRACTION of the receive buffer: keeping the whole buffer alive for the
# frame would waste memory.
TAKEN_FRACTION: Final = 4


class FrameReader:
    """Reads the frames of one connection. No valid frame is below `size_min`, and no frame may be larger than `size_max`."""

    def __init__(self, *, size_min: int, size_max: int, take_buffer: Callable[[], None]) -> None:
        self._size_min = size_min
        self._size_max = size_max
        self._take_buffer = take_buffer
        # Received bytes that no frame has consumed yet.
        self._view = memoryview(b"")
        # Whether we may keep `_view`: it is our own copy, or we have taken the buffer over from the connection. False only
        # between `receive` and `keep_rest`.
        self._is_ours = True
        # The start of a frame, length included, if the frame did not arrive in one piece. Its bytes precede `_view`.
        self._partial = bytearray()
        # Whether any received bytes are left. After `next_frame` returned None, they are the start of a frame.
        self.is_inside_a_frame = False

    @property
    def buffered_bytes(self) -> int:
        """The bytes held here: a partial frame, and whole frames that have not been taken yet."""
        return len(self._partial) + len(self._view)

    @property
    def expected_size(self) -> int:
        """The length claimed by the frame that is arriving; 0 until its length field is complete."""
        start = self._partial if self._partial else self._view
        return int.from_bytes(start[:LENGTH_SIZE], "big") if len(start) >= LENGTH_SIZE else 0

    def receive(self, view: memoryview) -> None:
        """Takes a received view, which must stay valid until `keep_rest` is called."""
        if len(self._view):
            # More data arrived before the last bytes were used up. This is rare: reading is paused until they are.
            self._view = memoryview(bytes(self._view) + bytes(view))
            self._is_ours = True
        else:
            self._view = view
            self._is_ours = False
        self.is_inside_a_frame = bool(self._partial) or len(self._view) > 0

    def drop(self) -> None:
        """Releases everything received, because the connection has ended."""
        self._partial = bytearray()
        self._view = memoryview(b"")
        self.is_inside_a_frame = False

    def next_frame(self) -> memoryview | None:
        """Returns the next whole frame without its length field, or None if more bytes must arrive first.

        The memory of the frame stays valid and unchanged. Raises FrameTooLarge, or RemoteProtocolError for a frame below
        `size_min`.
        """
        if self._partial:
            return self._complete_partial()
        view = self._view
        available = len(view)
        if available < LENGTH_SIZE:
            return None
        size = self._checked_size(view)
        end = LENGTH_SIZE + size
        if available < end:
            return None
        frame = view[LENGTH_SIZE:end]
        self._view = view[end:]
        self.is_inside_a_frame = available > end
        if self._is_ours:
            return frame
        if size < TAKEN_FROM or size * TAKEN_FRACTION < _capacity(frame):
            # Writable, because the batches in it are stamped in place.
            return memoryview(bytearray(frame))
        self._take_buffer()
        self._is_ours = True
        return frame

    def keep_rest(self) -> None:
        """Copies the unused bytes, because the connection will reuse the memory of the received view."""
        if not len(self._view):
            # Nothing is left, as after nearly every request.
            self._view = memoryview(b"")
            self._is_ours = True
            return
        if self._partial or not self._has_whole_frame():
            self._fill_partial()
        if not len(self._view):
            self._view = memoryview(b"")
        elif not self._is_ours:
            self._view = memoryview(bytearray(self._view))
        self._is_ours = True

    def _has_whole_frame(self) -> bool:
        return len(self._view) >= LENGTH_SIZE and len(self._view) >= LENGTH_SIZE + self.expected_size

    def _complete_partial(self) -> memoryview | None:
        self._fill_partial()
        if len(self._partial) < LENGTH_SIZE:
            return None
        end = LENGTH_SIZE + self._checked_size(self._partial)
        if len(self._partial) < end:
            return None
        frame = memoryview(self._partial)[LENGTH_SIZE:]
        self._partial = bytearray()
        self.is_inside_a_frame = len(self._view) > 0
        return frame

    def _fill_partial(self) -> None:
        """Moves the bytes of one frame, and none of the next, to `_partial`. The frame's length has not been checked yet."""
        self._move_to_partial(LENGTH_SIZE)
        if len(self._partial) >= LENGTH_SIZE:
            self._move_to_partial(LENGTH_SIZE + self.expected_size)

    def _move_to_partial(self, size: int) -> None:
        missing = max(0, size - len(self._partial))
        self._partial += self._view[:missing]
        self._view = self._view[missing:]

    def _checked_size(self, start: memoryview | bytearray) -> int:
        size: int
        (size,) = _LENGTH.unpack_from(start)
        if size < 0 or size > self._size_max:
            raise FrameTooLarge(f"a frame of {size} bytes, at most {self._size_max} are allowed")
        if size < self._size_min:
            raise RemoteProtocolError(f"a frame of {size} bytes is too short for a header")
        return size


def _capacity(view: memoryview) -> int:
    """Returns the size of the whole buffer that a view is part of."""
    return memoryview(view.obj).nbytes
