"""The queue of all controller operations (shell).

Counterpart of Kafka's KafkaEventQueue. A single consumer takes one event at a time, in order. After each event it yields to
the event loop, so that commits, connections and timers make progress however many requests are queued. A long event yields
to it as well, but the next event begins only when it has ended. An event past its deadline is not carried out but answered
with a timeout: its sender has given up and will retry.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from common.environment.interface import Environment


@dataclass(frozen=True, slots=True)
class ControllerRequest:
    """One queued event. The consumer calls `carry_out`, or `time_out` if the deadline has passed when the event's turn
    comes."""

    name: str
    carry_out: Callable[[], Awaitable[None]]
    time_out: Callable[[], None]
    queued_ns: int
    deadline_ns: int | None
    # Answers the event before its turn, if it can. None if the event always has to wait for its turn.
    is_answered_early: Callable[[], bool] | None


@dataclass(slots=True)
class QueueStatistics:
    """The queue's metrics. Each count covers the time since the process started, each maximum the time since the metrics
    were last read."""

    started_count: int = 0
    timed_out_count: int = 0
    queue_time_max_ns: int = 0
    processing_time_max_ns: int = 0


class EventQueue:
    """A FIFO queue with one consumer, `run`."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._waiting: deque[ControllerRequest] = deque()
        self._arrived = asyncio.Event()
        self.statistics = QueueStatistics()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(
        self,
        name: str,
        carry_out: Callable[[], Awaitable[None]],
        time_out: Callable[[], None],
        *,
        deadline_ns: int | None = None,
        is_answered_early: Callable[[], bool] | None = None,
    ) -> None:
        """Queues an event and returns at once."""
        event = ControllerRequest(name, carry_out, time_out, self._env.now_ns(), deadline_ns, is_answered_early)
        self._waiting.append(event)
        self._arrived.set()

    def answer_early(self) -> None:
        """Answers the waiting events that can be answered before their turn. Called by a long event between its slices."""
        left = [event for event in self._waiting if event.is_answered_early is None or not event.is_answered_early()]
        self._waiting.clear()
        self._waiting.extend(left)

    async def run(self) -> None:
        """Consumes events until cancelled. An exception raised by an event ends the consumer, and with it the daemon."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                await self._consume(self._waiting.popleft())
                await loop_turn()
            self._arrived.clear()

    async def _consume(self, event: ControllerRequest) -> None:
        begun_ns = self._env.now_ns()
        statistics = self.statistics
        statistics.queue_time_max_ns = max(statistics.queue_time_max_ns, begun_ns - event.queued_ns)
        if event.deadline_ns is not None and begun_ns >= event.deadline_ns:
            statistics.timed_out_count += 1
            event.time_out()
            return
        statistics.started_count += 1
        await event.carry_out()
        taken_ns = self._env.now_ns() - begun_ns
        statistics.processing_time_max_ns = max(statistics.processing_time_max_ns, taken_ns)


async def loop_turn() -> None:
    """Yields to everything else that is ready on the event loop."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(_wake, turn)
    await turn


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
