"""Control records, which the quorum writes into the metadata log and its snapshots (core).

A batch of control records has the control bit set in its attributes. Each record's key is an int16 version (0) and an int16
type; its value is a flexible message. Counterpart of Kafka's ControlRecordType and RecordsUtil.

LeaderChangeMessage is written as version 0 although version 1 exists: Kafka's metadata shell and the nodes of a cluster with
kraft.version 0 cannot read version 1. The field `version` *inside* each message must equal the version of the encoding.
"""

import struct as struct_module
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from common.ids import ZERO_UUID, Offset, Uuid
from common.parts import Buffer
from common.protocol.codec import decode, encode
from common.protocol.errors import ProtocolError
from common.protocol.schema import Int16, Int32, Int64, Kind, String, Struct, UInt16, field, message, message_schema, struct
from common.records.batch import CONTROL_BIT, NO_PARTITION_LEADER_EPOCH, InvalidRecordBatch, read_header
from common.records.record import Record, encode_batch, iterate_records

_KEY = struct_module.Struct(">hh")


class ControlRecordType(IntEnum):
    """The types of control records found in a metadata log."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@struct
class LeaderChangeVoter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = field(default=ZERO_UUID, versions="1+")


@message(kind=Kind.DATA, versions="0-1", flexible="0+")
class LeaderChangeMessage(Struct):
    """The first record of every leader epoch."""

    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[LeaderChangeVoter] = field(default_factory=list)
    granting_voters: list[LeaderChangeVoter] = field(default_factory=list)


@message(kind=Kind.DATA, versions="0", flexible="0+")
class SnapshotHeaderRecord(Struct):
    """The first record of a snapshot."""

    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


@message(kind=Kind.DATA, versions="0", flexible="0+")
class SnapshotFooterRecord(Struct):
    """The last record of a snapshot. A file without it is incomplete."""

    version: Int16 = 0


@message(kind=Kind.DATA, versions="0", flexible="0+")
class KRaftVersionRecord(Struct):
    """Finalizes kraft.version at the level `k_raft_version`."""

    version: Int16 = 0
    k_raft_version: Int16 = 0


@struct
class VoterEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


@struct
class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@struct
class Voter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: list[VoterEndpoint] = field(default_factory=list)
    k_raft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)


@message(kind=Kind.DATA, versions="0", flexible="0+")
class VotersRecord(Struct):
    """The set of voters. Written from kraft.version 1 on."""

    version: Int16 = 0
    voters: list[Voter] = field(default_factory=list)


ControlMessage = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord


@dataclass(frozen=True, slots=True)
class UnknownControlRecord:
    """A control record of an unknown type, for example a transaction marker."""

    record_type: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One control record of a batch, with its offset."""

    offset: Offset
    message: ControlMessage | UnknownControlRecord


_CLASSES: Final = MappingProxyType[int, type[ControlMessage]](
    {
        ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
        ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
        ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
        ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
        ControlRecordType.KRAFT_VOTERS: VotersRecord,
    }
)
_TYPES: Final = MappingProxyType({record_class: record_type for record_type, record_class in _CLASSES.items()})


def encode_control_batch(
    messages: Sequence[ControlMessage],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Encodes these messages as a control batch, each in the version given by its own `version` field."""
    records = [Record(_KEY.pack(0, _TYPES[type(each)]), encode(each, each.version), timestamp_ms) for each in messages]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, attributes=CONTROL_BIT)


def iterate_control_records(batch: Buffer) -> Iterator[ControlRecord]:
    """Iterates over the records of a control batch. Raises InvalidRecordBatch if the batch is malformed or holds data."""
    if not read_header(batch).is_control:
        raise InvalidRecordBatch("a batch of data was read as a control batch")
    for record in iterate_records(batch):
        yield ControlRecord(Offset(record.offset), decode_control_message(record))


def decode_control_message(record: Record) -> ControlMessage | UnknownControlRecord:
    """Decodes a record of a control batch. Raises InvalidRecordBatch."""
    if record.key is None or len(record.key) < _KEY.size or record.value is None:
        raise InvalidRecordBatch("a control record has no key or no value")
    key_version, record_type = _KEY.unpack_from(record.key)
    if key_version < 0:
        raise InvalidRecordBatch(f"a control record has key version {key_version}")
    record_class = _CLASSES.get(record_type)
    if record_class is None:
        return UnknownControlRecord(record_type, bytes(record.value))
    if len(record.value) < 2:
        raise InvalidRecordBatch("a control record ends within its version")
    # The known control messages all start with the version of their encoding.
    version = int.from_bytes(record.value[:2], "big", signed=True)
    if version not in message_schema(record_class).versions:
        raise InvalidRecordBatch(f"{record_class.__name__} has the unknown version {version}")
    try:
        return decode(record_class, record.value, version)
    except ProtocolError as error:
        raise InvalidRecordBatch(f"{record_class.__name__} cannot be read: {error}") from error
