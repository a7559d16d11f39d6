"""SaslHandshake: names the mechanism with which a client wants to authenticate itself (KIP-43) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Kind, Struct, field, message


@message(kind=Kind.REQUEST, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none")
class SaslHandshakeRequest(Struct):
    mechanism: str = ""


@message(kind=Kind.RESPONSE, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none")
class SaslHandshakeResponse(Struct):
    error_code: Int16 = 0
    # The mechanisms that the listener takes.
    mechanisms: list[str] = field(default_factory=list)
