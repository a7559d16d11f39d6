"""Lists the reassignments that are not completed yet (core; KIP-455).

Counterpart of listPartitionReassignments in Kafka's ReplicationControlManager. Partitions that do not exist or are not being
reassigned are left out, without an error.
"""

from collections.abc import Iterable, Iterator

from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from controller.core.long_decisions import Sliced, SliceMeter
from controller.core.result import ControllerResult
from controller.core.turn import Turn


def list_partition_reassignments(
    turn: Turn, request: ListPartitionReassignmentsRequest
) -> Sliced[ControllerResult[ListPartitionReassignmentsResponse]]:
    """Lists the reassignments of the named partitions, or all of them, in slices. A partition that is named twice is listed
    once."""
    # The partitions to look at, by topic name.
    wanted: dict[str, dict[int, None]] = {}
    meter = SliceMeter()
    for name, indexes in _named(turn.state, request):
        wanted.setdefault(name, {}).update(dict.fromkeys(indexes))
        if meter.ends_slice(1):
            yield
    response = ListPartitionReassignmentsResponse()
    for name, distinct in wanted.items():
        topic = turn.state.topic_named(name)
        if meter.ends_slice(1):
            yield
        if topic is None:
            continue
        ongoing = OngoingTopicReassignment(name=name)
        for index in distinct:
            if (partition := topic.partitions.get(index)) is not None and partition.is_reassigning:
                ongoing.partitions.append(_ongoing(index, partition))
            if meter.ends_slice(1):
                yield
        if ongoing.partitions:
            response.topics.append(ongoing)
    return ControllerResult([], response)


def _named(state: MetadataState, request: ListPartitionReassignmentsRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topics is None:
        for topic_id, index in state.reassigning_partitions():
            yield state.topics[topic_id].name, (index,)
    else:
        for topic in request.topics:
            yield topic.name, topic.partition_indexes


def _ongoing(index: int, partition: PartitionRegistration) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
