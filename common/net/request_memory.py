"""Limits the memory that the requests of one server hold, and decides which connections may read above the limit (core).

Counterpart of Kafka's `queued.max.request.bytes`. Rules:

1. Partial frames count, and so do requests that are being handled. The frame of a request stops counting when its handler
   releases it.
2. At or above the limit, connections stop reading.
3. One connection inside a frame is the exception: it keeps reading until its frame is complete. Otherwise half-received
   frames could fill the memory and wait for each other forever. So one frame, but never more, can exceed the limit.
4. A request that waits for log directories counts for each of them until that directory has written its part. The share of
   a directory is as much as is free, so one slow disk takes at most half of the memory, two take a third each, and some
   always stays free for the others. If requests of another kind fill the memory, each directory still has a small share.
5. While a directory is over its share, connections with requests that wait for it do not read.
6. At twice its share, a directory takes no further request. Rule 5 acts only on connections whose requests already wait, so
   without this rule many connections with one request each could fill the memory.
"""

from collections.abc import Callable
from typing import Final, Protocol

from common.ids import DirectoryId

# Rule 4: a directory may always hold this fraction of the limit.
_SHARE_FRACTION_MIN: Final = 16


class Reader(Protocol):
    """A connection, as seen by RequestMemory."""

    def memory_is_free(self) -> None:
        """Called once after a refusal: the connection may try to read again."""


class RequestMemory:
    """The bytes in use and the connections that wait for memory. Calls `full` when the limit is reached."""

    def __init__(self, limit_bytes: int, full: Callable[[], None]) -> None:
        self._limit_bytes = limit_bytes
        self._full = full
        # The connections that were refused, in the order of refusal, and whether each is inside a frame. Emptied when memory
        # is free again.
        self._waiting: dict[Reader, bool] = {}
        # The one connection that may read above the limit. Invariant: not None while a waiting connection is inside a frame.
        # Changes when a connection asks above the limit and in `pass_on`.
        self._favoured: Reader | None = None
        # The sum of all differences passed to `change`.
        self.used_bytes = 0
        # The bytes of the requests that wait for each directory. Without zeros. A request for several directories counts in
        # full for each, because the slowest of them keeps all of it in memory.
        self._waiting_bytes: dict[DirectoryId, int] = {}

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= self._limit_bytes

    @property
    def is_half_empty(self) -> bool:
        """Whether so much is free that no directory can be over its share."""
        return 2 * self.used_bytes <= self._limit_bytes

    def may_read(self, reader: Reader, *, is_inside_a_frame: bool) -> bool:
        """Whether the connection may read now. After a refusal, `memory_is_free` is called when it may try again."""
        if self.used_bytes < self._limit_bytes or reader is self._favoured:
            return True
        if self._favoured is None and is_inside_a_frame:
            self._favoured = reader
            self._waiting.pop(reader, None)
            return True
        self._waiting[reader] = is_inside_a_frame
        return False

    def change(self, difference_bytes: int) -> None:
        """Adds the difference to the bytes in use. Wakes all waiting connections if the result is below the limit."""
        was_full = self.used_bytes >= self._limit_bytes
        self.used_bytes += difference_bytes
        if self.used_bytes >= self._limit_bytes:
            if not was_full:
                self._full()
        elif self._waiting:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.memory_is_free()

    def wait_for(self, directory_id: DirectoryId, size: int) -> None:
        """Notes that a request of this size waits for the directory."""
        self._waiting_bytes[directory_id] = self._waiting_bytes.get(directory_id, 0) + size

    def waited_for(self, directory_id: DirectoryId, size: int) -> None:
        """Notes that a request of this size no longer waits for the directory."""
        left_bytes = self._waiting_bytes[directory_id] - size
        assert left_bytes >= 0
        if left_bytes:
            self._waiting_bytes[directory_id] = left_bytes
        else:
            del self._waiting_bytes[directory_id]

    def is_over_share(self, directory_id: DirectoryId) -> bool:
        """Whether connections with requests that wait for this directory must not read (rule 5)."""
        return self._waiting_bytes.get(directory_id, 0) > self._share_bytes()

    def has_room_for(self, directory_id: DirectoryId) -> bool:
        """Whether the directory may take another request (rule 6)."""
        waiting_bytes = self._waiting_bytes.get(directory_id)
        # Compared with what is free first, because that is nearly always enough.
        return (
            waiting_bytes is None
            or waiting_bytes <= 2 * (self._limit_bytes - self.used_bytes)
            or waiting_bytes <= 2 * self._share_bytes()
        )

    def _share_bytes(self) -> int:
        return max(self._limit_bytes - self.used_bytes, self._limit_bytes // _SHARE_FRACTION_MIN)

    def pass_on(self, reader: Reader) -> None:
        """If this connection may read above the limit, passes that right on to the next waiting connection inside a frame.

        Called when this connection has no partial frame, or cannot read the rest of its frame now.
        """
        if reader is not self._favoured:
            return
        self._favoured = next((waiting for waiting, is_inside in self._waiting.items() if is_inside), None)
        if self._favoured is not None:
            del self._waiting[self._favoured]
            self._favoured.memory_is_free()

    def forget(self, reader: Reader) -> None:
        """Removes a closed connection."""
        self._waiting.pop(reader, None)
        self.pass_on(reader)
