"""Compiles a declared message and one of its versions into the function that encodes it (core).

Adjacent fixed-size fields become one `struct.pack`, and arrays of structs that hold only numbers are packed column by
column. The function returns the parts of the message in order; the values of Records fields are included without being
copied. A tagged field is written only if it differs from its default, and unknown tags are merged in by tag number.
"""

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from common.protocol.errors import EncodeError
from common.protocol.numbering import TO_APACHE, Numbering
from common.protocol.schema import ArrayOf, FieldSchema, MessageSchema, Primitive, StructSchema
from common.protocol.source import FIXED_SIZES, MAX_STRING_BYTES, SHORT, UUIDS, Shape, Source, literal, short_structs
from common.protocol.varint import SMALL_UVARINTS, encode_uvarint

# Arrays of this many structs or more are packed by columns. For fewer, a loop is as fast.
_COLUMNS_FROM = 8
# An encoder that yields packs by columns so many structs at a time.
_COLUMNS_MAX = 500
# An encoder that yields joins its parts when it has more than this many.
_PARTS_MAX = 4096


def compile_encoder(schema: MessageSchema, version: int, numbering: Numbering, *, yields: bool = False) -> Any:
    """Returns an encode function: it takes a message and returns the list of its parts. With `yields` it is a generator
    function, which yields after each element of an array, or as often after many of them, except of an array of numbers."""
    return _EncoderSource(schema, version, numbering, yields=yields).compile()


class _EncoderSource:
    def __init__(self, schema: MessageSchema, version: int, numbering: Numbering, *, yields: bool) -> None:
        self._yields = yields
        self.shape = Shape(schema, version)
        self.numbering = numbering
        self.source = Source(
            {
                "SMALL": SMALL_UVARINTS,
                "uvarint": encode_uvarint,
                "pack": struct.pack,
                "pack_columns": _pack_columns,
                "write_tags": _write_tags,
                "not_null": _not_null,
                "not_in_version": _not_in_version,
                "too_long": _too_long,
                "not_a_uuid": _not_a_uuid,
                "to_apache": TO_APACHE.get,
            }
        )
        # The formats and the value expressions of the fixed-size fields that the next emitted pack will write.
        self._formats: list[str] = []
        self._values: list[str] = []
        # The name of the list to which the generated code currently appends bytes.
        self._target = "parts"

    def compile(self) -> Any:
        source, schema = self.source, self.shape.schema
        with source.block("def encode(message):"):
            source.line("done = []")
            source.line("parts = []")
            if self._yields:
                # A message without such an array is a generator function as well.
                source.line("if message is None: yield")
            self._struct(schema, "message")
            self._flush()
            source.line("if parts or not done: done.append(b''.join(parts))")
            source.line("return done")
        return source.compile("encode", f"encoder of {schema.name} v{self.shape.version}")

    # --- bytes of fixed size ---------------------------------------------------------------------------------------
    def _add(self, code: str, value: str) -> None:
        self._formats.append(code)
        self._values.append(value)

    def _flush(self) -> None:
        if self._formats:
            pack = self.source.constant("pack", struct.Struct(">" + "".join(self._formats)).pack)
            self.source.line(f"{self._target}.append({pack}({', '.join(self._values)}))")
            self._formats.clear()
            self._values.clear()

    def _append(self, expression: str) -> None:
        self._flush()
        self.source.line(f"{self._target}.append({expression})")

    def _append_uvarint(self, variable: str) -> None:
        self._append(f"SMALL[{variable}] if {variable} < 128 else uvarint({variable})")

    # --- structs ---------------------------------------------------------------------------------------------------
    def _struct(self, schema: StructSchema, variable: str) -> None:
        for field in self.shape.absent(schema):
            self._refuse_if_set(schema, field, variable)
        for field in self.shape.untagged(schema):
            self._field(schema, field, f"{variable}.{field.name}")
        self._tags(schema, variable)

    def _refuse_if_set(self, schema: StructSchema, field: FieldSchema, variable: str) -> None:
        if not field.ignorable:
            condition = self._differs_from_default(field, f"{variable}.{field.name}")
            self.source.line(f"if {condition}: not_in_version({schema.name + '.' + field.name!r}, {self.shape.version})")

    def _tags(self, schema: StructSchema, variable: str) -> None:
        unknown = f"{variable}.unknown_tagged_fields"
        if not self.shape.flexible:
            name = f"{schema.name}.unknown_tagged_fields"
            self.source.line(f"if {unknown}: not_in_version({name!r}, {self.shape.version})")
            return
        self._flush()
        fields = self.shape.tagged(schema)
        if not fields:
            with self.source.block(f"if {unknown}:"):
                self.source.line(f"write_tags({self._target}, [], {unknown})")
            with self.source.block("else:"):
                self._append(r"b'\x00'")
            return
        tagged = self.source.fresh("tagged")
        self.source.line(f"{tagged} = []")
        for field in fields:
            self._tagged_field(schema, field, variable, tagged)
        with self.source.block(f"if {tagged} or {unknown}:"):
            self.source.line(f"write_tags({self._target}, {tagged}, {unknown})")
        with self.source.block("else:"):
            self._append(r"b'\x00'")

    def _tagged_field(self, schema: StructSchema, field: FieldSchema, variable: str, tagged: str) -> None:
        value = self.source.fresh("value")
        self.source.line(f"{value} = {variable}.{field.name}")
        outer = self._target
        with self.source.block(f"if {self._differs_from_default(field, value)}:"):
            self._target = self.source.fresh("content")
            self.source.line(f"{self._target} = []")
            self._field(schema, field, value)
            self._flush()
            self.source.line(f"{tagged}.append(({field.tag}, b''.join({self._target})))")
            self._target = outer

    def _differs_from_default(self, field: FieldSchema, value: str) -> str:
        default = field.make_default()
        if default is None:
            return f"{value} is not None"
        if isinstance(field.wire_type, ArrayOf):
            return f"({value} is None or len({value}) > 0)"
        if isinstance(field.wire_type, StructSchema):
            # The default of a struct field is a struct whose fields all have their own defaults, so comparing field by field
            # is enough.
            inner = [self._differs_from_default(each, f"{value}.{each.name}") for each in field.wire_type.fields]
            return f"({value} is None or " + " or ".join([*inner, f"{value}.unknown_tagged_fields"]) + ")"
        return f"{value} != {literal(default)}"

    # --- fields ----------------------------------------------------------------------------------------------------
    def _field(self, schema: StructSchema, field: FieldSchema, expression: str) -> None:
        name = f"{schema.name}.{field.name}"
        wire_type = field.wire_type
        if isinstance(wire_type, Primitive) and wire_type in FIXED_SIZES:
            self._fixed(wire_type, expression, name)
            return
        variable = self.source.fresh("value")
        self.source.line(f"{variable} = {expression}")
        if not self.shape.is_nullable(field):
            self.source.line(f"if {variable} is None: not_null({name!r})")
            self._not_null_value(field, variable, name)
            return
        self._flush()
        with self.source.block(f"if {variable} is None:"):
            self._null(field)
        with self.source.block("else:"):
            if isinstance(wire_type, StructSchema):
                self._add("b", "1")
            self._not_null_value(field, variable, name)
            self._flush()

    def _null(self, field: FieldSchema) -> None:
        if isinstance(field.wire_type, StructSchema):
            # In a tagged field the byte before a struct is an unsigned varint.
            self._append(r"b'\x00'" if field.is_tagged(self.shape.version) else r"b'\xff'")
        elif self.shape.is_compact(field):
            self._append(r"b'\x00'")
        elif field.wire_type is Primitive.STRING:
            self._append(r"b'\xff\xff'")
        else:
            self._append(r"b'\xff\xff\xff\xff'")

    def _not_null_value(self, field: FieldSchema, variable: str, name: str) -> None:
        wire_type, compact = field.wire_type, self.shape.is_compact(field)
        if isinstance(wire_type, StructSchema):
            self._struct(wire_type, variable)
        elif isinstance(wire_type, ArrayOf):
            self._array(wire_type.element, variable, name, compact=compact)
        elif wire_type is Primitive.RECORDS:
            self._records(variable, compact=compact)
        else:
            self._text_or_bytes(wire_type, variable, name, compact=compact)

    def _fixed(self, wire_type: Primitive, expression: str, name: str) -> None:
        if wire_type in UUIDS:
            variable = self.source.fresh("uuid")
            self.source.line(f"{variable} = {self._renumbered(wire_type, expression)}")
            self.source.line(f"if len({variable}) != 16: not_a_uuid({name!r})")
            expression = variable
        self._add(FIXED_SIZES[wire_type][0], expression)

    def _renumbered(self, wire_type: Primitive, expression: str) -> str:
        if wire_type is Primitive.ASSIGNED_DIRECTORY_ID and self.numbering is Numbering.APACHE:
            return f"to_apache({expression}, {expression})"
        return expression

    def _text_or_bytes(self, wire_type: Primitive, variable: str, name: str, *, compact: bool) -> None:
        length = self.source.fresh("length")
        if wire_type is Primitive.STRING:
            self.source.line(f"{variable} = {variable}.encode()")
            self.source.line(f"{length} = len({variable})")
            self.source.line(f"if {length} > {MAX_STRING_BYTES}: too_long({name!r}, {length})")
        else:
            self.source.line(f"{length} = len({variable})")
        self._length(length, "h" if wire_type is Primitive.STRING else "i", compact=compact)
        self._append(variable)

    def _length(self, length: str, code: str, *, compact: bool) -> None:
        """Emits code that writes a length or a count. The compact form is a varint of the value plus one, with 0 for
        null."""
        if compact:
            self.source.line(f"{length} += 1")
            self._append_uvarint(length)
        else:
            self._add(code, length)

    def _records(self, variable: str, *, compact: bool) -> None:
        pieces, length = self.source.fresh("pieces"), self.source.fresh("length")
        self.source.line(
            f"{pieces} = [{variable}] if isinstance({variable}, (bytes, bytearray, memoryview)) else {variable}"
        )
        self.source.line(f"{length} = sum(map(len, {pieces}))")
        self._length(length, "i", compact=compact)
        self._flush()
        self.source.line("done.append(b''.join(parts))")
        self.source.line("parts.clear()")
        self.source.line(f"done.extend({pieces})")

    # --- arrays ----------------------------------------------------------------------------------------------------
    def _array(self, element: Primitive | StructSchema, variable: str, name: str, *, compact: bool) -> None:
        count = self.source.fresh("count")
        self.source.line(f"{count} = len({variable})")
        if isinstance(element, Primitive) and element in FIXED_SIZES and element not in UUIDS:
            self._numbers(FIXED_SIZES[element][0], variable, count, compact=compact)
            return
        self._length(count, "i", compact=compact)
        self._flush()
        if isinstance(element, StructSchema) and self._may_be_columns(element):
            if self._yields:
                self._columns_in_slices(element, variable, count)
            else:
                self._columns(element, variable)
            return
        self._loop(element, variable, name, compact=compact, yields=self._yields)

    def _numbers(self, code: str, variable: str, count: str, *, compact: bool) -> None:
        length = self.source.fresh("length")
        self.source.line(f"{length} = {count}")
        self._length(length, "i", compact=compact)
        self._flush()
        short = self.source.constant("short", tuple(each.pack for each in short_structs(code)))
        with self.source.block(f"if {count} < {SHORT}:"):
            self._append(f"{short}[{count}](*{variable})")
        with self.source.block("else:"):
            self._append(f"pack(f'>{{{count}}}{code}', *{variable})")

    def _loop(self, element: Primitive | StructSchema, variable: str, name: str, *, compact: bool, yields: bool) -> None:
        item = self.source.fresh("item")
        with self.source.block(f"for {item} in {variable}:"):
            if isinstance(element, StructSchema):
                self._struct(element, item)
            else:
                self.source.line(f"if {item} is None: not_null({name!r})")
                if element in UUIDS:
                    if self._renumbered(element, item) != item:
                        self.source.line(f"{item} = {self._renumbered(element, item)}")
                    self.source.line(f"if len({item}) != 16: not_a_uuid({name!r})")
                    self._append(item)
                else:
                    self._text_or_bytes(element, item, name, compact=compact)
            self._flush()
            if yields:
                self._yield()

    def _yield(self) -> None:
        if self._target == "parts":
            # Joining millions of parts at the end would be one long step.
            with self.source.block(f"if len(parts) > {_PARTS_MAX}:"):
                self.source.line("done.append(b''.join(parts))")
                self.source.line("parts.clear()")
        self.source.line("yield")

    def _may_be_columns(self, element: StructSchema) -> bool:
        refused = [each for each in self.shape.absent(element) if not each.ignorable]
        return self.shape.is_numbers_only(element) and not refused

    def _columns_in_slices(self, element: StructSchema, variable: str, count: str) -> None:
        start, columns = self.source.fresh("start"), self.source.fresh("columns")
        with self.source.block(f"for {start} in range(0, {count}, {_COLUMNS_MAX}):"):
            self.source.line(f"{columns} = {variable}[{start} : {start} + {_COLUMNS_MAX}]")
            self._columns(element, columns)
            with self.source.block(f"for _ in {columns}:"):
                self._yield()

    def _columns(self, element: StructSchema, variable: str) -> None:
        fields = self.shape.untagged(element)
        item = self.source.fresh("item")
        columns = [
            f"(*{FIXED_SIZES[each.wire_type]!r}, [{item}.{each.name} for {item} in {variable}])"
            for each in fields
            if isinstance(each.wire_type, Primitive)
        ]
        size = self.shape.smallest_size(element, compact=False)
        condition = f"len({variable}) < {_COLUMNS_FROM} or any([{item}.unknown_tagged_fields for {item} in {variable}])"
        with self.source.block(f"if {condition}:"):
            self._loop(element, variable, "", compact=False, yields=False)
        with self.source.block("else:"):
            self._append(f"pack_columns(len({variable}), {size}, ({', '.join(columns)},))")


# --- what the generated code calls ---------------------------------------------------------------------------------------


def _pack_columns(count: int, size: int, columns: Sequence[tuple[str, int, Sequence[int]]]) -> bytearray:
    """Packs `count` elements of `size` bytes each. Bytes that no column covers (the empty tag section at the end) stay
    zero."""
    packed = bytearray(count * size)
    offset = 0
    for code, width, values in columns:
        column = struct.pack(f">{count}{code}", *values)
        for byte in range(width):
            packed[offset + byte :: size] = column[byte::width]
        offset += width
    return packed


def _write_tags(target: list[bytes], tagged: list[tuple[int, bytes]], unknown: Mapping[int, bytes]) -> None:
    if unknown:
        tagged = sorted([*tagged, *unknown.items()], key=_tag_of)
        for (tag, _), (following, _) in pairwise(tagged):
            if tag == following:
                raise EncodeError(f"tag {tag} is both a known and an unknown tagged field")
    target.append(encode_uvarint(len(tagged)))
    for tag, content in tagged:
        target.append(encode_uvarint(tag))
        target.append(encode_uvarint(len(content)))
        target.append(content)


def _tag_of(tagged: tuple[int, bytes]) -> int:
    return tagged[0]


def _not_null(name: str) -> NoReturn:
    raise EncodeError(f"{name} must not be null")


def _not_in_version(name: str, version: int) -> NoReturn:
    raise EncodeError(f"{name} is set, but version {version} has no such field")


def _too_long(name: str, length: int) -> NoReturn:
    raise EncodeError(f"{name} has {length} bytes, a string at most {MAX_STRING_BYTES}")


def _not_a_uuid(name: str) -> NoReturn:
    raise EncodeError(f"{name} is not a uuid of 16 bytes")
