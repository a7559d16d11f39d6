"""One row per record of the metadata log: the columns, and how each record type fills them (core).

A row is the record as written, not the state it led to: if a change does not mention a field, its column is null. The column
`directories` shows reserved directory ids by name (UNASSIGNED, LOST, MIGRATING), whichever numbering the cluster uses; the
JSON shows them with the numbers that the log has. All rows of a snapshot carry the offset and time of the last record that
the snapshot covers, so `position` gives their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from analytics.record_text import RecordTexts, UuidTexts
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.metadata_version import UnknownMetadataVersion
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.records.batch import BatchHeader
from common.records.control import ControlRecordType, UnknownControlRecord, decode_control_message
from common.records.metadata_frame import UnknownRecord, UnknownRecordType, decode_any_record, read_frame_head
from common.records.metadata_records import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    FencingChange,
    KnownRecord,
    MetadataRecordType,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from common.records.record import Record, iterate_records, iterate_values


class Kind(Enum):
    """The type of a column."""

    LONG = "int64"
    INT = "int32"
    BOOL = "bool"
    TIME = "timestamp"
    NAME = "name"
    TEXT = "text"
    BYTES = "bytes"
    INTS = "list of int32"
    TEXTS = "list of text"


COLUMNS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        # --- the record's place in the log
        "offset": Kind.LONG,
        "epoch": Kind.INT,
        "time": Kind.TIME,
        "source": Kind.NAME,
        "batch_offset": Kind.LONG,
        "transaction_offset": Kind.LONG,
        "position": Kind.INT,
        # --- the record's type
        "type": Kind.NAME,
        "type_number": Kind.INT,
        "version": Kind.INT,
        "is_control": Kind.BOOL,
        # --- brokers
        "broker_id": Kind.INT,
        "broker_epoch": Kind.LONG,
        "incarnation_id": Kind.TEXT,
        "fenced": Kind.BOOL,
        "in_controlled_shutdown": Kind.BOOL,
        "log_dirs": Kind.TEXTS,
        "lost_log_dirs": Kind.TEXTS,
        # --- topics and partitions
        "topic_id": Kind.TEXT,
        "topic_name": Kind.TEXT,
        "partition": Kind.INT,
        "leader": Kind.INT,
        "leader_epoch": Kind.INT,
        "partition_epoch": Kind.INT,
        "leader_recovery_state": Kind.INT,
        "replicas": Kind.INTS,
        "isr": Kind.INTS,
        "removing_replicas": Kind.INTS,
        "adding_replicas": Kind.INTS,
        "directories": Kind.TEXTS,
        # --- the whole record
        "record": Kind.TEXT,
        "raw": Kind.BYTES,
    }
)

Row = tuple[Any, ...]

SEGMENT: Final = "segment"
SNAPSHOT: Final = "snapshot"
UNKNOWN: Final = "UNKNOWN"
UNREADABLE: Final = "UNREADABLE"

_RESERVED_NAMES: Final = MappingProxyType[bytes, str]({UNASSIGNED: "UNASSIGNED", LOST: "LOST", MIGRATING: "MIGRATING"})
_TYPE_NAMES: Final = MappingProxyType({int(each): each.name for each in MetadataRecordType})
_CONTROL_NAMES: Final = MappingProxyType({int(each): each.name for each in ControlRecordType})

_NO_BROKER: Final = (None,) * 7
_NO_PARTITION: Final = (None,) * 12
_NO_FIELDS: Final = _NO_BROKER + _NO_PARTITION


class UnknownNumbering(Exception):
    """The cluster's numbering of reserved directory ids is unknown to this code."""


class RecordRows:
    """Turns the batches of one log, in order, into rows. Keeps track of the numbering of directory ids and of the open
    metadata transaction."""

    def __init__(self, numbering: Numbering = Numbering.APACHE, transaction_offset: int | None = None) -> None:
        self._reader = MetadataRecordReader(numbering)
        # The offset of the record that began the open transaction. None outside of a transaction.
        self.transaction_offset = transaction_offset
        self.uuids = UuidTexts()
        self._records = RecordTexts(self.uuids)

    @property
    def numbering(self) -> Numbering:
        return self._reader.numbering

    def of_log_batch(self, header: BatchHeader, view: memoryview) -> Iterator[Row]:
        """Returns a row per record of a batch, control records included. Raises BatchError, UnknownNumbering."""
        epoch, time_ms, base = header.partition_leader_epoch, header.max_timestamp, header.base_offset
        if header.is_control:
            for control in iterate_records(view):
                yield (control.offset, epoch, time_ms, SEGMENT, base, None, None, *_control_part(control))
            return
        for offset, frame in iterate_values(view):
            part, record = self._data_part(frame)
            if isinstance(record, BeginTransactionRecord):
                self.transaction_offset = offset
            yield (offset, epoch, time_ms, SEGMENT, base, self.transaction_offset, None, *part)
            if isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                self.transaction_offset = None

    def of_snapshot(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, end_offset: int, epoch: int, time_ms: int
    ) -> Iterator[Row]:
        """Returns a row per record of a snapshot, control records included. Raises BatchError, UnknownNumbering."""
        # A snapshot starts from scratch: forget the numbering and the transaction of the log read so far.
        self._reader = MetadataRecordReader()
        self.transaction_offset = None
        place = (end_offset - 1, epoch, time_ms, SNAPSHOT, end_offset - 1, None)
        for header, view in batches:
            if header.is_control:
                for record in iterate_records(view):
                    yield (*place, record.offset, *_control_part(record))
            else:
                for position, frame in iterate_values(view):
                    yield (*place, position, *self._data_part(frame)[0])

    def _data_part(self, frame: memoryview) -> tuple[Row, KnownRecord | None]:
        """Returns the columns after the record's place, and the record itself if it can be read."""
        try:
            number, version, _ = read_frame_head(frame)
        except ProtocolError:
            return (UNREADABLE, None, None, False, *_NO_FIELDS, None, bytes(frame)), None
        name = _TYPE_NAMES.get(number, UNKNOWN)
        try:
            record = self._reader.decode(frame)
        except UnknownRecordType:
            # The record's type, or its version, is newer than this code: keep the record's bytes without the frame's head.
            unknown = decode_any_record(frame, self.numbering)
            raw = unknown.body if isinstance(unknown, UnknownRecord) else bytes(frame)
            return (name, number, version, False, *_NO_FIELDS, None, raw), None
        except UnknownMetadataVersion as error:
            raise UnknownNumbering(str(error)) from error
        except ProtocolError:
            return (UNREADABLE, number, version, False, *_NO_FIELDS, None, bytes(frame)), None
        fill = _FILLERS.get(type(record))
        fields = _NO_FIELDS if fill is None else fill(self, record)
        # Tagged fields of a later version are unknown to this code and have no column, so keep the raw bytes.
        kept = bytes(frame) if record.unknown_tagged_fields else None
        return (name, number, version, False, *fields, self._records.text(record, version, self.numbering), kept), record

    def places(self, directories: Sequence[bytes]) -> list[str]:
        """Returns assigned directories as text, reserved ones by name."""
        uuids = self.uuids
        return [_RESERVED_NAMES[each] if each in _RESERVED_NAMES else uuids[each] for each in directories]


def _control_part(record: Record) -> Row:
    message = decode_control_message(record)
    if isinstance(message, UnknownControlRecord):
        name = _CONTROL_NAMES.get(message.record_type, UNKNOWN)
        return (name, message.record_type, None, True, *_NO_FIELDS, None, bytes(message.value))
    # The key holds the version (int16) and the type (int16). There is a key here: without one, decoding would already have
    # failed.
    number = int.from_bytes(bytes(record.key or b"")[2:4], "big", signed=True)
    text = RecordTexts(UuidTexts()).text(message, message.version)
    return (_CONTROL_NAMES[number], number, message.version, True, *_NO_FIELDS, text, None)


# --- the typed columns of each record ---------------------------------------------------------------------------------


def _register_broker(rows: RecordRows, record: RegisterBrokerRecord) -> Row:
    return (
        record.broker_id,
        record.broker_epoch,
        rows.uuids[record.incarnation_id],
        record.fenced,
        record.in_controlled_shutdown,
        [rows.uuids[each] for each in record.log_dirs],
        [rows.uuids[each] for each in record.lost_log_dirs],
        *_NO_PARTITION,
    )


def _broker_registration_change(rows: RecordRows, record: BrokerRegistrationChangeRecord) -> Row:
    fenced = None if record.fenced == FencingChange.NONE else record.fenced == FencingChange.FENCE
    # An empty list of directories means "unchanged", which is null in a row.
    log_dirs = [rows.uuids[each] for each in record.log_dirs] or None
    shutdown = True if record.in_controlled_shutdown else None
    return (record.broker_id, record.broker_epoch, None, fenced, shutdown, log_dirs, None, *_NO_PARTITION)


def _unregister_broker(_rows: RecordRows, record: UnregisterBrokerRecord) -> Row:
    return (record.broker_id, record.broker_epoch, None, None, None, None, None, *_NO_PARTITION)


def _fence_broker(_rows: RecordRows, record: FenceBrokerRecord) -> Row:
    return (record.id, record.epoch, None, True, None, None, None, *_NO_PARTITION)


def _unfence_broker(_rows: RecordRows, record: UnfenceBrokerRecord) -> Row:
    return (record.id, record.epoch, None, False, None, None, None, *_NO_PARTITION)


def _topic(rows: RecordRows, record: TopicRecord) -> Row:
    return (*_NO_BROKER, rows.uuids[record.topic_id], record.name, *_NO_PARTITION[2:])


def _remove_topic(rows: RecordRows, record: RemoveTopicRecord) -> Row:
    return (*_NO_BROKER, rows.uuids[record.topic_id], *_NO_PARTITION[1:])


def _partition(rows: RecordRows, record: PartitionRecord) -> Row:
    return (
        *_NO_BROKER,
        rows.uuids[record.topic_id],
        None,
        record.partition_id,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        record.replicas,
        record.isr,
        record.removing_replicas,
        record.adding_replicas,
        # A record from before KIP-858 has no directories: every replica is MIGRATING.
        rows.places(record.directories or [MIGRATING] * len(record.replicas)),
    )


def _partition_change(rows: RecordRows, record: PartitionChangeRecord) -> Row:
    recovery = record.leader_recovery_state
    return (
        *_NO_BROKER,
        rows.uuids[record.topic_id],
        None,
        record.partition_id,
        None if record.leader == NO_LEADER_CHANGE else record.leader,
        None,
        None,
        None if recovery == NO_RECOVERY_STATE_CHANGE else recovery,
        record.replicas,
        record.isr,
        record.removing_replicas,
        record.adding_replicas,
        None if record.directories is None else rows.places(record.directories),
    )


_FILLERS: Final = MappingProxyType[type[KnownRecord], Callable[[RecordRows, Any], Row]](
    {
        RegisterBrokerRecord: _register_broker,
        BrokerRegistrationChangeRecord: _broker_registration_change,
        UnregisterBrokerRecord: _unregister_broker,
        FenceBrokerRecord: _fence_broker,
        UnfenceBrokerRecord: _unfence_broker,
        TopicRecord: _topic,
        RemoveTopicRecord: _remove_topic,
        PartitionRecord: _partition,
        PartitionChangeRecord: _partition_change,
    }
)
