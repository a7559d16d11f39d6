"""Refuses SASL in the way of a Kafka broker on a PLAINTEXT listener (shell without I/O; KIP-43).

SaslHandshake is served, not left out, because a client that is configured for SASL takes a broker without it for one that is
very old or out of reach: franz-go sends its credentials without a frame, and retries for ever when the connection is closed.
ILLEGAL_SASL_STATE tells the user at once. No client sends SaslAuthenticate after that.
"""

from typing import NoReturn

from common.net.request_context import RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.sasl_handshake import SaslHandshakeRequest


def refuse_sasl(_context: RequestContext, _request: SaslHandshakeRequest) -> NoReturn:
    """Raises the ApiError. The answer names no mechanism."""
    raise ApiError(ErrorCode.ILLEGAL_SASL_STATE)
