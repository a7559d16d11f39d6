"""Timers with names, at most one per name (shell).

Callers check by name whether a retry or a notification is already scheduled. Once the shutdown has begun, nothing new may
start, so `stop` cancels all timers, and from then on no timer is set.
"""

from collections.abc import Callable

from common.environment.interface import Environment
from common.time_units import NS_PER_MS

# Used for an interval of 0. Kafka allows 0 and takes it as "as often as possible"; here that would be a busy loop.
_INTERVAL_OF_ZERO_MS = 1000


class NamedTimers:
    """See the module docstring."""

    def __init__(self, env: Environment) -> None:
        self.is_stopped = False
        self._env = env
        self._timers: dict[str, Callable[[], None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def after(self, name: str, delay_ns: int, act: Callable[[], None]) -> None:
        """Calls `act` once, after this delay."""

        def fire() -> None:
            self._timers.pop(name, None)
            act()

        if not self.is_stopped:
            self._timers[name] = self._env.call_at(self._env.now_ns() + delay_ns, fire)

    def every(self, name: str, interval_ms: int, act: Callable[[], None]) -> None:
        """Calls `act` periodically, for the first time after one interval."""

        def tick() -> None:
            act()
            self.after(name, delay_ns, tick)

        delay_ns = (interval_ms or _INTERVAL_OF_ZERO_MS) * NS_PER_MS
        self.after(name, delay_ns, tick)

    def stop(self) -> None:
        """Cancels all timers. From then on `after` and `every` do nothing."""
        self.is_stopped = True
        for cancel in self._timers.values():
            cancel()
        self._timers.clear()
