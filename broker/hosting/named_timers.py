"""Timers by name, of which each name has at most one (shell).

What is asked for again and again (a retry, a note to the controller) is asked for once. Easy to get wrong: after the orderly
end has begun nothing may be started any more, so from then on timers are not even set.
"""

from collections.abc import Callable

from common.environment.interface import Environment
from common.time_units import NS_PER_MS

# Kafka allows an interval of 0 and means "as often as possible"; it must not become a busy loop.
_INTERVAL_OF_ZERO_MS = 1000


class NamedTimers:
    """See the module's docstring."""

    def __init__(self, env: Environment) -> None:
        self.is_stopped = False
        self._env = env
        self._timers: dict[str, Callable[[], None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def after(self, name: str, delay_ns: int, act: Callable[[], None]) -> None:
        """Acts once, after this time; in place of what the name stood for before."""

        def fire() -> None:
            self._timers.pop(name, None)
            act()

        if not self.is_stopped:
            self._timers[name] = self._env.call_at(self._env.now_ns() + delay_ns, fire)

    def every(self, name: str, interval_ms: int, act: Callable[[], None]) -> None:
        """Acts again and again, for the first time after one interval."""

        def tick() -> None:
            act()
            self.after(name, delay_ns, tick)

        delay_ns = (interval_ms or _INTERVAL_OF_ZERO_MS) * NS_PER_MS
        self.after(name, delay_ns, tick)

    def stop(self) -> None:
        """Cancels all of them; later ones are not set."""
        self.is_stopped = True
        for cancel in self._timers.values():
            cancel()
        self._timers.clear()
