"""Envelope: a broker forwards a client's admin request to the controller (KIP-590) (core).

`request_data` is the client's whole request and `response_data` the whole response, both with their headers. The principal
is a DefaultPrincipalData with its two-byte version prefix. The envelope's error code covers the forwarding only; errors of
the operation itself are in the inner response.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+")
class EnvelopeRequest(Struct):
    request_data: bytes = b""
    request_principal: bytes | None = None
    client_host_address: bytes = b""


@message(kind=Kind.RESPONSE, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+")
class EnvelopeResponse(Struct):
    response_data: bytes | None = None
    error_code: Int16 = 0
