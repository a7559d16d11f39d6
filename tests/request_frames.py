"""Encodes a request with any header, also one that no node of Diskraft would send."""

import struct

from common.parts import Part
from common.protocol.codec import encode, encode_parts
from common.protocol.framing import request_header_version
from common.protocol.messages.headers import RequestHeader
from common.protocol.schema import Struct


def encode_request_frame(header: RequestHeader, message: Struct, version: int) -> list[Part]:
    """Returns the parts of the frame. The first one is bytes."""
    start = encode(header, request_header_version(type(message), version))
    first, *others = encode_parts(message, version)
    assert isinstance(first, bytes)
    size = len(start) + len(first) + sum(map(len, others))
    return [struct.pack(">i", size) + start + first, *others]
