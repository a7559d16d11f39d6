"""What the encoder compiler and the decoder compiler share: a source-code writer and facts about wire types (core).

A generated function is straight-line code for one (message, version) and does not look at the declaration at run time. Apart
from builtins, everything it uses is put into its namespace under a unique name.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from common.protocol.schema import ArrayOf, FieldSchema, MessageSchema, Primitive, SchemaError, StructSchema, WireType

# The struct format and the size of each fixed-size type. A bool is written as "B", which rejects None, and read as "?",
# which takes any byte other than 0 as true, as Kafka does.
FIXED_SIZES = {
    Primitive.BOOL: ("B", 1),
    Primitive.INT8: ("b", 1),
    Primitive.INT16: ("h", 2),
    Primitive.UINT16: ("H", 2),
    Primitive.INT32: ("i", 4),
    Primitive.INT64: ("q", 8),
    Primitive.FLOAT64: ("d", 8),
    Primitive.UUID: ("16s", 16),
    Primitive.ASSIGNED_DIRECTORY_ID: ("16s", 16),
}
UUIDS = (Primitive.UUID, Primitive.ASSIGNED_DIRECTORY_ID)
# The longest string that Kafka accepts, even in the compact form, which could hold a longer one.
MAX_STRING_BYTES = 0x7FFF


class Source:
    """The lines of a function under construction, and the namespace it will run in."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        start = len(self._lines)
        yield
        if len(self._lines) == start:
            self.line("pass")
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Returns an unused variable name."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """Adds `value` to the namespace and returns its name there."""
        name = self.fresh(f"{stem}_")
        self.namespace[name] = value
        return name

    def compile(self, function_name: str, label: str) -> Callable[..., Any]:
        code = compile("\n".join(self._lines) + "\n", f"<{label}>", "exec")
        exec(code, self.namespace)
        function: Callable[..., Any] = self.namespace[function_name]
        return function


class Shape:
    """The layout of a message in one version."""

    def __init__(self, schema: MessageSchema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.flexible = version in schema.flexible

    def untagged(self, schema: StructSchema) -> list[FieldSchema]:
        """Returns the fields that are not tagged, in wire order."""
        return [each for each in schema.fields if self.version in each.versions and not each.is_tagged(self.version)]

    def tagged(self, schema: StructSchema) -> list[FieldSchema]:
        if not self.flexible:
            return []
        found = [each for each in schema.fields if each.is_tagged(self.version)]
        return sorted(found, key=lambda each: each.tag or 0)

    def absent(self, schema: StructSchema) -> list[FieldSchema]:
        return [each for each in schema.fields if self.version not in each.versions]

    def is_compact(self, field: FieldSchema) -> bool:
        return self.flexible and field.compact

    def is_nullable(self, field: FieldSchema) -> bool:
        return self.version in field.nullable

    def is_numbers_only(self, schema: StructSchema) -> bool:
        """Whether the struct holds only numbers. If so, every element without unknown tags takes the same number of
        bytes."""
        fields = self.untagged(schema)
        return (
            bool(fields)
            and not self.tagged(schema)
            and all(each.wire_type in FIXED_SIZES and each.wire_type not in UUIDS for each in fields)
        )

    def smallest_size(self, wire_type: WireType, *, compact: bool, nullable: bool = False) -> int:
        """Returns the smallest number of bytes that a value can take. Before anything is allocated, this bounds a count read
        from the wire."""
        if isinstance(wire_type, ArrayOf):
            return 1 if compact else 4
        if isinstance(wire_type, StructSchema):
            if nullable:
                return 1
            sizes = (
                self.smallest_size(each.wire_type, compact=self.is_compact(each), nullable=self.is_nullable(each))
                for each in self.untagged(wire_type)
            )
            total = sum(sizes) + (1 if self.flexible else 0)
            if total == 0:
                raise SchemaError(f"{wire_type.name} has no bytes in version {self.version}: its count could not be checked")
            return total
        if wire_type in FIXED_SIZES:
            return FIXED_SIZES[wire_type][1]
        if compact:
            return 1
        return 2 if wire_type is Primitive.STRING else 4


# Arrays with fewer elements than this use a cached struct: arrays of numbers for packing and unpacking, arrays of uuids for
# unpacking only.
SHORT = 32


@cache
def short_structs(code: str) -> tuple[struct.Struct, ...]:
    """Returns a tuple of structs. The struct at index n packs n values of this format code, for n below SHORT."""
    return tuple(struct.Struct(">" + code * count) for count in range(SHORT))


def contains(schema: StructSchema, wanted: Primitive) -> bool:
    """Whether the struct, or any struct inside it, has a field of this type in any version."""
    for each in schema.fields:
        element = each.wire_type.element if isinstance(each.wire_type, ArrayOf) else each.wire_type
        if element is wanted or (isinstance(element, StructSchema) and contains(element, wanted)):
            return True
    return False


def literal(value: Any) -> str | None:
    """Returns a field's default as source text, or None if each message needs a new object."""
    return repr(value) if value is None or isinstance(value, (bool, int, float, str, bytes)) else None
