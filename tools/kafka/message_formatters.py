"""How kafka-console-consumer writes a record: Kafka's formatters, with their properties (core).

Counterparts of DefaultMessageFormatter and of those for the internal topics. Unlike Kafka's, the latter end each record with
a newline, so that the output can be read line by line.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.protocol.errors import ProtocolError
from common.protocol.schema import Struct
from common.records.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group,
    decode_key,
    decode_offset,
)
from tools.errors import ToolError
from tools.kafka.record_json import JsonObject, to_json

# The numbers of confluent_kafka's timestamp types.
TIMESTAMP_TYPES: Final[Mapping[int, str]] = MappingProxyType({1: "CreateTime", 2: "LogAppendTime"})
PACKAGE: Final = "org.apache.kafka.tools.consumer."
Deserializer = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    topic: str
    partition: int
    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    leader_epoch: int | None = None


Formatter = Callable[[ConsumedRecord], bytes]
"""Returns what is written for a record. Raises ValueError if the record cannot be written."""


def new_formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    """Returns the formatter of this class name. Raises ToolError."""
    # Before Kafka 3.5, the names began with the package of the broker.
    short = name.rpartition(".")[2].rpartition("$")[2]
    kind = _FORMATTERS.get(short)
    if kind is None:
        raise ToolError(f"--formatter {name} is not supported; it takes {', '.join(PACKAGE + each for each in _FORMATTERS)}")
    return kind(properties)


# --- records of any topic --------------------------------------------------------------------------------------------


class DefaultFormatter:
    """Counterpart of Kafka's DefaultMessageFormatter: the parts that the properties ask for, separated."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        printed = {part: "true" if part == "value" else "false" for part in _PARTS}
        printed |= {part: properties[f"print.{part}"] for part in _PARTS if f"print.{part}" in properties}
        self._parts = [write for part, write in _PARTS.items() if printed[part].strip().lower() == "true"]
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self.headers_separator = properties.get("headers.separator", ",").encode()
        self.null_literal = properties.get("null.literal", "null").encode()
        self.key_deserializer = _deserializer(properties, "key.deserializer")
        self.value_deserializer = _deserializer(properties, "value.deserializer")
        self.headers_deserializer = _deserializer(properties, "headers.deserializer")

    def __call__(self, record: ConsumedRecord) -> bytes:
        end = self._line_separator if self._parts else b""
        return self._separator.join(write(self, record) for write in self._parts) + end

    def text(self, content: bytes | None, deserializer: Deserializer) -> bytes:
        """Returns a key, a value or the value of a header as it is written."""
        return self.null_literal if content is None else deserializer(content)


def _timestamp(_: DefaultFormatter, record: ConsumedRecord) -> bytes:
    name = TIMESTAMP_TYPES.get(record.timestamp_type)
    return b"NO_TIMESTAMP" if name is None else f"{name}:{record.timestamp_ms}".encode()


def _headers(formatter: DefaultFormatter, record: ConsumedRecord) -> bytes:
    found = [name.encode() + b":" + formatter.text(value, formatter.headers_deserializer) for name, value in record.headers]
    return formatter.headers_separator.join(found) if found else b"NO_HEADERS"


def _epoch(_: DefaultFormatter, record: ConsumedRecord) -> bytes:
    return b"Epoch:NOT_PRESENT" if record.leader_epoch is None else f"Epoch:{record.leader_epoch}".encode()


_PARTS: Final[Mapping[str, Callable[[DefaultFormatter, ConsumedRecord], bytes]]] = MappingProxyType(
    {
        "timestamp": _timestamp,
        "partition": lambda _, record: f"Partition:{record.partition}".encode(),
        "offset": lambda _, record: f"Offset:{record.offset}".encode(),
        # Only a share consumer counts deliveries.
        "delivery": lambda _, __: b"Delivery:NOT_PRESENT",
        "epoch": _epoch,
        "headers": _headers,
        "key": lambda formatter, record: formatter.text(record.key, formatter.key_deserializer),
        "value": lambda formatter, record: formatter.text(record.value, formatter.value_deserializer),
    }
)


def _unchanged(content: bytes) -> bytes:
    return content


def _number(form: str, name: str) -> Deserializer:
    size = struct.calcsize(form)

    def deserialize(content: bytes) -> bytes:
        if len(content) != size:
            raise ValueError(f"{len(content)} bytes are no {name}, which has {size}")
        return str(struct.unpack(form, content)[0]).encode()

    return deserialize


_DESERIALIZERS: Final[Mapping[str, Deserializer]] = MappingProxyType(
    {
        "StringDeserializer": _unchanged,
        "ByteArrayDeserializer": _unchanged,
        "ShortDeserializer": _number(">h", "short"),
        "IntegerDeserializer": _number(">i", "integer"),
        "LongDeserializer": _number(">q", "long"),
        "FloatDeserializer": _number(">f", "float"),
        "DoubleDeserializer": _number(">d", "double"),
    }
)


def _deserializer(properties: Mapping[str, str], key: str) -> Deserializer:
    name = properties.get(key, "StringDeserializer").strip()
    deserializer = _DESERIALIZERS.get(name.rpartition(".")[2])
    if deserializer is None:
        names = ", ".join(f"org.apache.kafka.common.serialization.{each}" for each in _DESERIALIZERS)
        raise ToolError(f"{key}={name} is not supported; it takes {names}")
    return deserializer


# --- records of internal topics --------------------------------------------------------------------------------------


def _offsets(_properties: Mapping[str, str]) -> Formatter:
    return lambda record: _coordinator_record(record, OffsetCommitKey, decode_offset)


def _groups(_properties: Mapping[str, str]) -> Formatter:
    return lambda record: _coordinator_record(record, GroupMetadataKey, decode_group)


def _coordinator_record(record: ConsumedRecord, kind: type[Struct], decode: Callable[[bytes], Struct]) -> bytes:
    """Writes a record of __consumer_offsets as JSON. Those of another kind are left out, as in Kafka."""
    try:
        key = None if record.key is None else decode_key(record.key)
        if not isinstance(key, kind):
            return b""
        value = None if record.value is None else _versioned("version", record.value, decode(record.value))
        assert record.key is not None
        return _json({"key": _versioned("type", record.key, key), "value": value})
    except ProtocolError as error:
        raise ValueError(f"the record at offset {record.offset} cannot be read: {error}") from error


def _versioned(name: str, content: bytes, message: Struct) -> JsonObject:
    version = int.from_bytes(content[:2], "big", signed=True)
    return {name: version, "data": to_json(message, version)}


def _json(found: JsonObject) -> bytes:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _nothing(_properties: Mapping[str, str]) -> Formatter:
    return lambda _: b""


_FORMATTERS: Final[Mapping[str, Callable[[Mapping[str, str]], Formatter]]] = MappingProxyType(
    {
        "DefaultMessageFormatter": DefaultFormatter,
        "NoOpMessageFormatter": _nothing,
        "OffsetsMessageFormatter": _offsets,
        "GroupMetadataMessageFormatter": _groups,
    }
)
