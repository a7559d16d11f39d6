"""Transactions of version 2 at their coordinator (KIP-890): a new epoch with each end, and another id after the last epoch.

A producer of the id "t" is brought into a state; then one request is made, and its answer and its step are compared.
"""

import pytest

from broker.coordinator.core.result import MarkersDue
from broker.coordinator.core.transactions.state import TransactionState
from common.protocol.errors import ErrorCode
from common.records.transaction_records import (
    FLEXIBLE_VALUE_VERSION,
    PartitionsSchema,
    TransactionLogValue,
    decode_transaction,
    encode_transaction,
    encode_transaction_key,
)
from tests.unit.broker.coordinator.core.transactions.transaction_world import (
    START_MS,
    TIMEOUT_MS,
    Producer,
    TransactionWorld,
)

FIRST, SECOND = (1000, 0), (1000, 1)
A, B = ("a", 0), ("b", 1)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
LAST = (1000, 32_766)
BEYOND_LAST = (1000, 32_767)
S = TransactionState


def brought_to(state: TransactionState, *, level: int = 2) -> TransactionWorld:
    """Returns a world in which FIRST was the producer and its transaction is in this state."""
    world = TransactionWorld(level=level)
    assert world.producer() == FIRST
    if state is S.EMPTY:
        return world
    assert world.add(FIRST, A, version=2) is ErrorCode.NONE
    if state is S.ONGOING:
        return world
    assert world.end_bumping(FIRST, is_commit=state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)) == SECOND
    if not state.is_prepared:
        world.write_markers()
    assert world.state() is state
    return world


def exhausted() -> TransactionWorld:
    """Returns a world in which LAST, which has the last epoch of its id, has an open transaction."""
    world = TransactionWorld(level=2)
    world.producer()
    world.of().producer_epoch = LAST[1] - 1
    assert world.producer() == LAST
    assert world.add(LAST, A, version=2) is ErrorCode.NONE
    return world


def begun_beyond_the_last_epoch() -> TransactionWorld:
    """Returns a world in which a coordinator of Apache Kafka has let BEYOND_LAST begin a transaction (KAFKA-20090)."""
    world = TransactionWorld(level=2)
    begun = TransactionLogValue(
        producer_id=BEYOND_LAST[0],
        producer_epoch=BEYOND_LAST[1],
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=S.ONGOING,
        transaction_partitions=[PartitionsSchema(topic=A[0], partition_ids=[A[1]])],
        transaction_start_timestamp_ms=START_MS,
        client_transaction_version=2,
    )
    world.log = [(encode_transaction_key("t"), encode_transaction(begun, FLEXIBLE_VALUE_VERSION))]
    world.next_id = 1001
    world.reload()
    return world


def last_value(world: TransactionWorld) -> TransactionLogValue:
    value = world.log[-1][1]
    assert value is not None
    return decode_transaction(value)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_transaction_raises_the_epoch(is_commit: bool) -> None:
    """The marker has the new epoch too, so it fences every batch of the transaction."""
    world = brought_to(S.ONGOING)
    assert world.end_bumping(FIRST, is_commit=is_commit) == SECOND
    due = MarkersDue("t", 1000, 1, is_commit=is_commit, partitions=frozenset([A]), transaction_version=2)
    assert (world.markers_due, world.timers) == ([due], {})
    assert world.add(SECOND, B, version=2) is BUSY
    world.write_markers()
    assert world.add(FIRST, B, version=2) is FENCED
    assert world.add(SECOND, B, version=2) is ErrorCode.NONE
    assert world.end_bumping(SECOND) == (1000, 2)


TABLE = [
    (S.EMPTY, SECOND, FENCED, FENCED),
    (S.EMPTY, FIRST, SECOND, INVALID),
    (S.ONGOING, SECOND, FENCED, FENCED),
    (S.PREPARE_COMMIT, FIRST, INVALID, BUSY),
    (S.PREPARE_COMMIT, SECOND, BUSY, BUSY),
    (S.PREPARE_ABORT, FIRST, BUSY, BUSY),
    (S.PREPARE_COMMIT, (1000, 2), FENCED, FENCED),
    (S.PREPARE_ABORT, SECOND, BUSY, BUSY),
    (S.COMPLETE_COMMIT, FIRST, INVALID, SECOND),
    (S.COMPLETE_COMMIT, SECOND, (1000, 2), INVALID),
    (S.COMPLETE_COMMIT, (1000, 2), FENCED, FENCED),
    (S.COMPLETE_COMMIT, (7, 0), UNMAPPED, UNMAPPED),
    (S.COMPLETE_ABORT, FIRST, SECOND, FENCED),
    (S.COMPLETE_ABORT, SECOND, (1000, 2), INVALID),
]


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize(("state", "producer", "abort", "commit"), TABLE)
def test_each_request_in_each_state(
    state: TransactionState,
    producer: Producer,
    abort: ErrorCode | Producer,
    commit: ErrorCode | Producer,
    is_reloaded: bool,
) -> None:
    """Another coordinator, which has only the log, answers alike."""
    for is_commit, expected in ((False, abort), (True, commit)):
        world = brought_to(state)
        if is_reloaded:
            world.reload()
        assert world.end_bumping(producer, is_commit=is_commit) == expected


def test_nobody_ends_the_transaction_of_an_unknown_id() -> None:
    assert TransactionWorld(level=2).end_bumping(FIRST) is UNMAPPED


def test_an_abort_without_a_transaction_is_complete_at_once() -> None:
    """It has no partitions to write markers into. What it leaves is a new epoch."""
    world = brought_to(S.EMPTY)
    assert world.end_bumping(FIRST, is_commit=False) == SECOND
    assert world.markers_due == [MarkersDue("t", 1000, 1, is_commit=False, partitions=frozenset(), transaction_version=2)]
    assert world.of().start_ms == world.now_ms
    world.write_markers()
    assert (world.state(), world.of().producer_epoch) == (S.COMPLETE_ABORT, 1)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_after_the_last_epoch_there_is_another_id(is_reloaded: bool) -> None:
    """The marker gets the epoch that no producer has. The producer gets its new id at once, and again if it asks again."""
    world = exhausted()
    assert world.end_bumping(LAST) == (1001, 0)
    assert [(due.producer_id, due.producer_epoch) for due in world.markers_due] == [(1000, 32_767)]
    if is_reloaded:
        world.reload()
    assert world.end_bumping(LAST) is BUSY
    # The next transaction of the same producer: it has to wait, but its new id is known already.
    assert world.add((1001, 0), B, version=2) is BUSY
    assert world.end_bumping((1001, 0), is_commit=False) is BUSY
    assert world.init((1001, 0)) is BUSY
    assert world.add((1002, 0), B, version=2) is UNMAPPED
    world.write_markers()
    if is_reloaded:
        world.reload()
    assert world.end_bumping(LAST) == (1001, 0)
    assert world.end_bumping(LAST, is_commit=False) is INVALID
    assert world.add((1001, 0), B, version=2) is ErrorCode.NONE
    assert world.end_bumping(LAST) is UNMAPPED
    assert world.end_bumping((1001, 0)) == (1001, 1)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_kafka_began_beyond_the_last_epoch_can_be_ended(is_commit: bool) -> None:
    world = begun_beyond_the_last_epoch()
    assert world.end_bumping(BEYOND_LAST, is_commit=is_commit) == (1001, 0)
    due = MarkersDue("t", *BEYOND_LAST, is_commit=is_commit, partitions=frozenset([A]), transaction_version=2)
    assert world.write_markers() == [due]
    world.reload()
    assert world.add((1001, 0), B, version=2) is ErrorCode.NONE


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_transaction_that_kafka_began_beyond_the_last_epoch_is_aborted_with_it(is_reloaded: bool) -> None:
    """At its timeout, or for a new producer. Nothing can be added to it meanwhile, and another id follows."""
    world = begun_beyond_the_last_epoch()
    assert world.add(BEYOND_LAST, B, version=2) is FENCED
    world.advance(TIMEOUT_MS)
    if is_reloaded:
        world.reload()
    due = MarkersDue("t", *BEYOND_LAST, is_commit=False, partitions=frozenset([A]), transaction_version=2)
    assert (world.state(), world.markers_due) == (S.PREPARE_ABORT, [due])
    world.write_markers()
    assert world.end_bumping(BEYOND_LAST) is FENCED
    assert world.init() == (1001, 0)
    world = begun_beyond_the_last_epoch()
    assert world.init() is BUSY
    assert world.write_markers() == [due]
    assert world.init() == (1001, 0)


def test_an_id_that_is_needed_after_all_is_asked_for_again() -> None:
    world = exhausted()
    assert world.end_bumping(LAST, has_fresh_id=False) is BUSY
    assert world.state() is S.ONGOING


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_producer_that_missed_its_timeout_goes_on_after_an_abort(is_reloaded: bool) -> None:
    """It can do nothing with its old epoch but abort, which gives it the epoch that the coordinator's abort has raised."""
    world = brought_to(S.ONGOING)
    world.advance(TIMEOUT_MS)
    assert [due.producer_epoch for due in world.markers_due] == [SECOND[1]]
    if is_reloaded:
        world.reload()
    assert world.end_bumping(FIRST, is_commit=False) is BUSY
    assert world.end_bumping(FIRST, is_commit=True) is BUSY
    world.write_markers()
    # Not INVALID_TXN_STATE, after which Kafka Streams gives up.
    assert world.end_bumping(FIRST, is_commit=True) is FENCED
    assert world.add(FIRST, B, version=2) is FENCED
    assert world.end_bumping(FIRST, is_commit=False) == SECOND
    assert world.add(SECOND, B, version=2) is ErrorCode.NONE
    assert world.end_bumping(SECOND) == (1000, 2)


def test_a_producer_whose_id_another_one_has_taken_over_is_fenced() -> None:
    """The abort of its transaction alone does not fence it; the epoch of its successor does, whatever epoch it asks with."""
    world = brought_to(S.ONGOING)
    assert world.init() is BUSY
    world.write_markers()
    assert world.end_bumping(FIRST, is_commit=False) == SECOND
    assert world.init() == (1000, 2)
    for old in (FIRST, SECOND):
        assert world.end_bumping(old, is_commit=False) is FENCED
        assert world.add(old, B, version=2) is FENCED
        assert world.init(old) is FENCED


def test_a_producer_without_the_new_epochs_is_fenced_by_its_timeout() -> None:
    """A client older than KIP-890 would not see the epoch in the answer to its EndTxn."""
    world = TransactionWorld(level=2)
    assert world.producer() == FIRST
    assert world.add(FIRST, A) is ErrorCode.NONE
    world.advance(TIMEOUT_MS)
    world.write_markers()
    assert world.end(FIRST, is_commit=False) is FENCED
    assert world.init() == (1000, 2)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_producer_that_missed_its_timeout_at_the_last_epoch_gets_another_id(is_reloaded: bool) -> None:
    """No epoch is left for the producer, but its own abort brings another id, and brings it again if it is repeated."""
    world = exhausted()
    world.advance(TIMEOUT_MS)
    assert world.of().producer_epoch == 32_767
    if is_reloaded:
        world.reload()
    assert world.end_bumping(LAST, is_commit=False) is BUSY
    world.write_markers()
    if is_reloaded:
        world.reload()
    assert world.end_bumping(LAST, is_commit=True) is FENCED
    assert world.end_bumping(LAST, is_commit=False, has_fresh_id=False) is BUSY
    assert world.end_bumping(LAST, is_commit=False) == (1001, 0)
    assert world.end_bumping(LAST, is_commit=False) is BUSY
    world.write_markers()
    if is_reloaded:
        world.reload()
    assert world.end_bumping(LAST, is_commit=False) == (1001, 0)
    if not is_reloaded:
        assert world.init(LAST) == (1001, 0)
    assert world.add((1001, 0), B, version=2) is ErrorCode.NONE


def test_a_producer_that_missed_its_timeout_at_the_last_epoch_may_ask_for_an_id() -> None:
    """InitProducerId does not give it the greatest epoch, with which it could do nothing."""
    world = exhausted()
    world.advance(TIMEOUT_MS)
    world.write_markers()
    assert [world.init(LAST), world.init(LAST)] == [(1001, 0), (1001, 0)]


def test_a_producer_with_the_last_epoch_can_be_fenced() -> None:
    """Its successor has another id."""
    world = exhausted()
    assert world.init() is BUSY
    assert world.of().producer_epoch == 32_767
    world.write_markers()
    assert world.init() == (1001, 0)
    assert world.end_bumping(LAST, is_commit=False) is UNMAPPED
    assert world.add(LAST, A, version=2) is UNMAPPED


def test_nobody_has_the_epoch_of_the_last_marker() -> None:
    """A request with it is refused. Its transaction could neither end with a new epoch nor be fenced."""
    world = exhausted()
    world.init()
    world.write_markers()
    last_of_all = (1000, 32_767)
    assert world.add(last_of_all, A, version=2) is FENCED
    assert world.add_offsets(last_of_all) is FENCED
    assert world.end_bumping(last_of_all, is_commit=False) is FENCED
    assert world.init() == (1001, 0)


def test_a_producer_that_lost_the_answer_may_ask_for_its_epoch() -> None:
    """With InitProducerId, too, it gets the epoch that the end has given it."""
    world = brought_to(S.COMPLETE_COMMIT)
    assert world.init(FIRST) == SECOND


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_level_decides_about_the_version_of_the_records(level: int, version: int) -> None:
    world = TransactionWorld(level=level)
    world.producer()
    value = world.log[-1][1]
    assert value is not None
    assert int.from_bytes(value[:2], "big") == version


def test_the_log_knows_the_version_of_a_transaction_and_the_ids_around_it() -> None:
    world = exhausted()
    assert last_value(world).client_transaction_version == 2
    world.end_bumping(LAST)
    value = last_value(world)
    assert (value.previous_producer_id, value.producer_id, value.next_producer_id) == (-1, 1000, 1001)
    world.write_markers()
    value = last_value(world)
    assert (value.previous_producer_id, value.producer_id, value.next_producer_id) == (1000, 1001, -1)


@pytest.mark.parametrize("level", [0, 1])
def test_after_a_downgrade_transactions_go_on_and_end(level: int) -> None:
    """Clients hear of the new level later. What is open, prepared or complete is still what it was after a reload."""
    for state in (S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT):
        world = brought_to(state)
        world.level = level
        before = world.of()
        world.reload()
        assert world.of() == before
        if state is S.ONGOING:
            assert world.end_bumping(FIRST) == SECOND
            world.reload()
        assert world.end_bumping(FIRST) == (SECOND if state is S.COMPLETE_COMMIT else BUSY)
        if state is not S.COMPLETE_COMMIT:
            world.write_markers()
        assert world.add(SECOND, B) is ErrorCode.NONE
        assert world.end(SECOND) is ErrorCode.NONE
        assert [due.transaction_version for due in world.write_markers()] == [0]
        assert world.of().producer_epoch == 1


def test_a_client_of_an_older_version_keeps_its_epoch() -> None:
    world = TransactionWorld(level=2)
    assert world.producer() == FIRST
    assert world.add(FIRST, A) is ErrorCode.NONE
    assert world.end(FIRST) is ErrorCode.NONE
    assert world.write_markers() == [MarkersDue("t", 1000, 0, is_commit=True, partitions=frozenset([A]))]
    assert world.end(FIRST) is ErrorCode.NONE
    assert world.add(FIRST, A) is ErrorCode.NONE
