"""Checks what the replicas know about their producers: I2.

Shell of the tests. It has its own reader of producer snapshots and its own idea of the state: the last batch of each
producer in the file. A replica that forgot a batch would store its retry as well. One that remembered a batch which was
truncated would acknowledge a retry of it, and the record would be lost.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from common.storage.producers.log_producers import LogProducers
from tests.simulation.checkers.raw_logs import RawLog
from tests.simulation.violations import InvariantViolated

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_BEFORE_CRC_RANGE = 6
SEQUENCES = 2**31


class LastBatch(NamedTuple):
    """The last batch of one producer."""

    epoch: int
    last_sequence: int
    last_offset: int


def read_snapshot(content: bytes) -> dict[int, LastBatch] | None:
    """Returns the last batch of each producer id, None if the file is damaged: a broker then uses an older one."""
    if len(content) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(content)
    if version != 1 or crc != crc32c(content[_BEFORE_CRC_RANGE:]) or len(content) != _HEAD.size + count * _ENTRY.size:
        return None
    return {
        producer_id: LastBatch(epoch, last_sequence, last_offset)
        for producer_id, epoch, last_sequence, last_offset, *_ in _ENTRY.iter_unpack(content[_HEAD.size :])
    }


def last_batches(log: RawLog, end_offset: int) -> dict[int, LastBatch]:
    """Returns the last batch of each producer id below this offset; -1 for what a batch or a marker does not have."""
    found: dict[int, LastBatch] = {}
    for batch in log.batches:
        if batch.producer_id < 0 or batch.last_offset >= end_offset:
            continue
        if batch.is_control:
            # A transaction marker is no batch of the producer, but with another epoch it makes the earlier ones void.
            known = found.get(batch.producer_id)
            if known is None or known.epoch != batch.producer_epoch:
                found[batch.producer_id] = LastBatch(batch.producer_epoch, -1, -1)
            continue
        last_sequence = -1
        if batch.base_sequence >= 0:
            last_sequence = (batch.base_sequence + batch.last_offset - batch.base_offset) % SEQUENCES
        found[batch.producer_id] = LastBatch(batch.producer_epoch, last_sequence, batch.last_offset)
    return found


def check_snapshots(where: str, log: RawLog) -> None:
    """I2: each snapshot beside a log says what the batches below its offset say. None lies beyond the log end."""
    for offset, content in log.snapshots.items():
        known = read_snapshot(content)
        if offset > log.end_offset:
            raise InvariantViolated(
                "I2", f"{where}: there is a producer snapshot at {offset}, the log ends at {log.end_offset}"
            )
        # Of what was known at an earlier offset, compaction leaves only what is still the last batch of its producer.
        if known is not None and not log.is_compacted:
            check_known(f"{where}, snapshot {offset}", known, log, offset)


def known_beyond(log_end_offset: int, producers: LogProducers) -> str | None:
    """I2: a log knows nothing that is beyond its end, not even for a moment after it was truncated. Describes what it knows
    there; returns None if that is nothing."""
    for producer_id, entry in producers.state.entries.items():
        if entry.last_offset >= log_end_offset:
            return f"of producer {producer_id} it knows offset {entry.last_offset}, the log ends at {log_end_offset}"
    for offset in producers.snapshot_offsets[-1:]:
        if offset > log_end_offset:
            return f"it keeps a producer snapshot at {offset}, the log ends at {log_end_offset}"
    return None


def check_known(where: str, known: Mapping[int, LastBatch], log: RawLog, end_offset: int) -> None:
    """I2: what is known of each producer is its last batch below this offset. Of a producer without a batch in the log, or
    with nothing left of this epoch but a transaction marker, only batches that were deleted may be known."""
    expected = last_batches(log, end_offset)
    for producer_id in {**expected, **known}:
        actual, last = known.get(producer_id), expected.get(producer_id)
        has_no_batch = last is None or (actual is not None and last == LastBatch(actual.epoch, -1, -1))
        is_deleted = has_no_batch and actual is not None and actual.last_offset < log.start_offset
        if actual != last and not is_deleted:
            raise InvariantViolated("I2", f"{where}: of producer {producer_id} it knows {actual}, its last batch is {last}")
