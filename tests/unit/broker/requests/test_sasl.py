"""SaslHandshake: a client that is configured for SASL learns at once that the listener has none."""

import pytest

from broker.requests.sasl import refuse_sasl
from common.net.error_responses import error_response
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.broker.requests.contexts import context, over_the_wire, versions


@pytest.mark.parametrize("version", versions(ApiKey.SASL_HANDSHAKE))
def test_a_plaintext_listener_takes_no_mechanism(version: int) -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    assert over_the_wire(request, version) == request
    with pytest.raises(ApiError) as raised:
        refuse_sasl(context(ApiKey.SASL_HANDSHAKE, version), request)
    answer = error_response(request, ApiKey.SASL_HANDSHAKE, raised.value.code, raised.value.message)
    assert answer is not None
    expected = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    assert over_the_wire(answer, version) == expected
