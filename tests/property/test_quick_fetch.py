"""The quick encoder of Fetch answers gives what the generated one gives: the same bytes and errors, for any answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import ZERO_UUID
from common.parts import FileRegion
from common.protocol.codec import joined
from common.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from common.protocol.quick_fetch import quick_encoder
from common.protocol.schema import message_schema
from tests.property.profiles import examples
from tests.property.protocol_strategies import messages
from tests.property.test_quick_produce import IDS, INT16, INT32, INT64, NAMES, RECORDS, generated, outcome, too_slow

VERSIONS = [version for version in range(4, 19) if version in message_schema(FetchResponse).flexible]


class Region(FileRegion):
    """A region of no file."""

    def __init__(self, size: int) -> None:
        self.size = size


def usual_responses() -> st.SearchStrategy[FetchResponse]:
    answers = st.builds(
        PartitionData,
        partition_index=INT32,
        error_code=INT16,
        high_watermark=INT64,
        last_stable_offset=INT64,
        log_start_offset=INT64,
        aborted_transactions=st.none() | st.just([]),
        preferred_read_replica=INT32,
        records=RECORDS | st.lists(RECORDS, max_size=3),
    )
    topics = st.builds(
        FetchableTopicResponse, topic=NAMES, topic_id=IDS, partitions=st.lists(answers, min_size=1, max_size=1)
    )
    return st.builds(
        FetchResponse,
        throttle_time_ms=INT32,
        error_code=INT16,
        session_id=INT32,
        responses=st.lists(topics, min_size=1, max_size=1),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_encoded_alike(version: int) -> None:
    _, encoder = generated(FetchResponse, version)
    encode = quick_encoder(FetchResponse, version, encoder)

    @examples(300)
    @given(usual_responses() | messages(FetchResponse, version, unknown_tags=True))
    def check(message: FetchResponse) -> None:
        assert outcome(lambda: joined(encode(message))) == outcome(lambda: joined(encoder(message)))

    check()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
def test_the_usual_form_needs_no_generated_encoder(version: int, size: int) -> None:
    """Otherwise the test above could compare the generated encoder with itself. A region of a file stays one."""
    topic: dict[str, Any] = {"topic_id": b"0123456789abcdef"} if version >= 13 else {"topic": "t"}
    region = Region(size)
    answer = PartitionData(partition_index=3, high_watermark=5, aborted_transactions=None, records=[region])
    response = FetchResponse(session_id=9, responses=[FetchableTopicResponse(**topic, partitions=[answer])])
    parts = quick_encoder(FetchResponse, version, too_slow)(response)
    assert [part for part in parts if isinstance(part, FileRegion)] == [region]
    expected = generated(FetchResponse, version)[1](response)
    assert [part if isinstance(part, FileRegion) else bytes(part) for part in parts] == expected


@pytest.mark.parametrize(
    "answer",
    [
        PartitionData(records=None),
        PartitionData(records=b"", aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=2)]),
        PartitionData(records=b"", diverging_epoch=EpochEndOffset(epoch=0, end_offset=-1)),
        PartitionData(records=b"", diverging_epoch=EpochEndOffset(epoch=-1, end_offset=0)),
        PartitionData(records=b"", current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)),
        PartitionData(records=b"", current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=1)),
        PartitionData(records=b"", snapshot_id=SnapshotId(end_offset=1, epoch=-1)),
        PartitionData(records=b"", snapshot_id=SnapshotId(end_offset=-1, epoch=1)),
        PartitionData(records=b"", unknown_tagged_fields={9: b"?"}),
        PartitionData(records=b"", diverging_epoch=EpochEndOffset(unknown_tagged_fields={9: b"?"})),
    ],
)
def test_an_answer_that_says_more_is_left_to_the_generated_encoder(answer: PartitionData) -> None:
    encode = quick_encoder(FetchResponse, 17, too_slow)
    with pytest.raises(AssertionError, match="generated"):
        encode(FetchResponse(responses=[FetchableTopicResponse(topic_id=ZERO_UUID, partitions=[answer])]))


def test_several_partitions_and_endpoints_are_left_to_the_generated_encoder() -> None:
    encode = quick_encoder(FetchResponse, 17, too_slow)
    one = FetchableTopicResponse(topic_id=ZERO_UUID, partitions=[PartitionData(records=b"")])
    two = FetchableTopicResponse(topic_id=ZERO_UUID, partitions=[PartitionData(records=b"")] * 2)
    for response in (
        FetchResponse(),
        FetchResponse(responses=[one, one]),
        FetchResponse(responses=[two]),
        FetchResponse(responses=[one], node_endpoints=[NodeEndpoint()]),
    ):
        with pytest.raises(AssertionError, match="generated"):
            encode(response)
