"""The records of Kafka's internal topics as kafka-dump-log prints them: key and payload as JSON (core).

Counterpart of the MessageParser classes in Kafka's DumpLogSegments. A record that cannot be decoded gets a line like any
other, so that the dump goes on.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from common.parts import Buffer
from common.protocol.codec import decode_with_version
from common.protocol.errors import ProtocolError
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from common.protocol.numbering import Numbering
from common.protocol.schema import Struct
from common.records.consumer_group_records import decode_consumer_key, decode_consumer_value
from common.records.group_records import (
    GROUP_METADATA_KEY_VERSION,
    OffsetCommitKey,
    decode_group,
    decode_key,
    decode_offset,
)
from common.records.metadata_frame import UnknownRecord, decode_any_record, read_frame_head
from common.records.metadata_records import MetadataRecordType
from common.records.record import Record
from common.records.transaction_records import (
    TRANSACTION_KEY_VERSION,
    TransactionLogKey,
    decode_transaction,
    decode_transaction_key,
)
from tools.errors import ToolError
from tools.kafka.record_json import JsonObject, to_json

TOMBSTONE: Final = "<DELETE>"
CONSUMER_PROTOCOL: Final = "consumer"
_VERSION_BYTES: Final = 2

Decoded = tuple[str | None, str | None]
"""The texts of key and payload. None leaves one out."""
Decoder = Callable[[Record], Decoded]


def json_text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def plain(record: Record) -> Decoded:
    """Takes key and value as text."""
    return _text(record.key), _text(record.value)


def _text(content: Buffer | None) -> str | None:
    return None if content is None else bytes(content).decode("utf-8", errors="replace")


# --- metadata --------------------------------------------------------------------------------------------------------


def metadata(record: Record) -> Decoded:
    """Decodes a record of the metadata log, which has no key."""
    return None, _metadata_text(record)


def _metadata_text(record: Record) -> str:
    frame = record.value if record.value is not None else b""
    try:
        record_type, version, _ = read_frame_head(frame)
        # Print reserved directory ids untranslated, with the numbers that the file has.
        decoded = decode_any_record(frame, Numbering.KIP858)
    except ProtocolError as error:
        return f"Error at {record.offset}, skipping. {error}"
    if isinstance(decoded, UnknownRecord):
        return f"Error at {record.offset}, skipping. Unknown metadata record type {decoded.record_type} version {version}"
    return json_text({"type": MetadataRecordType(record_type).name, "version": version, "data": to_json(decoded, version)})


# --- coordinators ----------------------------------------------------------------------------------------------------


def offsets(record: Record) -> Decoded:
    """Decodes a record of __consumer_offsets. Raises ToolError for a record without a key, which belongs elsewhere."""
    return _coordinator_record(record, "offset", _group_record)


def transactions(record: Record) -> Decoded:
    """Decodes a record of __transaction_state. Raises ToolError for a record without a key."""
    return _coordinator_record(record, "transaction log", _transaction_record)


# The key, None if it is of an unknown kind, and the way to decode its value.
_Parsed = tuple[Struct, Callable[[Buffer], JsonObject]] | None


def _coordinator_record(record: Record, topic: str, parse: Callable[[int, Buffer], _Parsed]) -> Decoded:
    if record.key is None:
        raise ToolError(
            f"Failed to decode message at offset {record.offset} using {topic} topic decoder (message had a missing key)"
        )
    try:
        version = _version(record.key)
        parsed = parse(version, record.key)
        if parsed is None:
            return f"Unknown record type {version} at offset {record.offset}, skipping.", None
        key, decode_value = parsed
        text = json_text({"type": str(version), "data": to_json(key, version)})
        if record.value is None:
            return text, TOMBSTONE
        return text, json_text({"version": str(_version(record.value)), "data": decode_value(record.value)})
    except ProtocolError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _version(content: Buffer) -> int:
    if len(content) < _VERSION_BYTES:
        raise ProtocolError("the record ends in its version")
    return int.from_bytes(content[:_VERSION_BYTES], "big", signed=True)


def _group_record(version: int, key: Buffer) -> _Parsed:
    if 0 <= version <= GROUP_METADATA_KEY_VERSION:
        decoded = decode_key(key)
        assert decoded is not None
        return decoded, _offset_json if isinstance(decoded, OffsetCommitKey) else _group_json
    consumer_key = decode_consumer_key(version, key)
    if consumer_key is None:
        return None
    return consumer_key, lambda value: to_json(decode_consumer_value(consumer_key, value), _version(value))


def _transaction_record(version: int, key: Buffer) -> _Parsed:
    if version != TRANSACTION_KEY_VERSION:
        return None
    transactional_id = decode_transaction_key(key)
    assert transactional_id is not None
    return TransactionLogKey(transactional_id=transactional_id), _transaction_json


def _offset_json(value: Buffer) -> JsonObject:
    return to_json(decode_offset(value), _version(value))


def _transaction_json(value: Buffer) -> JsonObject:
    return to_json(decode_transaction(value), _version(value))


def _group_json(value: Buffer) -> JsonObject:
    """Decodes a classic group. What its consumers hand over to each other is decoded too."""
    group = decode_group(value)
    found = to_json(group, _version(value))
    if group.protocol_type == CONSUMER_PROTOCOL:
        for member, shown in zip(group.members, found["members"], strict=True):
            for field, kind in (("subscription", ConsumerProtocolSubscription), ("assignment", ConsumerProtocolAssignment)):
                shown[field] = _embedded(getattr(member, field), kind, shown[field])
    return found


def _embedded(content: Buffer, kind: type[Struct], otherwise: Any) -> Any:
    """Decodes a message with its version in front. Bytes that are none stay as they are."""
    try:
        return to_json(decode_with_version(kind, content), _version(content))
    except ProtocolError:
        return otherwise
