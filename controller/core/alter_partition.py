"""Changes the ISR of partitions at the request of their leader (core; KIP-497, KIP-704, KIP-841, KIP-903).

Counterpart of alterPartition in Kafka's ReplicationControlManager, with the same order of checks. Every member of the new
ISR must be able to lead: its broker is registered, unfenced, not shutting down and has the epoch that the leader saw
(KIP-903; -1 skips this check). Unlike in Kafka, the member's directory must also be online. A leader or partition epoch
*higher* than ours does not mean that the leader is wrong. It means that this controller is behind, so the error is
NOT_CONTROLLER.

Below version 2 a request names topics instead of their ids, and the errors that these versions do not know are replaced by
older ones (`with_older_errors`).

Easy to get wrong: an ISR change may complete a reassignment that removes the leader. It is then recorded *and* answered with
NEW_LEADER_ELECTED, because the sender no longer leads and has to wait for the metadata.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from common.ids import ZERO_UUID, BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import NO_LEADER_CHANGE, KnownRecord, PartitionChangeRecord
from controller.core.broker_epochs import registration_of
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, SliceMeter
from controller.core.partition_change import PartitionChanges, PartitionTarget
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

# In a request: the leader does not know, or did not send, the broker epoch of the replica.
NO_EPOCH = BrokerEpoch(-1)
# The first version that has topic ids, and the newer errors, here with the older ones in their place (KIP-841).
TOPIC_ID_FIRST_VERSION: Final = 2
OLDER_ERRORS: Final = MappingProxyType(
    {
        ErrorCode.INELIGIBLE_REPLICA: ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.NEW_LEADER_ELECTED: ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
MembersWithEpochs = Sequence[tuple[BrokerId, BrokerEpoch]]


def handle_alter_partition(turn: Turn, request: AlterPartitionRequest) -> Sliced[ControllerResult[AlterPartitionResponse]]:
    """Changes the ISRs as requested, in slices. The response has one result per partition. Raises
    ApiError(STALE_BROKER_EPOCH)."""
    state = turn.state
    leader = registration_of(state, request.broker_id, request.broker_epoch).broker_id
    changes = PartitionChanges(state, turn.settings, Eligibility(state))
    records: list[ApiMessageAndVersion] = []
    events: list[ControllerEvent] = []
    accepted: set[TopicIdPartition] = set()
    response = AlterPartitionResponse()
    meter = SliceMeter()
    for topic in request.topics:
        topic_id = _topic_id(state, topic)
        results: list[ResponsePartitionData] = []
        for wish in topic.partitions:
            if meter.ends_slice(1):
                yield
            try:
                key = TopicIdPartition(topic_id, wish.partition_index)
                partition, isr = _validated(state, changes.eligibility, leader, topic_id, wish)
                # Only now: names of topics that do not exist share one topic id.
                if key in accepted:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the partition occurs twice")
                accepted.add(key)
            except ApiError as error:
                results.append(ResponsePartitionData(partition_index=wish.partition_index, error_code=error.code))
                continue
            change = changes.change(key, PartitionTarget(isr=isr, leader_recovery_state=wish.leader_recovery_state))
            if change is not None:
                records.append(change)
            results.append(_result(wish.partition_index, partition, change))
            if change is not None and _completes_reassignment(change.record):
                fields = {"partition": f"{state.topics[topic_id].name}-{wish.partition_index}"}
                events.append(ControllerEvent("reassignment_completed", fields))
        response.topics.append(ResponseTopicData(topic_name=topic.topic_name, topic_id=topic_id, partitions=results))
    # Not atomic: the changes of different partitions are independent of each other.
    return ControllerResult(records, response, is_atomic=False, events=events)


def with_older_errors(response: AlterPartitionResponse) -> AlterPartitionResponse:
    """Replaces the errors in the response that are unknown below TOPIC_ID_FIRST_VERSION."""
    for topic in response.topics:
        for result in topic.partitions:
            result.error_code = OLDER_ERRORS.get(ErrorCode(result.error_code), result.error_code)
    return response


def _topic_id(state: MetadataState, topic: RequestTopicData) -> TopicId:
    if topic.topic_id == ZERO_UUID and topic.topic_name:
        return state.topic_ids.get(topic.topic_name, TopicId(ZERO_UUID))
    return TopicId(topic.topic_id)


def _validated(
    state: MetadataState, eligibility: Eligibility, leader: BrokerId, topic_id: TopicId, wish: RequestPartitionData
) -> tuple[PartitionRegistration, list[BrokerId]]:
    """Validates the requested change. Returns the partition's current registration and its new ISR. Raises ApiError."""
    if topic_id not in state.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = state.partition(topic_id, wish.partition_index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wish.leader_epoch > partition.leader_epoch or wish.partition_epoch > partition.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if wish.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the sender does not lead the partition")
    if wish.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    members = _members(wish)
    isr = [broker_id for broker_id, _ in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or leader not in isr:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the ISR is no set of replicas with the leader among them")
    _validate_recovery(partition, wish.leader_recovery_state, isr)
    for broker_id, epoch in members:
        registration = eligibility.registration(broker_id)
        if not eligibility.is_eligible(broker_id, partition.directory(broker_id)) or (
            registration is not None and epoch not in (NO_EPOCH, registration.epoch)
        ):
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} may not be in the ISR")
    return partition, isr


def _members(wish: RequestPartitionData) -> MembersWithEpochs:
    # Version 3 of the request has ids with broker epochs, earlier versions have ids only.
    if wish.new_isr_with_epochs:
        return [(BrokerId(each.broker_id), BrokerEpoch(each.broker_epoch)) for each in wish.new_isr_with_epochs]
    return [(BrokerId(each), NO_EPOCH) for each in wish.new_isr]


def _validate_recovery(partition: PartitionRegistration, wished: int, isr: Sequence[BrokerId]) -> None:
    if wished not in tuple(LeaderRecoveryState):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no leader recovery state {wished}")
    if wished == LeaderRecoveryState.RECOVERING:
        if len(isr) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a recovering leader is alone in the ISR")
        if partition.leader_recovery_state == LeaderRecoveryState.RECOVERED:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a recovered leader does not start recovering again")


def _result(index: int, partition: PartitionRegistration, change: ApiMessageAndVersion | None) -> ResponsePartitionData:
    result = ResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
    if change is None or not isinstance(change.record, PartitionChangeRecord):
        return result
    record = change.record
    if record.leader not in (NO_LEADER_CHANGE, partition.leader):
        return ResponsePartitionData(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED)
    result.partition_epoch += 1
    if record.isr is not None:
        result.isr = list(record.isr)
    if record.leader_recovery_state >= 0:
        result.leader_recovery_state = record.leader_recovery_state
    if record.leader != NO_LEADER_CHANGE:
        result.leader_epoch += 1
    return result


def _completes_reassignment(record: KnownRecord) -> bool:
    # An ISR change never begins a reassignment. If it clears one of these lists, it completes a reassignment.
    return isinstance(record, PartitionChangeRecord) and [] in (record.adding_replicas, record.removing_replicas)
