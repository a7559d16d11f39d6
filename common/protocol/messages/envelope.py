"""Envelope: a broker forwards a client's admin request to the controller (KIP-590) (core).

`request_data` is the client's whole request, header included; `response_data` is a whole response, header included.
The principal is a DefaultPrincipalData in its versioned form (two bytes of version first). The error of the envelope
concerns the forwarding only; errors of the operation are inside.
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
