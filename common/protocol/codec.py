"""Encodes and decodes declared messages (core).

The encoder and decoder for a (message, version) are compiled on first use and cached on the message class. Decoding raises
RemoteProtocolError for malformed bytes; encoding raises EncodeError for a value that the version cannot carry. Records are
never copied: `decode` returns views of the input, and `encode_parts` returns the given records among its parts. A view keeps
its whole frame alive.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any

from common.parts import Buffer, FileRegion, Part
from common.protocol import quick_fetch, quick_produce
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

# The exceptions that a generated decoder raises when it reads past the end or finds text that is not UTF-8.
_DECODING_ERRORS = (IndexError, struct.error, UnicodeDecodeError)

_Slices = Generator[None, None, Any]


def encode_parts(message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858) -> list[Part]:
    """Encodes the message as a list of parts, to be sent in order. The values of Records fields are included without being
    copied."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    encoder = message.wire_encoders[slot].get(version) or _new_encoder(type(message), version, slot)
    try:
        parts: list[Part] = encoder(message)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{message.wire_schema.name} version {version}: {error}") from error
    return parts


def encode_in_slices(
    message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858
) -> Generator[None, None, list[Part]]:
    """`encode_parts` for a message that may have very many elements: yields after each element."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    encoder = message.wire_sliced_encoders[slot].get(version) or _new_sliced_encoder(type(message), version, slot)
    try:
        parts: list[Part] = yield from encoder(message)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{message.wire_schema.name} version {version}: {error}") from error
    return parts


def encode(message: Struct, version: int, *, numbering: Numbering = Numbering.KIP858) -> bytes:
    """Encodes the message as bytes. Raises EncodeError if a Records field holds a region of a file."""
    parts = encode_parts(message, version, numbering=numbering)
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    return joined(parts)


def joined(parts: Sequence[Part]) -> bytes:
    """Returns the bytes of an encoded message. Raises EncodeError if a part is a region of a file."""
    pieces = [part for part in parts if not isinstance(part, FileRegion)]
    if len(pieces) != len(parts):
        raise EncodeError("a region of a file has no bytes here; use encode_parts")
    return b"".join(pieces)


def decode(
    message_class: type[AnyStruct], buffer: Buffer, version: int, *, numbering: Numbering = Numbering.KIP858
) -> AnyStruct:
    """Decodes the message that fills the whole buffer. Raises RemoteProtocolError for malformed or trailing bytes."""
    message, position, _ = _decode_any(message_class, buffer, version, numbering)
    if position != len(buffer):
        raise _trailing(message_class, version, len(buffer) - position)
    return message


def decode_in_slices(message_class: type[AnyStruct], buffer: Buffer, version: int) -> Generator[None, None, AnyStruct]:
    """`decode` for a message that may have very many elements: yields after each element. For the answers to forwarded
    requests. None of them has directory ids."""
    message, position, _ = yield from _decode_any_in_slices(message_class, buffer, version, Numbering.KIP858)
    if position != len(buffer):
        raise _trailing(message_class, version, len(buffer) - position)
    return message


def decode_prefix(message_class: type[AnyStruct], buffer: Buffer, version: int) -> tuple[AnyStruct, int]:
    """Decodes the message at the start of `buffer` and returns the message and the position after it. For headers, which a
    body follows, and for messages to which a later version may have added fields. None of them has directory ids."""
    message, position, _ = _decode_any(message_class, buffer, version, Numbering.KIP858)
    return message, position


def decode_request(
    message_class: type[AnyStruct], buffer: Buffer, version: int, *, numbering: Numbering = Numbering.KIP858
) -> tuple[AnyStruct, int]:
    """Decodes the request at the start of `buffer`. Returns the request and the approximate memory in bytes that its
    elements take, not counting their text.

    Trailing bytes are allowed, as in Apache Kafka: librdkafka leaves three extra bytes at the end of a Metadata request for
    all topics.
    """
    message, _, memory = _decode_any(message_class, buffer, version, numbering)
    return message, memory


def decode_request_in_slices(
    message_class: type[AnyStruct], buffer: Buffer, version: int, *, numbering: Numbering = Numbering.KIP858
) -> Generator[None, None, tuple[AnyStruct, int]]:
    """`decode_request` for a request that may have very many elements: yields after each element."""
    message, _, memory = yield from _decode_any_in_slices(message_class, buffer, version, numbering)
    return message, memory


def encode_with_version(message: Struct, version: int) -> bytes:
    """Encodes the version as two bytes, then the message. Kafka stores messages in this form outside of requests and
    responses."""
    return _VERSION_PREFIX.pack(version) + encode(message, version)


def decode_with_version(message_class: type[AnyStruct], buffer: Buffer) -> AnyStruct:
    """The inverse of `encode_with_version`. Raises RemoteProtocolError for malformed bytes and for an undeclared version."""
    if len(buffer) < _VERSION_PREFIX.size:
        raise BufferUnderflow(f"{message_class.wire_schema.name} ends in its version")
    (version,) = _VERSION_PREFIX.unpack_from(buffer)
    if version not in message_schema(message_class).versions:
        raise InvalidValue(f"{message_class.wire_schema.name} has no version {version}")
    return decode(message_class, buffer[_VERSION_PREFIX.size :], version)


def _decode_any(
    message_class: type[AnyStruct], buffer: Buffer, version: int, numbering: Numbering
) -> tuple[AnyStruct, int, int]:
    """Returns what the generated decoder does: the message, the position after it, and the memory of its elements."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    decoder = message_class.wire_decoders[slot].get(version) or _new_decoder(message_class, version, slot)
    try:
        decoded: tuple[AnyStruct, int, int] = decoder(buffer)
    except _DECODING_ERRORS as error:
        raise _malformed(message_class, version, error) from None
    return decoded


def _decode_any_in_slices(
    message_class: type[AnyStruct], buffer: Buffer, version: int, numbering: Numbering
) -> Generator[None, None, tuple[AnyStruct, int, int]]:
    """`_decode_any` that yields after each element."""
    slot = 0 if numbering is Numbering.KIP858 else 1
    decoder = message_class.wire_sliced_decoders[slot].get(version) or _new_sliced_decoder(message_class, version, slot)
    try:
        decoded: tuple[AnyStruct, int, int] = yield from decoder(buffer)
    except _DECODING_ERRORS as error:
        raise _malformed(message_class, version, error) from None
    return decoded


def _trailing(message_class: type[Struct], version: int, size: int) -> RemoteProtocolError:
    return TrailingBytes(f"{size} bytes follow {message_class.wire_schema.name} version {version}")


def _malformed(message_class: type[Struct], version: int, error: Exception) -> RemoteProtocolError:
    """Maps an exception from a generated decoder to a protocol error."""
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
        for quick in (quick_produce, quick_fetch):
            encoder = quick.quick_encoder(message_class, version, encoder)
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
        decoder = quick_produce.quick_decoder(message_class, version, decoder)
    decoders[slot][version] = decoder
    return decoder


def _new_sliced_encoder(message_class: type[Struct], version: int, slot: int) -> Callable[[Struct], _Slices]:
    schema = _checked_schema(message_class, version)
    encoder: Callable[[Struct], _Slices]
    encoder = compile_encoder(schema, version, Numbering.APACHE if slot else Numbering.KIP858, yields=True)
    message_class.wire_sliced_encoders[slot][version] = encoder
    return encoder


def _new_sliced_decoder(message_class: type[Struct], version: int, slot: int) -> Callable[[Buffer], _Slices]:
    schema = _checked_schema(message_class, version)
    decoder: Callable[[Buffer], _Slices]
    decoder = compile_decoder(schema, version, Numbering.APACHE if slot else Numbering.KIP858, yields=True)
    message_class.wire_sliced_decoders[slot][version] = decoder
    return decoder


def _checked_schema(message_class: type[Struct], version: int) -> MessageSchema:
    schema = message_schema(message_class)
    if version not in schema.versions:
        raise UnsupportedVersion(f"{schema.name} has versions {schema.versions}, not {version}")
    return schema
