"""Parses whole responses, for the tests. Nodes take header and message apart with `response_body` and the codec."""

from common.protocol.codec import decode, decode_prefix
from common.protocol.framing import response_header_version
from common.protocol.messages.headers import ResponseHeader
from common.protocol.schema import AnyStruct


def parse_response(
    message_class: type[AnyStruct], frame: bytes | memoryview, version: int
) -> tuple[ResponseHeader, AnyStruct]:
    """Returns the header and the message of the response in `frame`, without its length prefix."""
    header, position = decode_prefix(ResponseHeader, frame, response_header_version(message_class, version))
    return header, decode(message_class, memoryview(frame)[position:], version)
