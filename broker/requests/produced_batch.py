"""Checks the batch that a client has sent for one partition, and prepares it for the log (shell without I/O).

Counterpart of Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator. Records are not decoded, except in compacted
topics, for suspicious timestamps, and where the topic has a compression of its own.
"""

from collections.abc import Sequence

from broker.hosting.partition import Partition
from broker.requests.produced_records import (
    keyless_records,
    recompressed,
    record_errors,
    summary,
    timestamp_errors,
    untimely_records,
)
from common.protocol.errors import ErrorCode
from common.protocol.messages.produce import BatchIndexAndErrorMessage
from common.records.batch import (
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    BatchError,
    BatchHeader,
    CorruptBatch,
    InvalidRecordBatch,
    WrongMagic,
    read_header,
    split_batches,
    validate_produced_batch,
)

_ZSTD = 4
_ZSTD_FIRST_VERSION = 7

Batch = tuple[BatchHeader, memoryview]


class Refused(Exception):
    """The records of one partition cannot be appended. `message` is for humans, `record_errors` names the records."""

    def __init__(
        self, code: ErrorCode, message: str | None = None, record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.record_errors = [*record_errors]


def validated(records: object, partition: Partition, *, api_version: int) -> Batch:
    """Validates the single batch of a partition, and only in a compacted topic its records. Raises Refused."""
    if not isinstance(records, memoryview) or not len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch, there is none")
    if records.readonly:
        # Copy the batch, because its offset and epoch are stamped in place.
        records = memoryview(bytearray(records))
    try:
        header, view = read_header(records), records
        size = len(records)
        if header.batch_length + LOG_OVERHEAD != size:
            batches = split_batches(records)
            raise Refused(ErrorCode.INVALID_RECORD, f"a partition takes exactly one record batch, not {len(batches)}")
        validate_produced_batch(header, view)
    except (WrongMagic, InvalidRecordBatch) as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    except (CorruptBatch, BatchError) as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    _validate_served(header, size, partition, api_version=api_version)
    if partition.config.is_compacted:
        _validate_keys(header, view, partition)
    return header, view


def compressed_as_stored(batch: Batch, partition: Partition, wanted: tuple[int, int | None]) -> Batch:
    """Compresses the batch with the codec that the topic wants. A batch of that codec stays as it is, whatever its level.
    This happens on the event loop, so it delays other requests by the time that the codec takes."""
    header, view = batch
    code, level = wanted
    if header.compression == code:
        return batch
    try:
        changed = recompressed(header, view, code, level)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    # The batch may have become larger.
    _validate_size(changed[0].size, partition)
    return changed


def _validate_keys(header: BatchHeader, view: memoryview, partition: Partition) -> None:
    try:
        keyless = keyless_records(header, view)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    if keyless:
        errors = record_errors(partition.name, keyless)
        raise Refused(ErrorCode.INVALID_RECORD, summary(errors), errors)


def validate_timestamps(header: BatchHeader, view: memoryview, partition: Partition, now_ms: int) -> None:
    config = partition.config
    earliest_ms, latest_ms = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp <= latest_ms and earliest_ms < 0:
        return
    try:
        untimely = untimely_records(header, view, earliest_ms=earliest_ms, latest_ms=latest_ms)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    if untimely:
        message = "One or more records have been rejected due to invalid timestamp"
        errors = timestamp_errors(untimely, earliest_ms=earliest_ms, latest_ms=latest_ms)
        raise Refused(ErrorCode.INVALID_TIMESTAMP, message, errors)


def _validate_served(header: BatchHeader, size: int, partition: Partition, *, api_version: int) -> None:
    _validate_size(size, partition)
    if header.attributes & TIMESTAMP_TYPE_BIT:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not send batches with LogAppendTime")
    if header.attributes & COMPRESSION_MASK == _ZSTD and api_version < _ZSTD_FIRST_VERSION:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {_ZSTD_FIRST_VERSION} or newer")


def _validate_size(size: int, partition: Partition) -> None:
    config = partition.config
    if size > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise Refused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the record batch has {size} bytes, segment.bytes is {config.segment_bytes}",
        )
