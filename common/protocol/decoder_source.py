"""Compiles a declared message and one of its versions into the function that decodes it (core).

One `unpack_from` reads adjacent fixed-size fields straight into the attributes, and objects are created without `__init__`.
Every length and count is checked against the remaining bytes before anything of that size is allocated. For requests, the
memory of the elements is counted and bounded, so that a small frame cannot grow into a large heap.

Reading past the end raises IndexError or struct.error, which `codec` turns into BufferUnderflow. A slice past the end does
not raise but comes out short, so every slice has its own check.
"""

import struct
from typing import Any, NoReturn

from common.protocol.errors import BufferUnderflow, InvalidValue
from common.protocol.numbering import FROM_APACHE, Numbering
from common.protocol.schema import (
    NO_TAGGED_FIELDS,
    ArrayOf,
    FieldSchema,
    Kind,
    MessageSchema,
    Primitive,
    StructSchema,
    WireType,
)
from common.protocol.source import (
    FIXED_SIZES,
    MAX_STRING_BYTES,
    SHORT,
    UUIDS,
    Shape,
    Source,
    contains,
    literal,
    short_structs,
)
from common.protocol.varint import finish_uvarint, read_uvarint

# How much memory the elements of all arrays and the tagged fields of one request may take. Requests come from untrusted
# clients, and three bytes on the wire can become an object of three hundred bytes in memory. Responses come from nodes that
# we chose to connect to, so the frame limit is enough for them.
MAX_REQUEST_MEMORY = 64 * 1024 * 1024
# Approximate sizes in CPython, in bytes: an object, a slot, a list, a dict, an entry of a dict, and values by type.
_OBJECT_BYTES, _SLOT_BYTES, _LIST_BYTES = 40, 8, 64
_DICT_BYTES, _DICT_ENTRY_BYTES = 232, 100
_VALUE_BYTES = {Primitive.STRING: 56, Primitive.BYTES: 40, Primitive.RECORDS: 200, Primitive.UUID: 56}
_NUMBER_BYTES = 32
# Arrays of this many structs or more are unpacked by columns. For fewer, a loop is as fast.
_COLUMNS_FROM = 8


def compile_decoder(schema: MessageSchema, version: int, numbering: Numbering, *, yields: bool = False) -> Any:
    """Returns a decode function: it takes a buffer and returns the message at its start, the position after it, and the
    memory of a request's elements (see `codec.decode_request`). With `yields` it is a generator function, which yields
    after each element of an array, except of an array of numbers or ids."""
    return _DecoderSource(schema, version, numbering, yields=yields).compile()


class _DecoderSource:
    def __init__(self, schema: MessageSchema, version: int, numbering: Numbering, *, yields: bool) -> None:
        self._yields = yields
        self.shape = Shape(schema, version)
        self.numbering = numbering
        self.bounded = schema.kind is Kind.REQUEST
        # Copy the input to bytes, which are faster to read than a view. Two exceptions keep a view: messages with records,
        # because records share the buffer's memory, and headers, because the body that follows may be large.
        self.keeps_view = contains(schema, Primitive.RECORDS) or schema.kind is Kind.HEADER
        self.source = Source(
            {
                "new": object.__new__,
                "unpack_from": struct.unpack_from,
                "NO_TAGS": NO_TAGGED_FIELDS,
                "finish_uvarint": finish_uvarint,
                "read_unknown_tags": _read_unknown_tags,
                "beyond": _beyond,
                "is_null": _is_null,
                "too_many": _too_many,
                "too_long": _too_long,
                "negative": _negative,
                "unsorted": _unsorted,
                "wrong_size": _wrong_size,
                "from_apache": FROM_APACHE.get,
            }
        )
        # The formats and the targets of the fixed-size fields that the next emitted unpack will read, and the lines to emit
        # after that unpack.
        self._formats: list[str] = []
        self._targets: list[str] = []
        self._after: list[str] = []
        self._size = 0

    def compile(self) -> Any:
        source, schema = self.source, self.shape.schema
        with source.block("def decode(buffer):"):
            source.line(f"data = {'memoryview' if self.keeps_view else 'bytes'}(buffer)")
            source.line("p = 0")
            if self._yields:
                # A message without such an array is a generator function as well.
                source.line("if buffer is None: yield")
            source.line("end = len(data)")
            if self.bounded:
                source.line(f"budget = {MAX_REQUEST_MEMORY}")
            self._new(schema, "message")
            self._struct(schema, "message")
            self._flush()
            source.line(f"return message, p, {f'{MAX_REQUEST_MEMORY} - budget' if self.bounded else 0}")
        return source.compile("decode", f"decoder of {schema.name} v{self.shape.version}")

    # --- bytes of fixed size ---------------------------------------------------------------------------------------
    def _take(self, code: str, size: int, target: str) -> None:
        self._formats.append(code)
        self._targets.append(target)
        self._size += size

    def _flush(self) -> None:
        if self._formats:
            unpack = self.source.constant("unpack", struct.Struct(">" + "".join(self._formats)).unpack_from)
            self.source.line(f"{', '.join(self._targets)}, = {unpack}(data, p)")
            self.source.line(f"p += {self._size}")
            for line in self._after:
                self.source.line(line)
            self._formats.clear()
            self._targets.clear()
            self._after.clear()
            self._size = 0

    def _take_fixed(self, wire_type: Primitive, target: str) -> None:
        code, size = FIXED_SIZES[wire_type]
        self._take("?" if wire_type is Primitive.BOOL else code, size, target)
        if wire_type is Primitive.ASSIGNED_DIRECTORY_ID and self.numbering is Numbering.APACHE:
            self._after.append(f"{target} = from_apache({target}, {target})")

    def _uvarint(self, variable: str) -> None:
        self._flush()
        self.source.line(f"{variable} = data[p]")
        self.source.line("p += 1")
        self.source.line(f"if {variable} > 127: {variable}, p = finish_uvarint(data, p, {variable})")

    # --- structs ---------------------------------------------------------------------------------------------------
    def _new(self, schema: StructSchema, variable: str) -> None:
        """Emits code that creates the object and sets the defaults of fields that may be absent: tagged fields, and fields
        that only other versions have."""
        self.source.line(f"{variable} = new({self._class(schema)})")
        for field in [*self.shape.absent(schema), *self.shape.tagged(schema)]:
            self.source.line(f"{variable}.{field.name} = {self._default(field)}")
        if not self.shape.flexible:
            self.source.line(f"{variable}.unknown_tagged_fields = NO_TAGS")

    def _class(self, schema: StructSchema) -> str:
        self.source.namespace[schema.name] = schema.python_class
        return schema.name

    def _default(self, field: FieldSchema) -> str:
        text = literal(field.make_default())
        if text is not None:
            return text
        return "[]" if isinstance(field.wire_type, ArrayOf) else f"{self.source.constant('default', field.make_default)}()"

    def _struct(self, schema: StructSchema, variable: str) -> None:
        for field in self.shape.untagged(schema):
            self._field(field, f"{variable}.{field.name}", f"{schema.name}.{field.name}")
        if self.shape.flexible:
            self._tags(schema, variable)

    def _tags(self, schema: StructSchema, variable: str) -> None:
        source, fields = self.source, self.shape.tagged(schema)
        count = source.fresh("tags")
        self._uvarint(count)
        source.line(f"{variable}.unknown_tagged_fields = NO_TAGS")
        with source.block(f"if {count}:"):
            self._spend(f"{_DICT_BYTES} + {count} * {_DICT_ENTRY_BYTES}", schema.name)
            if not fields:
                source.line(f"{variable}.unknown_tagged_fields, p = read_unknown_tags(data, p, end, {count})")
                return
            unknown = source.fresh("unknown")
            source.line(f"{unknown} = None")
            last, tag, after = source.fresh("last"), source.fresh("tag"), source.fresh("after")
            source.line(f"{last} = -1")
            with source.block(f"for _ in range({count}):"):
                self._uvarint(tag)
                source.line(f"if {tag} <= {last}: unsorted({schema.name!r}, {tag})")
                source.line(f"{last} = {tag}")
                self._uvarint(after)
                source.line(f"{after} += p")
                source.line(f"if {after} > end: beyond('a tagged field of {schema.name}')")
                for position, field in enumerate(fields):
                    with source.block(f"{'elif' if position else 'if'} {tag} == {field.tag}:"):
                        name = f"{schema.name}.{field.name}"
                        self._field(field, f"{variable}.{field.name}", name)
                        self._flush()
                        source.line(f"if p != {after}: wrong_size({name!r})")
                with source.block("else:"):
                    source.line(f"if {unknown} is None: {unknown} = {variable}.unknown_tagged_fields = {{}}")
                    source.line(f"{unknown}[{tag}] = bytes(data[p:{after}])")
                    source.line(f"p = {after}")

    def _spend(self, size: str, name: str) -> None:
        if self.bounded:
            self.source.line(f"budget -= {size}")
            self.source.line(f"if budget < 0: too_many({name!r})")

    def _memory(self, wire_type: WireType) -> int:
        """Returns the approximate size of a value, not counting its text. An array counts as an empty list, because its
        elements are counted where they are read."""
        if isinstance(wire_type, ArrayOf):
            return _LIST_BYTES
        if isinstance(wire_type, StructSchema):
            fields = sum(_SLOT_BYTES + self._memory(each.wire_type) for each in self.shape.untagged(wire_type))
            return _OBJECT_BYTES + fields
        return _VALUE_BYTES.get(wire_type, 56 if wire_type in UUIDS else _NUMBER_BYTES)

    # --- fields ----------------------------------------------------------------------------------------------------
    def _field(self, field: FieldSchema, target: str, name: str) -> None:
        wire_type, nullable, compact = field.wire_type, self.shape.is_nullable(field), self.shape.is_compact(field)
        if isinstance(wire_type, StructSchema):
            null_max = 0 if field.is_tagged(self.shape.version) else -1
            self._struct_field(wire_type, target, null_max if nullable else None)
        elif isinstance(wire_type, ArrayOf):
            self._array(wire_type.element, target, name, nullable=nullable, compact=compact)
        elif wire_type in FIXED_SIZES:
            self._take_fixed(wire_type, target)
        else:
            self._sized(wire_type, target, name, nullable=nullable, compact=compact)

    def _struct_field(self, schema: StructSchema, target: str, null_max: int | None) -> None:
        """`null_max` is the greatest value of the byte before the struct that means null; None if it cannot be null."""
        variable = self.source.fresh("struct")
        if null_max is None:
            self._new(schema, variable)
            self.source.line(f"{target} = {variable}")
            self._struct(schema, variable)
            return
        present = self.source.fresh("present")
        self._take("b", 1, present)
        self._flush()
        with self.source.block(f"if {present} <= {null_max}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self._new(schema, variable)
            self.source.line(f"{target} = {variable}")
            self._struct(schema, variable)
            self._flush()

    def _length(self, length: str, code: str, name: str, *, nullable: bool, compact: bool) -> str:
        """Emits code that reads a length or count, and returns the source of the condition that means null. The emitted
        check rejects a null that is not allowed, and any negative length other than -1."""
        if compact:
            self._uvarint(length)
            self.source.line(f"{length} -= 1")
        else:
            self._take(code, 2 if code == "h" else 4, length)
            self._flush()
        lowest = -1 if nullable else 0
        if not compact or not nullable:
            self.source.line(f"if {length} < {lowest}: {'negative' if nullable else 'is_null'}({name!r}, {length})")
        return f"{length} < 0"

    def _sized(self, wire_type: Primitive, target: str, name: str, *, nullable: bool, compact: bool) -> None:
        source, length, after = self.source, self.source.fresh("length"), self.source.fresh("after")
        is_null = self._length(
            length, "h" if wire_type is Primitive.STRING else "i", name, nullable=nullable, compact=compact
        )

        def read() -> None:
            if wire_type is Primitive.STRING and compact:
                source.line(f"if {length} > {MAX_STRING_BYTES}: too_long({name!r}, {length})")
            source.line(f"{after} = p + {length}")
            source.line(f"if {after} > end: beyond({name!r})")
            source.line(f"{target} = {self._slice(wire_type, f'data[p:{after}]')}")
            source.line(f"p = {after}")

        if not nullable:
            read()
            return
        with source.block(f"if {is_null}:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            read()

    def _slice(self, wire_type: Primitive, expression: str) -> str:
        if wire_type is Primitive.STRING:
            return f"str({expression}, 'utf-8')" if self.keeps_view else f"{expression}.decode()"
        return f"bytes({expression})" if wire_type is not Primitive.RECORDS and self.keeps_view else expression

    # --- arrays ----------------------------------------------------------------------------------------------------
    def _array(self, element: Primitive | StructSchema, target: str, name: str, *, nullable: bool, compact: bool) -> None:
        count = self.source.fresh("count")
        is_null = self._length(count, "i", name, nullable=nullable, compact=compact)
        if not nullable:
            self._elements(element, target, name, count, compact=compact)
            return
        with self.source.block(f"if {is_null}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self._elements(element, target, name, count, compact=compact)

    def _elements(self, element: Primitive | StructSchema, target: str, name: str, count: str, *, compact: bool) -> None:
        source = self.source
        smallest = self.shape.smallest_size(element, compact=compact)
        source.line(f"if {count} * {smallest} > end - p: beyond({name!r})")
        self._spend(f"{count} * {_SLOT_BYTES + self._memory(element)}", name)
        if isinstance(element, Primitive) and element in FIXED_SIZES:
            self._fixed_elements(element, target, count)
            return
        items = source.fresh("items")
        source.line(f"{items} = {target} = []")
        if isinstance(element, StructSchema) and self.shape.is_numbers_only(element):
            self._columns(element, items, count)
            return
        with source.block(f"for _ in range({count}):"):
            if isinstance(element, StructSchema):
                self._struct_element(element, items)
            else:
                item = source.fresh("item")
                self._sized(element, item, name, nullable=False, compact=compact)
                source.line(f"{items}.append({item})")
                self._maybe_yield()

    def _struct_element(self, element: StructSchema, items: str) -> None:
        item = self.source.fresh("item")
        self._new(element, item)
        self.source.line(f"{items}.append({item})")
        self._struct(element, item)
        self._flush()
        self._maybe_yield()

    def _maybe_yield(self) -> None:
        if self._yields:
            self.source.line("yield")

    def _fixed_elements(self, element: Primitive, target: str, count: str) -> None:
        source = self.source
        code, size = FIXED_SIZES[element]
        code = "?" if element is Primitive.BOOL else code
        short = source.constant("short", tuple(each.unpack_from for each in short_structs(code)))
        with source.block(f"if {count} < {SHORT}:"):
            source.line(f"{target} = list({short}[{count}](data, p))")
        with source.block("else:"):
            if element in UUIDS:
                item = source.fresh("item")
                read = self._slice(element, f"data[{item}:{item} + 16]")
                source.line(f"{target} = [{read} for {item} in range(p, p + {count} * 16, 16)]")
            else:
                source.line(f"{target} = list(unpack_from(f'>{{{count}}}{code}', data, p))")
        source.line(f"p += {count} * {size}")
        if element is Primitive.ASSIGNED_DIRECTORY_ID and self.numbering is Numbering.APACHE:
            item = source.fresh("item")
            source.line(f"{target} = [from_apache({item}, {item}) for {item} in {target}]")

    def _columns(self, element: StructSchema, items: str, count: str) -> None:
        """Emits code that unpacks structs of numbers in one go, or in a loop if there are only a few or one of them has
        tagged fields."""
        source, fields = self.source, self.shape.untagged(element)
        size = self.shape.smallest_size(element, compact=False)
        after = source.fresh("after")
        source.line(f"{after} = p + {count} * {size}")
        condition = f"{count} < {_COLUMNS_FROM}"
        if self.shape.flexible:
            condition += f" or any(data[p + {size - 1}:{after}:{size}])"
        with source.block(f"if {condition}:"), source.block(f"for _ in range({count}):"):
            self._struct_element(element, items)
        with source.block("else:"):
            codes = "".join(
                "?" if each.wire_type is Primitive.BOOL else FIXED_SIZES[each.wire_type][0]
                for each in fields
                if isinstance(each.wire_type, Primitive)
            )
            pad = "x" if self.shape.flexible else ""
            unpack = source.constant("iter_unpack", struct.Struct(">" + codes + pad).iter_unpack)
            item = source.fresh("item")
            values = [source.fresh("value") for _ in fields]
            with source.block(f"for {', '.join(values)}, in {unpack}(data[p:{after}]):"):
                self._new(element, item)
                for field, value in zip(fields, values, strict=True):
                    source.line(f"{item}.{field.name} = {value}")
                if self.shape.flexible:
                    source.line(f"{item}.unknown_tagged_fields = NO_TAGS")
                source.line(f"{items}.append({item})")
                self._maybe_yield()
            source.line(f"p = {after}")


# --- what the generated code calls ---------------------------------------------------------------------------------------


def _read_unknown_tags(data: bytes | memoryview, position: int, end: int, count: int) -> tuple[dict[int, bytes], int]:
    unknown: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        if tag <= last:
            _unsorted("a struct", tag)
        last = tag
        size, position = read_uvarint(data, position)
        if position + size > end:
            _beyond("an unknown tagged field")
        unknown[tag] = bytes(data[position : position + size])
        position += size
    return unknown, position


def _beyond(name: str) -> NoReturn:
    raise BufferUnderflow(f"{name} claims more bytes than there are")


def _is_null(name: str, length: int) -> NoReturn:
    raise InvalidValue(f"{name} must not be null (length {length})")


def _negative(name: str, length: int) -> NoReturn:
    raise InvalidValue(f"{name} has the length {length}")


def _too_long(name: str, length: int) -> NoReturn:
    raise InvalidValue(f"{name} has {length} bytes, a string at most {MAX_STRING_BYTES}")


def _too_many(name: str) -> NoReturn:
    raise InvalidValue(f"the elements of one request take more than {MAX_REQUEST_MEMORY} bytes, at {name}")


def _unsorted(name: str, tag: int) -> NoReturn:
    raise InvalidValue(f"tag {tag} of {name} is not above the one before it")


def _wrong_size(name: str) -> NoReturn:
    raise InvalidValue(f"the tagged field {name} does not have the size it was sent with")
