"""Begins, changes and reverts reassignments (core; KIP-455, KIP-860).

Counterpart of alterPartitionReassignments in Kafka's ReplicationControlManager, with its error codes and messages.
The module `reassignment` computes the new replicas, and `partition_change` completes the reassignment at once if its target
is already in sync. The records of one request are atomic, but the partitions are judged separately: an invalid one gets its
own error, the others are reassigned.
"""

from collections import Counter

from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration, Topic
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, SliceMeter
from controller.core.manual_assignment import validate_manual_assignment
from controller.core.partition_change import PartitionChanges, PartitionTarget
from controller.core.placement import default_directory
from controller.core.reassignment import assignment_of, reassigned, reverted
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX, too_many_records
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.topic_settings import is_unclean_election_enabled
from controller.core.turn import Turn


def alter_partition_reassignments(
    turn: Turn, request: AlterPartitionReassignmentsRequest
) -> Sliced[ControllerResult[AlterPartitionReassignmentsResponse]]:
    """Begins, changes or reverts reassignments, in slices. The response has one result per partition. Raises
    ApiError(POLICY_VIOLATION) if the request needs too many records."""
    changes = PartitionChanges(turn.state, turn.settings, Eligibility(turn.state))
    records: list[ApiMessageAndVersion] = []
    counts = {"partitions": 0, "cancelled": 0, "refused": 0}
    response = AlterPartitionReassignmentsResponse(allow_replication_factor_change=request.allow_replication_factor_change)
    occurrences = Counter((topic.name, wish.partition_index) for topic in request.topics for wish in topic.partitions)
    meter = SliceMeter()
    for topic in request.topics:
        if meter.ends_slice(1):
            yield
        results = ReassignableTopicResponse(name=topic.name)
        response.responses.append(results)
        for wish in topic.partitions:
            if meter.ends_slice(1):
                yield
            result = ReassignablePartitionResponse(partition_index=wish.partition_index)
            results.partitions.append(result)
            try:
                if occurrences[topic.name, wish.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "The partition occurs more than once in the request.")
                key, target = _target(turn, topic.name, wish, allows_resize=request.allow_replication_factor_change)
            except ApiError as error:
                result.error_code, result.error_message = error.code, error.message
                counts["refused"] += 1
                continue
            counts["partitions" if wish.replicas is not None else "cancelled"] += 1
            change = changes.change(key, target)
            if change is not None:
                records.append(change)
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    return ControllerResult(records, response, events=[ControllerEvent("reassignments_altered", counts)])


def _target(
    turn: Turn, topic_name: str, wish: ReassignablePartition, *, allows_resize: bool
) -> tuple[TopicIdPartition, PartitionTarget]:
    state = turn.state
    topic = state.topic_named(topic_name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic_name}.")
    partition = topic.partitions.get(wish.partition_index)
    if partition is None:
        reason = f"Unable to find partition {topic_name}:{wish.partition_index}."
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    key = TopicIdPartition(topic.id, wish.partition_index)
    if wish.replicas is None:
        return key, _reverting(turn, topic, wish.partition_index, partition)
    return key, _reassigning(state, partition, wish.replicas, allows_resize=allows_resize)


def _reassigning(
    state: MetadataState, partition: PartitionRegistration, wanted: list[int], *, allows_resize: bool
) -> PartitionTarget:
    before = assignment_of(partition)
    target = validate_manual_assignment(state, wanted)
    if not allows_resize and len(target) != len(before.target):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(before.target)} to {len(target)}",
        )

    def directory_of(broker_id: BrokerId) -> DirectoryId:
        return default_directory(state, broker_id)

    return PartitionTarget(assignment=reassigned(before, target, directory_of))


def _reverting(turn: Turn, topic: Topic, index: int, partition: PartitionRegistration) -> PartitionTarget:
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    revert = reverted(partition)
    if not revert.is_unclean:
        return PartitionTarget(isr=revert.isr, assignment=revert.assignment)
    if not is_unclean_election_enabled(turn.state, topic.name, turn.settings):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean leader "
            "election.",
        )
    return PartitionTarget(
        isr=revert.isr, assignment=revert.assignment, leader_recovery_state=LeaderRecoveryState.RECOVERING
    )
