"""Checks requests and their responses: I5 (no response before its records are committed), I17 and I18.

Shell of the tests. The handlers of each running server are wrapped in place. An epoch that is current when the request
arrives may be stale by the time it is handled, but a stale epoch never becomes current again. So only a request that was
stale on arrival must be refused.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from common.ids import TopicId, TopicIdPartition
from common.light_tasks import LightTask
from common.net.request_context import Handler, RequestContext
from common.net.request_server import RequestServer
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from controller.quorum_controller import QuorumController
from tests.simulation.checkers.image import ImageChecker, ImageModel
from tests.simulation.violations import InvariantViolated

BEARERS_OF_A_BROKER_EPOCH = (
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
NO_EPOCH = -1
# No client of the simulation waits longer than 30 s. The rest is the time until the server notices that the client has gone.
ANSWER_BOUND_NS = 35_000_000_000


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """A request server and the node it runs on. `controller` is None on a broker's server."""

    node: str
    server: RequestServer
    controller: QuorumController | None = None


@dataclass(slots=True, eq=False)
class _Exchange:
    """A request that has not been answered yet."""

    watched: WatchedServer
    key: ApiKey
    request: Any
    # Describes the sender if its epoch was stale when the request arrived: a newer registration of that broker was
    # committed.
    stale: str | None
    # The partitions for which the request proposes an ISR member with a stale epoch, each with a description of that member.
    stale_members: dict[TopicIdPartition, str]
    begun_ns: int
    # The end of the committed image when the request arrived.
    begun_offset: int


class RequestChecker:
    """Checks requests and responses. `image` checks and holds the committed image. Keeps the first violation in `violation`,
    and the next periodic look raises it."""

    def __init__(self, image: ImageChecker) -> None:
        self.violation: InvariantViolated | None = None
        self._image = image
        self._open: dict[_Exchange, None] = {}

    def watch(self, watched: WatchedServer) -> None:
        """Starts checking every request to this server."""
        server = watched.server
        server.handlers = {key: partial(self._handle, watched, key, handler) for key, handler in server.handlers.items()}

    def forget(self, node: str) -> None:
        """Drops the open requests of a node that was restarted. The process that received them will not answer them."""
        for exchange in [exchange for exchange in self._open if exchange.watched.node == node]:
            del self._open[exchange]

    def check_open(self, now_ns: int, running: Iterable[str]) -> None:
        """I18: no request has waited too long on a node that is alive and not paused. Raises InvariantViolated."""
        nodes = frozenset(running)
        for exchange in self._open:
            if exchange.watched.node not in nodes:
                # Time during which the node is not running does not count.
                exchange.begun_ns = now_ns
            elif now_ns - exchange.begun_ns > ANSWER_BOUND_NS:
                seconds = (now_ns - exchange.begun_ns) / 1e9
                raise InvariantViolated(
                    "I18", f"{exchange.watched.node} has not answered {exchange.key.name} for {seconds:.1f} s"
                )

    # --- one request ---------------------------------------------------------------------------------------------

    def _handle(self, watched: WatchedServer, key: ApiKey, handler: Handler, context: RequestContext, request: Any) -> Any:
        image = self._image.image
        stale, members = _stale_epoch(key, request, image), _stale_members(key, request, image)
        exchange = _Exchange(watched, key, request, stale, members, watched.server.env.now_ns(), self._image.next_offset)
        answer = handler(context, request)
        if isinstance(answer, LightTask):
            answer = answer.future()
        if asyncio.isfuture(answer):
            self._open[exchange] = None
            answer.add_done_callback(partial(self._done, exchange))
            return answer
        if asyncio.iscoroutine(answer):
            self._open[exchange] = None
            return self._awaited(exchange, answer)
        self._judge(exchange, answer)
        return answer

    async def _awaited(self, exchange: _Exchange, answer: Coroutine[Any, Any, Any]) -> Any:
        try:
            response = await answer
        finally:
            self._open.pop(exchange, None)
        self._judge(exchange, response)
        return response

    def _done(self, exchange: _Exchange, answer: "asyncio.Future[Any]") -> None:
        self._open.pop(exchange, None)
        if not answer.cancelled() and answer.exception() is None:
            self._judge(exchange, answer.result())

    def _judge(self, exchange: _Exchange, response: Any) -> None:
        if self.violation is not None:
            return
        if exchange.stale is not None and response.error_code == ErrorCode.NONE:
            self.violation = InvariantViolated("I17", f"{exchange.key.name} of {exchange.stale} was accepted")
        elif (stale := _accepted(exchange.stale_members, response)) is not None:
            self.violation = InvariantViolated("I17", f"an ISR with {stale} was accepted")
        elif self._has_all_committed(exchange.watched.controller):
            early = _not_committed(exchange, response, self._image)
            if early is not None:
                self.violation = InvariantViolated("I5", f"{exchange.key.name} was answered before its commit: {early}")

    def _has_all_committed(self, controller: QuorumController | None) -> bool:
        """Whether the checkers' image contains everything that this controller has committed."""
        return controller is not None and controller.is_active and self._image.next_offset > controller.committed_offset


def _stale_epoch(key: ApiKey, request: Any, image: ImageModel) -> str | None:
    return _staleness(request, image) if key in BEARERS_OF_A_BROKER_EPOCH else None


def _stale_members(key: ApiKey, request: Any, image: ImageModel) -> dict[TopicIdPartition, str]:
    if key is not ApiKey.ALTER_PARTITION:
        return {}
    return {
        TopicIdPartition(TopicId(topic.topic_id), partition.partition_index): stale
        for topic in request.topics
        for partition in topic.partitions
        for member in partition.new_isr_with_epochs
        if member.broker_epoch != NO_EPOCH and (stale := _staleness(member, image)) is not None
    }


def _staleness(claim: Any, image: ImageModel) -> str | None:
    """Describes the broker and the epoch that a request claims, if a newer epoch is registered."""
    known = image.brokers.get(claim.broker_id)
    if known is None or known.epoch <= claim.broker_epoch:
        return None
    return f"broker {claim.broker_id} in epoch {claim.broker_epoch}, registered is {known.epoch},"


def _accepted(stale: Mapping[TopicIdPartition, str], response: Any) -> str | None:
    """Describes the stale ISR member of the first partition that an AlterPartition response accepted although it had to be
    refused."""
    if not stale or response is None or response.error_code != ErrorCode.NONE:
        return None
    accepted = (
        TopicIdPartition(TopicId(topic.topic_id), partition.partition_index)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    )
    return next((stale[key] for key in accepted if key in stale), None)


def _not_committed(exchange: _Exchange, response: Any, checker: ImageChecker) -> str | None:
    """Describes something that the response claims but the committed image does not contain."""
    if response is None or getattr(response, "error_code", None) != ErrorCode.NONE:
        return None
    key, request, image = exchange.key, exchange.request, checker.image
    if key is ApiKey.BROKER_REGISTRATION:
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.epoch < response.broker_epoch:
            return f"broker {request.broker_id} in epoch {response.broker_epoch}"
    elif key is ApiKey.BROKER_HEARTBEAT:
        broker = image.brokers.get(request.broker_id)
        # A response may wait for a commit that also fences the broker again. What it says was true for a moment.
        has_been_fenced = checker.fenced_at.get(request.broker_id, -1) < exchange.begun_offset
        is_fenced = broker is not None and broker.epoch == request.broker_epoch and broker.fenced
        if is_fenced and has_been_fenced and not response.is_fenced:
            return f"broker {request.broker_id} is unfenced"
    elif key is ApiKey.ALTER_PARTITION:
        return _not_committed_isr(response, image)
    return None


def _not_committed_isr(response: Any, image: ImageModel) -> str | None:
    for topic in response.topics:
        for partition in topic.partitions:
            known = image.partitions.get(TopicIdPartition(TopicId(topic.topic_id), partition.partition_index))
            is_accepted = partition.error_code == ErrorCode.NONE
            if is_accepted and known is not None and known.partition_epoch < partition.partition_epoch:
                return f"partition epoch {partition.partition_epoch} of partition {partition.partition_index}"
    return None
