"""The one queue through which everything passes that reads or changes the controller's state (shell).

Answers to Kafka's KafkaEventQueue. One consumer takes one event at a time, in order, and gives the loop a turn after each,
so that commits, connections and timers get theirs however many requests wait. Easy to get wrong: an event that has waited
beyond its deadline is answered, not carried out; its sender has given up and will ask again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from common.environment.interface import Environment


@dataclass(frozen=True, slots=True)
class ControllerRequest:
    """`carry_out` is called when its turn comes, `time_out` instead of it when that is after the deadline."""

    name: str
    carry_out: Callable[[], None]
    time_out: Callable[[], None]
    queued_ns: int
    deadline_ns: int | None


@dataclass(slots=True)
class QueueStatistics:
    """What the metrics tell of the queue. Counts since the start; the times are those of the slowest since last asked."""

    started_count: int = 0
    timed_out_count: int = 0
    queue_time_max_ns: int = 0
    processing_time_max_ns: int = 0


class EventQueue:
    """First in, first out."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._waiting: deque[ControllerRequest] = deque()
        self._arrived = asyncio.Event()
        self.statistics = QueueStatistics()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(
        self, name: str, carry_out: Callable[[], None], time_out: Callable[[], None], deadline_ns: int | None = None
    ) -> None:
        """Queues an event; returns at once."""
        self._waiting.append(ControllerRequest(name, carry_out, time_out, self._env.now_ns(), deadline_ns))
        self._arrived.set()

    async def run(self) -> None:
        """Consumes until cancelled. Whatever an event raises ends it, and with it the daemon."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                self._consume(self._waiting.popleft())
                await loop_turn()
            self._arrived.clear()

    def _consume(self, event: ControllerRequest) -> None:
        begun_ns = self._env.now_ns()
        statistics = self.statistics
        statistics.queue_time_max_ns = max(statistics.queue_time_max_ns, begun_ns - event.queued_ns)
        if event.deadline_ns is not None and begun_ns >= event.deadline_ns:
            statistics.timed_out_count += 1
            event.time_out()
            return
        statistics.started_count += 1
        event.carry_out()
        taken_ns = self._env.now_ns() - begun_ns
        statistics.processing_time_max_ns = max(statistics.processing_time_max_ns, taken_ns)


async def loop_turn() -> None:
    """Lets everything else that is ready on the loop go first."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(_wake, turn)
    await turn


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
