"""A TransactionShard with what the shell would keep for it: the log, the timers, the answers and the markers due."""

from collections.abc import Callable, Iterable
from typing import Any

from broker.coordinator.core.result import MarkersDue, Now, Step
from broker.coordinator.core.transactions.settings import TransactionSettings
from broker.coordinator.core.transactions.shard import TransactionShard
from broker.coordinator.core.transactions.state import TransactionState
from broker.coordinator.core.transactions.transaction import Transaction
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from common.protocol.messages.end_txn import EndTxnRequest
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.time_units import NS_PER_MS

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
OFFSETS = ("__consumer_offsets", 7)

Producer = tuple[int, int]


class TransactionWorld:
    """See the module docstring. Requests are carried out at once and return their error, or what they gave."""

    def __init__(self, *, level: int = 0, **settings: int) -> None:
        """`level` is that of transaction.version."""
        self.settings = TransactionSettings(**settings)
        self.level = level
        self.shard = TransactionShard(self.settings, lambda: self.level)
        self.now_ms = START_MS
        # All records since the beginning.
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[tuple[str, ...], int] = {}
        self.markers_due: list[MarkersDue] = []
        self.answers: dict[int, Any] = {}
        self.asked = 0
        self.next_id = 1000
        self.last_step = Step()

    @property
    def now(self) -> Now:
        return Now(self.now_ms * NS_PER_MS, self.now_ms)

    def carry_out(self, *steps: Step) -> None:
        for step in steps:
            self.last_step = step
            self.log += [(record.key, record.value) for record in step.records]
            for change in step.timers:
                self.timers.pop(change.key, None)
                if change.at_ns is not None:
                    self.timers[change.key] = change.at_ns
            self.markers_due += step.markers_due
            for answer in step.answers:
                assert isinstance(answer.waiter, int)
                assert answer.waiter not in self.answers, "a request is answered twice"
                self.answers[answer.waiter] = answer.response

    def advance(self, ms: int) -> None:
        """Lets the time pass, firing the timers in order."""
        end_ms = self.now_ms + ms
        while self.timers:
            key, at_ns = min(self.timers.items(), key=lambda item: item[1])
            if at_ns > end_ms * NS_PER_MS:
                break
            self.now_ms = max(self.now_ms, -(-at_ns // NS_PER_MS))
            del self.timers[key]
            self.carry_out(*self.shard.timer_fired(self.now, key))
        self.now_ms = end_ms

    def reload(self) -> None:
        """Throws the shard away and builds it from the log, as after a crash."""
        self.shard.unloaded(ErrorCode.NOT_COORDINATOR)
        self.shard = loaded_from(self.settings, self.log, lambda: self.level)
        self.timers.clear()
        self.markers_due.clear()
        self.carry_out(self.shard.loaded(self.now))

    def of(self, transactional_id: str = "t") -> Transaction:
        return next(each for each in self.shard.transactions if each.transactional_id == transactional_id)

    def state(self, transactional_id: str = "t") -> TransactionState:
        return self.of(transactional_id).state

    # --- requests ------------------------------------------------------------------------------------------------

    def _answer(self) -> Any:
        self.asked += 1
        return self.answers[self.asked - 1]

    def init(
        self,
        named: Producer = (-1, -1),
        *,
        transactional_id: str = "t",
        timeout_ms: int = TIMEOUT_MS,
        knows_fencing: bool = True,
        has_fresh_id: bool = True,
    ) -> ErrorCode | Producer:
        """Returns the producer's id and epoch, or the error."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=named[0],
            producer_epoch=named[1],
        )
        fresh_id = None
        if self.shard.needs_producer_id(request) and has_fresh_id:
            fresh_id, self.next_id = self.next_id, self.next_id + 1
        self.carry_out(self.shard.init_producer_id(self.now, self.asked, request, fresh_id, knows_fencing=knows_fencing))
        response = self._answer()
        error = ErrorCode(response.error_code)
        return error if error is not ErrorCode.NONE else (response.producer_id, response.producer_epoch)

    def producer(self, transactional_id: str = "t", **options: int) -> Producer:
        """Returns a producer that has just begun."""
        given = self.init(transactional_id=transactional_id, **options)  # type: ignore[arg-type]
        assert not isinstance(given, ErrorCode)
        return given

    def _asked(
        self, producer: Producer, partitions: Iterable[tuple[str, int]], transactional_id: str
    ) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions],
        )

    def add(
        self,
        producer: Producer,
        *partitions: tuple[str, int],
        transactional_id: str = "t",
        knows_fencing: bool = True,
        version: int = 0,
    ) -> ErrorCode:
        asked = self._asked(producer, partitions, transactional_id)
        self.carry_out(
            self.shard.add_partitions(self.now, self.asked, asked, knows_fencing=knows_fencing, transaction_version=version)
        )
        errors = {each.partition_error_code for topic in self._answer().topic_results for each in topic.results_by_partition}
        assert len(errors) == 1, "all partitions have the same result"
        return ErrorCode(errors.pop())

    def verify(
        self, producer: Producer, *partitions: tuple[str, int], transactional_id: str = "t"
    ) -> dict[tuple[str, int], ErrorCode]:
        asked = self._asked(producer, partitions, transactional_id)
        self.carry_out(self.shard.verify_partitions(self.now, self.asked, asked))
        return {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in self._answer().topic_results
            for each in topic.results_by_partition
        }

    def add_offsets(self, producer: Producer, *, transactional_id: str = "t", knows_fencing: bool = True) -> ErrorCode:
        self.carry_out(
            self.shard.add_offsets(self.now, self.asked, transactional_id, producer, OFFSETS, knows_fencing=knows_fencing)
        )
        return ErrorCode(self._answer().error_code)

    def end(
        self, producer: Producer, *, is_commit: bool = True, transactional_id: str = "t", knows_fencing: bool = True
    ) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=is_commit,
        )
        self.carry_out(self.shard.end_transaction(self.now, self.asked, request, knows_fencing=knows_fencing))
        return ErrorCode(self._answer().error_code)

    def end_bumping(
        self, producer: Producer, *, is_commit: bool = True, transactional_id: str = "t", has_fresh_id: bool = True
    ) -> ErrorCode | Producer:
        """Ends a transaction of version 2. Returns the id and epoch with which the producer goes on, or the error."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
        )
        fresh_id = None
        if self.shard.end_needs_producer_id(request) and has_fresh_id:
            fresh_id, self.next_id = self.next_id, self.next_id + 1
        self.carry_out(self.shard.end_bumping(self.now, self.asked, request, fresh_id))
        response = self._answer()
        error = ErrorCode(response.error_code)
        given = (response.producer_id, response.producer_epoch)
        assert (error is ErrorCode.NONE) == (given != (-1, -1))
        return given if error is ErrorCode.NONE else error

    def write_markers(self) -> list[MarkersDue]:
        """Lets all markers that are due be written. Returns them."""
        due, self.markers_due = self.markers_due, []
        for each in due:
            self.carry_out(self.shard.markers_written(self.now, each))
        return due


def loaded_from(
    settings: TransactionSettings, log: Iterable[tuple[bytes, bytes | None]], level: Callable[[], int] = lambda: 0
) -> TransactionShard:
    """Returns a shard that has replayed these records."""
    shard = TransactionShard(settings, level)
    for key, value in log:
        shard.replay(key, value)
    return shard
