"""The frame around one record of the metadata log (core).

The value of each data record is: unsigned varint frame version (1), unsigned varint record type, unsigned varint record
version, body. Answers to Kafka's MetadataRecordSerde.

Easy to get wrong: a daemon may not skip a type that it does not know, because the rest of the log builds on it;
`decode_record` therefore raises. Tools that copy or print a log use `decode_any_record`, which keeps the bytes.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.protocol.codec import decode, encode
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.protocol.schema import message_schema
from common.records.metadata_records import RECORD_CLASSES, KnownRecord

FRAME_VERSION = 1


class MalformedRecord(ProtocolError):
    """The bytes are no metadata record."""


class UnknownRecordType(ProtocolError):
    """The record has a type, or a version of its type, that this code does not know."""


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a type or version that is not declared here, as its bytes."""

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
    """A record that is to be written, and in which version. Named as in Kafka."""

    record: KnownRecord
    version: int


def encode_record(record: KnownRecord, version: int, numbering: Numbering) -> bytes:
    """The framed record. Raises EncodeError for a value that this version cannot hold."""
    api_key = message_schema(type(record)).api_key
    if api_key is None:
        raise MalformedRecord(f"{type(record).__name__} has no record type")
    head = bytearray((FRAME_VERSION,))
    _append_uvarint(head, api_key)
    _append_uvarint(head, version)
    return bytes(head) + encode(record, version, numbering=numbering)


def decode_record(frame: bytes | bytearray | memoryview, numbering: Numbering) -> KnownRecord:
    """The record. Raises UnknownRecordType, or another ProtocolError for bytes that form no record."""
    record = decode_any_record(frame, numbering)
    if isinstance(record, UnknownRecord):
        raise UnknownRecordType(
            f"the metadata log holds a record of type {record.record_type} version {record.version}, which is not known here"
        )
    return record


def decode_any_record(frame: bytes | bytearray | memoryview, numbering: Numbering) -> MetadataRecord:
    """The record, or its bytes where the type or version is not known. Raises ProtocolError."""
    record_type, version, position = read_frame_head(frame)
    body = memoryview(frame)[position:]
    record_class = _KNOWN.get((record_type, version))
    if record_class is None:
        return UnknownRecord(record_type, version, bytes(body))
    return decode(record_class, body, version, numbering=numbering)


def read_frame_head(frame: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """Record type, record version, and the position of the body. Raises MalformedRecord."""
    # Nearly every record has three single-byte varints.
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


def _read_uvarint(frame: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
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
