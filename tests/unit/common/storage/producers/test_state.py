"""Which batches of a producer are new, which are duplicates, and which are refused: one table for each rule.

`BEFORE` lists the batches (sequence, records, epoch) that the log has, back to back from offset 0. The next batch is then
checked against the state.
"""

import pytest

from common.records.batch import CONTROL_BIT, PRODUCER_EPOCH_MAX, TRANSACTIONAL_BIT, BatchHeader
from common.records.end_transaction import EndTransactionMarker
from common.slices import at_once
from common.storage.producers.sequences import SEQUENCE_MAX, sequence_after, sequence_before
from common.storage.producers.snapshot import decode_producer_snapshot, encode_producer_snapshot
from common.storage.producers.state import (
    BATCHES_KEPT,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducedBatch,
    ProducerEntry,
    ProducerState,
    TransactionCoordinatorFenced,
)
from common.storage.producers.transactions import CompletedTransaction
from tests.unit.common.storage.producers.headers import header, produced_batch

ID = 7
Batch = tuple[int, int, int]


def state_after(*batches: Batch) -> ProducerState:
    state = ProducerState()
    offset = 0
    for sequence, records, epoch in batches:
        state.note(header(ID, sequence, epoch=epoch, records=records), offset)
        offset += records
    return state


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (-1, 1, 0),
        (0, 0, 0),
        (5, 3, 8),
        (SEQUENCE_MAX, 1, 0),
        (SEQUENCE_MAX - 1, 1, SEQUENCE_MAX),
        (SEQUENCE_MAX - 1, 4, 2),
        (SEQUENCE_MAX, SEQUENCE_MAX, SEQUENCE_MAX - 1),
    ],
)
def test_sequence_numbers_wrap_around(sequence: int, count: int, expected: int) -> None:
    assert sequence_after(sequence, count) == expected
    assert sequence < 0 or sequence_before(expected, count) == sequence


@pytest.mark.parametrize(
    ("before", "batch"),
    [
        ([], (0, 1, 0)),
        ([], (0, 3, 4)),
        # Rule 4: an unknown producer may continue a sequence of which this log has nothing.
        ([], (17, 1, 0)),
        ([], (17, 1, 3)),
        ([(0, 1, 0)], (1, 1, 0)),
        ([(0, 3, 0)], (3, 2, 0)),
        ([(17, 3, 0)], (20, 2, 0)),
        # A higher epoch begins with 0, even if the epoch was skipped.
        ([(0, 3, 0)], (0, 3, 1)),
        ([(0, 3, 0), (3, 1, 0)], (0, 1, 5)),
        # The sequence wraps between two batches, and within one.
        ([(SEQUENCE_MAX, 1, 0)], (0, 1, 0)),
        ([(SEQUENCE_MAX - 1, 2, 0)], (0, 4, 0)),
        ([(SEQUENCE_MAX - 1, 1, 0)], (SEQUENCE_MAX, 3, 0)),
        ([(SEQUENCE_MAX - 1, 4, 0)], (2, 1, 0)),
    ],
)
def test_a_batch_that_continues_is_new(before: list[Batch], batch: Batch) -> None:
    sequence, records, epoch = batch
    assert state_after(*before).find_duplicate(header(ID, sequence, epoch=epoch, records=records)) is None


@pytest.mark.parametrize(
    ("before", "batch", "first_offset"),
    [
        ([(0, 1, 0)], (0, 1, 0), 0),
        ([(0, 2, 0), (2, 3, 0)], (2, 3, 0), 2),
        ([(0, 2, 0), (2, 3, 0)], (0, 2, 0), 0),
        ([(0, 2, 0), (2, 3, 0), (5, 1, 0), (6, 1, 0), (7, 1, 0)], (0, 2, 0), 0),
        ([(0, 2, 0), (2, 3, 0), (5, 1, 0), (6, 1, 0), (7, 1, 0), (8, 1, 0)], (2, 3, 0), 2),
        ([(SEQUENCE_MAX - 1, 4, 0), (2, 1, 0)], (SEQUENCE_MAX - 1, 4, 0), 0),
        ([(9, 1, 0), (0, 1, 1)], (0, 1, 1), 1),
    ],
)
def test_a_duplicate_of_one_of_the_last_five_batches_has_its_offset(
    before: list[Batch], batch: Batch, first_offset: int
) -> None:
    sequence, records, epoch = batch
    duplicate = state_after(*before).find_duplicate(header(ID, sequence, epoch=epoch, records=records))
    last_sequence = sequence_after(sequence, records - 1)
    assert duplicate == ProducedBatch(sequence, last_sequence, first_offset, first_offset + records - 1, 1000)


@pytest.mark.parametrize(
    ("before", "batch", "error"),
    [
        # A gap.
        ([(0, 1, 0)], (2, 1, 0), OutOfOrderSequence),
        ([(0, 3, 0)], (4, 1, 0), OutOfOrderSequence),
        ([(SEQUENCE_MAX, 1, 0)], (1, 1, 0), OutOfOrderSequence),
        # Only a part of a batch, or more than one batch.
        ([(0, 3, 0)], (0, 2, 0), OutOfOrderSequence),
        ([(0, 3, 0)], (1, 2, 0), OutOfOrderSequence),
        ([(0, 3, 0)], (2, 1, 0), OutOfOrderSequence),
        ([(0, 2, 0), (2, 3, 0)], (0, 5, 0), OutOfOrderSequence),
        # A duplicate that is older than the last five.
        ([(number, 1, 0) for number in range(BATCHES_KEPT + 1)], (0, 1, 0), OutOfOrderSequence),
        # A higher epoch must begin with 0.
        ([(0, 1, 0)], (1, 1, 1), OutOfOrderSequence),
        ([(0, 1, 0)], (7, 1, 1), OutOfOrderSequence),
        # A new epoch forgets the batches of the old one.
        ([(0, 1, 0), (1, 1, 0), (0, 1, 1)], (1, 1, 0), InvalidProducerEpoch),
        ([(0, 1, 3)], (1, 1, 2), InvalidProducerEpoch),
        ([(0, 1, 3)], (0, 1, 2), InvalidProducerEpoch),
        ([], (0, 1, -1), InvalidProducerEpoch),
        ([(0, 1, 0)], (1, 1, -1), InvalidProducerEpoch),
    ],
)
def test_a_batch_that_does_not_continue_is_refused(
    before: list[Batch], batch: Batch, error: type[OutOfOrderSequence | InvalidProducerEpoch]
) -> None:
    sequence, records, epoch = batch
    state = state_after(*before)
    with pytest.raises(error, match=f"producer {ID}"):
        state.find_duplicate(header(ID, sequence, epoch=epoch, records=records))
    assert state_after(*before).entries == state.entries


def test_producers_do_not_disturb_each_other() -> None:
    state = state_after((0, 1, 0))
    assert state.find_duplicate(header(ID + 1, 0)) is None
    state.note(header(ID + 1, 0, epoch=4), 1)
    assert state.find_duplicate(header(ID, 1)) is None
    assert state.find_duplicate(header(ID + 1, 1, epoch=4)) is None


def test_a_follower_takes_up_whatever_its_leader_has() -> None:
    """Replicated batches were checked by their leader. Even a lower epoch or a gap is noted."""
    state = state_after((0, 1, 5), (9, 2, 5), (0, 1, 4))
    assert state.entries == {ID: ProducerEntry(4, [ProducedBatch(0, 0, 3, 3, 1000)], 1000)}
    assert state.end_offset == 4


def noted_marker(state: ProducerState, offset: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> object:
    marker = EndTransactionMarker(ID, epoch, coordinator_epoch, is_commit=False)
    return state.note(header(ID, -1, epoch=epoch, attributes=TRANSACTIONAL_BIT | CONTROL_BIT), offset, marker)


def transactional(sequence: int, *, epoch: int = 0, records: int = 1) -> BatchHeader:
    return header(ID, sequence, epoch=epoch, records=records, attributes=TRANSACTIONAL_BIT)


def test_a_transaction_lasts_from_its_first_batch_to_its_marker() -> None:
    """A marker has no sequence number. With the same epoch the sequence goes on after it."""
    state = state_after((0, 1, 0))
    assert state.transactions.first_unstable_offset is None
    state.note(transactional(1, records=2), 10)
    state.note(transactional(3), 20)
    assert state.entries[ID].transaction_first_offset == 10
    assert state.transactions.first_unstable_offset == 10
    assert noted_marker(state, 21, coordinator_epoch=4) == CompletedTransaction(ID, 10, 21, 22, is_commit=False)
    assert state.entries[ID].transaction_first_offset == -1
    assert (state.entries[ID].last_sequence, state.entries[ID].coordinator_epoch) == (3, 4)
    assert state.transactions.first_unstable_offset == 10
    state.replicated_up_to(22)
    assert state.transactions.first_unstable_offset is None
    assert state.find_duplicate(transactional(4)) is None
    assert state.find_duplicate(transactional(3)) == ProducedBatch(3, 3, 20, 20, 1000)
    # A marker of a transaction that has no data here.
    assert noted_marker(state, 22, coordinator_epoch=4) is None


def test_a_marker_with_a_higher_epoch_fences_the_producer_and_begins_its_sequence_again() -> None:
    state = state_after((0, 1, 0))
    noted_marker(state, 22, epoch=1, coordinator_epoch=6)
    assert state.entries[ID] == ProducerEntry(1, [], 1000, 6)
    with pytest.raises(InvalidProducerEpoch):
        state.find_duplicate(transactional(1))
    assert state.find_duplicate(transactional(0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence):
        state.find_duplicate(header(ID, 4, epoch=1))


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "error"),
    [
        (3, 5, None),
        (3, 6, None),
        (4, 5, None),
        (2, 5, InvalidProducerEpoch),
        (-1, 5, InvalidProducerEpoch),
        (2, 4, InvalidProducerEpoch),
        (3, 4, TransactionCoordinatorFenced),
        (4, 4, TransactionCoordinatorFenced),
    ],
)
def test_a_marker_needs_the_latest_epochs(
    epoch: int, coordinator_epoch: int, error: type[InvalidProducerEpoch | TransactionCoordinatorFenced] | None
) -> None:
    """The producer has epoch 3, and the last marker came from a coordinator with epoch 5."""
    state = state_after((0, 1, 3))
    noted_marker(state, 1, epoch=3, coordinator_epoch=5)
    marker = EndTransactionMarker(ID, epoch, coordinator_epoch, is_commit=True)
    if error is None:
        state.validate_marker(marker)
    else:
        with pytest.raises(error, match=f"producer {ID}"):
            state.validate_marker(marker)


@pytest.mark.parametrize(
    ("epoch", "is_open", "is_refused"), [(5, True, False), (4, True, True), (4, False, False), (3, False, True)]
)
def test_a_marker_with_an_epoch_of_its_own_does_not_end_the_transaction_with_this_epoch(
    epoch: int, is_open: bool, is_refused: bool
) -> None:
    """The producer has epoch 4, which the marker of its last transaction has brought. Without an open transaction, that
    marker may come again."""
    state = state_after((0, 1, 3))
    noted_marker(state, 1, epoch=4)
    if is_open:
        state.note(transactional(0, epoch=4), 2)
    marker = EndTransactionMarker(ID, epoch, 0, is_commit=True, transaction_version=2)
    if not is_refused:
        state.validate_marker(marker)
        return
    with pytest.raises(InvalidProducerEpoch):
        state.validate_marker(marker)


def test_a_marker_with_the_greatest_epoch_ends_the_transaction_that_kafka_began_with_it() -> None:
    """No other transaction can follow with this epoch (KAFKA-20090)."""
    state = ProducerState()
    state.note(transactional(0, epoch=PRODUCER_EPOCH_MAX), 0)
    state.validate_marker(EndTransactionMarker(ID, PRODUCER_EPOCH_MAX, 0, is_commit=False, transaction_version=2))


def test_an_unknown_producer_may_get_a_marker() -> None:
    """Its entry may have expired, or the transaction has no data here."""
    ProducerState().validate_marker(EndTransactionMarker(ID, 0, 0, is_commit=True))
    with pytest.raises(InvalidProducerEpoch):
        ProducerState().validate_marker(EndTransactionMarker(ID, -1, 0, is_commit=True))


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    """But a duplicate of an earlier one is still a duplicate."""
    state = state_after((0, 1, 0))
    state.note(transactional(1), 1)
    with pytest.raises(InvalidTransactionState, match=f"producer {ID}"):
        state.find_duplicate(header(ID, 2))
    assert state.find_duplicate(header(ID, 0)) == ProducedBatch(0, 0, 0, 0, 1000)
    assert state.has_open_transaction(ID, 0)
    assert not state.has_open_transaction(ID, 1)
    noted_marker(state, 2)
    assert state.find_duplicate(header(ID, 2)) is None
    assert not state.has_open_transaction(ID, 0)


def test_a_batch_of_the_group_coordinator_has_no_sequence_numbers() -> None:
    """It begins and continues a transaction. Only its epoch is checked, and it is never a duplicate."""
    state = ProducerState()
    for offset in (0, 2):
        assert state.find_duplicate(transactional(-1, epoch=2, records=2)) is None
        state.note(transactional(-1, epoch=2, records=2), offset)
    assert state.entries[ID].transaction_first_offset == 0
    assert (state.entries[ID].last_sequence, state.entries[ID].last_offset) == (-1, 3)
    with pytest.raises(InvalidProducerEpoch):
        state.find_duplicate(transactional(-1, epoch=1))
    read = ProducerState(at_once(decode_producer_snapshot(encode_producer_snapshot(state.entries))), end_offset=4)
    batches = [ProducedBatch(-1, -1, 0, 1, 1000), ProducedBatch(-1, -1, 2, 3, 1000)]
    assert read.entries == {ID: ProducerEntry(2, batches, 1000, -1, 0)}
    assert read.transactions.first_unstable_offset == 0


def test_a_marker_without_its_record_ends_the_transaction_silently() -> None:
    """Compaction keeps such a batch if it is the last one of its producer. The transaction has no records left."""
    state = ProducerState()
    state.note(transactional(0), 0)
    emptied = header(ID, -1, epoch=1, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)._replace(record_count=0)
    assert state.note(emptied, 1) == CompletedTransaction(ID, 0, 1, 2, is_commit=True)
    assert (state.entries[ID].epoch, state.entries[ID].transaction_first_offset) == (1, -1)


def test_an_open_transaction_is_in_the_snapshot() -> None:
    """In the order of the producers' first batches. The transactions begin in another order."""
    state = ProducerState()
    state.note(header(5, 0), 0)
    state.note(transactional(0), 3)
    state.note(header(5, 1, attributes=TRANSACTIONAL_BIT), 8)
    read = ProducerState(at_once(decode_producer_snapshot(encode_producer_snapshot(state.entries))), end_offset=9)
    assert read.transactions.first_unstable_offset == 3
    assert noted_marker(read, 9) == CompletedTransaction(ID, 3, 9, 8, is_commit=False)
    copied = read.copy()
    assert copied.transactions.first_unstable_offset == 3
    copied.replicated_up_to(10)
    assert (copied.transactions.first_unstable_offset, read.transactions.first_unstable_offset) == (8, 3)


def test_an_entry_expires_unless_a_transaction_is_under_way() -> None:
    state = ProducerState()
    state.note(produced_batch(1, 0, timestamp=1_000)[0], 0)
    state.note(produced_batch(2, 0, timestamp=1_001)[0], 1)
    state.note(produced_batch(3, 0, timestamp=1_000, attributes=TRANSACTIONAL_BIT)[0], 2)
    assert state.remove_expired(now_ms=1_499, expiration_ms=500) == 0
    assert state.remove_expired(now_ms=1_500, expiration_ms=500) == 1
    assert list(state.entries) == [2, 3]
    # What has expired is an unknown producer again.
    assert state.find_duplicate(header(1, 8)) is None


def test_a_copy_shares_nothing() -> None:
    state = state_after((0, 1, 0))
    copy = state.copy()
    state.note(header(ID, 1), 1)
    state.note(header(ID + 1, 0), 2)
    assert copy.entries == state_after((0, 1, 0)).entries
    assert copy.end_offset == 1
