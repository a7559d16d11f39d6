"""Every message that clients exchange, checked against kafka-python's codec in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol.codec import decode, encode
from common.protocol.messages.api_versions import ApiVersionsResponse
from common.protocol.schema import Struct
from tests.property import kafka_python_oracle
from tests.property.profiles import examples
from tests.property.protocol_strategies import EVERY_INT16, case_name, declared_versions, messages

CASES = [case for case in declared_versions() if kafka_python_oracle.has(*case)]


@pytest.mark.parametrize(("message_class", "version"), CASES, ids=case_name)
def test_kafka_python_reads_and_writes_the_same(message_class: type[Struct], version: int) -> None:
    """kafka-python decodes our encoding to the same values, and we decode its encoding."""
    # kafka-python treats an ApiVersions response with an error as version 0, whatever version was requested.
    error_codes = st.just(0) if message_class is ApiVersionsResponse else EVERY_INT16

    @examples(8)
    @given(messages(message_class, version, error_codes=error_codes))
    def check(message: Struct) -> None:
        assert kafka_python_oracle.decode(message_class, encode(message, version), version) == message
        assert decode(message_class, kafka_python_oracle.encode(message, version), version) == message

    check()
