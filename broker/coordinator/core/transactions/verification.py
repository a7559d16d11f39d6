"""Which questions about transactions go to which coordinator, and what the answers mean (core, KIP-890).

Counterpart of Kafka's AddPartitionsToTxnManager. A leader asks whether a partition is in the open transaction of a producer.
For a producer of transaction.version 2, which does not tell the coordinator itself, it asks to add the partition (part 2).

1. One request to a coordinator is under way at a time. What comes meanwhile is asked with the next one, all together.
2. A batch under a guard that is being asked about waits for the same answer. The guard has been held since before the
   question, so the answer is as good for the later batch. In Kafka the later one replaces a question that is not sent yet,
   and the earlier batch is refused with a retriable error.
3. A request holds each transactional id once, because the results are told apart by the id. Questions of two producers
   with the same id are asked one after the other, and the coordinator fences one of them.
4. The coordinator adds nothing while markers of the former transaction are being written. The producer has its new epoch by
   then, so this happens often and is soon over: the question is asked again for a while, and the waiters keep their order.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.core.verification_guards import VerificationGuard
from common.ids import BrokerId
from common.protocol.errors import ErrorCode, is_known_error
from common.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from common.time_units import NS_PER_MS

Waiter = object
"""The caller that waits for an answer. Opaque here: it is only handed back with the answer."""


@dataclass(frozen=True, slots=True)
class AddRetries:
    """How partitions are added that a coordinator cannot add yet (rule 4). The defaults are Kafka's."""

    backoff_ns: int = 20 * NS_PER_MS
    """From `add.partitions.to.txn.retry.backoff.ms`."""
    max_ns: int = 100 * NS_PER_MS
    """From `add.partitions.to.txn.retry.backoff.max.ms`: how long a question is repeated."""


# The guard, the transactional id, and whether it is to be added.
_Key = tuple[VerificationGuard, str, bool]


class Question(NamedTuple):
    """Whether the partition is in the open transaction of this producer, or, with `is_add`, that it be added."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    is_add: bool = False


class Verified(NamedTuple):
    """The answer for one waiter: NONE, or why the batch may not be appended."""

    waiter: Waiter
    error: ErrorCode


@dataclass(slots=True)
class VerificationCounts:
    """Kafka's VerificationFailureRate and VerificationTimeMs, as counters since the start."""

    asked: int = 0
    failed: int = 0
    time_ns_sum: int = 0
    time_ns_max: int = 0


@dataclass(slots=True, eq=False)
class _Pending:
    """A question and its waiters, in the order in which they came."""

    question: Question
    guard: VerificationGuard
    asked_ns: int
    waiters: list[Waiter]


class Verifications:
    """The questions of one broker that are not answered yet."""

    def __init__(self, retries: AddRetries) -> None:
        self._retries = retries
        self.counts = VerificationCounts()
        self._pending: dict[_Key, _Pending] = {}
        # By coordinator. Invariant: each pending question is in exactly one of these lists.
        self._unsent: dict[BrokerId, list[_Pending]] = {}
        self._in_flight: dict[BrokerId, list[_Pending]] = {}
        self._again: list[_Pending] = []

    def ask(
        self, coordinator: BrokerId, question: Question, guard: VerificationGuard, waiter: Waiter, *, now_ns: int
    ) -> None:
        """Adds a waiter, and a question if none is pending for it (rule 2)."""
        key = (guard, question.transactional_id, question.is_add)
        pending = self._pending.get(key)
        if pending is None:
            pending = _Pending(question, guard, now_ns, [])
            self._pending[key] = pending
            self._unsent.setdefault(coordinator, []).append(pending)
        pending.waiters.append(waiter)

    def next_request(self, coordinator: BrokerId) -> AddPartitionsToTxnRequest | None:
        """Returns the next request to a coordinator, which is then under way, or None if there is nothing to ask or a
        request is under way already (rule 1)."""
        unsent = self._unsent.get(coordinator, [])
        if not unsent or coordinator in self._in_flight:
            return None
        producers: dict[str, tuple[int, int, bool]] = {}
        taken: list[_Pending] = []
        left: list[_Pending] = []
        for pending in unsent:
            asked = pending.question
            producer = asked.producer_id, asked.producer_epoch, asked.is_add
            (taken if producers.setdefault(asked.transactional_id, producer) == producer else left).append(pending)
        self._in_flight[coordinator] = taken
        if left:
            self._unsent[coordinator] = left
        else:
            del self._unsent[coordinator]
        return _request(pending.question for pending in taken)

    def answered(self, coordinator: BrokerId, response: AddPartitionsToTxnResponse, *, now_ns: int) -> list[Verified]:
        """Ends the request to this coordinator. Returns the answers in the order of the questions."""
        if response.error_code != ErrorCode.NONE:
            return self.failed(coordinator, _known(response.error_code), now_ns=now_ns)
        results = {
            (result.transactional_id, topic.name, each.partition_index): _known(each.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        verified: list[Verified] = []
        for pending in self._in_flight.pop(coordinator):
            asked = pending.question
            # An answer that leaves this question out confirms nothing, so the producer has to retry.
            error = results.get((asked.transactional_id, asked.topic, asked.partition), ErrorCode.NETWORK_EXCEPTION)
            is_early = now_ns < pending.asked_ns + self._retries.max_ns
            if asked.is_add and error is ErrorCode.CONCURRENT_TRANSACTIONS and is_early:
                self._again.append(pending)
            else:
                verified += self._end(pending, error, now_ns)
        return verified

    @property
    def has_to_ask_again(self) -> bool:
        """Whether `ask_again` has to be called after `AddRetries.backoff_ns` (rule 4)."""
        return bool(self._again)

    def ask_again(
        self, coordinator_of: Callable[[str], BrokerId | None], *, now_ns: int
    ) -> tuple[set[BrokerId], list[Verified]]:
        """Returns the coordinators to which there is something to send now, and the answers for whom there is none."""
        again, self._again = self._again, []
        coordinators: set[BrokerId] = set()
        verified: list[Verified] = []
        for pending in again:
            coordinator = coordinator_of(pending.question.transactional_id)
            if coordinator is None:
                verified += self._end(pending, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ns)
            else:
                self._unsent.setdefault(coordinator, []).append(pending)
                coordinators.add(coordinator)
        return coordinators, verified

    def failed(self, coordinator: BrokerId, error: ErrorCode, *, now_ns: int) -> list[Verified]:
        """Ends the request to this coordinator without an answer."""
        in_flight = self._in_flight.pop(coordinator)
        return [each for pending in in_flight for each in self._end(pending, error, now_ns)]

    def not_served(self, coordinator: BrokerId, *, now_ns: int) -> list[Verified]:
        """Ends the request to a coordinator that cannot be asked. What would have been verified goes on without that. What
        would have been added has no transaction, and another coordinator may be able to add it."""
        return [
            each
            for pending in self._in_flight.pop(coordinator)
            for each in self._end(
                pending, ErrorCode.COORDINATOR_NOT_AVAILABLE if pending.question.is_add else ErrorCode.NONE, now_ns
            )
        ]

    def _end(self, pending: _Pending, error: ErrorCode, now_ns: int) -> list[Verified]:
        del self._pending[pending.guard, pending.question.transactional_id, pending.question.is_add]
        taken_ns = now_ns - pending.asked_ns
        self.counts.asked += 1
        self.counts.failed += error is not ErrorCode.NONE
        self.counts.time_ns_sum += taken_ns
        self.counts.time_ns_max = max(self.counts.time_ns_max, taken_ns)
        return [Verified(waiter, error) for waiter in pending.waiters]


def _request(questions: Iterable[Question]) -> AddPartitionsToTxnRequest:
    by_transaction: dict[tuple[str, int, int, bool], dict[str, dict[int, None]]] = {}
    for asked in questions:
        transaction = asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.is_add
        topics = by_transaction.setdefault(transaction, {})
        topics.setdefault(asked.topic, {})[asked.partition] = None
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not is_add,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=[*indexes]) for name, indexes in topics.items()],
            )
            for (transactional_id, producer_id, producer_epoch, is_add), topics in by_transaction.items()
        ]
    )


def _known(error_code: int) -> ErrorCode:
    return ErrorCode(error_code) if is_known_error(error_code) else ErrorCode.UNKNOWN_SERVER_ERROR


# --- what producers get ------------------------------------------------------------------------------------------------

# The coordinator may confirm the batch, or refuse it for good, when it is asked again. If it does not know a new topic yet,
# it adds none of the partitions.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def produce_error(error: ErrorCode, *, knows_abortable: bool, is_add: bool = False) -> ErrorCode:
    """Returns what an answer of the coordinator means to the sender of a Produce. Older producers do not retry with the
    errors of a coordinator. They do retry NOT_ENOUGH_REPLICAS, and without new metadata."""
    if is_add and error is ErrorCode.CONCURRENT_TRANSACTIONS:
        return error
    return ErrorCode.NOT_ENOUGH_REPLICAS if error in RETRIABLE else _for_producer(error, knows_abortable=knows_abortable)


def offset_commit_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Returns what an answer of the coordinator means to the sender of a TxnOffsetCommit. Older producers do not retry
    NETWORK_EXCEPTION. They do retry COORDINATOR_LOAD_IN_PROGRESS, and without looking for another coordinator."""
    if error in (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _for_producer(error, knows_abortable=knows_abortable)


def _for_producer(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_new = error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable
    # CLUSTER_AUTHORIZATION_FAILED is about the rights of this broker. The producer only learns that nothing was confirmed.
    if is_new or error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    return error
