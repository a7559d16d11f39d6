"""Assigns a broker's replicas to the directories that the broker reports (core; KIP-858).

Counterpart of handleAssignReplicasToDirs in Kafka's ReplicationControlManager.

1. Any directory id is accepted, even LOST and unregistered ids: a directory may fail before the broker has reported which
   replicas are in it. Only the numbers of unregistered ids and of partitions in one request are limited.
   If the directory is not online, the record of the assignment also takes the replica out of the leadership, and out of the
   ISR unless it is the last member.
2. A replica assigned to an online directory may lead again, and is elected at once if the partition has no leader.
3. A request that assigns LOST to a replica never elects that replica. The next leaderless sweep may elect it.
4. A fenced broker may send assignments, since a broker stays fenced until its assignments are known.
"""

from collections.abc import Sequence
from typing import Final

from common.ids import BrokerId, DirectoryId, TopicId, TopicIdPartition
from common.metadata import metadata_version
from common.metadata.directory_ids import LOST
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.broker_epochs import registration_of
from controller.core.election import ElectionPreference
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, SliceMeter, ends_slice
from controller.core.partition_change import PartitionChanges, PartitionTarget, moves_leader
from controller.core.reassignment import assignment_of
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX, too_many_records
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

# The most directory ids in a request that the broker has not registered: the reserved ids, and directories that failed
# before the broker registered. Far more than a broker has disks.
UNREGISTERED_DIRECTORIES_MAX: Final = 1_000


def handle_assign_replicas_to_dirs(
    turn: Turn, request: AssignReplicasToDirsRequest
) -> Sliced[ControllerResult[AssignReplicasToDirsResponse]]:
    """Records the assignments, in slices. The response has one result per partition, in request order. Raises
    ApiError(UNSUPPORTED_VERSION, STALE_BROKER_EPOCH, INVALID_REQUEST or POLICY_VIOLATION)."""
    state = turn.state
    if not metadata_version.is_directory_assignment_supported(state.metadata_version):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "assignments need metadata.version 3.7-IV2")
    registration = registration_of(state, request.broker_id, request.broker_epoch)
    _validate_size(request, registration)
    # If a request names a partition twice, the last assignment counts.
    accepted: dict[TopicIdPartition, DirectoryId] = {}
    response = AssignReplicasToDirsResponse()
    meter = SliceMeter()
    for directory in request.directories:
        topics: list[ResponseTopicData] = []
        for topic in directory.topics:
            partitions: list[ResponsePartitionData] = []
            for partition in topic.partitions:
                if meter.ends_slice(1):
                    yield
                key = TopicIdPartition(TopicId(topic.topic_id), partition.partition_index)
                code = _verdict(state, registration.broker_id, key)
                partitions.append(ResponsePartitionData(partition_index=partition.partition_index, error_code=code))
                if code is ErrorCode.NONE:
                    accepted[key] = DirectoryId(directory.id)
            topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=partitions))
        response.directories.append(ResponseDirectoryData(id=directory.id, topics=topics))
    changes = PartitionChanges(state, turn.settings, Eligibility(state))
    records: list[ApiMessageAndVersion] = []
    lost: dict[DirectoryId, list[ApiMessageAndVersion]] = {}
    for key, directory_id in accepted.items():
        if meter.ends_slice(1):
            yield
        change = assignment_change(state, changes, registration.broker_id, key, directory_id)
        if change is not None:
            records.append(change)
            if not registration.has_online_directory(directory_id):
                lost.setdefault(directory_id, []).append(change)
    events = [_offline_event(registration.broker_id, directory_id, made) for directory_id, made in lost.items()]
    # Not atomic: the assignments are independent of each other.
    return ControllerResult(records, response, is_atomic=False, events=events)


def _validate_size(request: AssignReplicasToDirsRequest, registration: BrokerRegistration) -> None:
    registered = {*registration.directories, *registration.lost_directories}
    others = {each.id for each in request.directories}.difference(registered)
    if len(others) > UNREGISTERED_DIRECTORIES_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the request names {len(others)} directories that the broker has not registered, "
            f"{UNREGISTERED_DIRECTORIES_MAX} are allowed",
        )
    if sum(len(topic.partitions) for each in request.directories for topic in each.topics) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()


def _verdict(state: MetadataState, broker_id: BrokerId, key: TopicIdPartition) -> ErrorCode:
    topic = state.topics.get(key.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(key.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def assignment_change(
    state: MetadataState,
    changes: PartitionChanges,
    broker_id: BrokerId,
    key: TopicIdPartition,
    directory_id: DirectoryId,
) -> ApiMessageAndVersion | None:
    """Returns the record that assigns the broker's replica to the directory (rules 1 to 3); None if nothing changes."""
    partition = state.topics[key.topic_id].partitions[key.partition]
    registration = state.brokers[broker_id]
    isr = partition.isr
    if not registration.has_online_directory(directory_id):
        isr = tuple(member for member in isr if member != broker_id)
    target = PartitionTarget(
        isr=isr,
        assignment=assignment_of(partition).with_directory(broker_id, directory_id),
        preference=ElectionPreference(not_revived=broker_id),
    )
    return changes.change(key, target)


def generate_lost_records(
    state: MetadataState, changes: PartitionChanges, broker_id: BrokerId, replicas: Sequence[TopicIdPartition]
) -> Sliced[list[ApiMessageAndVersion]]:
    """Returns the records that assign these replicas of the broker to LOST."""
    records: list[ApiMessageAndVersion] = []
    for number, key in enumerate(replicas):
        if ends_slice(number):
            yield
        change = assignment_change(state, changes, broker_id, key, LOST)
        if change is not None:
            records.append(change)
    return records


def _offline_event(broker_id: BrokerId, directory_id: DirectoryId, records: list[ApiMessageAndVersion]) -> ControllerEvent:
    return ControllerEvent(
        "replicas_assigned_offline",
        {
            "broker_id": broker_id,
            "directory_id": directory_id,
            "partitions": len(records),
            "leaders": sum(moves_leader(record) for record in records),
        },
    )
