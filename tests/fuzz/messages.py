"""Fills messages with random values for all declared fields. A given random generator always produces the same messages.

Unlike Hypothesis strategies, this is fast enough to make thousands of messages outside a property, as fuzzer seeds or as
requests to a daemon. Values come from small sets, and many have a special meaning in some field: 0, -1, the minimum and
maximum, names of existing topics.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from common.protocol.codec import encode
from common.protocol.framing import request_header_version
from common.protocol.messages.headers import RequestHeader
from common.protocol.schema import ArrayOf, FieldSchema, Primitive, Struct, StructSchema, message_schema

_NAMED: Final = 0.9
_BITS: Final = {
    Primitive.INT8: (-(2**7), 2**7 - 1),
    Primitive.INT16: (-(2**15), 2**15 - 1),
    Primitive.UINT16: (0, 2**16 - 1),
    Primitive.INT32: (-(2**31), 2**31 - 1),
    Primitive.INT64: (-(2**63), 2**63 - 1),
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Values worth trying besides the smallest and largest ones of each type."""

    strings: Sequence[str] = ("t", "", "name", "\u00e4\u20ac\U0001f980", "a" * 300)
    uuids: Sequence[bytes] = (bytes(16), bytes(15) + b"\x01", bytes(range(16)))
    numbers: Sequence[int] = (0, 1, 2, 3, -1, -2, 1000)
    blobs: Sequence[bytes] = (b"", b"some bytes", bytes(100))
    # Values by field name, or by struct and field name ("Feature.name"). Fields with an entry mostly draw their values from
    # it, because a request is meaningful only if many of its values are.
    named: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def filled(message_class: type[Struct], version: int, rng: random.Random, vocabulary: Vocabulary) -> Any:
    """Returns a message that this version can carry. Fields that the version lacks keep their defaults."""
    return _struct(message_schema(message_class), version, rng, vocabulary)


def other_value(owner: Struct, declared: FieldSchema, version: int, rng: random.Random, vocabulary: Vocabulary) -> Any:
    """Returns a value that this field could have in this version."""
    return _value(type(owner).__name__, declared, version, rng, vocabulary)


def request_frame(message: Struct, version: int, *, correlation_id: int = 1, client_id: str | None = "fuzz") -> bytes:
    """Returns a request without its frame's length prefix."""
    schema = message_schema(type(message))
    header = RequestHeader(
        request_api_key=schema.api_key or 0,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encode(header, request_header_version(type(message), version)) + encode(message, version)


def _struct(schema: StructSchema, version: int, rng: random.Random, vocabulary: Vocabulary) -> Any:
    values = {
        each.name: _value(schema.name, each, version, rng, vocabulary) for each in schema.fields if version in each.versions
    }
    return schema.python_class(**values)


def _value(struct: str, declared: FieldSchema, version: int, rng: random.Random, vocabulary: Vocabulary) -> Any:
    if version in declared.nullable and rng.random() < 0.2:
        return None
    if declared.is_tagged(version) and rng.random() < 0.5:
        return declared.make_default()
    wire_type = declared.wire_type
    name = f"{struct}.{declared.name}"
    name = name if name in vocabulary.named else declared.name
    if isinstance(wire_type, ArrayOf):
        count = rng.choice((0, 1, 1, 1, 1, 1, 2, 9))
        return [_one(name, wire_type.element, version, rng, vocabulary) for _ in range(count)]
    return _one(name, wire_type, version, rng, vocabulary)


def _one(name: str, wire_type: Primitive | StructSchema, version: int, rng: random.Random, vocabulary: Vocabulary) -> Any:
    if isinstance(wire_type, StructSchema):
        return _struct(wire_type, version, rng, vocabulary)
    if name in vocabulary.named and rng.random() < _NAMED:
        return rng.choice(vocabulary.named[name])
    if wire_type in _BITS:
        least, greatest = _BITS[wire_type]
        if rng.random() < 0.2:
            return rng.choice((least, greatest))
        return min(max(rng.choice(vocabulary.numbers), least), greatest)
    if wire_type is Primitive.BOOL:
        return rng.random() < 0.5
    if wire_type is Primitive.FLOAT64:
        return rng.choice((0.0, 1.5))
    if wire_type in (Primitive.UUID, Primitive.ASSIGNED_DIRECTORY_ID):
        return rng.choice(vocabulary.uuids)
    if wire_type is Primitive.STRING:
        return rng.choice(vocabulary.strings)
    return rng.choice(vocabulary.blobs)
