"""The requests of an AdminClient for leader elections, and their results (core)."""

from collections.abc import Iterable

from admin.errors import AdminError, failure
from admin.partitions import TopicPartition, partitions_by_topic
from common.protocol.errors import ErrorCode
from common.protocol.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)


def elect_request(
    election_type: ElectionType, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> ElectLeadersRequest:
    """Returns the request for these partitions or, if `partitions` is None, for all that need an election."""
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=name, partitions=each) for name, each in partitions_by_topic(partitions).items()]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=timeout_ms)


def election_results(response: ElectLeadersResponse) -> dict[TopicPartition, AdminError | None]:
    """Returns the error of each partition; None means that a leader was elected."""
    return {
        TopicPartition(topic.topic, each.partition_id): (
            None if each.error_code == ErrorCode.NONE else failure(each.error_code, each.error_message)
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    }
