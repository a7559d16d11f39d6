"""The life of a transactional id, by table: each request in each state, with the records, timers and markers that follow.

A producer of the id "t" is brought into a state; then one request is made, and its answer and its whole step are compared.
"""

import itertools
from typing import Any

import pytest

from broker.coordinator.core.result import Answer, MarkersDue, Step, TimerChange
from broker.coordinator.core.transactions.settings import TransactionSettings
from broker.coordinator.core.transactions.state import TransactionState
from common.protocol.errors import ErrorCode, ProtocolError
from common.protocol.messages.end_txn import EndTxnResponse
from common.records.record import Record, encode_batch
from common.records.transaction_records import (
    CLASSIC_VALUE_VERSION,
    FLEXIBLE_VALUE_VERSION,
    PartitionsSchema,
    TransactionLogValue,
    decode_transaction,
    decode_transaction_key,
    encode_transaction,
    encode_transaction_key,
)
from common.time_units import NS_PER_MS
from tests.unit.broker.coordinator.core.transactions.transaction_world import (
    OFFSETS,
    START_MS,
    TIMEOUT_MS,
    Producer,
    TransactionWorld,
    loaded_from,
)

FIRST = (1000, 0)
A, B = ("a", 0), ("b", 1)
OK = ErrorCode.NONE
S = TransactionState


def brought_to(state: TransactionState) -> TransactionWorld:
    """Returns a world in which FIRST is the producer and its transaction is in this state."""
    world = TransactionWorld()
    assert world.producer() == FIRST
    if state is S.EMPTY:
        return world
    assert world.add(FIRST, A) is OK
    if state is S.ONGOING:
        return world
    is_commit = state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    assert world.end(FIRST, is_commit=is_commit) is OK
    if not state.is_prepared:
        world.write_markers()
    assert world.state() is state
    return world


def value(world: TransactionWorld, number: int = -1) -> TransactionLogValue:
    key, encoded = world.log[number]
    assert decode_transaction_key(key) == "t"
    assert encoded is not None
    return decode_transaction(encoded)


# --- what is written -------------------------------------------------------------------------------------------------


def test_a_transaction_is_five_records() -> None:
    """Empty, Ongoing, Ongoing with another partition, PrepareCommit, CompleteCommit: as in Kafka's log."""
    world = TransactionWorld()
    world.producer()
    world.now_ms += 1
    world.add(FIRST, A)
    world.now_ms += 1
    world.add(FIRST, A, B)
    world.now_ms += 1
    world.end(FIRST)
    world.now_ms += 1
    world.write_markers()
    both = [PartitionsSchema(topic="a", partition_ids=[0]), PartitionsSchema(topic="b", partition_ids=[1])]

    def record(state: TransactionState, partitions: list[PartitionsSchema] | None, age_ms: int) -> TransactionLogValue:
        return TransactionLogValue(
            producer_id=1000,
            producer_epoch=0,
            transaction_timeout_ms=TIMEOUT_MS,
            transaction_status=state,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=START_MS + age_ms,
            transaction_start_timestamp_ms=-1 if state is S.EMPTY else START_MS + 1,
        )

    assert [value(world, number) for number in range(len(world.log))] == [
        record(S.EMPTY, None, 0),
        record(S.ONGOING, both[:1], 1),
        record(S.ONGOING, both, 2),
        record(S.PREPARE_COMMIT, both, 3),
        record(S.COMPLETE_COMMIT, [], 4),
    ]


@pytest.mark.parametrize("state", [9, S.DEAD, S.PREPARE_EPOCH_FENCE])
def test_a_record_that_no_coordinator_writes_is_an_error(state: int) -> None:
    """A client may have written it, as __admin_client. What follows on it would contradict the transaction's states."""
    record = TransactionLogValue(
        producer_id=1000,
        transaction_status=state,
        transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0])],
    )
    log = [(encode_transaction_key("t"), encode_transaction(record, CLASSIC_VALUE_VERSION))]
    with pytest.raises(ProtocolError):
        loaded_from(TransactionSettings(), log)


@pytest.mark.parametrize(("state", "epoch"), [(S.PREPARE_ABORT, 3), (S.COMPLETE_ABORT, 2**15 - 1), (S.EMPTY, 2**15 - 1)])
def test_a_producer_id_that_follows_too_early_is_an_error(state: int, epoch: int) -> None:
    """It follows only on a producer id without further epochs, from the end of the transaction until it is complete."""
    record = TransactionLogValue(producer_id=1000, producer_epoch=epoch, transaction_status=state, next_producer_id=1001)
    log = [(encode_transaction_key("t"), encode_transaction(record, FLEXIBLE_VALUE_VERSION))]
    with pytest.raises(ProtocolError):
        loaded_from(TransactionSettings(), log)


def test_a_value_of_a_newer_version_is_skipped() -> None:
    """An upgrade that was taken back may have left it. The other transactional ids must be served all the same."""
    world = brought_to(S.ONGOING)
    key, value = world.log[-1]
    assert value is not None
    newer = (FLEXIBLE_VALUE_VERSION + 1).to_bytes(2) + value[2:]
    world.log += [(key, newer), (encode_transaction_key("u"), newer)]
    world.reload()
    assert [(each.transactional_id, each.state) for each in world.shard.transactions] == [("t", S.ONGOING)]
    world.log.append((key, (-1).to_bytes(2, signed=True) + value[2:]))
    with pytest.raises(ProtocolError):
        world.reload()


def test_a_commit_at_the_last_epoch_is_not_done_twice() -> None:
    """No coordinator has written this record either: a commit at the last epoch brings another producer id."""
    world = TransactionWorld(level=2)
    record = TransactionLogValue(
        producer_id=1000, producer_epoch=2**15 - 1, transaction_status=S.COMPLETE_COMMIT, client_transaction_version=2
    )
    world.log = [(encode_transaction_key("t"), encode_transaction(record, FLEXIBLE_VALUE_VERSION))]
    world.reload()
    assert world.end_bumping((1000, 2**15 - 2)) == (1000, 2**15 - 1)
    assert world.state() is S.COMPLETE_COMMIT


def test_the_end_of_a_transaction_is_one_step() -> None:
    """The record, the answer, the end of the timeout and the markers belong together: the shell gives the answer and sends
    the markers once the record is committed."""
    world = brought_to(S.ONGOING)
    world.end(FIRST)
    due = MarkersDue("t", 1000, 0, is_commit=True, partitions=frozenset([A]))
    assert world.last_step == Step(
        records=[world.of().to_record(0)],
        answers=[Answer(world.asked - 1, EndTxnResponse())],
        timers=[TimerChange(("timeout", "t"), None)],
        markers_due=[due],
    )


def test_a_partition_that_is_in_the_transaction_is_not_written_again() -> None:
    world = brought_to(S.ONGOING)
    assert world.add(FIRST, A) is OK
    assert world.last_step.records == []


def test_more_partitions_than_a_record_can_name_are_refused() -> None:
    """The transaction goes on without them, and so do the others of the partition of the log."""
    world = TransactionWorld(batch_bytes_max=1_000)
    producer = world.producer()
    assert world.add(producer, ("a", 0)) is ErrorCode.NONE
    many = [(f"{number:0100}", 0) for number in range(10)]
    assert world.add(producer, *many) is ErrorCode.MESSAGE_TOO_LARGE
    assert world.add(producer, *many, version=2) is ErrorCode.TRANSACTION_ABORTABLE
    assert world.end(producer) is ErrorCode.NONE


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_with_as_many_partitions_as_a_record_can_name_ends(level: int, version: int) -> None:
    """Whichever form the record has at that level, and although the offsets of a group would be one more partition."""
    world = TransactionWorld(level=level, batch_bytes_max=2_000)
    producer = world.producer()
    added = itertools.takewhile(
        lambda number: world.add(producer, (f"t{number}", 0), version=version) is ErrorCode.NONE, itertools.count()
    )
    assert len(list(added)) > 100
    assert world.add_offsets(producer) is ErrorCode.MESSAGE_TOO_LARGE
    assert world.end(producer) is ErrorCode.NONE
    assert max(len(encode_batch([Record(key, value, world.now_ms)])) for key, value in world.log) <= 2_000


def test_the_offsets_of_a_group_are_one_more_partition() -> None:
    world = brought_to(S.ONGOING)
    assert world.add_offsets(FIRST) is OK
    world.end(FIRST, is_commit=False)
    assert world.markers_due == [MarkersDue("t", 1000, 0, is_commit=False, partitions=frozenset([A, OFFSETS]))]


# --- each request in each state --------------------------------------------------------------------------------------

STATES = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]


def per_state(expected: list[Any]) -> list[tuple[TransactionState, Any]]:
    return list(zip(STATES, expected, strict=True))


BUSY, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("state", "expected"), per_state([OK, OK, BUSY, BUSY, OK, OK]))
def test_partitions_may_be_added_unless_markers_are_due(state: TransactionState, expected: ErrorCode) -> None:
    world = brought_to(state)
    assert world.add(FIRST, B) is expected
    assert world.state() is (S.ONGOING if expected is OK else state)
    world = brought_to(state)
    assert world.add_offsets(FIRST) is expected


@pytest.mark.parametrize(("state", "expected"), per_state([INVALID, OK, BUSY, INVALID, OK, INVALID]))
def test_a_commit(state: TransactionState, expected: ErrorCode) -> None:
    """A repeated commit is answered as the first one; a commit of what is aborted is refused."""
    world = brought_to(state)
    assert world.end(FIRST) is expected
    assert world.state() is (S.PREPARE_COMMIT if state is S.ONGOING else state)
    assert bool(world.last_step.records) is (state is S.ONGOING)


@pytest.mark.parametrize(("state", "expected"), per_state([INVALID, OK, INVALID, BUSY, INVALID, OK]))
def test_an_abort(state: TransactionState, expected: ErrorCode) -> None:
    world = brought_to(state)
    assert world.end(FIRST, is_commit=False) is expected
    assert world.state() is (S.PREPARE_ABORT if state is S.ONGOING else state)
    assert bool(world.last_step.records) is (state is S.ONGOING)


@pytest.mark.parametrize(("state", "expected"), per_state([(1000, 1), BUSY, BUSY, BUSY, (1000, 1), (1000, 1)]))
def test_a_new_producer(state: TransactionState, expected: ErrorCode | Producer) -> None:
    """It gets the next epoch; an open transaction is aborted first."""
    world = brought_to(state)
    assert world.init() == expected
    if state is S.ONGOING:
        due = MarkersDue("t", 1000, 1, is_commit=False, partitions=frozenset([A]))
        assert (world.state(), world.markers_due) == (S.PREPARE_ABORT, [due])
        world.write_markers()
        assert world.init() == (1000, 2)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("knows_fencing", [True, False])
def test_a_zombie_can_do_nothing(state: TransactionState, knows_fencing: bool) -> None:
    """Whatever the successor's transaction does, the former producer changes nothing and is told so."""
    world = brought_to(S.COMPLETE_COMMIT)
    successor = world.producer()
    if state is not S.EMPTY:
        world.add(successor, B)
    if state not in (S.EMPTY, S.ONGOING):
        world.end(successor, is_commit=state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT))
    if state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        world.write_markers()
    written = len(world.log)
    fenced = ErrorCode.PRODUCER_FENCED if knows_fencing else ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.add(FIRST, A, knows_fencing=knows_fencing) is fenced
    assert world.add_offsets(FIRST, knows_fencing=knows_fencing) is fenced
    assert world.end(FIRST, knows_fencing=knows_fencing) is fenced
    assert world.end(FIRST, is_commit=False, knows_fencing=knows_fencing) is fenced
    assert world.verify(FIRST, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert (world.state(), len(world.log)) == (state, written)


def test_an_unknown_producer_is_not_mapped() -> None:
    world = TransactionWorld()
    unmapped = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (world.add(FIRST, A), world.add_offsets(FIRST), world.end(FIRST)) == (unmapped, unmapped, unmapped)
    world.producer()
    other = (7, 0)
    assert (world.add(other, A), world.add_offsets(other), world.end(other)) == (unmapped, unmapped, unmapped)


def test_verification_tells_which_partitions_are_in_the_transaction() -> None:
    world = brought_to(S.ONGOING)
    assert world.verify(FIRST, A, B) == {A: OK, B: ErrorCode.TRANSACTION_ABORTABLE}
    world.end(FIRST)
    assert world.verify(FIRST, A) == {A: BUSY}
    world.write_markers()
    assert world.verify(FIRST, A) == {A: ErrorCode.TRANSACTION_ABORTABLE}


# --- ids and epochs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    world = TransactionWorld()
    assert world.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (world.log, world.next_id) == ([], 1000)


@pytest.mark.parametrize("named", [(1000, -1), (-1, 0)])
def test_half_a_producer_is_invalid(named: Producer) -> None:
    assert TransactionWorld().init(named) is ErrorCode.INVALID_REQUEST


def test_a_producer_that_names_itself_gets_the_next_epoch_and_may_ask_again() -> None:
    """KIP-360: the same answer if the first one was lost. Whoever has an epoch before that is fenced."""
    world = TransactionWorld()
    world.producer()
    assert [world.init(FIRST), world.init(FIRST)] == [(1000, 1), (1000, 1)]
    assert world.init((1000, 1)) == (1000, 2)
    assert world.init(FIRST) is ErrorCode.PRODUCER_FENCED
    assert world.init((7, 2)) is ErrorCode.PRODUCER_FENCED
    assert world.init(FIRST, knows_fencing=False) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_fenced_producer_that_names_itself_does_not_abort_its_successor() -> None:
    world = TransactionWorld()
    world.producer()
    successor = world.producer()
    world.add(successor, A)
    assert world.init(FIRST) is ErrorCode.PRODUCER_FENCED
    assert world.state() is S.ONGOING


def test_a_producer_that_names_itself_first_gets_an_id() -> None:
    """The transactional id may have expired meanwhile."""
    assert TransactionWorld().init((7, 3)) == FIRST


def exhausted() -> TransactionWorld:
    """Returns a world in which the producer has the last epoch that a producer can have."""
    world = TransactionWorld()
    world.producer()
    world.of().producer_epoch = 32_765
    assert world.producer() == (1000, 32_766)
    return world


def test_when_the_epochs_are_exhausted_there_is_another_id() -> None:
    world = exhausted()
    assert world.init() == (1001, 0)
    assert world.init((1000, 32_766)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_outlives_its_id_may_ask_again() -> None:
    world = exhausted()
    assert [world.init((1000, 32_766)), world.init((1000, 32_766))] == [(1001, 0), (1001, 0)]


def test_the_last_epoch_can_be_fenced() -> None:
    """The abort takes the epoch that no producer gets. The next producer has another id."""
    world = exhausted()
    world.add((1000, 32_766), A)
    assert world.init() is BUSY
    assert world.of().producer_epoch == 32_767
    world.write_markers()
    assert world.init() == (1001, 0)


def test_an_id_that_is_needed_after_all_is_asked_for_again() -> None:
    """The shell asks whether an id is needed before it fetches one. If the answer changes meanwhile, the client repeats."""
    world = TransactionWorld()
    assert world.init(has_fresh_id=False) is BUSY
    assert world.log == []


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_transaction_is_aborted_at_its_timeout() -> None:
    """With a raised epoch, so that its producer can do no more."""
    world = brought_to(S.ONGOING)
    world.advance(TIMEOUT_MS - 1)
    assert world.state() is S.ONGOING
    world.advance(1)
    due = MarkersDue("t", 1000, 1, is_commit=False, partitions=frozenset([A]))
    assert (world.state(), world.markers_due, world.timers) == (S.PREPARE_ABORT, [due], {})
    assert world.end(FIRST) is ErrorCode.PRODUCER_FENCED
    world.write_markers()
    assert value(world).producer_epoch == 1


def test_a_timeout_begins_with_the_transaction_also_after_a_load() -> None:
    world = brought_to(S.ONGOING)
    world.advance(TIMEOUT_MS - 10)
    world.add(FIRST, B)
    world.reload()
    assert world.timers == {("timeout", "t"): (START_MS + TIMEOUT_MS) * NS_PER_MS}
    world.advance(10)
    assert world.state() is S.PREPARE_ABORT


def test_ended_transactions_have_no_timeout() -> None:
    world = brought_to(S.PREPARE_COMMIT)
    assert world.timers == {}
    world.advance(10 * TIMEOUT_MS)
    assert world.state() is S.PREPARE_COMMIT


@pytest.mark.parametrize(("state", "expires"), per_state([True, False, False, False, True, True]))
def test_an_unused_id_expires(state: TransactionState, expires: bool) -> None:
    """Not while its transaction is open, nor while markers are due."""
    world = brought_to(state)
    world.now_ms += world.settings.transactional_id_expiration_ms - 1
    assert world.shard.expire(world.now, world.shard.expirable()) == []
    world.now_ms += 1
    world.carry_out(*world.shard.expire(world.now, world.shard.expirable()))
    assert bool(world.shard.transactions) is not expires
    assert world.log[-1][1:] == ((None,) if expires else (world.of().to_record(0).value,))
    assert list(loaded_from(world.settings, world.log).transactions) == list(world.shard.transactions)


def test_many_expired_ids_go_in_several_batches() -> None:
    world = TransactionWorld(batch_bytes_max=150)
    for number in range(5):
        world.producer(transactional_id=f"t{number}")
    world.now_ms += TransactionSettings().transactional_id_expiration_ms
    assert [len(step.records) for step in world.shard.expire(world.now, world.shard.expirable())] == [2, 2, 1]


# --- loading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_what_is_loaded_is_what_was_written(state: TransactionState) -> None:
    """A prepared transaction gets its markers again; the others need none."""
    world = brought_to(state)
    before = list(world.shard.transactions)
    world.reload()
    assert list(world.shard.transactions) == before
    assert len(world.markers_due) == state.is_prepared
    world.write_markers()
    assert world.state() is {S.PREPARE_COMMIT: S.COMPLETE_COMMIT, S.PREPARE_ABORT: S.COMPLETE_ABORT}.get(state, state)


def test_markers_of_an_earlier_transaction_complete_nothing() -> None:
    """The sender may report late, when the transaction has been completed otherwise."""
    world = brought_to(S.PREPARE_COMMIT)
    [late] = world.write_markers()
    world.add(FIRST, A)
    world.end(FIRST, is_commit=False)
    world.carry_out(world.shard.markers_written(world.now, late))
    assert (world.state(), world.last_step) == (S.PREPARE_ABORT, Step())


def test_keys_of_newer_versions_are_skipped() -> None:
    world = TransactionWorld()
    world.shard.replay(b"\x00\x01\x00\x01t", b"")
    world.shard.replay(None, b"")
    assert not world.shard.transactions
