"""Warnings about peers, at most a few a second (shell without I/O).

A client that speaks another protocol, for example TLS, fails at once and tries again: thousands of times a second, for as
long as nobody looks. One such client would fill the disk of the log with identical lines. So each event of a listener is
logged BURST times at once and then once a second, with the number of those that were not logged.
"""

from typing import Final

from common.environment.interface import Environment
from common.time_units import NS_PER_S

# Enough to name each peer of a burst, for example when many clients read too slowly at once.
BURST: Final = 1_000
INTERVAL_NS: Final = NS_PER_S


class PeerWarnings:
    """The warnings of one listener."""

    def __init__(self, env: Environment, listener_name: str) -> None:
        self._env = env
        self._listener_name = listener_name
        # By event: when all BURST lines may be logged again, and how many were not logged since the last line.
        self._rested_ns: dict[str, int] = {}
        self._unlogged: dict[str, int] = {}

    def warn(self, event: str, *, peer: str, reason: str) -> None:
        """Logs the event, unless it is too frequent."""
        now_ns = self._env.now_ns()
        rested_ns = max(self._rested_ns.get(event, now_ns), now_ns) + INTERVAL_NS
        if rested_ns - now_ns > BURST * INTERVAL_NS:
            self._unlogged[event] = self._unlogged.get(event, 0) + 1
            return
        self._rested_ns[event] = rested_ns
        unlogged = self._unlogged.pop(event, 0)
        fields = {"unlogged": unlogged} if unlogged else {}
        self._env.log.warning(event, listener=self._listener_name, peer=peer, reason=reason, **fields)
