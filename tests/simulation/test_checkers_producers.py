"""Tests the checker of producers, which has its own parser: it accepts what production writes and finds every difference."""

import pytest

from common.records.batch import read_header
from common.records.end_transaction import EndTransactionMarker, encode_marker_batch
from common.records.record import Record, encode_batch
from common.storage.producers.log_producers import LogProducers
from common.storage.producers.snapshot import encode_producer_snapshot
from common.storage.producers.state import ProducedBatch, ProducerEntry
from tests.simulation.checkers.producers import LastBatch, check_known, check_snapshots, known_beyond
from tests.simulation.checkers.raw_logs import RawLog, read_log
from tests.simulation.environment import SimulatedWorld
from tests.simulation.violations import InvariantViolated


def batch(offset: int, producer_id: int, sequence: int, *, epoch: int = 0, records: int = 1) -> bytes:
    return bytes(
        encode_batch(
            [Record(key=None, value=b"v", timestamp_ms=5)] * records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def entry(last: LastBatch) -> ProducerEntry:
    batches = [ProducedBatch(last.last_sequence, last.last_sequence, last.last_offset, last.last_offset, 5)]
    return ProducerEntry(last.epoch, batches, 5)


def log_with(snapshot_offset: int, known: dict[int, LastBatch], *, first_offset: int = 0) -> RawLog:
    """Returns a log of two producers' batches, from this offset on, with one snapshot."""
    batches = [batch(0, 8, 2**31 - 1, records=2), batch(2, -1, -1), batch(3, 8, 1), batch(4, 9, 0, epoch=3)]
    content = encode_producer_snapshot({producer_id: entry(last) for producer_id, last in known.items()})
    return read_log(
        {
            f"t-0/{first_offset:020d}.log": b"".join(batches[first_offset - 1 if first_offset else 0 :]),
            f"t-0/{snapshot_offset:020d}.snapshot": content,
        },
        "t-0",
    )


EIGHT, NINE = LastBatch(0, 1, 3), LastBatch(3, 0, 4)


@pytest.mark.parametrize(
    ("offset", "known"),
    [(0, {}), (2, {8: LastBatch(0, 0, 1)}), (3, {8: LastBatch(0, 0, 1)}), (4, {8: EIGHT}), (5, {8: EIGHT, 9: NINE})],
)
def test_a_snapshot_of_the_batches_below_it_passes(offset: int, known: dict[int, LastBatch]) -> None:
    check_snapshots("t-0", log_with(offset, known))


def test_a_producer_may_outlive_its_batches() -> None:
    """The log starts at 3. Of a producer without a batch in it, only an earlier batch may be known."""
    gone = {7: LastBatch(0, 5, 2)}
    check_snapshots("t-0", log_with(5, {8: EIGHT, 9: NINE, **gone}, first_offset=3))
    with pytest.raises(InvariantViolated, match="I2: t-0, snapshot 5: of producer 7"):
        check_snapshots("t-0", log_with(5, {8: EIGHT, 9: NINE, 7: LastBatch(0, 5, 3)}, first_offset=3))


def test_a_producer_may_outlive_its_batches_but_for_a_marker() -> None:
    """The log starts at 3, with the marker of a transaction whose records are deleted."""
    marker = encode_marker_batch(EndTransactionMarker(7, 1, 0, is_commit=True), timestamp_ms=5)
    marker[:8] = (3).to_bytes(8, "big")
    log = read_log({"t-0/00000000000000000003.log": bytes(marker)}, "t-0")
    check_known("t-0", {7: LastBatch(1, 5, 2)}, log, 4)
    for known in (LastBatch(1, 5, 3), LastBatch(0, 5, 2)):
        with pytest.raises(InvariantViolated, match="I2: t-0: of producer 7"):
            check_known("t-0", {7: known}, log, 4)


@pytest.mark.parametrize(
    ("offset", "known"),
    [
        (5, {8: EIGHT}),
        (5, {8: LastBatch(0, 0, 1), 9: NINE}),
        (4, {8: EIGHT, 9: NINE}),
        (5, {8: EIGHT, 9: LastBatch(2, 0, 4)}),
        (5, {8: EIGHT._replace(last_sequence=2), 9: NINE}),
        (5, {8: EIGHT, 9: NINE, 7: LastBatch(0, 0, 0)}),
        (6, {8: EIGHT, 9: NINE}),
    ],
)
def test_a_snapshot_that_differs_from_the_batches_is_found(offset: int, known: dict[int, LastBatch]) -> None:
    """A forgotten producer, a forgotten batch, a batch beyond the snapshot, a wrong epoch, a wrong sequence number, a
    producer that never wrote, and a snapshot beyond the log end."""
    with pytest.raises(InvariantViolated) as caught:
        check_snapshots("t-0", log_with(offset, known))
    assert caught.value.invariant == "I2"


def test_a_damaged_snapshot_says_nothing() -> None:
    """A broker does not use it either."""
    log = log_with(5, {8: NINE})
    damaged = bytearray(log.snapshots[5])
    damaged[9] ^= 1
    for content in (bytes(damaged), log.snapshots[5][:-1], b""):
        log.snapshots[5] = content
        check_snapshots("t-0", log)


def test_what_a_running_broker_knows_is_judged_too() -> None:
    log = log_with(5, {8: EIGHT, 9: NINE})
    check_known("t-0", {8: EIGHT, 9: NINE}, log, 5)
    with pytest.raises(InvariantViolated, match="I2: t-0: of producer 9"):
        check_known("t-0", {8: EIGHT}, log, 5)


def test_what_is_known_beyond_the_end_is_found() -> None:
    """A log that was truncated to 4 must have forgotten the batch at 4, and the snapshot at 5."""
    producers = LogProducers(SimulatedWorld(1).node("a").log_dir("/d", operation_timeout_ns=1), [4])
    producers.state.note(read_header(batch(4, 9, 0)), 4)
    assert known_beyond(5, producers) is None
    assert known_beyond(4, producers) == "of producer 9 it knows offset 4, the log ends at 4"
    producers = LogProducers(SimulatedWorld(1).node("a").log_dir("/d", operation_timeout_ns=1), [4, 5])
    assert known_beyond(5, producers) is None
    assert known_beyond(4, producers) == "it keeps a producer snapshot at 5, the log ends at 4"
