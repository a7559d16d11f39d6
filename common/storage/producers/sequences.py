"""Arithmetic of sequence numbers (core).

A producer numbers the records that it sends to one partition from 0 to 2^31-1, and then from 0 again. A batch carries the
number of its first record. Counterpart of `incrementSequence` and `decrementSequence` in Kafka's DefaultRecordBatch.
"""

from typing import Final

from common.records.batch import NO_SEQUENCE, BatchHeader

SEQUENCE_MAX: Final = 2**31 - 1


def sequence_after(sequence: int, count: int) -> int:
    """Returns the sequence number `count` records after `sequence`, which is -1 if there was none."""
    return (sequence + count) & SEQUENCE_MAX


def sequence_before(sequence: int, count: int) -> int:
    """Returns the sequence number `count` records before `sequence`."""
    return (sequence - count) & SEQUENCE_MAX


def last_sequence(header: BatchHeader) -> int:
    """Returns the sequence number of the batch's last record, which compaction may have removed; -1 for a batch without
    sequence numbers."""
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return sequence_after(header.base_sequence, header.last_offset_delta)
