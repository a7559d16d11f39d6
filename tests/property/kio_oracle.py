"""kio as an independent reader and writer of the same messages.

kio is generated from Apache Kafka's schemas, one class per version. Its classes differ from ours in a few Python types:
durations are timedelta, times are datetime with None for -1, uuids are uuid.UUID with None for zero, error codes are an
enum, arrays are tuples.
"""

import dataclasses
import io
import re
import typing
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from common.protocol.schema import ArrayOf, Kind, Struct, StructSchema, message_schema
from tests.property.protocol_strategies import oracle_version

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_TYPES = {Kind.REQUEST: EntityType.request, Kind.RESPONSE: EntityType.response, Kind.HEADER: EntityType.header}


def has(message_class: type[Struct], version: int) -> bool:
    name, entity_type = _address(message_class)
    return entity_type in schema_name_map.get(name, {}).get(oracle_version(message_class, version), {})


def encode(message: Struct, version: int) -> bytes:
    """Returns kio's encoding of the same values."""
    kio_class = _kio_class(type(message), version)
    with io.BytesIO() as buffer:
        entity_writer(kio_class)(buffer, _to_kio(message, kio_class))
        return buffer.getvalue()


def decode(message_class: type[Struct], encoded: bytes, version: int) -> Any:
    """Decodes the bytes with kio and returns the values in our class. Asserts that kio consumed all bytes."""
    decoded, size = entity_reader(_kio_class(message_class, version))(encoded, 0)
    assert size == len(encoded)
    return _from_kio(decoded, message_class.wire_schema)


def kio_message(message: Struct, version: int) -> Any:
    """Returns the same values in kio's class."""
    return _to_kio(message, _kio_class(type(message), version))


def facts(message_class: type[Struct], version: int) -> list[tuple[str, bool, Any]]:
    """Returns for every field its path, whether kio allows None, and kio's default as our value.

    The default is dataclasses.MISSING if the schema states none.
    """
    return list(_facts(_kio_class(message_class, version), message_class.wire_schema, ""))


def _facts(kio_class: Any, schema: StructSchema, path: str) -> Iterator[tuple[str, bool, Any]]:
    ours = schema.python_class()
    nested = _nested_types(schema)
    for field in dataclasses.fields(kio_class):
        name = _our_name(ours, field.name)
        kafka_type = field.metadata.get("kafka_type")
        # For uuids and times, None represents zero or -1 and does not mean that the field is nullable.
        is_nullable_type = kafka_type not in ("uuid", "datetime_i64") or _is_array(field.type)
        may_be_none = is_nullable_type and type(None) in typing.get_args(field.type)
        default = field.default
        if default is not dataclasses.MISSING and not (default is None and _is_array(field.type)):
            default = _value_from_kio(default, kafka_type, nested[name])
        yield f"{path}{name}", may_be_none, default
        element = _nested_class(field.type)
        if element is not None:
            yield from _facts(element, nested[name], f"{path}{name}.")


def _address(message_class: type[Struct]) -> tuple[str, EntityType]:
    schema = message_schema(message_class)
    if schema.api_key is not None:
        # An API that came with a later release has no name.
        return api_key_map.get(schema.api_key, ""), _TYPES[schema.kind]
    return re.sub(r"(?<!^)(?=[A-Z])", "_", schema.name).lower(), _TYPES.get(schema.kind, EntityType.data)


def _kio_class(message_class: type[Struct], version: int) -> Any:
    name, entity_type = _address(message_class)
    return load_entity_schema(name, oracle_version(message_class, version), entity_type)  # type: ignore[arg-type]


def _nested_types(schema: StructSchema) -> dict[str, Any]:
    """Returns the wire type of each field, or of the field's elements if it is an array."""
    return {
        each.name: each.wire_type.element if isinstance(each.wire_type, ArrayOf) else each.wire_type
        for each in schema.fields
    }


def _our_name(ours: Any, kio_name: str) -> str:
    kio_name = kio_name.rstrip("_")
    return kio_name if hasattr(ours, kio_name) else f"{kio_name}_ms"


def _is_array(hint: Any) -> bool:
    """Whether kio's type is `tuple[X, ...]` or `tuple[X, ...] | None`."""
    return any(typing.get_origin(each) is tuple for each in (hint, *typing.get_args(hint)))


def _nested_class(hint: Any) -> Any:
    """Returns the kio struct inside `tuple[Struct, ...] | None` and the like."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for each in typing.get_args(hint) if (found := _nested_class(each)) is not None), None)


def _to_kio(ours: Struct, kio_class: Any) -> Any:
    values = {}
    for field in dataclasses.fields(kio_class):
        value = getattr(ours, _our_name(ours, field.name))
        values[field.name] = _value_to_kio(value, field.metadata.get("kafka_type"), _nested_class(field.type))
    return kio_class(**values)


def _value_to_kio(value: Any, kafka_type: str | None, nested: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_value_to_kio(each, kafka_type, nested) for each in value)
    if nested is not None:
        return _to_kio(value, nested)
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * _MS
        case "datetime_i64":
            return None if value == -1 else _EPOCH + value * _MS
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
    return value


def _from_kio(kio: Any, schema: StructSchema) -> Any:
    ours = schema.python_class()
    nested = _nested_types(schema)
    for field in dataclasses.fields(kio):
        name = _our_name(ours, field.name)
        value = getattr(kio, field.name)
        if value is not None or not _is_array(field.type):
            value = _value_from_kio(value, field.metadata.get("kafka_type"), nested[name])
        setattr(ours, name, value)
    return ours


def _value_from_kio(value: Any, kafka_type: str | None, nested: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_from_kio(each, kafka_type, nested) for each in value]
    match kafka_type:
        case "uuid":
            return bytes(16) if value is None else value.bytes
        case "timedelta_i32" | "timedelta_i64":
            return value // _MS
        case "datetime_i64":
            return -1 if value is None else (value - _EPOCH) // _MS
        case "error_code":
            return int(value)
    return _from_kio(value, nested) if isinstance(nested, StructSchema) and value is not None else value
