"""Whether what a broker last knew of its leaderships may have ended while its process did not run (core).

A heartbeat's answer is good for one session from when the heartbeat was sent. A broker that runs and cannot reach the
controller serves on, as Apache Kafka's does: what acks=all promises is kept by the ISR. One that was stopped (SIGSTOP, a
frozen virtual machine) over the end of its session comes back to requests that waited in its sockets for a leader that
others have replaced, and must first learn what happened. Easy to get wrong: a request may be looked at before any timer,
so every look counts the time since the last one itself.
"""

from common.time_units import NS_PER_S

# A process that did not look at the clock for so long was stopped. It looks four times as often.
ABSENCE_MIN_NS = NS_PER_S
LOOK_INTERVAL_NS = ABSENCE_MIN_NS // 4


class Lease:
    """`session_timeout_ns` is broker.session.timeout.ms, the same here as at the controller."""

    def __init__(self, session_timeout_ns: int) -> None:
        self._session_timeout_ns = session_timeout_ns
        self._valid_until_ns: int | None = None
        self._last_look_ns: int | None = None
        self.doubted_since_ns: int | None = None
        """Since when it is not known whether this broker still leads what it led; None when it is."""
        self.absence_ns = 0
        """How long the stop was that began or renewed the doubt."""

    def look(self, now_ns: int) -> None:
        """The process runs at this moment."""
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
        """The controller answered what was asked at that time: this broker was not fenced then."""
        until_ns = asked_ns + self._session_timeout_ns
        self._valid_until_ns = until_ns if self._valid_until_ns is None else max(self._valid_until_ns, until_ns)

    def confirm(self, asked_ns: int) -> None:
        """The broker has applied everything that was committed at that time. It ends the doubt unless that is younger."""
        if self.doubted_since_ns is not None and asked_ns >= self.doubted_since_ns:
            self.doubted_since_ns = None
            self.renew(asked_ns)
