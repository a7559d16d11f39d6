"""The vocabulary for declaring messages, their structs and metadata records (core).

A declaration is a dataclass whose annotations are wire types. Each field states the versions in which it exists, may be
null, or is a tagged field. Names, types and versions are those of Kafka's message definitions (KIP-482 for flexible
versions). `codec` compiles the declaration; handlers only see the dataclass. Arrays are `list[...]`, nullable is `| None`,
and a field without an explicit default gets the zero of its type, as in Kafka's generated classes.

A field that a version lacks must hold its default when that version is encoded, unless the field is `ignorable`.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import Annotated, Any, ClassVar, TypeVar, Union, dataclass_transform, get_args, get_origin

from common.ids import ZERO_UUID, Uuid
from common.parts import Buffer, Part

_METADATA_KEY = "wire"


class SchemaError(Exception):
    """A declaration contradicts itself. Raised when its module is imported."""


class Primitive(Enum):
    """The types of single values on the wire."""

    BOOL = auto()
    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    UUID = auto()
    ASSIGNED_DIRECTORY_ID = auto()
    STRING = auto()
    BYTES = auto()
    RECORDS = auto()


Bool = bool
Int8 = Annotated[int, Primitive.INT8]
Int16 = Annotated[int, Primitive.INT16]
UInt16 = Annotated[int, Primitive.UINT16]
Int32 = Annotated[int, Primitive.INT32]
Int64 = Annotated[int, Primitive.INT64]
Float64 = float
String = str
Bytes = bytes
# Record batches, which are passed through without being copied. Decoding returns a memoryview of the input; encoding accepts
# any of these types.
Records = Annotated[Buffer | Sequence[Part], Primitive.RECORDS]
# A uuid with three reserved values, which KIP-858 and Apache Kafka number differently (see `numbering`).
AssignedDirectoryId = Annotated[Uuid, Primitive.ASSIGNED_DIRECTORY_ID]

_PLAIN_TYPES: Mapping[object, Primitive] = types.MappingProxyType(
    {
        bool: Primitive.BOOL,
        float: Primitive.FLOAT64,
        str: Primitive.STRING,
        bytes: Primitive.BYTES,
        Uuid: Primitive.UUID,
    }
)

_LAST_VERSION_EVER = 0x7FFF


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `first` to `last`, inclusive; empty if last < first."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Any:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


NO_VERSIONS = VersionRange(0, -1)


def version_range(text: str) -> VersionRange:
    """Parses a range of versions: "3", "3+", "3-7" or "none"."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), _LAST_VERSION_EVER)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


class Kind(Enum):
    """What a message is for. Only requests come from untrusted clients, so only they limit the memory of their elements."""

    REQUEST = auto()
    RESPONSE = auto()
    HEADER = auto()
    DATA = auto()
    RECORD = auto()


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: "Primitive | StructSchema"


WireType = Union[Primitive, "StructSchema", ArrayOf]


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field. In the versions `tagged` it is a tagged field with the number `tag`. `compact` is False only for the one
    header field that keeps its old form in flexible versions."""

    name: str
    wire_type: WireType
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    ignorable: bool
    compact: bool
    make_default: Callable[[], Any]

    @property
    def json_name(self) -> str:
        """The field's name in camel case, as Kafka's tools print it."""
        first, *rest = self.name.split("_")
        return first + "".join(word[:1].upper() + word[1:] for word in rest)

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.versions and version in self.tagged


@dataclass(frozen=True, slots=True, eq=False)
class StructSchema:
    """A struct or message with its fields in wire order."""

    name: str
    python_class: type["Struct"]
    fields: tuple[FieldSchema, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MessageSchema(StructSchema):
    """A top-level message."""

    kind: Kind
    api_key: int | None
    versions: VersionRange
    flexible: VersionRange


class _NoTaggedFields(dict[int, bytes]):
    """An empty, immutable dict. Nearly every struct has no unknown tagged fields, and all such structs share one object."""

    def __setitem__(self, tag: int, content: bytes) -> None:
        raise TypeError("give the struct a dictionary of its own")

    def __hash__(self) -> int:  # type: ignore[override]
        # A dataclass accepts only a hashable object as the default of a field. The dict is immutable, so any constant will
        # do.
        return 0


NO_TAGGED_FIELDS: Mapping[int, bytes] = _NoTaggedFields()


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Struct:
    """Base of all declared classes. Unknown tagged fields are kept and written back when the struct is encoded."""

    unknown_tagged_fields: Mapping[int, bytes] = NO_TAGGED_FIELDS

    wire_schema: ClassVar[StructSchema]
    # Returns the values of all fields.
    wire_values: ClassVar["attrgetter[Any]"]
    # The compiled functions by version, filled on first use. The first dict is for KIP-858's numbering of reserved directory
    # ids, the second for Apache Kafka's.
    wire_encoders: ClassVar[tuple[dict[int, Any], dict[int, Any]]] = ({}, {})
    wire_decoders: ClassVar[tuple[dict[int, Any], dict[int, Any]]] = ({}, {})
    # The same as generators, which yield after each element of an array of structs.
    wire_sliced_encoders: ClassVar[tuple[dict[int, Any], dict[int, Any]]] = ({}, {})
    wire_sliced_decoders: ClassVar[tuple[dict[int, Any], dict[int, Any]]] = ({}, {})

    # These are the same as what a dataclass gets. They stand here because every process declares hundreds of structs when it
    # starts, and half of that time would go into the generation of these methods.
    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = self.wire_values
        return bool(values(self) == values(other))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self))
        return f"{type(self).__qualname__}({values})"


AnyStruct = TypeVar("AnyStruct", bound=Struct)


def field(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    versions: str = "0+",
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    compact: bool = True,
) -> Any:
    """Declares a field that needs more than its type and default.

    `versions`: the versions that have the field. `nullable`: the versions that allow None; by default every version that has
    the field, if its type says `| None`. `tag`: the number of a tagged field. `tagged`: the versions in which it is tagged;
    by default every version that has the field.
    """
    options = {
        "versions": versions,
        "nullable": nullable,
        "tag": tag,
        "tagged": tagged,
        "ignorable": ignorable,
        "compact": compact,
    }
    if default is dataclasses.MISSING and default_factory is dataclasses.MISSING:
        raise SchemaError("a field needs a default or a default_factory")
    metadata = {_METADATA_KEY: options}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[AnyStruct]) -> type[AnyStruct]:
    """Declares a struct that is part of a message."""
    made = _dataclass_of(cls)
    made.wire_schema = StructSchema(made.__name__, made, _fields_of(made))
    return made


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *, kind: Kind, versions: str, flexible: str, api_key: int | None = None
) -> Callable[[type[AnyStruct]], type[AnyStruct]]:
    """Declares a top-level message, its versions and its flexible versions."""

    def declare(cls: type[AnyStruct]) -> type[AnyStruct]:
        made = _dataclass_of(cls)
        made.wire_schema = MessageSchema(
            name=made.__name__,
            python_class=made,
            fields=_fields_of(made),
            kind=kind,
            api_key=api_key,
            versions=version_range(versions),
            flexible=version_range(flexible),
        )
        made.wire_encoders = ({}, {})
        made.wire_decoders = ({}, {})
        made.wire_sliced_encoders = ({}, {})
        made.wire_sliced_decoders = ({}, {})
        return made

    return declare


def message_schema(message_class: type[Struct]) -> MessageSchema:
    """Returns the schema of a top-level message. Raises SchemaError for a struct that is only part of messages."""
    schema = message_class.wire_schema
    if not isinstance(schema, MessageSchema):
        raise SchemaError(f"{schema.name} is a struct, not a message")
    return schema


def _dataclass_of(cls: type[AnyStruct]) -> type[AnyStruct]:
    # Without a docstring, dataclass would make one of the signature, which takes longer than all the rest.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made = dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
    made.wire_values = attrgetter(*(each.name for each in dataclasses.fields(made)))
    return made


def _fields_of(cls: type[Struct]) -> tuple[FieldSchema, ...]:
    declared = [
        _field_schema(cls.__name__, each, each.type)
        for each in dataclasses.fields(cls)
        if each.name != "unknown_tagged_fields"
    ]
    tags = [each.tag for each in declared if each.tag is not None]
    if len(set(tags)) != len(tags):
        raise SchemaError(f"{cls.__name__} uses a tag twice")
    return tuple(declared)


def _field_schema(struct_name: str, declared: "dataclasses.Field[Any]", hint: Any) -> FieldSchema:
    where = f"{struct_name}.{declared.name}"
    options: Mapping[str, Any] = declared.metadata.get(_METADATA_KEY, {})
    hint, may_be_none = _without_none(hint)
    wire_type = _wire_type(where, hint)
    versions = version_range(options.get("versions", "0+"))
    nullable_text = options.get("nullable")
    if nullable_text is not None and not may_be_none:
        raise SchemaError(f"{where} is nullable in some versions but its type lacks '| None'")
    nullable = NO_VERSIONS if not may_be_none else versions if nullable_text is None else version_range(nullable_text)
    tag = options.get("tag")
    tagged_text = options.get("tagged")
    tagged = NO_VERSIONS if tag is None else versions if tagged_text is None else version_range(tagged_text)
    if tag is not None and wire_type is Primitive.RECORDS:
        raise SchemaError(f"{where}: this type cannot be a tagged field here")
    return FieldSchema(
        name=declared.name,
        wire_type=wire_type,
        versions=versions,
        nullable=nullable,
        tag=tag,
        tagged=tagged,
        ignorable=options.get("ignorable", False),
        compact=options.get("compact", True),
        make_default=_default_maker(where, declared),
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _wire_type(where: str, hint: Any) -> WireType:
    if get_origin(hint) is list:
        element = _wire_type(where, get_args(hint)[0])
        if isinstance(element, ArrayOf):
            raise SchemaError(f"{where}: an array of arrays does not exist on the wire")
        return ArrayOf(element)
    if get_origin(hint) is Annotated:
        for note in get_args(hint)[1:]:
            if isinstance(note, Primitive):
                return note
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint.wire_schema
    plain = _PLAIN_TYPES.get(hint)
    if plain is None:
        raise SchemaError(f"{where}: {hint} is not a wire type")
    return plain


def _default_maker(where: str, declared: "dataclasses.Field[Any]") -> Callable[[], Any]:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory
    if declared.default is dataclasses.MISSING:
        raise SchemaError(f"{where} has no default")
    value = declared.default
    return lambda: value


__all__ = [
    "NO_TAGGED_FIELDS",
    "NO_VERSIONS",
    "ZERO_UUID",
    "AnyStruct",
    "ArrayOf",
    "AssignedDirectoryId",
    "Bool",
    "Bytes",
    "FieldSchema",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Kind",
    "MessageSchema",
    "Primitive",
    "Records",
    "SchemaError",
    "String",
    "Struct",
    "StructSchema",
    "UInt16",
    "Uuid",
    "VersionRange",
    "WireType",
    "field",
    "message",
    "message_schema",
    "struct",
    "version_range",
]
