"""The topics of a group's consumers, read out of their metadata."""

from unittest.mock import patch

import pytest

from broker.coordinator.core.subscription import subscribed_topics
from common.protocol.codec import decode_prefix, encode_with_version
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition


def metadata(*topics: str, user_data: bytes | None = None, owned: int = 0) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(topics), user_data=user_data, owned_partitions=[TopicPartition(topic="t", partitions=[owned])]
    )
    return encode_with_version(message, 1)


@pytest.mark.parametrize("user_data", [None, b"", b"of the assignor"])
def test_topics_that_the_member_before_has_too_are_not_decoded_again(user_data: bytes | None) -> None:
    """Most groups have one list of topics. What the members own differs, and so may their user data."""
    members = [metadata("t", "u", user_data=user_data, owned=number) for number in range(3)]
    with patch("broker.coordinator.core.subscription.decode_prefix", wraps=decode_prefix) as decoding:
        assert subscribed_topics(members) == frozenset({"t", "u"})
    assert decoding.call_count == 1


@pytest.mark.parametrize(
    "members",
    [
        [metadata("t"), metadata("t", "u")],
        [metadata("t", "u"), metadata("t")],
        [metadata("t"), metadata("u"), metadata("t")],
        [metadata(), metadata("t", "u")],
    ],
)
def test_the_topics_are_those_of_all_members(members: list[bytes]) -> None:
    topics = frozenset({"t", "u"})
    assert subscribed_topics(members) == topics


@pytest.mark.parametrize("foreign", [b"", b"?", b"\xff\xff", b"\0\0?"])
def test_with_metadata_that_is_not_a_consumers_the_topics_are_unknown(foreign: bytes) -> None:
    assert subscribed_topics([metadata("t"), foreign]) is None
