"""The requests of an AdminClient that delete records, and their results (core)."""

from collections.abc import Mapping

from admin.partitions import TopicPartition, partitions_by_topic
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
