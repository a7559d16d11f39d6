"""Every declared message and version, checked against kio in both directions."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from common.protocol.codec import decode, encode
from common.protocol.schema import ArrayOf, Struct, StructSchema
from tests.property import kio_oracle
from tests.property.profiles import examples
from tests.property.protocol_strategies import KNOWN_ERRORS, case_name, declared_versions, messages

CASES = [case for case in declared_versions() if kio_oracle.has(*case)]


@pytest.mark.parametrize(("message_class", "version"), CASES, ids=case_name)
def test_kio_reads_and_writes_the_same(message_class: type[Struct], version: int) -> None:
    """Both encode to the same bytes, and each decodes the other's encoding to the same values."""

    @examples(8)
    @given(messages(message_class, version, error_codes=KNOWN_ERRORS))
    def check(message: Struct) -> None:
        encoded = encode(message, version)
        assert kio_oracle.decode(message_class, encoded, version) == message
        by_kio = kio_oracle.encode(message, version)
        assert decode(message_class, by_kio, version) == message
        assert encoded == by_kio

    check()


@pytest.mark.parametrize(("message_class", "version"), CASES, ids=case_name)
def test_kio_agrees_on_nulls_and_defaults(message_class: type[Struct], version: int) -> None:
    """kio's schemas and our declarations name the same nullable fields and the same defaults."""
    ours = {path: rest for path, *rest in facts(message_class.wire_schema, version, "")}
    theirs = {path: rest for path, *rest in kio_oracle.facts(message_class, version)}
    assert ours.keys() == theirs.keys()
    assert {path: rest[0] for path, rest in ours.items()} == {path: rest[0] for path, rest in theirs.items()}
    stated = {path: default for path, (_, default) in theirs.items() if default is not dataclasses.MISSING}
    assert {path: ours[path][1] for path in stated} == stated


def facts(schema: StructSchema, version: int, path: str) -> Iterator[tuple[str, bool, Any]]:
    """Returns what `kio_oracle.facts` returns, from our declarations."""
    for field in schema.fields:
        if version in field.versions:
            yield f"{path}{field.name}", version in field.nullable, field.make_default()
            element = field.wire_type.element if isinstance(field.wire_type, ArrayOf) else field.wire_type
            if isinstance(element, StructSchema):
                yield from facts(element, version, f"{path}{field.name}.")
