"""Headers, lengths, and requests that cannot be parsed."""

from typing import TypeVar

import pytest

from common.metadata.directory_ids import UNASSIGNED
from common.parts import FileRegion
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode_prefix, decode_request_in_slices, encode_in_slices, joined
from common.protocol.errors import BufferUnderflow, EncodeError
from common.protocol.framing import (
    UnsupportedRequest,
    encode_request,
    encode_response_frame,
    encode_response_frame_in_slices,
    parse_request,
    request_body,
    request_header_version,
    response_body,
    response_correlation_id,
    response_header_version,
)
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from common.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse, ResponseDirectoryData
from common.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.list_transactions import ListTransactionsRequest
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from common.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from common.protocol.numbering import Numbering
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from tests.counted import counted
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response

Result = TypeVar("Result")


class Region(FileRegion):
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize(("version", "header"), [(8, 1), (9, 2)])
def test_request_header_follows_the_flexible_versions(version: int, header: int) -> None:
    """The header of a flexible request has tagged fields, but its client id keeps the two-byte length."""
    assert request_header_version(MetadataRequest, version) == header
    sent = RequestHeader(request_api_key=3, request_api_version=version, correlation_id=77, client_id="me")
    (frame,) = encode_request_frame(sent, MetadataRequest(topics=None), version)
    assert isinstance(frame, bytes)
    tags = b"\x00" if header == 2 else b""
    assert frame[4:].startswith(b"\x00\x03" + version.to_bytes(2, "big") + b"\x00\x00\x00\x4d\x00\x02me" + tags)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    parsed, body = parse_request(memoryview(frame)[4:])
    assert parsed == sent
    assert body == frame[len(frame) - len(body) :]


def test_api_versions_response_has_header_0_always() -> None:
    """The ApiVersions response must be readable before the two sides know each other's versions. For all other APIs the
    response header follows the version."""
    assert [response_header_version(ApiVersionsResponse, version) for version in range(5)] == [0] * 5
    assert [response_header_version(MetadataResponse, version) for version in (8, 9)] == [0, 1]
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=12)])
    (frame,) = encode_response_frame(9, response, 3)
    assert isinstance(frame, bytes)
    assert frame[4:8] == b"\x00\x00\x00\x09"
    assert frame[8:11] == b"\x00\x00\x02"
    header, parsed = parse_response(ApiVersionsResponse, frame[4:], 3)
    assert (header.correlation_id, parsed) == (9, response)


def test_the_message_of_a_response_follows_its_header() -> None:
    """A header of version 1 may have tagged fields, of which nothing is known here, or end within them."""
    for header, message_class, version in (
        (b"", MetadataResponse, 8),
        (b"\x00", MetadataResponse, 9),
        (b"\x01\x07\x03abc", MetadataResponse, 9),
        (b"", ApiVersionsResponse, 3),
    ):
        frame = memoryview(bytes(4) + header + b"\x00message")
        assert bytes(response_body(message_class, frame, version)) == b"\x00message"
    for cut in (b"", b"\x01", b"\x01\x07\x03ab"):
        with pytest.raises(BufferUnderflow):
            response_body(MetadataResponse, memoryview(bytes(4) + cut), 9)


def test_response_frame_counts_file_regions() -> None:
    """The frame's length includes the file regions, although their bytes are not in the encoded parts."""
    region = Region(5000)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=[region])])])
    parts = encode_response_frame(1, response, 17)
    assert isinstance(parts[0], bytes)
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4
    assert response_correlation_id(parts[0][4:]) == 1
    assert region in parts


def test_a_request_that_is_not_declared() -> None:
    """The error for an unknown API or version still has the correlation id, which the ApiVersions error response needs."""
    for api_key, version in ((18, 9), (999, 0), (0, 2), (3, -1)):
        frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x2a"
        with pytest.raises(UnsupportedRequest) as refused:
            parse_request(frame)
        assert (refused.value.api_key, refused.value.api_version, refused.value.correlation_id) == (api_key, version, 42)


def test_frames_too_short_for_a_header() -> None:
    """A frame that ends within the header raises BufferUnderflow, for requests and responses."""
    for size in range(8):
        with pytest.raises(BufferUnderflow):
            parse_request(bytes(size))
    with pytest.raises(BufferUnderflow):
        response_correlation_id(bytes(3))
    with pytest.raises(BufferUnderflow):
        parse_request(b"\x00\x03\x00\x0c\x00\x00\x00\x00\x00\x05ab")


@pytest.mark.parametrize("client_id", [None, "", "me", "h\u00e9", "x" * 32767])
@pytest.mark.parametrize("tagged", [[], [(3, b"tag")]])
@pytest.mark.parametrize("version", [8, 9])
def test_the_short_cut_through_a_header(client_id: str | None, tagged: list[tuple[int, bytes]], version: int) -> None:
    """The server reads the client id and the body without decoding the header, and finds the same. A header without its
    tagged fields is refused."""
    sent = RequestHeader(request_api_key=3, request_api_version=version, correlation_id=77, client_id=client_id)
    if version == 9:
        sent.unknown_tagged_fields = dict(tagged)
    (frame,) = encode_request_frame(sent, MetadataRequest(topics=None), version)
    assert isinstance(frame, bytes)
    view = memoryview(frame)[4:]
    _, position = decode_prefix(RequestHeader, view, 2 if version == 9 else 1)
    assert request_body(view, is_flexible=version == 9) == (client_id, view[position:])
    end = 10 + len((client_id or "").encode())
    with pytest.raises(BufferUnderflow):
        request_body(view[: end if version == 9 else end - 1], is_flexible=version == 9)


@pytest.mark.parametrize("header_end", [b"\x00", b"\x01\x03\x03tag"])
def test_a_client_id_that_is_not_utf_8_is_no_error(header_end: bytes) -> None:
    """Apache Kafka answers such a client. The text that is read takes no more bytes than the one that was sent."""
    for sent, read in ((b"caf\xe9", "caf?"), (b"\xff\xfe", "??"), (b"\xed\xa0\x80", "???"), (b"a\xc3(z", "a?(z")):
        frame = memoryview(b"\x00\x03\x00\x0c" + bytes(4) + len(sent).to_bytes(2, "big") + sent + header_end + b"body")
        assert request_body(frame, is_flexible=True) == (read, memoryview(b"body"))
        assert len(read.encode()) <= len(sent)
        header, body = parse_request(frame)
        assert (header.client_id, body) == (read, memoryview(b"body"))


@pytest.mark.parametrize("version", [*APIS[ApiKey.METADATA].versions])
@pytest.mark.parametrize("client_id", ["", "me", "m\u00e9"])
def test_a_request_is_encoded_with_its_header(version: int, client_id: str) -> None:
    message = MetadataRequest(topics=None if version else [])
    sent = RequestHeader(request_api_key=3, request_api_version=version, correlation_id=77, client_id=client_id)
    parts = encode_request(APIS[ApiKey.METADATA], version, 77, client_id.encode(), message)
    assert parts == encode_request_frame(sent, message, version)


def test_a_client_id_that_is_too_long_cannot_be_sent() -> None:
    with pytest.raises(EncodeError):
        encode_request(APIS[ApiKey.METADATA], 12, 77, bytes(1 << 15), MetadataRequest(topics=None))


def test_frames_bigger_than_a_length_can_say() -> None:
    """Two gigabytes of regions do not fit into one frame."""
    partitions = [PartitionData(records=[Region(2**30)]) for _ in range(2)]
    with pytest.raises(EncodeError, match="cannot be sent"):
        encode_response_frame(1, FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)]), 17)


@pytest.mark.parametrize("numbering", Numbering)
def test_a_response_in_slices_has_the_numbers_of_the_cluster(numbering: Numbering) -> None:
    """Reserved directory ids get the same numbers whether a response is encoded at once or in slices."""
    response = AssignReplicasToDirsResponse(directories=[ResponseDirectoryData(id=UNASSIGNED)])
    at_once = encode_response_frame(1, response, 0, numbering=numbering)
    slices = encode_response_frame_in_slices(1, response, 0, numbering=numbering)
    assert joined(counted(slices)[0]) == joined(at_once)


@pytest.mark.parametrize("version", [3, 4])
def test_structs_of_numbers_are_encoded_in_slices_as_well(version: int) -> None:
    """They are packed by columns, many at a time, and still there are as many yields as elements."""
    partitions = [EpochEndOffset(partition=number, end_offset=2 * number) for number in range(2345)]
    response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=partitions)])
    parts, yields = counted(encode_response_frame_in_slices(1, response, version))
    assert joined(parts) == joined(encode_response_frame(1, response, version))
    assert yields >= len(partitions)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 2345), 9),
        (ListTransactionsRequest(state_filters=["Unknown"] * 2345), 1),
        (OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(partitions=[OffsetForLeaderPartition()] * 2345)]), 3),
        (OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(partitions=[OffsetForLeaderPartition()] * 2345)]), 4),
    ],
)
def test_each_element_is_a_yield(message: Struct, version: int) -> None:
    """Whether it is a struct, a struct of numbers or a text."""
    parts, yields = counted(encode_in_slices(message, version))
    assert yields >= 2345
    decoded, yields = counted(decode_request_in_slices(type(message), joined(parts), version))
    assert (decoded[0], yields >= 2345) == (message, True)


def test_produce_is_advertised_from_0() -> None:
    """librdkafka needs Produce advertised from version 0. Every other API is advertised with the versions that are
    served."""
    assert str(APIS[ApiKey.PRODUCE].advertised) == "0-13"
    assert str(APIS[ApiKey.PRODUCE].versions) == "3-13"
    assert all(api.advertised == api.versions for key, api in APIS.items() if key is not ApiKey.PRODUCE)
