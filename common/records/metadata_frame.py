"""The frame around a record of the metadata log (core).

The value of each data record is: frame version (1), record type and record version, as unsigned varints, then the body.
Counterpart of Kafka's MetadataRecordSerde.

A daemon must not skip an unknown record type, because the rest of the log builds on it; `decode_record` therefore raises.
Tools that copy or print a log use `decode_any_record`, which keeps the bytes.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.parts import Buffer
from common.protocol.codec import decode, encode
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.protocol.schema import message_schema
from common.records.metadata_records import RECORD_CLASSES, KnownRecord

FRAME_VERSION = 1


class MalformedRecord(ProtocolError):
    """The bytes do not form a metadata record."""


class UnknownRecordType(ProtocolError):
    """The record has a type, or a version of its type, that this code does not know."""


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """The raw bytes of a record whose type or version is not declared here."""

    record_type: int
    version: int
    body: bytes


MetadataRecord = KnownRecord | UnknownRecord

_KNOWN: Final = MappingProxyType(
    {
        (record_type, version): record_class
        for record_type, record_class in RECORD_CLASSES.items()
        for version in message_schema(record_class).versions
    }
)


@dataclass(frozen=True, slots=True)
class ApiMessageAndVersion:
    """A record and the version to write it in. Named as in Kafka."""

    record: KnownRecord
    version: int


def encode_record(record: KnownRecord, version: int, numbering: Numbering) -> bytes:
    """Encodes the record with its frame. Raises EncodeError for a value that this version cannot hold."""
    api_key = message_schema(type(record)).api_key
    if api_key is None:
        raise MalformedRecord(f"{type(record).__name__} has no record type")
    head = bytearray((FRAME_VERSION,))
    _append_uvarint(head, api_key)
    _append_uvarint(head, version)
    return bytes(head) + encode(record, version, numbering=numbering)


def decode_record(frame: Buffer, numbering: Numbering) -> KnownRecord:
    """Decodes a record. Raises UnknownRecordType, or another ProtocolError for malformed bytes."""
    record = decode_any_record(frame, numbering)
    if isinstance(record, UnknownRecord):
        raise UnknownRecordType(
            f"the metadata log holds a record of type {record.record_type} version {record.version}, which is not known here"
        )
    return record


def decode_any_record(frame: Buffer, numbering: Numbering) -> MetadataRecord:
    """Decodes a record, or returns an UnknownRecord if its type or version is unknown. Raises ProtocolError."""
    record_type, version, position = read_frame_head(frame)
    body = memoryview(frame)[position:]
    record_class = _KNOWN.get((record_type, version))
    if record_class is None:
        return UnknownRecord(record_type, version, bytes(body))
    return decode(record_class, body, version, numbering=numbering)


def read_frame_head(frame: Buffer) -> tuple[int, int, int]:
    """Reads the frame version, and returns the record type, the record version and the position of the body. Raises
    MalformedRecord."""
    # For nearly every record, all three varints are single bytes.
    if len(frame) >= 3 and frame[0] == FRAME_VERSION and frame[1] < 0x80 and frame[2] < 0x80:
        return frame[1], frame[2], 3
    frame_version, position = _read_uvarint(frame, 0)
    if frame_version != FRAME_VERSION:
        raise MalformedRecord(f"metadata record has frame version {frame_version}, only {FRAME_VERSION} exists")
    record_type, position = _read_uvarint(frame, position)
    version, position = _read_uvarint(frame, position)
    if record_type > 0x7FFF or version > 0x7FFF:
        raise MalformedRecord(f"metadata record has type {record_type} and version {version}")
    return record_type, version, position


def _append_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _read_uvarint(frame: Buffer, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(frame):
            raise MalformedRecord("a metadata record ends within its frame")
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedRecord("a varint in the frame of a metadata record has more than five bytes")
