"""Checks the batch that a client has sent for one partition, and prepares it for the log (shell without I/O).

Counterpart of Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator. Records are not decoded, except in compacted
topics, for suspicious timestamps, and where the topic has a compression of its own. Then the work is bounded
(`RecordsLookedAt`): it happens in the one step that appends a request, and a few kilobytes can hold millions of records.
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
    TIMESTAMP_TYPE_BIT,
    BatchError,
    BatchHeader,
    InvalidRecordBatch,
    OldFormat,
    TruncatedBatch,
    read_header,
    split_batches,
    validate_produced_batch,
)
from common.records.decompression import BecomesTooLarge
from common.storage.compaction.record_spans import opened_payload

_ZSTD = 4
_ZSTD_FIRST_VERSION = 7
# To look at so many records takes about a fifth of a second.
RECORDS_MAX = 100_000
# How large compressed records may become, unless max.message.bytes allows a batch of more.
OPENED_BYTES_MAX = 32 << 20
# How much may be compressed again, unless max.message.bytes allows a batch of more. With gzip that takes about a fifth of a
# second, and with records that are made for it several times as long.
RECOMPRESSED_BYTES_MAX = 2 << 20

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


class RecordsLookedAt:
    """Counts what a request makes the broker open and look at. A batch that is too large alone is refused for good: a Java
    producer splits it. One that is too much after the others is refused for the moment, and the client sends it again."""

    __slots__ = ("_count", "_opened_bytes", "_recompressed_bytes")

    def __init__(self) -> None:
        self._count = 0
        self._opened_bytes = 0
        self._recompressed_bytes = 0

    def add(self, header: BatchHeader) -> None:
        """Counts the records of a batch that will be looked at. Raises Refused."""
        if header.record_count > RECORDS_MAX:
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the broker has to look at every record, and the batch has {header.record_count}, more than {RECORDS_MAX}",
            )
        self._count += header.record_count
        if self._count > RECORDS_MAX:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the broker has to look at more than {RECORDS_MAX} records of one request; send this batch again",
            )

    def opened(self, header: BatchHeader, view: memoryview, partition: Partition) -> memoryview:
        """Returns the records, decompressed if necessary. Raises Refused and InvalidRecordBatch."""
        if not header.compression:
            return opened_payload(header, view)
        if self._opened_bytes >= OPENED_BYTES_MAX:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the broker opens no more than {OPENED_BYTES_MAX} bytes of one request; send this batch again",
            )
        size_max = max(OPENED_BYTES_MAX, partition.config.max_message_bytes)
        # To find out that a batch is damaged or too large may take as long as to open one of that size.
        opened_bytes, self._opened_bytes = self._opened_bytes, self._opened_bytes + size_max
        try:
            payload = opened_payload(header, view, size_max=size_max)
        except BecomesTooLarge as error:
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"the broker has to open this batch: {error}") from None
        self._opened_bytes = opened_bytes + len(payload)
        return payload

    def add_recompressed(self, payload: memoryview, partition: Partition) -> None:
        """Counts records that will be compressed again. Raises Refused."""
        size_max = max(RECOMPRESSED_BYTES_MAX, partition.config.max_message_bytes)
        if len(payload) > size_max:
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the broker has to compress this batch again, and {len(payload)} bytes are more than {size_max}",
            )
        if self._recompressed_bytes and self._recompressed_bytes + len(payload) > size_max:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the broker compresses no more than {size_max} bytes of one request again; send this batch again",
            )
        self._recompressed_bytes += len(payload)


def validated(records: object, partition: Partition, *, api_version: int) -> Batch:
    """Validates the single batch of a partition, without looking at its records. Bytes after it that are too few for
    another batch are dropped, as in Apache Kafka. Raises Refused."""
    if not isinstance(records, memoryview) or not len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch, there is none")
    if records.readonly:
        # Copy the batch, because its offset and epoch are stamped in place.
        records = memoryview(bytearray(records))
    try:
        header, view = read_header(records), records
        if header.size < len(records):
            batches = split_batches(records, allow_partial_tail=True)
            if len(batches) > 1:
                raise Refused(ErrorCode.INVALID_RECORD, f"a partition takes exactly one record batch, not {len(batches)}")
            header, view = batches[0]
        validate_produced_batch(header, view)
    except (OldFormat, TruncatedBatch, InvalidRecordBatch) as error:
        # To Apache Kafka, a batch that is cut short is none.
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    except BatchError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    _validate_served(header, header.size, partition, api_version=api_version)
    return header, view


def with_valid_records(batch: Batch, partition: Partition, now_ms: int, looked_at: RecordsLookedAt) -> Batch:
    """Checks the records where the topic or the timestamp in the header demands it. Returns the batch with the codec that
    the topic wants; one that has it stays as it is, whatever its level. Raises Refused."""
    header, view = batch
    config = partition.config
    wanted = config.stored_compression
    is_recompressed = wanted is not None and header.compression != wanted[0]
    earliest_ms, latest_ms = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    is_suspicious = not config.has_log_append_time and (header.max_timestamp > latest_ms or earliest_ms >= 0)
    if not (config.is_compacted or is_suspicious or is_recompressed):
        return batch
    try:
        if config.is_compacted or is_suspicious:
            looked_at.add(header)
        payload = looked_at.opened(header, view, partition)
        if config.is_compacted:
            _validate_keys(header, payload, partition)
        if is_suspicious:
            _validate_timestamps(header, payload, earliest_ms=earliest_ms, latest_ms=latest_ms)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    if wanted is None or not is_recompressed:
        return batch
    if wanted[0]:
        looked_at.add_recompressed(payload, partition)
    changed = recompressed(header, payload, *wanted)
    # The batch may have become larger.
    _validate_size(changed[0].size, partition)
    return changed


def _validate_keys(header: BatchHeader, payload: memoryview, partition: Partition) -> None:
    keyless = keyless_records(header, payload)
    if keyless:
        errors = record_errors(partition.name, keyless)
        raise Refused(ErrorCode.INVALID_RECORD, summary(errors, len(keyless)), errors)


def _validate_timestamps(header: BatchHeader, payload: memoryview, *, earliest_ms: int, latest_ms: int) -> None:
    untimely = untimely_records(header, payload, earliest_ms=earliest_ms, latest_ms=latest_ms)
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
