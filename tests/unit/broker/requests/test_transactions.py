"""The requests of transactional producers, and the queries about transactions: every version, and every error.

A real shard stands behind the handlers, without the log: its records are kept in a list, and its answers are given at once.
All requests and responses go over the wire.
"""

import asyncio
import inspect
from collections.abc import Callable, Container, Iterable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.regex import Regex
from broker.coordinator.core.result import Now
from broker.coordinator.core.transactions.queries import matching_pattern
from broker.coordinator.core.transactions.settings import TransactionSettings
from broker.coordinator.core.transactions.shard import TransactionShard
from broker.coordinator.shard import Operation
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.coordinator.waiting_request import WaitingRequest
from broker.requests.init_producer_id import InitProducerIdRequests
from broker.requests.transactions import TransactionRequests
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from common.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from common.protocol.messages.describe_transactions import DescribeTransactionsRequest
from common.protocol.messages.end_txn import EndTxnRequest
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.protocol.messages.list_transactions import ListTransactionsRequest, TransactionState
from common.protocol.schema import Struct
from common.records.metadata_records import KnownRecord
from common.time_units import NS_PER_MS
from tests.counted import counted
from tests.unit.broker.requests.contexts import context, over_the_wire, versions
from tests.unit.common.metadata.builders import partition, register, replay, topic

START_MS = 1_700_000_000_000
FIRST_ID = 1000
NO_PRODUCER = (-1, -1)
FIRST = (FIRST_ID, 0)
OK = ErrorCode.NONE

Producer = tuple[int, int]
Partition = tuple[str, int]


class Part:
    """One partition of `__transaction_state`, with its shard. Refuses everything with `error`, if that is set."""

    def __init__(self) -> None:
        self.partition = Mock()
        self.shard = TransactionShard(TransactionSettings())
        self.records: list[Any] = []
        self.markers_due: list[Any] = []
        self.now_ms = START_MS
        self.error = OK

    @property
    def now(self) -> Now:
        return Now(self.now_ms * NS_PER_MS, self.now_ms)

    def perform(self, waiting: WaitingRequest, operation: Operation[TransactionShard]) -> None:
        if self.error is not OK:
            waiting.refuse(self.error)
            return
        for step in operation(self.shard, self.now):
            self.records += step.records
            self.markers_due += step.markers_due
            for answer in step.answers:
                cast(WaitingRequest, answer.waiter).answer(answer.response)

    def write_markers(self) -> None:
        due, self.markers_due = self.markers_due, []
        for each in due:
            self.records += self.shard.markers_written(self.now, each).records


class Coordinator:
    """Has one partition, which holds every id, and perhaps others that are only listed."""

    def __init__(self) -> None:
        self.part = Part()
        self.parts = [self.part]
        # The keys of the partitions that the broker leads by the metadata.
        self.led: set[object] = set()

    def perform(self, _key: str, waiting: WaitingRequest, operation: Operation[TransactionShard]) -> None:
        self.part.perform(waiting, operation)

    def shard_of(self, _key: str) -> TransactionShard | None:
        return self.part.shard if self.part.error is OK else None

    def loaded_and_loading(self) -> Iterable[Part]:
        return self.parts

    def leads_another(self, listed: Container[object]) -> bool:
        return any(each not in listed for each in self.led)


class Topics:
    """Stands in for automatic topic creation."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def create_internal(self, name: str) -> str | None:
        self.asked.append(name)
        return None


def image(*, has_offsets_topic: bool = True) -> MetadataState:
    """The topic "a" has two partitions, `__consumer_offsets` one."""
    records: list[KnownRecord] = [
        register(1),
        topic(1, "a"),
        partition(1, 0, [1], directories=[UNASSIGNED]),
        partition(1, 1, [1], directories=[UNASSIGNED]),
    ]
    if has_offsets_topic:
        records += [topic(2, "__consumer_offsets"), partition(2, 0, [1], directories=[UNASSIGNED])]
    return replay(*records)


class Broker:
    """The handlers of one broker. Each verb sends one request, in the newest version unless told otherwise."""

    def __init__(self, *, has_offsets_topic: bool = True) -> None:
        self.coordinator = Coordinator()
        self.part = self.coordinator.part
        self.topics = Topics()
        self.taken = 0
        # Raised instead of an id.
        self.no_id: ErrorCode | None = None
        state = image(has_offsets_topic=has_offsets_topic)
        coordinator = cast(TransactionCoordinator, self.coordinator)
        requests = TransactionRequests(state, coordinator, KeyPartitions(state), self.topics, self._take_id)
        self._handlers: dict[ApiKey, Callable[..., Any]] = {
            **requests.handlers(),
            ApiKey.INIT_PRODUCER_ID: InitProducerIdRequests(self._take_id, requests.init_producer).handle,
        }

    async def _take_id(self) -> int:
        if self.no_id is not None:
            raise ApiError(self.no_id)
        self.taken += 1
        return FIRST_ID + self.taken - 1

    async def _handle(self, api_key: ApiKey, request: Struct, version: int) -> Any:
        answer = self._handlers[api_key](context(api_key, version), over_the_wire(request, version))
        return over_the_wire(await answer if inspect.isawaitable(answer) else answer, version)

    def ask(self, api_key: ApiKey, request: Struct, version: int | None = None) -> Any:
        return asyncio.run(self._handle(api_key, request, versions(api_key)[-1] if version is None else version))

    @property
    def stored(self) -> int:
        """How many records are in the log."""
        return len(self.part.records)

    # --- verbs ---------------------------------------------------------------------------------------------------

    def init(
        self, named: Producer = NO_PRODUCER, *, version: int | None = None, timeout_ms: int = 60_000
    ) -> ErrorCode | Producer:
        request = InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=timeout_ms, producer_id=named[0], producer_epoch=named[1]
        )
        response = self.ask(ApiKey.INIT_PRODUCER_ID, request, version)
        if response.error_code != OK:
            assert (response.producer_id, response.producer_epoch) == NO_PRODUCER
            return ErrorCode(response.error_code)
        return response.producer_id, response.producer_epoch

    def add(
        self, producer: Producer, *partitions: Partition, version: int = 3, transactional_id: str = "t"
    ) -> dict[Partition, ErrorCode]:
        """Adds partitions as a client does below version 4, and as a broker may from then on."""
        if version >= 4:
            asked = of_transaction(producer, *partitions, transactional_id=transactional_id)
            return self.add_batched(asked, version=version)[transactional_id]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=by_topic(partitions),
        )
        response = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
        return errors_of(response.results_by_topic_v3_and_below)

    def add_batched(
        self, *transactions: AddPartitionsToTxnTransaction, version: int = 5
    ) -> dict[str, dict[Partition, ErrorCode]]:
        request = AddPartitionsToTxnRequest(transactions=list(transactions))
        response: AddPartitionsToTxnResponse = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
        assert response.error_code == OK
        return {each.transactional_id: errors_of(each.topic_results) for each in response.results_by_transaction}

    def add_offsets(
        self, producer: Producer, *, version: int | None = None, transactional_id: str = "t", group_id: str = "g"
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
        )
        return ErrorCode(self.ask(ApiKey.ADD_OFFSETS_TO_TXN, request, version).error_code)

    def end(self, producer: Producer, *, commit: bool = True, version: int = 4, transactional_id: str = "t") -> ErrorCode:
        """Ends a transaction, from version 5 on with another epoch."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        return ErrorCode(self.ask(ApiKey.END_TXN, request, version).error_code)

    def describe(self, *transactional_ids: str) -> list[Any]:
        request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        return list(self.ask(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states)

    def list_ids(self, *, version: int | None = None, **filters: Any) -> tuple[ErrorCode, list[str], list[str]]:
        """Returns the error, the ids, and the filters that nobody knows."""
        response = self.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(**filters), version)
        ids = sorted(each.transactional_id for each in response.transaction_states)
        return ErrorCode(response.error_code), ids, response.unknown_state_filters


def by_topic(partitions: Iterable[Partition]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]


def of_transaction(
    producer: Producer, *partitions: Partition, transactional_id: str = "t", verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=by_topic(partitions),
    )


def errors_of(topics: Iterable[Any]) -> dict[Partition, ErrorCode]:
    return {
        (each.name, result.partition_index): ErrorCode(result.partition_error_code)
        for each in topics
        for result in each.results_by_partition
    }


def with_producer() -> Broker:
    """A broker that has given FIRST to the producer of the id "t"."""
    broker = Broker()
    assert broker.init() == FIRST
    return broker


A0, A1 = ("a", 0), ("a", 1)


# --- every version ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_a_producer_gets_an_id_and_then_the_next_epoch(version: int) -> None:
    broker = Broker()
    assert [broker.init(version=version), broker.init(version=version)] == [(FIRST_ID, 0), (FIRST_ID, 1)]
    assert (broker.taken, broker.stored) == (1, 2)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_partitions_are_added(version: int) -> None:
    broker = with_producer()
    assert broker.add(FIRST, A0, A1, version=version) == {A0: OK, A1: OK}
    assert [each.topic for each in broker.describe("t")[0].topics] == ["a"]
    assert broker.add(FIRST, version=version) == {}
    assert broker.stored == 2


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_offsets_of_a_group_are_added(version: int) -> None:
    broker = with_producer()
    assert broker.add_offsets(FIRST, version=version) is OK
    [described] = broker.describe("t")
    assert [(each.topic, each.partitions) for each in described.topics] == [("__consumer_offsets", [0])]


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended(version: int, commit: bool) -> None:
    broker = with_producer()
    broker.add(FIRST, A0)
    assert broker.end(FIRST, commit=commit, version=version) is OK
    [due] = broker.part.markers_due
    assert (due.partitions, due.is_commit) == ({A0}, commit)


def test_the_end_brings_the_next_epoch_or_another_id() -> None:
    """Only if the client knows that. An id is taken from the controller only if the epochs are exhausted."""
    broker = with_producer()
    broker.add(FIRST, A0, version=5)
    request = EndTxnRequest(transactional_id="t", producer_id=FIRST_ID, producer_epoch=0, committed=True)
    response = broker.ask(ApiKey.END_TXN, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (OK, FIRST_ID, 1)
    assert broker.taken == 1
    broker.part.write_markers()
    [transaction] = broker.part.shard.transactions
    transaction.producer_epoch = 32_766
    broker.add((FIRST_ID, 32_766), A0, version=5)
    request.producer_epoch = 32_766
    broker.no_id = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError):
        broker.ask(ApiKey.END_TXN, request)
    broker.no_id = None
    response = broker.ask(ApiKey.END_TXN, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (OK, FIRST_ID + 1, 0)
    assert [due.transaction_version for due in broker.part.markers_due] == [2]


# --- errors of the coordinator ---------------------------------------------------------------------------------------

_BOUND = {
    ApiKey.INIT_PRODUCER_ID: lambda broker, version: broker.init(FIRST if version >= 3 else NO_PRODUCER, version=version),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda broker, version: broker.add(FIRST, A0, version=version)[A0],
    ApiKey.ADD_OFFSETS_TO_TXN: lambda broker, version: broker.add_offsets(FIRST, version=version),
    ApiKey.END_TXN: lambda broker, version: broker.end(FIRST, version=version),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda broker, _: ErrorCode(broker.describe("t")[0].error_code),
}
REQUESTS: dict[ApiKey, Callable[[Broker, int], Any]] = _BOUND


@pytest.mark.parametrize("api_key", REQUESTS)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_the_log_is_one_of_the_coordinator(api_key: ApiKey, error: ErrorCode, expected: ErrorCode) -> None:
    """In every version, in the place where the client looks for it."""
    broker = with_producer()
    broker.add(FIRST, A1)
    broker.part.error = error
    for version in versions(api_key):
        assert REQUESTS[api_key](broker, version) is expected
    assert (broker.stored, broker.taken) == (2, 1)


def test_without_an_id_from_the_controller_a_new_producer_fails() -> None:
    broker = Broker()
    broker.no_id = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError) as raised:
        broker.init()
    assert (raised.value.code, broker.stored) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)


# --- errors of producers ---------------------------------------------------------------------------------------------

# The versions from which on a client knows PRODUCER_FENCED (KIP-588).
FENCING = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}


@pytest.mark.parametrize(("api_key", "first"), FENCING.items())
def test_a_fenced_producer_is_told_so_in_words_that_it_knows(api_key: ApiKey, first: int) -> None:
    """A producer with the same id has come after it. Below version 3, InitProducerId names no producer."""
    broker = with_producer()
    assert [broker.init(FIRST), broker.init((FIRST_ID, 1))] == [(FIRST_ID, 1), (FIRST_ID, 2)]
    for version in versions(api_key):
        if api_key is not ApiKey.INIT_PRODUCER_ID or version >= 3:
            known = ErrorCode.PRODUCER_FENCED if version >= first else ErrorCode.INVALID_PRODUCER_EPOCH
            assert REQUESTS[api_key](broker, version) is known
    assert broker.stored == 3


@pytest.mark.parametrize("api_key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN])
@pytest.mark.parametrize("has_producer", [True, False])
def test_a_producer_that_is_not_that_of_the_id_is_not_mapped(api_key: ApiKey, has_producer: bool) -> None:
    broker = Broker()
    if has_producer:
        broker.taken = 7
        assert broker.init() == (FIRST_ID + 7, 0)
    for version in versions(api_key):
        assert REQUESTS[api_key](broker, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert broker.stored == has_producer


@pytest.mark.parametrize(
    "api_key", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN]
)
def test_until_all_markers_are_written_the_next_transaction_waits(api_key: ApiKey) -> None:
    """EndTxn is repeated by a client that got no answer to the first one. In version 5 it would have another epoch then, so
    it is about the next transaction of a client that has been upgraded meanwhile."""
    broker = with_producer()
    broker.add(FIRST, A1)
    assert broker.end(FIRST) is OK
    for version in versions(api_key):
        assert REQUESTS[api_key](broker, version) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert broker.stored == 3
    broker.part.write_markers()
    assert broker.end(FIRST) is OK
    assert broker.end(FIRST, commit=False) is ErrorCode.INVALID_TXN_STATE
    assert broker.add(FIRST, A0) == {A0: OK}


def test_a_new_producer_aborts_what_is_open_and_is_asked_to_come_again() -> None:
    broker = with_producer()
    broker.add(FIRST, A0)
    assert broker.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.part.write_markers()
    assert broker.init() == (FIRST_ID, 2)
    assert broker.end(FIRST) is ErrorCode.PRODUCER_FENCED


def test_there_is_nothing_to_end_before_the_first_partition() -> None:
    broker = with_producer()
    assert [broker.end(FIRST), broker.end(FIRST, commit=False)] == [ErrorCode.INVALID_TXN_STATE] * 2
    assert broker.stored == 1


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0, 900_001, 2**31 - 1])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    """No id is taken for it, and a producer that exists keeps its epoch."""
    broker = Broker()
    assert broker.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (broker.taken, broker.stored) == (0, 0)
    assert broker.init() == FIRST
    assert broker.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert broker.init() == (FIRST_ID, 1)


@pytest.mark.parametrize("named", [(7, -1), (-1, 0)])
def test_half_a_producer_is_refused(named: Producer) -> None:
    broker = Broker()
    assert broker.init(named) is ErrorCode.INVALID_REQUEST
    assert (broker.taken, broker.stored) == (0, 0)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_an_empty_id_is_refused(version: int) -> None:
    broker = with_producer()
    invalid = ErrorCode.INVALID_REQUEST
    assert broker.add(FIRST, A0, A1, version=version, transactional_id="") == {A0: invalid, A1: invalid}
    assert broker.add_offsets(FIRST, transactional_id="") is invalid
    assert broker.end(FIRST, transactional_id="") is invalid
    assert broker.stored == 1


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_partitions_are_added_all_or_none(version: int) -> None:
    """What does not exist is named, and what does was not attempted."""
    broker = with_producer()
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    asked = [A0, ("a", 2), ("a", -1), ("b", 0)]
    expected = dict(zip(asked, [skipped, unknown, unknown, unknown], strict=True))
    assert broker.add(FIRST, *asked, version=version) == expected
    assert broker.stored == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_client_cannot_add_the_brokers_own_topics(version: int) -> None:
    """The end of the transaction would write a marker into them. Only a coordinator adds `__consumer_offsets`: for
    AddOffsetsToTxn, and for the leader that takes the offsets of a producer of transaction.version 2."""
    broker = with_producer()
    forbidden, skipped = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    asked = [("__consumer_offsets", 0), A0, ("__transaction_state", 9)]
    expected = dict(zip(asked, [forbidden, skipped, forbidden], strict=True))
    assert broker.add(FIRST, *asked, version=version) == expected
    assert broker.stored == 1
    assert broker.add_batched(of_transaction(FIRST, asked[0])) == {"t": {asked[0]: OK}}


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
@pytest.mark.parametrize(
    ("transactional_id", "group_id", "error", "created"),
    [
        ("", "g", ErrorCode.INVALID_REQUEST, []),
        ("t", "", ErrorCode.COORDINATOR_NOT_AVAILABLE, ["__consumer_offsets"]),
        ("t", "g", ErrorCode.COORDINATOR_NOT_AVAILABLE, ["__consumer_offsets"]),
    ],
)
def test_offsets_without_their_topic(
    version: int, transactional_id: str, group_id: str, error: ErrorCode, created: list[str]
) -> None:
    """aiokafka adds a group's offsets before it looks for the group's coordinator. So this request creates the topic too;
    otherwise the client would retry forever. The empty group id is valid here, as in Apache Kafka."""
    broker = Broker(has_offsets_topic=False)
    answered = broker.add_offsets(FIRST, version=version, transactional_id=transactional_id, group_id=group_id)
    assert (answered, broker.topics.asked, broker.stored) == (error, created, 0)


# --- verification (KIP-890) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_what_brokers_verify_is_not_added(version: int) -> None:
    """Several transactions in one request, each with its own result. What a leader asks about exists, as far as it knows,
    so it is looked for in the transaction only."""
    broker = with_producer()
    broker.add(FIRST, A0)
    missing = ErrorCode.TRANSACTION_ABORTABLE
    results = broker.add_batched(
        of_transaction(FIRST, A0, A1, ("unknown", 0), verify_only=True),
        of_transaction(FIRST, A0, transactional_id="other", verify_only=True),
        of_transaction(FIRST, A0, transactional_id="", verify_only=True),
        of_transaction(FIRST, A0, ("unknown", 0), transactional_id="added"),
        version=version,
    )
    assert results == {
        "t": {A0: OK, A1: missing, ("unknown", 0): missing},
        "other": {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        "": {A0: ErrorCode.INVALID_REQUEST},
        "added": {A0: ErrorCode.OPERATION_NOT_ATTEMPTED, ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert broker.stored == 2
    assert broker.add_batched(version=version) == {}


def test_verification_knows_the_end_of_the_transaction_and_who_is_fenced() -> None:
    broker = with_producer()
    broker.add(FIRST, A0)

    def verify(producer: Producer) -> ErrorCode:
        return broker.add_batched(of_transaction(producer, A0, verify_only=True))["t"][A0]

    assert verify((FIRST_ID, 1)) is ErrorCode.PRODUCER_FENCED
    assert verify((FIRST_ID + 1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert broker.end(FIRST) is OK
    assert verify(FIRST) is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.part.write_markers()
    assert verify(FIRST) is ErrorCode.TRANSACTION_ABORTABLE
    broker.part.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert verify(FIRST) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# --- queries ---------------------------------------------------------------------------------------------------------


def test_transactions_are_described() -> None:
    """Each id once, in the order of the request."""
    broker = with_producer()
    broker.add(FIRST, A1, A0)
    described = broker.describe("nobody", "t", "", "t")
    assert [(each.transactional_id, each.error_code) for each in described] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("t", OK),
        ("", ErrorCode.INVALID_REQUEST),
    ]
    found = described[1]
    assert (found.transaction_state, found.transaction_timeout_ms, found.transaction_start_time_ms) == (
        "Ongoing",
        60_000,
        START_MS,
    )
    assert (found.producer_id, found.producer_epoch) == FIRST
    assert [(each.topic, each.partitions) for each in found.topics] == [("a", [0, 1])]
    assert broker.stored == 2


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["t"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["t"]),
        ({"state_filters": ["CompleteCommit"]}, []),
        ({"producer_id_filters": [FIRST_ID]}, ["t"]),
        ({"producer_id_filters": [FIRST_ID + 1]}, []),
        ({"duration_filter": 999}, ["t"]),
        ({"duration_filter": 1_001}, []),
        ({"transactional_id_pattern": ""}, ["t"]),
        ({"transactional_id_pattern": "t|u"}, ["t"]),
        ({"transactional_id_pattern": "u"}, []),
        ({"transactional_id_pattern": "t", "producer_id_filters": [FIRST_ID + 1]}, []),
    ],
)
def test_transactions_are_listed(filters: dict[str, Any], expected: list[str]) -> None:
    broker = with_producer()
    broker.add(FIRST, A0)
    broker.part.now_ms += 1_000
    assert broker.list_ids(**filters) == (OK, expected, [])


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_an_unknown_state_is_reported(version: int) -> None:
    broker = with_producer()
    assert broker.list_ids(version=version, state_filters=["Empty", "Lost"]) == (OK, ["t"], ["Lost"])
    assert broker.list_ids(version=version, state_filters=["Lost"]) == (OK, [], ["Lost"])


def test_a_list_is_complete_or_an_error() -> None:
    """A partition that is being loaded may hold ids, and so may one that waits for a disk: Java's admin client asks again
    after the error of the former only. A partition that has moved away is listed by its new coordinator."""
    broker = with_producer()
    other = Part()
    broker.coordinator.parts.append(other)
    assert broker.list_ids() == (OK, ["t"], [])
    other.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.list_ids() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
    other.error = ErrorCode.REQUEST_TIMED_OUT
    assert broker.list_ids() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
    other.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.list_ids() == (OK, ["t"], [])
    broker.coordinator.parts.clear()
    assert broker.list_ids() == (OK, [], [])


def test_ids_on_a_lost_disk_are_not_left_out_of_a_list() -> None:
    """Until another leader is elected, no broker can list them. The partition may still be there or not."""
    broker = with_producer()
    broker.coordinator.led = {broker.part.partition.key}
    assert broker.list_ids() == (OK, ["t"], [])
    broker.part.error = ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.list_ids() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
    broker.coordinator.parts.clear()
    assert broker.list_ids() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
    broker.coordinator.led.clear()
    assert broker.list_ids() == (OK, [], [])


def listed(*transactional_ids: str) -> list[TransactionState]:
    return [TransactionState(transactional_id=each) for each in transactional_ids]


def test_a_pattern_must_match_the_whole_id() -> None:
    """Ids may have any characters, line ends among them."""
    ids = ["payments-1", "my-payments-1", "payments-1/b c", "payments-\n", "payments-\u00e9"]
    found, turns = counted(matching_pattern(Regex("payments-[^/]+"), listed(*ids)))
    assert [each.transactional_id for each in found] == ["payments-1", "payments-\n", "payments-\u00e9"]
    assert turns == 0


def test_a_costly_pattern_leaves_the_event_loop_its_turns() -> None:
    ids = [f"{number:016b}" for number in range(2_000)]
    found, turns = counted(matching_pattern(Regex("(0|1)*0(0|1){12}"), listed(*ids)))
    assert len(found) == 2_000
    assert turns > 1


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ApiError) as raised:
        with_producer().list_ids(transactional_id_pattern="(a")
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "`(a`" in str(raised.value)
