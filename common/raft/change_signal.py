"""Lets long polls wait for "something has changed" without missing what changes while they look (shell)."""

import asyncio

from common.environment.interface import Environment


class ChangeSignal:
    """Counts changes. Read `count`, look at the state, then wait for a count that differs from the one read."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.count = 0
        # Insertion ordered; each entry takes itself out.
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._sequence = 0

    def notify(self) -> None:
        self.count += 1
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)

    async def wait(self, seen_count: int, *, deadline_ns: int) -> bool:
        """Waits until `count` differs from `seen_count`. False when the deadline came first."""
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
