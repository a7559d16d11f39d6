"""Targets for the wire: streams split into frames, requests, responses."""

import random
from collections.abc import Sequence

from common.net.frame_reader import FrameReader
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode, decode_prefix, encode
from common.protocol.errors import ProtocolError, RemoteProtocolError
from common.protocol.framing import LENGTH_SIZE, RequestFramer, parse_request, parse_response, response_header_version
from common.protocol.messages.headers import ResponseHeader
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from tests.fuzz.messages import Vocabulary, filled, request_frame
from tests.fuzz.target import Target

_FRAME_MIN = 8
_FRAME_MAX = 300_000

RESPONSES: Sequence[tuple[type[Struct], int]] = [
    (api.response, version) for _, api in sorted(APIS.items()) for version in api.versions
]


# --- frames ------------------------------------------------------------------------------------------------------
def _pieces(stream: bytes, cuts: bytes) -> list[bytes]:
    """Splits the stream into pieces of these sizes and one piece with the rest."""
    pieces, position = [], 0
    for size in cuts:
        pieces.append(stream[position : position + size + 1])
        position += size + 1
    return [piece for piece in [*pieces, stream[position:]] if piece]


def _naive_frames(stream: bytes) -> tuple[list[bytes], bool]:
    """Returns the frames of the whole stream, and whether they are followed by an invalid frame."""
    frames: list[bytes] = []
    position = 0
    while position + LENGTH_SIZE <= len(stream):
        size = int.from_bytes(stream[position : position + LENGTH_SIZE], "big", signed=True)
        if not _FRAME_MIN <= size <= _FRAME_MAX:
            return frames, True
        if position + LENGTH_SIZE + size > len(stream):
            break
        frames.append(stream[position + LENGTH_SIZE : position + LENGTH_SIZE + size])
        position += LENGTH_SIZE + size
    return frames, False


def _server_frames(pieces: list[bytes], pauses: bytes) -> tuple[list[bytes], bool]:
    """Returns what the server's reader finds. Overwrites buffers that were not taken, as a connection would."""
    taken: list[bool] = []
    reader = FrameReader(size_min=_FRAME_MIN, size_max=_FRAME_MAX, take_buffer=lambda: taken.append(True))
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
    except RemoteProtocolError:
        return [bytes(frame) for frame in frames], True
    return [bytes(frame) for frame in frames], False


def _client_frames(pieces: list[bytes]) -> list[bytes]:
    framer = RequestFramer(_FRAME_MAX)
    frames: list[memoryview] = []
    try:
        for piece in pieces:
            framer.receive_data(piece)
            while (frame := framer.next_frame()) is not None:
                frames.append(frame)
    except RemoteProtocolError:
        pass
    return [bytes(frame) for frame in frames]


def _check_frames(data: bytes) -> None:
    """The first byte gives how many bytes encode the cuts and pauses. The frames are the same however the stream is cut."""
    if not data:
        return
    count = data[0] % 32
    cuts, stream = data[1 : 1 + count], data[1 + count :]
    expected = _naive_frames(stream)
    assert _server_frames(_pieces(stream, cuts), cuts) == expected
    assert _server_frames([stream] if stream else [], b"") == expected
    if not expected[1]:
        assert _client_frames(_pieces(stream, cuts)) == expected[0]


def _frame_seeds() -> list[bytes]:
    frames = [frame for frame in _request_seeds()[:40:5] if len(frame) >= _FRAME_MIN]
    stream = b"".join(len(frame).to_bytes(LENGTH_SIZE, "big") + frame for frame in frames)
    bad = [(-1).to_bytes(4, "big", signed=True), (_FRAME_MAX + 1).to_bytes(4, "big"), bytes(4)]
    return [bytes((cuts, *range(cuts))) + stream + end for cuts in (0, 3, 20) for end in (b"", *bad)]


# --- requests and responses --------------------------------------------------------------------------------------
def _check_request(data: bytes) -> None:
    """A frame is a request as the server reads it, or raises RemoteProtocolError. A request read encodes back to the
    same."""
    try:
        header, body = parse_request(data)
        message_class = APIS[ApiKey(header.request_api_key)].request
        message, size = decode_prefix(message_class, body, header.request_api_version)
    except RemoteProtocolError:
        return
    assert size <= len(body) < len(data)
    _check_written_again(message, header.request_api_version)


def _check_response(data: bytes) -> None:
    """The first two bytes choose the message and its version."""
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
                # A bug in this file: a field is set that this version of another struct lacks.
                raise AssertionError(f"{message} cannot be encoded in version {version}") from None
    return seeds


TARGETS = (
    Target(name="frames", check=_check_frames, seeds=_frame_seeds),
    Target(name="requests", check=_check_request, seeds=_request_seeds),
    Target(name="responses", check=_check_response, seeds=_response_seeds),
)
