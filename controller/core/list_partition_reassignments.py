"""Lists the reassignments that are not completed yet (core; KIP-455).

Counterpart of listPartitionReassignments in Kafka's ReplicationControlManager. Partitions that do not exist or are not being
reassigned are left out, without an error.
"""

from collections.abc import Iterable

from common.metadata.registrations import Topic
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from controller.core.result import ControllerResult
from controller.core.turn import Turn


def list_partition_reassignments(
    turn: Turn, request: ListPartitionReassignmentsRequest
) -> ControllerResult[ListPartitionReassignmentsResponse]:
    """Lists the reassignments of the named partitions, or all of them. A partition that is named twice is listed once."""
    state = turn.state
    # The partitions to look at, by topic name.
    wanted: dict[str, dict[int, None]] = {}
    if request.topics is None:
        for topic_id, index in state.reassigning_partitions():
            wanted.setdefault(state.topics[topic_id].name, {})[index] = None
    else:
        for named in request.topics:
            wanted.setdefault(named.name, {}).update(dict.fromkeys(named.partition_indexes))
    listed = [_ongoing(topic, indexes) for name, indexes in wanted.items() if (topic := state.topic_named(name)) is not None]
    response = ListPartitionReassignmentsResponse(topics=[topic for topic in listed if topic.partitions])
    return ControllerResult([], response)


def _ongoing(topic: Topic, indexes: Iterable[int]) -> OngoingTopicReassignment:
    ongoing = OngoingTopicReassignment(name=topic.name)
    for index in indexes:
        partition = topic.partitions.get(index)
        if partition is not None and partition.is_reassigning:
            ongoing.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    return ongoing
