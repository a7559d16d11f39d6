"""Gives ids to producers, and asks the controller for blocks of them in time (shell over core/producer_id_blocks).

Counterpart of Kafka's ProducerIdManager. A broker asks for its first block when the first producer comes, and for another
one shortly before a block is used up. A producer that finds no id waits a moment for the block, unlike in Kafka: librdkafka
would retry only half a second later. If the block does not come in time, the producer gets an error that every client
retries.
"""

import asyncio
import contextlib
from collections.abc import Callable

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from broker.core.producer_id_blocks import InvalidBlock, ProducerIdBlocks
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId
from common.protocol.errors import ApiError, ErrorCode, error_name
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from common.time_units import NS_PER_MS

REQUEST_TIMEOUT_NS = 60_000 * NS_PER_MS
RETRY_BACKOFF_NS = 50 * NS_PER_MS
# The time for which a producer waits. It must be short, because later requests of the same connection wait as well.
WAIT_NS = 1_000 * NS_PER_MS


class ProducerIds:
    """See the module docstring. `broker_epoch` returns the current epoch, or None before the registration."""

    def __init__(
        self,
        env: Environment,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        channel: ControllerChannel,
        task_group: asyncio.TaskGroup,
    ) -> None:
        self._env = env
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._task_group = task_group
        self._blocks = ProducerIdBlocks()
        # The request under way, which sets the event when it has ended.
        self._request: asyncio.Event | None = None
        # After a refused request the next one is sent no earlier than this.
        self._retry_ns = 0

    async def take(self) -> int:
        """Returns an id that no other producer has. Raises ApiError(COORDINATOR_LOAD_IN_PROGRESS) if there is none: older
        clients treat a timeout as fatal but retry this error."""
        producer_id = self._take()
        if producer_id is None and self._request is not None:
            with contextlib.suppress(TimeoutError):
                async with self._env.timeout_at(self._env.now_ns() + WAIT_NS):
                    await self._request.wait()
            producer_id = self._take()
        if producer_id is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller has not allocated producer ids yet")
        return producer_id

    def _take(self) -> int | None:
        producer_id = self._blocks.take()
        if self._blocks.wants_block and self._request is None and self._env.now_ns() >= self._retry_ns:
            self._request = asyncio.Event()
            self._task_group.create_task(self._ask(self._request))
        return producer_id

    async def _ask(self, ended: asyncio.Event) -> None:
        try:
            reason = await self._ask_once()
        finally:
            self._request = None
            ended.set()
        if reason is not None:
            self._env.log.warning("producer_ids_not_allocated", reason=reason)
            self._retry_ns = self._env.now_ns() + RETRY_BACKOFF_NS

    async def _ask_once(self) -> str | None:
        """Adds a block, or returns the reason why there is none."""
        broker_epoch = self._broker_epoch()
        if broker_epoch is None:
            return "this broker is not registered"
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        try:
            response: AllocateProducerIdsResponse = await self._channel.send(
                request, deadline_ns=self._env.now_ns() + REQUEST_TIMEOUT_NS
            )
            if response.error_code != ErrorCode.NONE:
                return error_name(response.error_code)
            self._blocks.add(response.producer_id_start, response.producer_id_len)
        except (ControllerUnavailable, InvalidBlock) as error:
            return str(error)
        return None
