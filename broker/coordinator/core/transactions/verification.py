"""Which questions about transactions go to which coordinator, and what the answers mean (core, KIP-890 part 1).

Counterpart of Kafka's AddPartitionsToTxnManager. A leader asks whether a partition is in the open transaction of a producer.

1. One request to a coordinator is under way at a time. What comes meanwhile is asked with the next one, all together.
2. A batch under a guard that is being asked about waits for the same answer. The guard has been held since before the
   question, so the answer is as good for the later batch. In Kafka the later one replaces a question that is not sent yet,
   and the earlier batch is refused with a retriable error.
3. A request holds each transactional id once, because the results are told apart by the id. Questions in the name of two
   producers with the same id are asked one after the other, and the coordinator fences one of them.
"""

from collections.abc import Iterable
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

Waiter = object
"""Whoever waits for an answer. Only passed on."""


class Question(NamedTuple):
    """Whether the partition is in the open transaction of this producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int


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

    def __init__(self) -> None:
        self.counts = VerificationCounts()
        self._pending: dict[tuple[VerificationGuard, str], _Pending] = {}
        # By coordinator. Invariant: each pending question is in exactly one of these lists.
        self._unsent: dict[BrokerId, list[_Pending]] = {}
        self._in_flight: dict[BrokerId, list[_Pending]] = {}

    def ask(
        self, coordinator: BrokerId, question: Question, guard: VerificationGuard, waiter: Waiter, *, now_ns: int
    ) -> None:
        """Adds a waiter, and a question if none is pending for it (rule 2)."""
        pending = self._pending.get((guard, question.transactional_id))
        if pending is None:
            pending = _Pending(question, guard, now_ns, [])
            self._pending[guard, question.transactional_id] = pending
            self._unsent.setdefault(coordinator, []).append(pending)
        pending.waiters.append(waiter)

    def next_request(self, coordinator: BrokerId) -> AddPartitionsToTxnRequest | None:
        """Returns the next request to a coordinator, which is then under way, or None if there is nothing to ask or a
        request is under way already (rule 1)."""
        unsent = self._unsent.get(coordinator, [])
        if not unsent or coordinator in self._in_flight:
            return None
        producers: dict[str, tuple[int, int]] = {}
        taken: list[_Pending] = []
        left: list[_Pending] = []
        for pending in unsent:
            asked = pending.question
            producer = asked.producer_id, asked.producer_epoch
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
            # Whoever leaves a question out has not confirmed anything. It is to be asked again.
            error = results.get((asked.transactional_id, asked.topic, asked.partition), ErrorCode.NETWORK_EXCEPTION)
            verified += self._end(pending, error, now_ns)
        return verified

    def failed(self, coordinator: BrokerId, error: ErrorCode, *, now_ns: int) -> list[Verified]:
        """Ends the request to this coordinator without an answer. NONE if verification is to be left out."""
        in_flight = self._in_flight.pop(coordinator)
        return [each for pending in in_flight for each in self._end(pending, error, now_ns)]

    def _end(self, pending: _Pending, error: ErrorCode, now_ns: int) -> list[Verified]:
        del self._pending[pending.guard, pending.question.transactional_id]
        taken_ns = now_ns - pending.asked_ns
        self.counts.asked += 1
        self.counts.failed += error is not ErrorCode.NONE
        self.counts.time_ns_sum += taken_ns
        self.counts.time_ns_max = max(self.counts.time_ns_max, taken_ns)
        return [Verified(waiter, error) for waiter in pending.waiters]


def _request(questions: Iterable[Question]) -> AddPartitionsToTxnRequest:
    by_transaction: dict[tuple[str, int, int], dict[str, dict[int, None]]] = {}
    for asked in questions:
        topics = by_transaction.setdefault((asked.transactional_id, asked.producer_id, asked.producer_epoch), {})
        topics.setdefault(asked.topic, {})[asked.partition] = None
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=[*indexes]) for name, indexes in topics.items()],
            )
            for (transactional_id, producer_id, producer_epoch), topics in by_transaction.items()
        ]
    )


def _known(error_code: int) -> ErrorCode:
    return ErrorCode(error_code) if is_known_error(error_code) else ErrorCode.UNKNOWN_SERVER_ERROR


# --- what producers get ------------------------------------------------------------------------------------------------

# The coordinator may confirm the batch, or refuse it for good, when it is asked again.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def produce_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Returns what an answer of the coordinator means to the sender of a Produce. Older producers do not retry with the
    errors of a coordinator. They do retry NOT_ENOUGH_REPLICAS, and without new metadata."""
    return ErrorCode.NOT_ENOUGH_REPLICAS if error in RETRIABLE else _for_producer(error, knows_abortable=knows_abortable)


def offset_commit_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Returns what an answer of the coordinator means to the sender of a TxnOffsetCommit. Older producers do not retry
    NETWORK_EXCEPTION. They do retry COORDINATOR_LOAD_IN_PROGRESS, and without looking for another coordinator."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _for_producer(error, knows_abortable=knows_abortable)


def _for_producer(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_new = error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable
    # A broker that may not ask cannot tell the producer so. All that it can say is that nothing was confirmed.
    if is_new or error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    return error
