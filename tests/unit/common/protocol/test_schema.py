"""Declarations of messages: how each is encoded, and which declarations are refused."""

import copy

import pytest

from common.ids import Uuid
from common.protocol.codec import decode, encode
from common.protocol.errors import ErrorCode, error_name, is_known_error
from common.protocol.numbering import Numbering
from common.protocol.schema import (
    AssignedDirectoryId,
    Float64,
    Int32,
    Kind,
    Records,
    SchemaError,
    String,
    Struct,
    UInt16,
    VersionRange,
    field,
    message,
    message_schema,
    struct,
    version_range,
)
from common.protocol.varint import encode_uvarint


@struct
class Point(Struct):
    x: Float64 = 0.0
    label: String | None = None


@message(kind=Kind.DATA, versions="0-2", flexible="2+")
class Drawing(Struct):
    points: list[Point] | None = None
    centre: Point | None = field(default=None, versions="1+", ignorable=True)
    flags: list[bool] = field(default_factory=list)
    serials: list[UInt16] = field(default_factory=list, versions="2+", tag=3)
    notes: list[str] = field(default_factory=list, versions="1+", tag=1, tagged="2+")


def test_types_that_hardly_any_message_uses() -> None:
    """Floats, unsigned numbers, arrays of booleans and nullable structs can be encoded, tagged or not."""
    drawing = Drawing(
        points=[Point(x=1.5), Point(x=-0.0, label="b")],
        centre=Point(x=9.0),
        flags=[True, False],
        serials=[2**16 - 1],
        notes=["a", ""],
    )
    assert decode(Drawing, encode(drawing, 2), 2) == drawing
    bare = Drawing(points=None, flags=[True], notes=["c"])
    assert decode(Drawing, encode(bare, 1), 1) == bare
    assert encode(Drawing(centre=Point()), 0) == b"\xff\xff\xff\xff" + bytes(4)


def test_a_nullable_struct_is_one_byte_when_absent() -> None:
    """KIP-893: the byte -1 means that the struct is null. The byte 1 precedes the fields of a struct that is present."""
    assert encode(Drawing(), 1) == b"\xff\xff\xff\xff" + b"\xff" + bytes(4) + bytes(4)
    assert encode(Drawing(centre=Point()), 1) == b"\xff\xff\xff\xff" + b"\x01" + bytes(8) + b"\xff\xff" + bytes(4) + bytes(4)


@message(kind=Kind.DATA, versions="0-1", flexible="1+")
class Placement(Struct):
    replicas: list[Int32] = field(default_factory=list)
    directories: list[AssignedDirectoryId] = field(default_factory=list)
    log_dirs: list[Uuid] = field(default_factory=list)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 200])
@pytest.mark.parametrize("version", [0, 1])
def test_arrays_of_any_length(count: int, version: int) -> None:
    """Short and long arrays take different code paths but get the same bytes. Only fields with assigned directory ids are
    renumbered."""
    uuids = [Uuid((number % 5).to_bytes(16, "big")) for number in range(count)]
    apaches = [Uuid((1, 2, 0, 3, 4)[number % 5].to_bytes(16, "big")) for number in range(count)]
    placement = Placement(replicas=list(range(-1, count - 1)), directories=uuids, log_dirs=uuids)
    length = count.to_bytes(4, "big") if version == 0 else encode_uvarint(count + 1)
    replicas = length + b"".join(number.to_bytes(4, "big", signed=True) for number in placement.replicas)
    end = b"" if version == 0 else b"\x00"
    for numbering, directories in ((Numbering.KIP858, uuids), (Numbering.APACHE, apaches)):
        expected = replicas + length + b"".join(directories) + length + b"".join(uuids) + end
        assert encode(placement, version, numbering=numbering) == expected
        assert decode(Placement, expected, version, numbering=numbering) == placement


def test_versions_are_read_in_all_four_forms() -> None:
    """A version range is written as 3, 3-7, 3+ or none."""
    assert version_range("3") == VersionRange(3, 3)
    assert version_range("3-7") == VersionRange(3, 7)
    assert 1000 in version_range("3+")
    assert 0 not in version_range("none")


def test_declarations_that_contradict_themselves() -> None:
    """A bad declaration is refused when its module is imported."""
    with pytest.raises(SchemaError, match="not a wire type"):

        @struct
        class NotOnTheWire(Struct):
            value: int = 0

    with pytest.raises(SchemaError, match="has no default"):

        @struct
        class WithoutDefault(Struct):
            value: Int32

    with pytest.raises(SchemaError, match=r"lacks '\| None'"):

        @struct
        class NullableOnlyByOption(Struct):
            value: String = field(default="", nullable="1+")

    with pytest.raises(SchemaError, match="uses a tag twice"):

        @struct
        class OneTagTwice(Struct):
            one: Int32 = field(default=0, tag=0)
            two: Int32 = field(default=0, tag=0)

    with pytest.raises(SchemaError, match="array of arrays"):

        @struct
        class Matrix(Struct):
            rows: list[list[Int32]] = field(default_factory=list)

    with pytest.raises(SchemaError, match="cannot be a tagged field"):

        @struct
        class TaggedRecords(Struct):
            records: Records | None = field(default=None, tag=0)


def test_a_struct_is_not_a_message() -> None:
    """Only top-level messages have versions of their own."""
    with pytest.raises(SchemaError):
        message_schema(Point)


def test_elements_without_bytes_are_refused() -> None:
    """An array whose elements take no bytes could claim any count, so such a declaration is refused."""

    @struct
    class Nothing(Struct):
        late: Int32 = field(default=0, versions="1+")

    @message(kind=Kind.DATA, versions="0-1", flexible="none")
    class Nothings(Struct):
        items: list[Nothing] = field(default_factory=list)

    with pytest.raises(SchemaError, match="no bytes in version 0"):
        decode(Nothings, bytes(4), 0)
    assert decode(Nothings, b"\x00\x00\x00\x01\x00\x00\x00\x05", 1) == Nothings(items=[Nothing(late=5)])


def test_structs_are_compared_and_shown_like_dataclasses() -> None:
    """The values of all fields count, and nothing can be in a set whose fields may change."""
    drawing = Drawing(points=[Point(x=1.0)])
    assert drawing == Drawing(points=[Point(x=1.0)])
    for other in (Drawing(), Drawing(points=[Point(x=2.0)]), Drawing(points=[Point(x=1.0)], unknown_tagged_fields={1: b""})):
        assert drawing != other
    assert Point().__eq__("Point()") is NotImplemented
    assert repr(Point(label="a")) == "Point(unknown_tagged_fields={}, x=0.0, label='a')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point())


def test_the_shared_absence_of_tags_cannot_be_changed() -> None:
    """Structs without unknown tagged fields share one empty, read-only mapping. To set such fields, pass a dictionary."""
    with pytest.raises(TypeError):
        Point().unknown_tagged_fields[1] = b"x"  # type: ignore[index]
    assert Point().unknown_tagged_fields == {}
    assert copy.deepcopy(Drawing(points=[Point(x=1.0)])) == Drawing(points=[Point(x=1.0)])


def test_codes_without_a_name_pass_as_numbers() -> None:
    """Codes sent by a newer peer have no name here and are passed on as numbers."""
    assert error_name(57) == "LOG_DIR_NOT_FOUND"
    assert error_name(9999) == "9999"
    assert is_known_error(ErrorCode.NONE)
    assert not is_known_error(9999)
