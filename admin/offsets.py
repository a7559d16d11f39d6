"""Offsets of partitions by time, and the request for them (core)."""

from collections.abc import Iterable
from dataclasses import dataclass

from admin.partitions import TopicPartition, partitions_by_topic
from common.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# The replica id of a client.
CONSUMER = -1


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """Counterpart of Kafka's ListOffsetsResultInfo."""

    offset: int | None
    """None if no record is as new as the time that was asked for."""
    timestamp_ms: int | None
    """None if the request did not ask for a time."""


def list_request(partitions: Iterable[TopicPartition], timestamp: int, *, timeout_ms: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
            )
            for topic, indexes in partitions_by_topic(partitions).items()
        ],
        timeout_ms=timeout_ms,
    )


def listed_offset(offset: int, timestamp: int) -> ListedOffset:
    return ListedOffset(offset if offset >= 0 else None, timestamp if timestamp >= 0 else None)
