"""Every declared message and version against kio, both ways."""

import pytest
from hypothesis import given

from common.protocol.codec import decode, encode
from common.protocol.schema import Struct
from tests.property import kio_oracle
from tests.property.protocol_strategies import KNOWN_ERRORS, case_name, declared_versions, examples, messages

CASES = [case for case in declared_versions() if kio_oracle.has(*case)]


@pytest.mark.parametrize(("message_class", "version"), CASES, ids=case_name)
def test_kio_reads_and_writes_the_same(message_class: type[Struct], version: int) -> None:
    """What we encode kio decodes to the same values, what kio encodes we decode to them, and the bytes are the same."""

    @examples(12)
    @given(messages(message_class, version, error_codes=KNOWN_ERRORS))
    def check(message: Struct) -> None:
        encoded = encode(message, version)
        assert kio_oracle.decode(message_class, encoded, version) == message
        by_kio = kio_oracle.encode(message, version)
        assert decode(message_class, by_kio, version) == message
        assert encoded == by_kio

    check()
