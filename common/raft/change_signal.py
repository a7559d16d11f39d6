"""Lets a long poll wait for a change, without missing a change that happens while the poll looks at the state (shell)."""

import asyncio

from common.environment.interface import Environment


class ChangeSignal:
    """Counts changes. Read `count` first, then look at the state, then wait with that count."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        # The number of changes so far. Only `notify` increments it.
        self.count = 0
        # The future of each `wait` in progress, oldest first, keyed by a number from `_sequence`. `notify` empties the dict;
        # a `wait` that times out or is cancelled removes its own entry.
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._sequence = 0

    def notify(self) -> None:
        self.count += 1
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)

    async def wait(self, seen_count: int, *, deadline_ns: int) -> bool:
        """Waits until `count` differs from `seen_count`. Returns False if the deadline comes first."""
        if self.count != seen_count:
            return True
        if self._env.now_ns() >= deadline_ns:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        number = self._sequence
        self._waiting[number] = future

        def time_out() -> None:
            if not future.done():
                future.set_result(None)

        cancel_timer = self._env.call_at(deadline_ns, time_out)
        try:
            await future
        finally:
            cancel_timer()
            self._waiting.pop(number, None)
        return self.count != seen_count
