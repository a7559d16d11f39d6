"""Cuts what arrives on a connection into frames whose memory stays valid (core).

Kafka's `NetworkReceive`, without its allocation by the length that a peer claims: a partial frame takes what has arrived, no
more. A large frame that lies whole in one received view is not copied: the view is taken from the connection. The easy
thing to get wrong: the view is only ours during `data_received`, so `keep_rest` must come before that call returns.
"""

from collections.abc import Callable
from typing import Final

from common.protocol.errors import FrameTooLarge, RemoteProtocolError
from common.protocol.framing import LENGTH_SIZE

# Below this a copy costs less than a new receive buffer.
TAKEN_FROM: Final = 64 * 1024
# A frame that keeps a buffer alive fills at least this part of it, or memory would be held for nothing.
TAKEN_FRACTION: Final = 4


class FrameReader:
    """Frames of one connection. `size_min` is the smallest that can be anything, `size_max` the largest allowed."""

    def __init__(self, *, size_min: int, size_max: int, take_buffer: Callable[[], None]) -> None:
        self._size_min = size_min
        self._size_max = size_max
        self._take_buffer = take_buffer
        self._view = memoryview(b"")
        # Whether `_view` may be kept: it is memory of our own, or it was taken from the connection.
        self._is_ours = True
        # The beginning of a frame, with its length, when that frame did not arrive in one piece.
        self._partial = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """What waits here for the rest of its frame, or to be asked for."""
        return len(self._partial) + len(self._view)

    @property
    def is_inside_a_frame(self) -> bool:
        """True after `next_frame` gave None although bytes are there."""
        return bool(self._partial) or len(self._view) > 0

    @property
    def expected_size(self) -> int:
        """How long the frame that is coming says it is; 0 as long as it has not said."""
        start = self._partial if self._partial else self._view
        return int.from_bytes(start[:LENGTH_SIZE], "big") if len(start) >= LENGTH_SIZE else 0

    def receive(self, view: memoryview) -> None:
        """Takes in a view that is valid until `keep_rest` is called."""
        if len(self._view):
            # More came although the last bytes are not used up yet: rare, for reading is paused then.
            self._view = memoryview(bytes(self._view) + bytes(view))
            self._is_ours = True
        else:
            self._view = view
            self._is_ours = False

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, in memory that stays as it is; None when more must arrive first.

        Raises FrameTooLarge, or RemoteProtocolError for a frame too short to be one.
        """
        if self._partial:
            return self._complete_partial()
        if len(self._view) < LENGTH_SIZE:
            return None
        end = LENGTH_SIZE + self._checked_size(self._view)
        if len(self._view) < end:
            return None
        frame = self._view[LENGTH_SIZE:end]
        self._view = self._view[end:]
        if self._is_ours:
            return frame
        if len(frame) < TAKEN_FROM or len(frame) * TAKEN_FRACTION < _capacity(frame):
            return memoryview(bytes(frame))
        self._take_buffer()
        self._is_ours = True
        return frame

    def keep_rest(self) -> None:
        """Saves what is not used up, for the view that was received goes back to the connection."""
        if self._partial or not self._has_whole_frame():
            self._fill_partial()
        if not len(self._view):
            self._view = memoryview(b"")
        elif not self._is_ours:
            self._view = memoryview(bytes(self._view))
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
        return frame

    def _fill_partial(self) -> None:
        """Moves what there is of one frame and nothing of the next. The length may be nonsense here: it is not trusted."""
        self._move_to_partial(LENGTH_SIZE)
        if len(self._partial) >= LENGTH_SIZE:
            self._move_to_partial(LENGTH_SIZE + self.expected_size)

    def _move_to_partial(self, size: int) -> None:
        missing = max(0, size - len(self._partial))
        self._partial += self._view[:missing]
        self._view = self._view[missing:]

    def _checked_size(self, start: memoryview | bytearray) -> int:
        size = int.from_bytes(start[:LENGTH_SIZE], "big", signed=True)
        if size < 0 or size > self._size_max:
            raise FrameTooLarge(f"a frame of {size} bytes, at most {self._size_max} are allowed")
        if size < self._size_min:
            raise RemoteProtocolError(f"a frame of {size} bytes is too short for a header")
        return size


def _capacity(view: memoryview) -> int:
    """The size of the whole buffer that a view is a part of."""
    return memoryview(view.obj).nbytes
