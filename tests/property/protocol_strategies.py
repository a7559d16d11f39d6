"""Hypothesis strategies derived from the declarations: any message of a class and version, and all declared messages."""

import importlib
import pkgutil
from typing import Any

from hypothesis import strategies as st

import common.protocol.messages
from common.protocol.errors import ErrorCode
from common.protocol.schema import (
    ArrayOf,
    FieldSchema,
    MessageSchema,
    Primitive,
    Struct,
    StructSchema,
    VersionRange,
    WireType,
    message_schema,
)

EVERY_INT16 = st.integers(-(2**15), 2**15 - 1)
KNOWN_ERRORS = st.sampled_from([int(code) for code in ErrorCode])
# Values of fields that kio represents as datetime or timedelta, which cannot hold every 64-bit number of milliseconds.
TIMES = st.just(-1) | st.integers(0, 2**37)
TIME_FIELDS = ("log_append_time_ms", "retention_time_ms")
# kio has no value for -1 in these.
START_TIME_FIELDS = ("transaction_start_time_ms",)
# Greater than every tag in our declarations.
UNKNOWN_TAGS = st.dictionaries(st.integers(20, 2**31 - 1), st.binary(max_size=6), max_size=2)

VALUES: dict[Primitive, st.SearchStrategy[Any]] = {
    Primitive.BOOL: st.booleans(),
    Primitive.INT8: st.integers(-(2**7), 2**7 - 1),
    Primitive.INT16: EVERY_INT16,
    Primitive.UINT16: st.integers(0, 2**16 - 1),
    Primitive.INT32: st.integers(-(2**31), 2**31 - 1),
    Primitive.INT64: st.integers(-(2**63), 2**63 - 1),
    Primitive.FLOAT64: st.floats(allow_nan=False),
    Primitive.UUID: st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    Primitive.ASSIGNED_DIRECTORY_ID: st.binary(min_size=16, max_size=16)
    | st.integers(0, 2).map(lambda n: n.to_bytes(16, "big")),
    Primitive.STRING: st.text(max_size=6) | st.just("long" * 40),
    Primitive.BYTES: st.binary(max_size=6),
    Primitive.RECORDS: st.binary(max_size=6) | st.just(bytes(200)),
}

# The key is a message and a version that Apache Kafka and both oracles no longer support. The value is a later version with
# the same encoding.
SAME_BYTES = {("DescribeLogDirsRequest", 0): 1, ("DescribeLogDirsResponse", 0): 1}


def oracle_version(message_class: type[Struct], version: int) -> int:
    """Returns the version that the oracles must use to read and write a message of this version."""
    return SAME_BYTES.get((message_class.__name__, version), version)


def declared_messages() -> list[type[Struct]]:
    """Returns every top-level message in `common.protocol.messages`, sorted by name."""
    found: dict[str, type[Struct]] = {}
    for module_info in pkgutil.iter_modules(common.protocol.messages.__path__):
        module = importlib.import_module(f"common.protocol.messages.{module_info.name}")
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, Struct) and each is not Struct:
                schema = each.wire_schema
                if isinstance(schema, MessageSchema):
                    found[schema.name] = each
    return [found[name] for name in sorted(found)]


def declared_versions() -> list[tuple[type[Struct], int]]:
    """Returns every declared (message, version)."""
    return [(each, version) for each in declared_messages() for version in versions_of(each)]


def versions_of(message_class: type[Struct]) -> list[int]:
    versions: VersionRange = message_schema(message_class).versions
    return list(range(versions.first, versions.last + 1))


def case_name(case: Any) -> str:
    """Returns the name of a (message, version) for pytest's parameters."""
    return f"v{case}" if isinstance(case, int) else str(case.__name__)


def messages(
    message_class: type[Struct],
    version: int,
    *,
    error_codes: st.SearchStrategy[int] = EVERY_INT16,
    unknown_tags: bool = False,
) -> st.SearchStrategy[Any]:
    """Any message that this version can carry. Fields that the version lacks keep their defaults."""
    schema = message_schema(message_class)
    tags = UNKNOWN_TAGS if unknown_tags and version in schema.flexible else None
    return _structs(schema, version, error_codes, tags)


def _structs(
    schema: StructSchema, version: int, error_codes: st.SearchStrategy[int], tags: st.SearchStrategy[dict[int, bytes]] | None
) -> st.SearchStrategy[Any]:
    fields = {field.name: _field(field, version, error_codes, tags) for field in schema.fields if version in field.versions}
    if tags is not None:
        fields["unknown_tagged_fields"] = tags
    return st.builds(schema.python_class, **fields)


def _field(
    field: FieldSchema, version: int, error_codes: st.SearchStrategy[int], tags: st.SearchStrategy[dict[int, bytes]] | None
) -> st.SearchStrategy[Any]:
    def one(wire_type: WireType) -> st.SearchStrategy[Any]:
        if isinstance(wire_type, StructSchema):
            return _structs(wire_type, version, error_codes, tags)
        assert isinstance(wire_type, Primitive)
        if field.name in TIME_FIELDS:
            return TIMES
        if field.name in START_TIME_FIELDS:
            return st.integers(0, 2**37)
        return error_codes if field.name.endswith("error_code") else VALUES[wire_type]

    if isinstance(field.wire_type, ArrayOf):
        element = one(field.wire_type.element)
        # Arrays of 8 or more structs may be decoded by columns, so there are shorter and longer ones. Drawing dominates the
        # time of the tests, so the 8 or 9 elements of a long one are 2 or 3 that repeat.
        long = st.lists(element, min_size=2, max_size=3).map(lambda few: (few * 4)[:9])
        values: st.SearchStrategy[Any] = st.lists(element, max_size=3) | long
        if isinstance(field.wire_type.element, StructSchema) and not _is_flat(field.wire_type.element):
            values = st.lists(element, max_size=2)
    else:
        values = one(field.wire_type)
    if field.is_tagged(version):
        values = st.builds(field.make_default) | values
    return st.none() | values if version in field.nullable else values


def _is_flat(schema: StructSchema) -> bool:
    return not any(isinstance(field.wire_type, ArrayOf | StructSchema) for field in schema.fields)
