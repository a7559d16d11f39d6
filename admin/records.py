"""The requests of an AdminClient that delete records, and their results (core)."""

from collections.abc import Iterable, Mapping

from admin.partitions import TopicPartition, partitions_by_topic
from admin.topics import TopicDescription
from common.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def delete_request(offsets: Mapping[TopicPartition, int], *, timeout_ms: int) -> DeleteRecordsRequest:
    """Returns the request that deletes everything below these offsets; -1 stands for the high watermark."""
    topics = [
        DeleteRecordsTopic(
            name=topic,
            partitions=[
                DeleteRecordsPartition(partition_index=index, offset=offsets[TopicPartition(topic, index)])
                for index in indexes
            ],
        )
        for topic, indexes in partitions_by_topic(offsets).items()
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def leaders(topics: Iterable[TopicDescription]) -> dict[TopicPartition, int | None]:
    """Returns the leader of each partition, None if there is none."""
    return {TopicPartition(topic.name, each.partition): each.leader for topic in topics for each in topic.partitions}
