"""kafka-python's codec as a second independent reader and writer, for the messages that clients exchange.

kafka-python is data-driven: one class per message, whose `_struct` lists the fields of all versions. Uuids are uuid.UUID
with None for zero, authorized operations are sets of bit numbers, and a tagged struct that was not sent is None.
"""

import io
import uuid
import warnings
from typing import Any

from common.protocol.schema import ArrayOf, Kind, Primitive, Struct, StructSchema, message_schema
from tests.property.protocol_strategies import oracle_version

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import api_header, sasl
    from kafka.protocol.admin import acl, client_quotas, cluster, configs, groups, topics, transactions, users
    from kafka.protocol.consumer import fetch, group, offsets
    from kafka.protocol.consumer import metadata as consumer_protocol
    from kafka.protocol.metadata import api_versions, find_coordinator, metadata
    from kafka.protocol.producer import produce, transaction

_MODULES = (
    acl,
    api_header,
    api_versions,
    client_quotas,
    cluster,
    configs,
    consumer_protocol,
    fetch,
    find_coordinator,
    group,
    groups,
    metadata,
    offsets,
    produce,
    sasl,
    topics,
    transaction,
    transactions,
    users,
)
NO_OPERATIONS = -(2**31)
# kafka-python writes the version in front of a message that is neither request nor response.
_VERSION_PREFIX = 2


def has(message_class: type[Struct], version: int) -> bool:
    found = _their_class(message_class)
    if found is None:
        return False
    first, last = found._valid_versions
    return bool(first <= oracle_version(message_class, version) <= last)


def encode(message: Struct, version: int) -> bytes:
    """Returns kafka-python's encoding of the same values."""
    schema = message_schema(type(message))
    version = oracle_version(type(message), version)
    theirs = their_message(message, version)
    if schema.kind is Kind.HEADER:
        return bytes(theirs.encode(flexible=version in schema.flexible))
    encoded = bytes(theirs.encode(version=version))
    return encoded[_VERSION_PREFIX:] if schema.kind is Kind.DATA else encoded


def decode(message_class: type[Struct], encoded: bytes, version: int) -> Any:
    """Decodes the bytes with kafka-python and returns the values in our class."""
    schema = message_schema(message_class)
    version = oracle_version(message_class, version)
    found = _their_class(message_class)
    if schema.kind is Kind.HEADER:
        theirs = found.decode(io.BytesIO(encoded), flexible=version in schema.flexible)
    elif schema.kind is Kind.DATA:
        theirs = found.decode(version.to_bytes(_VERSION_PREFIX, "big") + encoded)
    else:
        theirs = found.decode(encoded, version=version)
    return _from_theirs(theirs, schema, version)


def their_message(message: Struct, version: int) -> Any:
    """Returns the same values in kafka-python's class."""
    found = _their_class(type(message))
    return _to_theirs(message, found._struct, version, top=found)


def _their_class(message_class: type[Struct]) -> Any:
    name = message_class.__name__
    return next((getattr(module, name) for module in _MODULES if hasattr(module, name)), None)


def _our_name(ours: Any, their_name: str) -> str:
    """Returns our name of the field. kafka-python shortens the two names that end in authorized_operations."""
    if hasattr(ours, their_name):
        return their_name
    return next(name for name in (f"topic_{their_name}", f"cluster_{their_name}") if hasattr(ours, name))


def _to_theirs(ours: Struct, their_struct: Any, version: int, top: Any = None) -> Any:
    values = {}
    for their_name, field in their_struct.fields.items():
        if field.for_version_q(version):
            values[their_name] = _value_to_theirs(getattr(ours, _our_name(ours, their_name)), field, version)
    return (top or their_struct.data_class)(version=version, **values)


def _value_to_theirs(value: Any, field: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [_to_theirs(each, field.array_of, version) for each in value]
    if field.is_struct():
        return _to_theirs(value, field, version)
    if field.is_array():
        return [_value_to_theirs(each, field.array_of, version) for each in value]
    if field.type_str == "uuid":
        return None if value == bytes(16) else uuid.UUID(bytes=value)
    if field.type_str == "bitfield":
        return None if value == NO_OPERATIONS else {bit for bit in range(32) if (value >> bit) & 1}
    return value


def _from_theirs(theirs: Any, schema: StructSchema, version: int) -> Any:
    ours = schema.python_class()
    wire_types = {each.name: each.wire_type for each in schema.fields}
    for their_name, field in theirs._struct.fields.items():
        if field.for_version_q(version):
            name = _our_name(ours, their_name)
            value = _value_from_theirs(getattr(theirs, their_name), wire_types[name], version)
            if value is not None or not isinstance(wire_types[name], StructSchema):
                setattr(ours, name, value)
    return ours


def _value_from_theirs(value: Any, wire_type: Any, version: int) -> Any:
    if wire_type is Primitive.UUID:
        return bytes(16) if value is None else value.bytes
    if wire_type is Primitive.INT32 and (value is None or isinstance(value, set)):
        bits = NO_OPERATIONS if value is None else sum(1 << bit for bit in value)
        return bits - 2**32 if bits >= 2**31 else bits
    if value is None:
        return None
    if isinstance(wire_type, ArrayOf):
        return [_value_from_theirs(each, wire_type.element, version) for each in value]
    if isinstance(wire_type, StructSchema):
        return _from_theirs(value, wire_type, version)
    return bytes(value) if isinstance(value, memoryview) else value
