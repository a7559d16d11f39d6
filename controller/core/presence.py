"""Measures for how long this controller's event loop did not run (core).

A broker's silence counts against its session only during the time in which the controller could receive heartbeats. If the
controller's process is stopped (SIGSTOP, a suspended virtual machine, a blocked event loop), heartbeats pile up in its
sockets, and when the process resumes, every session looks expired.

Waiting for a slow commit is not an absence: the event loop runs meanwhile, and heartbeats arrive. A dedicated timer
therefore checks the clock at a fixed interval and waits for nothing else. Operations check the clock too, since after a stop
an operation may run before the timer fires.
"""

from common.time_units import NS_PER_S

# An event loop that is late by this much counts as stopped. The timer checks four times as often.
ABSENCE_MIN_NS = NS_PER_S
LOOK_INTERVAL_NS = ABSENCE_MIN_NS // 4


class Presence:
    """Remembers the last look at the clock. While the event loop runs, it calls `look` at least every LOOK_INTERVAL_NS, plus
    scheduling delay."""

    def __init__(self, now_ns: int) -> None:
        # The last time the event loop is known to have run. Every call of `look` moves it to the present.
        self._last_look_ns = now_ns

    def look(self, now_ns: int) -> int:
        """Returns for how long the event loop was stopped since the last look, 0 if it was not. Called whenever the event
        loop runs."""
        late_ns = now_ns - self._last_look_ns - LOOK_INTERVAL_NS
        self._last_look_ns = now_ns
        return late_ns if late_ns >= ABSENCE_MIN_NS else 0
