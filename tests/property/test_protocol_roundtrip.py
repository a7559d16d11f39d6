"""Sends every declared message and version through our own codec, to test what kio and kafka-python cannot check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol.codec import (
    decode,
    decode_in_slices,
    decode_request,
    decode_request_in_slices,
    encode,
    encode_in_slices,
    encode_parts,
    joined,
)
from common.protocol.numbering import Numbering
from common.protocol.schema import Struct, message_schema
from common.slices import at_once
from tests.property.profiles import examples
from tests.property.protocol_strategies import case_name, declared_versions, messages

CASES = declared_versions()
FLEXIBLE_CASES = [case for case in CASES if case[1] in message_schema(case[0]).flexible]


@pytest.mark.parametrize(("message_class", "version"), FLEXIBLE_CASES, ids=case_name)
def test_unknown_tagged_fields_come_back(message_class: type[Struct], version: int) -> None:
    """Undeclared tagged fields are kept in every struct and written back, in both numberings."""

    @examples(8)
    @given(messages(message_class, version, unknown_tags=True), st.sampled_from(Numbering))
    def check(message: Struct, numbering: Numbering) -> None:
        encoded = encode(message, version, numbering=numbering)
        decoded = decode(message_class, encoded, version, numbering=numbering)
        assert decoded == message
        assert encode(decoded, version, numbering=numbering) == encoded

    check()


@pytest.mark.parametrize(("message_class", "version"), CASES, ids=case_name)
def test_buffers_and_slices_make_no_difference(message_class: type[Struct], version: int) -> None:
    """A message decodes alike from bytes, bytearray and memoryview, and its encoded parts, when joined, equal its encoding.
    Encoded and decoded in slices, it gives the same bytes and the same message, in both numberings."""

    @examples(4)
    @given(messages(message_class, version), st.sampled_from(Numbering))
    def check(message: Struct, numbering: Numbering) -> None:
        encoded = encode(message, version)
        assert b"".join(bytes(part) for part in encode_parts(message, version) if isinstance(part, bytes)) == encoded
        view = memoryview(b"x" + encoded)[1:]
        assert decode(message_class, bytearray(encoded), version) == decode(message_class, view, version) == message
        assert at_once(decode_in_slices(message_class, encoded, version)) == message

        numbered = encode(message, version, numbering=numbering)
        assert joined(at_once(encode_in_slices(message, version, numbering=numbering))) == numbered
        decoding = decode_request_in_slices(message_class, numbered, version, numbering=numbering)
        assert at_once(decoding) == decode_request(message_class, numbered, version, numbering=numbering)

    check()
