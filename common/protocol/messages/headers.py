"""The request and response headers (core).

Request header version 2 and response header version 1 belong to the flexible versions of a message; `framing` has the rule
and its one exception. The client id keeps its two-byte length even in version 2.
"""

from common.protocol.schema import Int16, Int32, Kind, Struct, field, message


@message(kind=Kind.HEADER, versions="1-2", flexible="2+")
class RequestHeader(Struct):
    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: str | None = field(default=None, compact=False)


@message(kind=Kind.HEADER, versions="0-1", flexible="1+")
class ResponseHeader(Struct):
    correlation_id: Int32 = 0
