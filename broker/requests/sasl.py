"""Refuses SASL in the way of a Kafka broker on a PLAINTEXT listener (shell without I/O; KIP-43).

Without SaslHandshake, a client that is configured for SASL takes the broker for a very old or unreachable one. franz-go, for
example, sends its credentials as raw bytes and keeps retrying when the connection is closed. ILLEGAL_SASL_STATE shows the
user at once what is wrong.
"""

from typing import NoReturn

from common.net.request_context import RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.sasl_handshake import SaslHandshakeRequest


def refuse_sasl(_context: RequestContext, _request: SaslHandshakeRequest) -> NoReturn:
    """Raises the ApiError. The answer names no mechanism."""
    raise ApiError(ErrorCode.ILLEGAL_SASL_STATE)
