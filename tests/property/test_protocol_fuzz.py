"""Hostile bytes decode to a message or raise ProtocolError, quickly and with memory proportional to the number of bytes."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol.codec import decode, decode_request, encode
from common.protocol.errors import InvalidValue, RemoteProtocolError
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.schema import ArrayOf, FieldSchema, Kind, Primitive, Struct, StructSchema, message_schema
from common.protocol.source import UUIDS
from common.protocol.varint import encode_uvarint
from tests.property.profiles import examples
from tests.property.protocol_strategies import case_name, declared_messages, messages, versions_of

# The first and the last version of each message, to cover the old and the flexible encoding.
CASES = [
    (each, version) for each in declared_messages() for version in sorted({versions_of(each)[0], versions_of(each)[-1]})
]
REQUESTS = [each for each in declared_messages() if message_schema(each).kind is Kind.REQUEST]
# Decoding may take BYTES_PER_BYTE of memory for each input byte, since a few bytes on the wire can become a Python object
# with a dictionary and a list. BYTES_AT_LEAST is added for costs that do not depend on the input's size.
BYTES_PER_BYTE = 150
BYTES_AT_LEAST = 20_000


def decode_measured(message_class: type[Struct], data: bytes, version: int, *, bytes_at_most: int) -> Any:
    """Returns the message, or None if it is rejected. Asserts the limit on memory in both cases."""
    tracemalloc.start()
    try:
        return decode(message_class, data, version)
    except RemoteProtocolError:
        return None
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < bytes_at_most


def damage(encoded: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    """Replaces some bytes of `encoded` and may cut off its end."""
    damaged = bytearray(encoded)
    for position, value in changes:
        if damaged:
            damaged[position % len(damaged)] = value
    return bytes(damaged[: len(damaged) - cut]) if cut else bytes(damaged)


@pytest.mark.parametrize(("message_class", "version"), CASES, ids=case_name)
def test_a_damaged_message_decodes_or_is_refused_within_its_memory(message_class: type[Struct], version: int) -> None:
    """A message with changed, missing or random bytes decodes to some message or raises RemoteProtocolError."""
    damaged = st.builds(
        damage,
        messages(message_class, version, unknown_tags=True).map(lambda message: encode(message, version)),
        st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255) | st.sampled_from([0, 127, 128, 255])), max_size=3),
        st.integers(0, 5),
    )
    decode(message_class, encode(message_class(), version), version)

    @examples(20)
    @given(damaged | st.binary(max_size=80))
    def check(data: bytes) -> None:
        message = decode_measured(message_class, data, version, bytes_at_most=BYTES_AT_LEAST + BYTES_PER_BYTE * len(data))
        if message is not None:
            assert decode(message_class, encode(message, version), version) == message

    check()


def arrays_of(schema: StructSchema, version: int) -> list[list[FieldSchema]]:
    """Returns, for each array in this version of the message, the path of fields that leads to it through arrays of
    structs."""
    found = []
    for field in schema.fields:
        if version in field.versions and isinstance(field.wire_type, ArrayOf):
            found.append([field])
            if isinstance(field.wire_type.element, StructSchema):
                found += [[field, *rest] for rest in arrays_of(field.wire_type.element, version)]
    return found


def smallest(element: Primitive | StructSchema, *, has_tags: bool) -> Any:
    """Returns an element that takes few bytes on the wire and many objects in memory."""
    if isinstance(element, StructSchema):
        made = element.python_class()
        if has_tags:
            made.unknown_tagged_fields = {50: b""}
        return made
    return {Primitive.STRING: "", Primitive.BYTES: b""}.get(element, bytes(16) if element in UUIDS else 100)


@pytest.mark.slow
@pytest.mark.parametrize("message_class", REQUESTS, ids=case_name)
def test_memory_of_requests_is_accounted_for(message_class: type[Struct]) -> None:
    """A thousand of the smallest elements in any array take about the memory that `decode_request` reports."""
    version = versions_of(message_class)[-1]
    schema = message_schema(message_class)
    for way in arrays_of(schema, version):
        for has_tags in {False, version in schema.flexible}:
            message = message_class()
            inner: Struct = message
            for field in way:
                assert isinstance(field.wire_type, ArrayOf)
                element = field.wire_type.element
                count = 1000 if field is way[-1] else 1
                elements = [smallest(element, has_tags=has_tags) for _ in range(count)]
                setattr(inner, field.name, elements)
                inner = elements[0]
            data = encode(message, version)
            decode(message_class, data, version)
            tracemalloc.start()
            try:
                decoded, memory = decode_request(message_class, data, version)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert decoded == message
            assert peak < 1.1 * memory + 2 * len(data) + 5000, (way[-1].name, has_tags)


@pytest.mark.slow
def test_more_memory_than_a_request_may_take() -> None:
    """Each topic has an empty name and one empty tagged field: five bytes on the wire, hundreds of bytes in memory."""
    count = 200_000
    # One byte each: empty name, no partitions, number of tagged fields, tag, size of the field's value.
    topic = b"\x01\x01\x01\x32\x00"
    data = encode_uvarint(count + 1) + topic * count + b"\x00"
    with pytest.raises(InvalidValue, match="take more than"):
        decode(DescribeLogDirsRequest, data, 4)


@pytest.mark.parametrize("message_class", REQUESTS, ids=case_name)
def test_a_huge_claim_is_refused_without_memory_of_that_size(message_class: type[Struct]) -> None:
    """A huge count or length in any place is rejected without allocating memory of that size."""
    for version in versions_of(message_class):
        whole = encode(message_class(), version)
        decode(message_class, whole, version)
        for position in range(len(whole) + 1):
            for claim in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x07", b"\x7f\xff"):
                data = whole[:position] + claim + bytes(20)
                decode_measured(message_class, data, version, bytes_at_most=BYTES_AT_LEAST)
