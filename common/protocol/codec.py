"""Encodes and decodes declared messages (core).

The functions for a (message, version) are compiled on first use and kept with the message's own class. Decoding consumes
everything and raises RemoteProtocolError for whatever does not fit; encoding raises EncodeError for a value that the
version cannot carry. Records are never copied by `decode`, which gives a view of the input, nor by `encode_parts`; a
caller who keeps such a view keeps the whole frame alive.
"""

import struct
from collections.abc import Callable
from typing import Any

from common.parts import FileRegion, Part
from common.protocol.decoder_source import compile_decoder
from common.protocol.encoder_source import compile_encoder
from common.protocol.errors import (
    BufferUnderflow,
    EncodeError,
    InvalidValue,
    RemoteProtocolError,
    TrailingBytes,
    UnsupportedVersion,
)
from common.protocol.numbering import Numbering
from common.protocol.schema import AnyStruct, MessageSchema, Primitive, Struct, message_schema
from common.protocol.source import contains

_VERSION_PREFIX = struct.Struct(">h")

# Reading past the end of the bytes, and text that is none.
_DECODING_ERRORS = (IndexError, struct.error, UnicodeDecodeError)

Buffer = bytes | bytearray | memoryview


def encode_parts(message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858) -> list[Part]:
    """The message as parts to be sent one after the other; records fields are among them as they are."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    encoder = message.wire_encoders[slot].get(version) or _new_encoder(type(message), version, slot)
    try:
        parts: list[Part] = encoder(message)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{message.wire_schema.name} version {version}: {error}") from error
    return parts


def encode(message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858) -> bytes:
    """The bytes of the message. Records must be bytes, not regions of a file."""
    parts = encode_parts(message, version, numbering=numbering)
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    pieces = [part for part in parts if not isinstance(part, FileRegion)]
    if len(pieces) != len(parts):
        raise EncodeError(f"{message.wire_schema.name} holds a region of a file; use encode_parts")
    return b"".join(pieces)


def decode(
    message_class: type[AnyStruct], buffer: Buffer, version: int, *, numbering: Numbering = Numbering.KIP858
) -> AnyStruct:
    """The message that `buffer` holds from its first to its last byte. Raises RemoteProtocolError if it holds none."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    decoder = message_class.wire_decoders[slot].get(version) or _new_decoder(message_class, version, slot)
    try:
        message: AnyStruct
        message, position, _ = decoder(buffer)
    except _DECODING_ERRORS as error:
        raise _malformed(message_class, version, error) from None
    if position != len(buffer):
        name = message_class.wire_schema.name
        raise TrailingBytes(f"{len(buffer) - position} bytes follow {name} version {version}")
    return message


def decode_prefix(
    message_class: type[AnyStruct], buffer: Buffer, version: int, *, numbering: Numbering = Numbering.KIP858
) -> tuple[AnyStruct, int]:
    """The message at the start of `buffer` and the position after it: for headers, which a body follows."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    decoder = message_class.wire_decoders[slot].get(version) or _new_decoder(message_class, version, slot)
    try:
        message: AnyStruct
        message, position, _ = decoder(buffer)
    except _DECODING_ERRORS as error:
        raise _malformed(message_class, version, error) from None
    return message, position


def decode_request(message_class: type[AnyStruct], buffer: Buffer, version: int) -> tuple[AnyStruct, int]:
    """The request at the start of `buffer`, and about how much memory its elements take besides their text. Bytes may
    follow, as in Apache Kafka: librdkafka leaves three behind the Metadata request for all topics."""
    decoder = message_class.wire_decoders[0].get(version) or _new_decoder(message_class, version, 0)
    try:
        message: AnyStruct
        message, _, memory = decoder(buffer)
    except _DECODING_ERRORS as error:
        raise _malformed(message_class, version, error) from None
    return message, memory


def encode_with_version(message: Struct, version: int) -> bytes:
    """Two bytes of version, then the message: the form in which Kafka stores messages outside requests."""
    return _VERSION_PREFIX.pack(version) + encode(message, version)


def decode_with_version(message_class: type[AnyStruct], buffer: Buffer) -> AnyStruct:
    """The inverse of `encode_with_version`. A version that is not declared is a RemoteProtocolError too."""
    if len(buffer) < _VERSION_PREFIX.size:
        raise BufferUnderflow(f"{message_class.wire_schema.name} ends in its version")
    (version,) = _VERSION_PREFIX.unpack_from(buffer)
    if version not in message_schema(message_class).versions:
        raise InvalidValue(f"{message_class.wire_schema.name} has no version {version}")
    return decode(message_class, buffer[_VERSION_PREFIX.size :], version)


def _malformed(message_class: type[Struct], version: int, error: Exception) -> RemoteProtocolError:
    """What the exceptions of Python mean that reading malformed bytes gives rise to."""
    name = f"{message_class.wire_schema.name} version {version}"
    if isinstance(error, UnicodeDecodeError):
        return InvalidValue(f"{name} holds text that is not UTF-8: {error.reason}")
    return BufferUnderflow(f"{name} ends early")


def _new_encoder(message_class: type[Struct], version: int, slot: int) -> Callable[[Struct], list[Part]]:
    schema = _checked_schema(message_class, version)
    encoders = message_class.wire_encoders
    encoder: Callable[[Struct], list[Part]]
    if slot and not contains(schema, Primitive.ASSIGNED_DIRECTORY_ID):
        encoder = encoders[0].get(version) or _new_encoder(message_class, version, 0)
    else:
        encoder = compile_encoder(schema, version, Numbering.APACHE if slot else Numbering.KIP858)
    encoders[slot][version] = encoder
    return encoder


def _new_decoder(message_class: type[Struct], version: int, slot: int) -> Callable[[Buffer], tuple[Any, int, int]]:
    schema = _checked_schema(message_class, version)
    decoders = message_class.wire_decoders
    decoder: Callable[[Buffer], tuple[Any, int, int]]
    if slot and not contains(schema, Primitive.ASSIGNED_DIRECTORY_ID):
        decoder = decoders[0].get(version) or _new_decoder(message_class, version, 0)
    else:
        decoder = compile_decoder(schema, version, Numbering.APACHE if slot else Numbering.KIP858)
    decoders[slot][version] = decoder
    return decoder


def _checked_schema(message_class: type[Struct], version: int) -> MessageSchema:
    schema = message_schema(message_class)
    if version not in schema.versions:
        raise UnsupportedVersion(f"{schema.name} has versions {schema.versions}, not {version}")
    return schema
