"""Request and response frames: a four-byte length, a header, a message (core).

A request uses header version 2 if the message version is flexible and 1 otherwise; a response uses 1 or 0 accordingly. One
exception: the response to ApiVersions always uses header version 0, because the client does not yet know which version the
server will answer with.
"""

import struct
from collections.abc import Generator
from typing import Final

from common.parts import Part
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode_prefix, encode_in_slices, encode_parts
from common.protocol.errors import BufferUnderflow, EncodeError, RemoteProtocolError
from common.protocol.messages.headers import RequestHeader
from common.protocol.numbering import Numbering
from common.protocol.registry import APIS, Api
from common.protocol.schema import Kind, Struct, message, message_schema

LENGTH_SIZE: Final = 4
# The start of the request header, the same in every version: api key, api version, correlation id.
_REQUEST_START = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_CLIENT_ID_START: Final = _REQUEST_START.size + _CLIENT_ID_LENGTH.size
# The length of a frame, the start of its header, and the length of the client id.
_REQUEST = struct.Struct(">ihhih")
_CORRELATION_ID = struct.Struct(">i")
# The length of a frame and the response header. Header version 1 ends with the number of its tagged fields.
_RESPONSE_STARTS = (struct.Struct(">ii"), struct.Struct(">iix"))


@message(kind=Kind.HEADER, versions="0", flexible="0+")
class TaggedFields(Struct):
    """The end of a flexible header."""


class UnsupportedRequest(RemoteProtocolError):
    """A request for an undeclared API, or an undeclared version of one. The header beyond the correlation id cannot be
    read."""

    def __init__(self, *, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"there is no api {api_key} version {api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


def request_header_version(message_class: type[Struct], version: int) -> int:
    return 2 if version in message_schema(message_class).flexible else 1


def response_header_version(message_class: type[Struct], version: int) -> int:
    schema = message_schema(message_class)
    return 1 if version in schema.flexible and schema.api_key != ApiKey.API_VERSIONS else 0


def parse_request(frame: bytes | memoryview) -> tuple[RequestHeader, memoryview]:
    """Returns the request's header and the bytes of its message. Raises UnsupportedRequest if the API or version is
    undeclared."""
    if len(frame) < _REQUEST_START.size:
        raise BufferUnderflow(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
    api = APIS.get(api_key)
    if api is None or api_version not in api.versions:
        raise UnsupportedRequest(api_key=api_key, api_version=api_version, correlation_id=correlation_id)
    client_id, body = request_body(memoryview(frame), is_flexible=api.flexible[api_version])
    header = RequestHeader(
        request_api_key=api_key, request_api_version=api_version, correlation_id=correlation_id, client_id=client_id
    )
    return header, body


def request_body(frame: memoryview, *, is_flexible: bool) -> tuple[str | None, memoryview]:
    """Returns the client id in a request's header, and the bytes of its message. The caller has read the start of the
    header, and knows that the version is declared (`Api.flexible`). Raises RemoteProtocolError."""
    if len(frame) >= _CLIENT_ID_START:
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _REQUEST_START.size)
        end = _CLIENT_ID_START + max(length, 0)
        if length >= -1 and end <= len(frame):
            client_id = None if length < 0 else _client_id(frame[_CLIENT_ID_START:end])
            return client_id, _after_tagged_fields(frame, end) if is_flexible else frame[end:]
    # The generated decoder says what is wrong.
    header, position = decode_prefix(RequestHeader, frame, 2 if is_flexible else 1)
    return header.client_id, frame[position:]


def _after_tagged_fields(frame: memoryview, start: int) -> memoryview:
    """Returns what follows the tagged fields at `start`, with which every flexible header ends."""
    if start < len(frame) and frame[start] == 0:
        # Nearly every header is like this, without tagged fields.
        return frame[start + 1 :]
    _, position = decode_prefix(TaggedFields, frame[start:], 0)
    return frame[start + position :]


def _client_id(text: memoryview) -> str:
    """Decodes a client id. One that is not UTF-8 is no error, as in Apache Kafka. What cannot be decoded becomes a question
    mark, which is never longer, so the client id fits wherever it is written."""
    try:
        return str(text, "utf-8")
    except UnicodeDecodeError:
        return str(text, "utf-8", "replace").replace("\ufffd", "?")


def response_correlation_id(frame: bytes | memoryview) -> int:
    """Returns the correlation id of a response. To read the rest, the caller needs the version of the request that has this
    id."""
    if len(frame) < _CORRELATION_ID.size:
        raise BufferUnderflow(f"a response of {len(frame)} bytes has no header")
    correlation_id: int
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    return correlation_id


def response_body(message_class: type[Struct], frame: memoryview, version: int) -> memoryview:
    """Returns the bytes of a response's message. The caller has read the correlation id. Raises RemoteProtocolError."""
    start = _CORRELATION_ID.size
    return frame[start:] if response_header_version(message_class, version) == 0 else _after_tagged_fields(frame, start)


def encode_request(
    api: Api,
    version: int,
    correlation_id: int,
    client_id: bytes,
    message: Struct,
    *,
    numbering: Numbering = Numbering.KIP858,
) -> list[Part]:
    """Encodes a request for sending. `client_id` is in UTF-8."""
    parts = encode_parts(message, version, numbering=numbering)
    # Flexible headers end with the number of their tagged fields.
    end = b"\0" if api.flexible[version] else b""
    size = _CLIENT_ID_START + len(client_id) + len(end) + sum(map(len, parts))
    try:
        start = _REQUEST.pack(size, api.key, version, correlation_id, len(client_id))
    except struct.error:
        raise EncodeError(f"a frame of {size} bytes cannot be sent") from None
    return _joined(start + client_id + end, parts)


def encode_response_frame(
    correlation_id: int, message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858
) -> list[Part]:
    """Encodes a response for sending."""
    return _response_frame(correlation_id, encode_parts(message, version, numbering=numbering), type(message), version)


def encode_response_frame_in_slices(
    correlation_id: int, message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858
) -> Generator[None, None, list[Part]]:
    """`encode_response_frame` for a response that may have very many elements: yields after each element."""
    parts = yield from encode_in_slices(message, version, numbering=numbering)
    return _response_frame(correlation_id, parts, type(message), version)


def _response_frame(correlation_id: int, parts: list[Part], message_class: type[Struct], version: int) -> list[Part]:
    header = _RESPONSE_START_OF[message_class][version]
    size = header.size - LENGTH_SIZE + sum(map(len, parts))
    try:
        start = header.pack(size, correlation_id)
    except struct.error:
        raise EncodeError(f"a frame of {size} bytes, or the correlation id {correlation_id}, cannot be sent") from None
    return _joined(start, parts)


def _joined(start: bytes, parts: list[Part]) -> list[Part]:
    """Returns the parts with these bytes before them, in the first part if that is bytes."""
    first = parts[0]
    if isinstance(first, bytes):
        parts[0] = start + first
        return parts
    return [start, *parts]


_RESPONSE_START_OF: Final = {
    api.response: {version: _RESPONSE_STARTS[response_header_version(api.response, version)] for version in api.versions}
    for api in APIS.values()
}
