"""How much memory the requests of one server may hold, and who may go on reading when it is used up (core).

Kafka's `queued.max.request.bytes`. Partial frames and requests that are being handled count, without their bytes once the
handler has let go of those. Above the limit one connection at a time goes on, until its frame is whole: if none did,
frames that are all half there would wait for each other for ever. So the limit can be exceeded by one frame and never by
more.
"""

from collections.abc import Callable
from typing import Protocol


class Reader(Protocol):
    """A connection as the memory sees it."""

    def memory_is_free(self) -> None:
        """It may read again; called once after a refusal."""


class RequestMemory:
    """Bytes in use, and the connections that wait for some. `full` is called when the limit is reached."""

    def __init__(self, limit_bytes: int, full: Callable[[], None]) -> None:
        self._limit_bytes = limit_bytes
        self._full = full
        # Who waits, in the order in which they began to, and whether they are inside a frame.
        self._waiting: dict[Reader, bool] = {}
        # Invariant: who is inside a frame and waits, waits for this one.
        self._favoured: Reader | None = None
        self.used_bytes = 0

    def may_read(self, reader: Reader, *, is_inside_a_frame: bool) -> bool:
        """Whether the connection may read now. After False it is told by `memory_is_free`."""
        if self.used_bytes < self._limit_bytes or reader is self._favoured:
            return True
        if self._favoured is None and is_inside_a_frame:
            self._favoured = reader
            self._waiting.pop(reader, None)
            return True
        self._waiting[reader] = is_inside_a_frame
        return False

    def change(self, difference_bytes: int) -> None:
        """Takes or gives back memory."""
        was_full = self.used_bytes >= self._limit_bytes
        self.used_bytes += difference_bytes
        if self.used_bytes >= self._limit_bytes:
            if not was_full:
                self._full()
        elif self._waiting:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.memory_is_free()

    def pass_on(self, reader: Reader) -> None:
        """The connection has no partial frame, or cannot go on with it now: the favour passes to the next one."""
        if reader is not self._favoured:
            return
        self._favoured = next((waiting for waiting, is_inside in self._waiting.items() if is_inside), None)
        if self._favoured is not None:
            del self._waiting[self._favoured]
            self._favoured.memory_is_free()

    def forget(self, reader: Reader) -> None:
        """The connection is gone."""
        self._waiting.pop(reader, None)
        self.pass_on(reader)
