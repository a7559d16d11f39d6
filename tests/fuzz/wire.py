"""Targets for the wire: streams split into frames, requests, responses."""

import random
from collections.abc import Sequence

from common.net.frame_reader import FrameReader
from common.net.served_connection import HEADER_START
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode, decode_prefix, encode
from common.protocol.errors import ProtocolError, RemoteProtocolError
from common.protocol.framing import (
    LENGTH_SIZE,
    parse_request,
    request_body,
    response_header_version,
)
from common.protocol.messages.headers import ResponseHeader
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from tests.fuzz.messages import Vocabulary, filled, request_frame
from tests.fuzz.target import Target
from tests.response_frames import parse_response

_FRAME_MIN = 1
FRAME_MAX = 300_000
_BYTE_BY_BYTE_MAX = 400

RESPONSES: Sequence[tuple[type[Struct], int]] = [
    (api.response, version) for _, api in sorted(APIS.items()) for version in api.versions
]


# --- frames ------------------------------------------------------------------------------------------------------
def _pieces(stream: bytes, cuts: bytes) -> list[bytes]:
    """Splits the stream into one piece of up to 64 KiB for each byte of `cuts`, and one piece with the rest."""
    pieces, position = [], 0
    for byte in cuts:
        size = 1 + byte * byte
        pieces.append(stream[position : position + size])
        position += size
    return [piece for piece in [*pieces, stream[position:]] if piece]


def _naive_frames(stream: bytes) -> tuple[list[bytes], bool]:
    """Returns the frames of the whole stream, and whether they are followed by an invalid frame."""
    frames: list[bytes] = []
    position = 0
    while position + LENGTH_SIZE <= len(stream):
        size = int.from_bytes(stream[position : position + LENGTH_SIZE], "big", signed=True)
        if not _FRAME_MIN <= size <= FRAME_MAX:
            return frames, True
        if position + LENGTH_SIZE + size > len(stream):
            break
        frames.append(stream[position + LENGTH_SIZE : position + LENGTH_SIZE + size])
        position += LENGTH_SIZE + size
    return frames, False


def _read_frames(pieces: list[bytes], pauses: bytes) -> tuple[list[bytes], str | None]:
    """Returns the frames that FrameReader finds, and its error if it refuses the rest.

    Overwrites every buffer that the reader has not taken over, as a connection would.
    """
    taken: list[bool] = []
    reader = FrameReader(size_min=_FRAME_MIN, size_max=FRAME_MAX, take_buffer=lambda: taken.append(True))
    frames: list[memoryview] = []
    arrived = 0
    try:
        for number, piece in enumerate(pieces):
            taken.clear()
            buffer = bytearray(piece)
            arrived += len(piece)
            reader.receive(memoryview(buffer))
            is_paused = number < len(pauses) and pauses[number] & 1
            while not is_paused and (frame := reader.next_frame()) is not None:
                frames.append(frame)
            reader.keep_rest()
            assert reader.buffered_bytes <= arrived
            if not taken:
                buffer[:] = b"\xdd" * len(buffer)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    except RemoteProtocolError as error:
        return [bytes(frame) for frame in frames], str(error)
    return [bytes(frame) for frame in frames], None


def _check_frames(data: bytes) -> None:
    """However the stream is cut, even byte by byte, the frames are the same and the rest is refused for the same reason. The
    first byte of the input says how many bytes encode the cuts and pauses."""
    if not data:
        return
    count = data[0] % 32
    cuts, stream = data[1 : 1 + count], data[1 + count :]
    ways = [_pieces(stream, cuts), [stream] if stream else []]
    if len(stream) <= _BYTE_BY_BYTE_MAX:
        ways.append([stream[index : index + 1] for index in range(len(stream))])
    expected = _naive_frames(stream)
    reasons: set[str | None] = set()
    for pieces in ways:
        for pauses in (cuts, b""):
            frames, reason = _read_frames(pieces, pauses)
            assert (frames, reason is not None) == expected
            reasons.add(reason)
    assert len(reasons) == 1


def _frame_seeds() -> list[bytes]:
    frames = [frame for frame in _request_seeds()[:40:5] if len(frame) >= _FRAME_MIN]
    stream = b"".join(len(frame).to_bytes(LENGTH_SIZE, "big") + frame for frame in frames)
    bad = [(-1).to_bytes(4, "big", signed=True), (FRAME_MAX + 1).to_bytes(4, "big"), bytes(4)]
    return [bytes((cuts, *range(cuts))) + stream + end for cuts in (0, 3, 20) for end in (b"", *bad)]


# --- requests and responses --------------------------------------------------------------------------------------
def _check_request(data: bytes) -> None:
    """Any frame decodes to a request or raises RemoteProtocolError. Encoding and decoding it again changes nothing. The
    server's short cut through the header finds the same."""
    try:
        header, body = parse_request(data)
    except RemoteProtocolError:
        _check_header_is_refused(data)
        return
    is_flexible = APIS[ApiKey(header.request_api_key)].flexible[header.request_api_version]
    assert request_body(memoryview(data), is_flexible=is_flexible) == (header.client_id, body)
    assert header.request_api_key == int.from_bytes(data[:2], "big")
    assert len(body) < len(data)
    message_class = APIS[ApiKey(header.request_api_key)].request
    try:
        message, size = decode_prefix(message_class, body, header.request_api_version)
    except RemoteProtocolError:
        return
    assert size <= len(body)
    _check_written_again(message, header.request_api_version)


def _check_header_is_refused(data: bytes) -> None:
    """The server's short cut refuses the header, too, if it can be taken: if the API and its version are declared."""
    if len(data) < HEADER_START.size:
        return
    api_key, version, _ = HEADER_START.unpack_from(data)
    api = APIS.get(api_key)
    if api is None or version not in api.versions:
        return
    try:
        request_body(memoryview(data), is_flexible=api.flexible[version])
    except RemoteProtocolError:
        return
    raise AssertionError("a header that cannot be decoded was accepted")


def _check_response(data: bytes) -> None:
    """Any frame decodes to a response or raises RemoteProtocolError. Encoding and decoding it again changes nothing. The
    first two bytes of the input choose the message and its version."""
    if len(data) < 2:
        return
    message_class, version = RESPONSES[int.from_bytes(data[:2], "big") % len(RESPONSES)]
    try:
        _, message = parse_response(message_class, data[2:], version)
    except RemoteProtocolError:
        return
    _check_written_again(message, version)


def _check_written_again(message: Struct, version: int) -> None:
    # Compare bytes: a float may be NaN, which does not equal itself.
    written = encode(message, version)
    assert encode(decode(type(message), written, version), version) == written


def _request_seeds() -> list[bytes]:
    rng = random.Random(858)
    vocabulary = Vocabulary()
    seeds = []
    for _, api in sorted(APIS.items()):
        for version in api.versions:
            seeds += [
                request_frame(message, version)
                for message in (api.request(), *(filled(api.request, version, rng, vocabulary) for _ in range(2)))
            ]
    return seeds


def _response_seeds() -> list[bytes]:
    rng = random.Random(858)
    vocabulary = Vocabulary()
    seeds = []
    for number, (message_class, version) in enumerate(RESPONSES):
        header = encode(ResponseHeader(correlation_id=1), response_header_version(message_class, version))
        for message in (message_class(), *(filled(message_class, version, rng, vocabulary) for _ in range(2))):
            try:
                seeds.append(number.to_bytes(2, "big") + header + encode(message, version))
            except ProtocolError:
                # The generated message sets a field that this version lacks: a bug in the generator.
                raise AssertionError(f"{message} cannot be encoded in version {version}") from None
    return seeds


TARGETS = (
    Target(name="frames", check=_check_frames, seeds=_frame_seeds),
    Target(name="requests", check=_check_request, seeds=_request_seeds),
    Target(name="responses", check=_check_response, seeds=_response_seeds),
)
