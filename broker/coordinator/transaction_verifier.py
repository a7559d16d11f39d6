"""Asks transaction coordinators whether partitions are in open transactions, or to add them (shell, KIP-890).

Counterpart of the sending part of Kafka's AddPartitionsToTxnManager. What is asked together, and what an answer means, is
decided in `core/transactions/verification.py`. The coordinator is the leader of the partition of `__transaction_state` that
the transactional id belongs to. If that is this broker, it is asked without a connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from broker.coordinator.broker_channels import BrokerChannels
from broker.coordinator.core.group_partition import TRANSACTION_STATE_TOPIC
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.transactions.verification import (
    AddRetries,
    Question,
    VerificationCounts,
    Verifications,
    Verified,
)
from broker.core.verification_guards import VerificationGuard
from common.configuration.server import ServerConfig
from common.environment.interface import Environment
from common.ids import BrokerId
from common.metadata.state import MetadataState
from common.net.node_channel import ChannelError, NotServed
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from common.time_units import NS_PER_MS, NS_PER_S

# The first version in which a broker can ask for verification.
VERSION = 4
# Kafka's request.timeout.ms.
REQUEST_TIMEOUT_NS = 30 * NS_PER_S

OnVerified = Callable[[ErrorCode], None]
AskHere = Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]


class TransactionVerifier:
    """See the module docstring. `is_enabled` is `transaction.partition.verification.enable`. `attach` must be called before
    the first question."""

    def __init__(
        self,
        env: Environment,
        state: MetadataState,
        *,
        broker_id: BrokerId,
        key_partitions: KeyPartitions,
        channels: BrokerChannels,
        is_enabled: Callable[[], bool],
        retries: AddRetries,
        task_group: asyncio.TaskGroup,
    ) -> None:
        self._env = env
        self._state = state
        self._broker_id = broker_id
        self._key_partitions = key_partitions
        self._channels = channels
        self._is_enabled = is_enabled
        self._task_group = task_group
        self._verifications = Verifications(retries)
        self._backoff_ns = retries.backoff_ns
        self._ask_here: AskHere | None = None
        # The coordinators that have a task which sends their questions.
        self._sending: set[BrokerId] = set()
        self._is_closed = False
        # Why a coordinator did not answer, as last logged, so that retries do not log it again. An answer removes the entry.
        self._troubles: dict[BrokerId, str] = {}
        # Cancels the timer after which questions are asked again.
        self._cancel_again: Callable[[], None] | None = None

    def attach(self, ask_here: AskHere) -> None:
        """Connects the verifier with the coordinator of this broker."""
        self._ask_here = ask_here

    @property
    def is_enabled(self) -> bool:
        """Whether transactional batches have to be verified now."""
        return self._is_enabled()

    @property
    def counts(self) -> VerificationCounts:
        return self._verifications.counts

    def verify(self, question: Question, guard: VerificationGuard, on_verified: OnVerified) -> None:
        """Calls `on_verified` once with the coordinator's answer: NONE, or why the batch may not be appended. Never calls it
        before this method has returned."""
        coordinator = self._coordinator(question.transactional_id)
        if coordinator is None:
            asyncio.get_running_loop().call_soon(on_verified, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._verifications.ask(coordinator, question, guard, on_verified, now_ns=self._env.now_ns())
        self._begin_sending(coordinator)

    def _begin_sending(self, coordinator: BrokerId) -> None:
        if coordinator not in self._sending:
            # The task begins after this step, so what a whole Produce has to ask goes in one request.
            self._sending.add(coordinator)
            self._task_group.create_task(self._send_all(coordinator), name=f"verify-{coordinator}")

    def close(self) -> None:
        """Ends the connections. What is still to be asked stays open."""
        self._is_closed = True
        if self._cancel_again is not None:
            self._cancel_again()
        self._channels.close()

    def _coordinator(self, transactional_id: str) -> BrokerId | None:
        found = self._key_partitions.find(TRANSACTION_STATE_TOPIC, transactional_id)
        partition = None if found is None else self._state.partition(*found)
        registration = None if partition is None else self._state.brokers.get(partition.leader)
        return None if partition is None or registration is None or registration.fenced else partition.leader

    async def _send_all(self, coordinator: BrokerId) -> None:
        try:
            while (request := self._verifications.next_request(coordinator)) is not None:
                _notify(await self._ask(coordinator, request))
                # Not only after the last request: while producers ask all the time, there is always a next one.
                self._maybe_ask_again_later()
        finally:
            self._sending.discard(coordinator)

    def _maybe_ask_again_later(self) -> None:
        if self._verifications.has_to_ask_again and self._cancel_again is None and not self._is_closed:
            self._cancel_again = self._env.call_at(self._env.now_ns() + self._backoff_ns, self._ask_again)

    def _ask_again(self) -> None:
        self._cancel_again = None
        coordinators, verified = self._verifications.ask_again(self._coordinator, now_ns=self._env.now_ns())
        _notify(verified)
        for coordinator in sorted(coordinators):
            self._begin_sending(coordinator)

    async def _ask(self, coordinator: BrokerId, request: AddPartitionsToTxnRequest) -> list[Verified]:
        try:
            response = await self._send(coordinator, request)
        except NotServed as error:
            # As in Kafka: a coordinator of an older release cannot be asked, and transactions go on as they did with it.
            self._log_once("transactions_not_verified", coordinator, str(error))
            return self._verifications.not_served(coordinator, now_ns=self._env.now_ns())
        except ChannelError as error:
            self._log_once("transaction_verification_failed", coordinator, str(error))
            return self._verifications.failed(coordinator, ErrorCode.NETWORK_EXCEPTION, now_ns=self._env.now_ns())
        self._troubles.pop(coordinator, None)
        return self._verifications.answered(coordinator, response, now_ns=self._env.now_ns())

    def _log_once(self, event: str, coordinator: BrokerId, reason: str) -> None:
        if self._troubles.get(coordinator) != reason:
            self._troubles[coordinator] = reason
            self._env.log.warning(event, broker_id=coordinator, reason=reason)

    async def _send(self, coordinator: BrokerId, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if coordinator == self._broker_id:
            assert self._ask_here is not None
            return await self._ask_here(request)
        deadline_ns = self._env.now_ns() + REQUEST_TIMEOUT_NS
        response: AddPartitionsToTxnResponse = await self._channels.send(
            coordinator, request, version=VERSION, deadline_ns=deadline_ns
        )
        return response


def _notify(verified: Iterable[Verified]) -> None:
    for waiter, error in verified:
        assert callable(waiter)
        waiter(error)


def add_retries(config: ServerConfig) -> AddRetries:
    """Derives from server.properties how long a question is repeated."""
    return AddRetries(
        backoff_ns=config.add_partitions_to_txn_retry_backoff_ms * NS_PER_MS,
        # As in Kafka, not longer than one request may take.
        max_ns=min(config.add_partitions_to_txn_retry_backoff_max_ms * NS_PER_MS, REQUEST_TIMEOUT_NS),
    )
