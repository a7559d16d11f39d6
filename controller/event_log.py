"""Logs the events of the controller's operations (shell).

An operation on very many partitions has as many events. Its first events are logged at once; the others follow in slices,
in the order of the operations, and the event loop runs other tasks between two slices.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from common.environment.interface import Environment
from common.time_units import NS_PER_MS
from controller.core.result import ControllerEvent
from controller.event_queue import loop_turn

# How many events are logged before the event loop may run other tasks.
EVENTS_PER_SLICE = 100


class EventLog:
    """The events that are logged, and those that wait for the next slice. `run` logs these."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        # The names and fields of the events that wait, in order.
        self._unlogged: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._has_unlogged = asyncio.Event()

    def log(self, events: Sequence[ControllerEvent], begun_ns: int) -> None:
        """Logs the events of an operation that began at `begun_ns`. Those about its commit get the time since then."""
        elapsed_ms = round((self._env.now_ns() - begun_ns) / NS_PER_MS, 3)
        for event in events:
            fields = {**event.fields, "elapsed_ms": elapsed_ms} if event.is_about_commit else event.fields
            self._unlogged.append((event.name, fields))
        self._log_slice()
        if self._unlogged:
            self._has_unlogged.set()

    async def run(self) -> None:
        """Logs what waits, until cancelled."""
        while True:
            await self._has_unlogged.wait()
            while self._unlogged:
                self._log_slice()
                await loop_turn()
            self._has_unlogged.clear()

    def _log_slice(self) -> None:
        for _ in range(min(len(self._unlogged), EVENTS_PER_SLICE)):
            name, fields = self._unlogged.popleft()
            self._env.log.info(name, **fields)
