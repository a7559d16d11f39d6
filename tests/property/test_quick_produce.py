"""The quick codec of Produce gives what the generated one gives: the same messages, bytes and errors, for any input."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol.codec import joined
from common.protocol.decoder_source import compile_decoder
from common.protocol.encoder_source import compile_encoder
from common.protocol.errors import RemoteProtocolError
from common.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from common.protocol.numbering import Numbering
from common.protocol.quick_produce import quick_decoder, quick_encoder
from common.protocol.schema import Struct, message_schema
from tests.property.profiles import examples
from tests.property.protocol_strategies import VALUES, messages
from tests.property.test_decoders import CHANGES, damaged

VERSIONS = [version for version in range(3, 14) if version in message_schema(ProduceRequest).flexible]
# What a decoder or an encoder may raise; the codec turns it into its own errors.
ERRORS = (RemoteProtocolError, IndexError, struct.error, UnicodeDecodeError)
# Lengths at which the varint before the text or the records becomes longer.
NAMES = st.text(max_size=5) | st.sampled_from([125, 126, 127, 128, 300]).map(lambda length: "n" * length)
IDS = st.binary(min_size=16, max_size=16)
RECORDS = st.binary(max_size=5) | st.sampled_from([125, 126, 127, 128, 16382, 16383, 16384]).map(bytes)
INT16, INT32, INT64 = (VALUES[each] for each in VALUES if each.name in ("INT16", "INT32", "INT64"))


def usual_requests() -> st.SearchStrategy[ProduceRequest]:
    partitions = st.builds(PartitionProduceData, index=INT32, records=RECORDS)
    topics = st.builds(
        TopicProduceData, name=NAMES, topic_id=IDS, partition_data=st.lists(partitions, min_size=1, max_size=1)
    )
    return st.builds(ProduceRequest, acks=INT16, timeout_ms=INT32, topic_data=st.lists(topics, min_size=1, max_size=1))


def usual_responses() -> st.SearchStrategy[ProduceResponse]:
    answers = st.builds(
        PartitionProduceResponse,
        index=INT32,
        error_code=INT16,
        base_offset=INT64,
        log_append_time_ms=INT64,
        log_start_offset=INT64,
    )
    topics = st.builds(
        TopicProduceResponse, name=NAMES, topic_id=IDS, partition_responses=st.lists(answers, min_size=1, max_size=1)
    )
    return st.builds(ProduceResponse, throttle_time_ms=INT32, responses=st.lists(topics, min_size=1, max_size=1))


def generated(message_class: type[Struct], version: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the generated decoder and encoder."""
    schema = message_schema(message_class)
    return (
        compile_decoder(schema, version, Numbering.KIP858),
        compile_encoder(schema, version, Numbering.KIP858),
    )


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ERRORS as error:
        return type(error)


def too_slow(_: Any) -> Any:
    raise AssertionError("the generated codec was needed")


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_decoded_alike(version: int) -> None:
    """Whole, damaged, cut or followed by other bytes."""
    decoder, encoder = generated(ProduceRequest, version)
    decode = quick_decoder(ProduceRequest, version, decoder)
    valid = (usual_requests() | messages(ProduceRequest, version, unknown_tags=True)).map(
        lambda message: joined(encoder(message))
    )
    splices = st.none() | st.floats(0, 1)
    changed = st.builds(damaged, valid, st.just([]) | CHANGES, valid, splices)

    @examples(150)
    @given(valid | changed)
    def check(data: bytes) -> None:
        assert outcome(lambda: decode(data)) == outcome(lambda: decoder(data))

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_encoded_alike(version: int) -> None:
    _, encoder = generated(ProduceResponse, version)
    encode = quick_encoder(ProduceResponse, version, encoder)

    @examples(150)
    @given(usual_responses() | messages(ProduceResponse, version, unknown_tags=True))
    def check(message: ProduceResponse) -> None:
        assert outcome(lambda: joined(encode(message))) == outcome(lambda: joined(encoder(message)))

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_usual_form_needs_no_generated_codec(version: int) -> None:
    """Otherwise the two tests above could compare the generated codec with itself."""
    _, encoder = generated(ProduceRequest, version)
    decode = quick_decoder(ProduceRequest, version, too_slow)
    topic: dict[str, Any] = {"topic_id": b"0123456789abcdef"} if version >= 13 else {"name": "t"}
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(**topic, partition_data=[PartitionProduceData(index=7, records=bytes(200))])],
    )
    message, _, _ = decode(joined(encoder(request)))
    assert message == request
    encode = quick_encoder(ProduceResponse, version, too_slow)
    answer = PartitionProduceResponse(index=7, error_code=6, base_offset=-1)
    response = ProduceResponse(responses=[TopicProduceResponse(**topic, partition_responses=[answer])])
    [encoded] = encode(response)
    decoded, _, _ = generated(ProduceResponse, version)[0](encoded)
    assert decoded == response


def test_a_response_that_says_more_is_left_to_the_generated_codec() -> None:
    """Also one that names another leader, which is a tagged field."""
    encode = quick_encoder(ProduceResponse, 12, too_slow)
    for answer in (
        PartitionProduceResponse(error_message="full"),
        PartitionProduceResponse(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2)),
    ):
        with pytest.raises(AssertionError, match="generated"):
            encode(ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])]))
