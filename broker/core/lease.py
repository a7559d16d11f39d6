"""Detects that the broker's session may have ended while its process was stopped (core).

A heartbeat response is good for one session timeout, counted from when the heartbeat was sent. A broker that keeps running
but cannot reach the controller goes on serving, as Apache Kafka's does: the ISR protects what acks=all promises. A broker
that was stopped (SIGSTOP, a frozen virtual machine) across the end of its session is different. The requests in its socket
buffers were meant for a leader that may have been replaced since, so it must catch up with the metadata before it answers.

After a stop, a request may be handled before any timer fires. So every call of `look` measures the time since the previous
call; a timer alone would come too late.
"""

from common.time_units import NS_PER_S

# A process that has not called `look` for this long must have been suspended. A running process calls it every
# LOOK_INTERVAL_NS.
ABSENCE_MIN_NS = NS_PER_S
LOOK_INTERVAL_NS = ABSENCE_MIN_NS // 4


class Lease:
    """`session_timeout_ns` is broker.session.timeout.ms, which must have the same value on the controllers."""

    def __init__(self, session_timeout_ns: int) -> None:
        self._session_timeout_ns = session_timeout_ns
        # The end of the session as far as we know. Invariant: never goes back. Changes when: the controller answers.
        # None before the first answer; a broker without a session has nothing to lose.
        self._valid_until_ns: int | None = None
        # The previous call of `look`; None before the first.
        self._last_look_ns: int | None = None
        self.doubted_since_ns: int | None = None
        """Since when we do not know whether this broker still leads what it led; None when there is no doubt."""
        self.absence_ns = 0
        """How long the process was stopped when the doubt began or was last renewed."""

    def look(self, now_ns: int) -> None:
        """Notes that the process is running now, and begins or renews the doubt if it was stopped since the last call."""
        last_ns, self._last_look_ns = self._last_look_ns, now_ns
        if last_ns is None or now_ns - last_ns < ABSENCE_MIN_NS:
            return
        if self.doubted_since_ns is not None or self._ended_in(last_ns, now_ns):
            self.doubted_since_ns = now_ns
            self.absence_ns = now_ns - last_ns

    def _ended_in(self, last_ns: int, now_ns: int) -> bool:
        if self._valid_until_ns is None or now_ns <= self._valid_until_ns:
            return False
        return last_ns <= self._valid_until_ns or now_ns - last_ns >= self._session_timeout_ns

    def renew(self, asked_ns: int) -> None:
        """Extends the session: the controller answered a request sent at `asked_ns`, so the broker was not fenced then."""
        until_ns = asked_ns + self._session_timeout_ns
        self._valid_until_ns = until_ns if self._valid_until_ns is None else max(self._valid_until_ns, until_ns)

    def confirm(self, asked_ns: int) -> None:
        """Ends the doubt if it began no later than `asked_ns`: the broker has applied everything committed by that time."""
        if self.doubted_since_ns is not None and asked_ns >= self.doubted_since_ns:
            self.doubted_since_ns = None
            self.renew(asked_ns)
