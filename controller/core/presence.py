"""For how long this controller's event loop did not run (core).

A broker's silence counts only while the controller could have heard it. When its process is stopped (SIGSTOP, a suspended
virtual machine, a loop that is kept busy), heartbeats wait in its sockets, and every session seems to be over when it goes
on. Easy to get wrong: what the controller waits for is no absence. While a commit takes its time the loop runs, and so do
the sessions; therefore a timer looks at the clock at a fixed pace and waits for nothing else. An operation may run before
that timer does, so every operation looks as well.
"""

from common.time_units import NS_PER_S

# A loop that is late by so much was stopped. It looks four times as often.
ABSENCE_MIN_NS = NS_PER_S
LOOK_INTERVAL_NS = ABSENCE_MIN_NS // 4


class Presence:
    """The looks at the clock. Invariant: between two of them the loop should not take longer than LOOK_INTERVAL_NS."""

    def __init__(self, now_ns: int) -> None:
        self._last_look_ns = now_ns

    def look(self, now_ns: int) -> int:
        """The loop runs at this moment. Returns for how long it did not since the last look; 0 when that was no absence."""
        late_ns = now_ns - self._last_look_ns - LOOK_INTERVAL_NS
        self._last_look_ns = now_ns
        return late_ns if late_ns >= ABSENCE_MIN_NS else 0
