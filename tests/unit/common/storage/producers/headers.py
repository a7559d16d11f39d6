"""Batches of idempotent producers for the tests of this folder."""

from common.records.batch import BatchHeader, read_header
from common.records.record import Record, encode_batch


def produced_batch(
    producer_id: int,
    sequence: int,
    *,
    epoch: int = 0,
    records: int = 1,
    timestamp: int = 1000,
    attributes: int = 0,
    offset: int = 0,
    size: int = 10,
) -> tuple[BatchHeader, memoryview]:
    """Returns a batch of equal records with a producer id."""
    encoded = encode_batch(
        [Record(None, bytes(size), timestamp)] * records,
        base_offset=offset,
        leader_epoch=0,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return read_header(encoded), memoryview(encoded)


def header(producer_id: int, sequence: int, *, epoch: int = 0, records: int = 1, attributes: int = 0) -> BatchHeader:
    """Returns the header of such a batch."""
    return produced_batch(producer_id, sequence, epoch=epoch, records=records, attributes=attributes)[0]
