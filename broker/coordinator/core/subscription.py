"""Reads the topics out of the metadata with which consumers join (core)."""

from collections.abc import Iterable
from typing import Final

from common.protocol.codec import decode_prefix
from common.protocol.errors import ProtocolError
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

_VERSION_BYTES: Final = 2


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all these members, or None if the metadata of one is not a consumer's."""
    topics: set[str] = set()
    for each in metadata:
        version = int.from_bytes(each[:_VERSION_BYTES], "big", signed=True)
        if len(each) < _VERSION_BYTES or version < 0:
            return None
        try:
            # Every version begins with the fields of version 0.
            subscription, _ = decode_prefix(ConsumerProtocolSubscription, each[_VERSION_BYTES:], 0)
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
