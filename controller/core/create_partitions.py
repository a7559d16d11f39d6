"""Adds partitions to existing topics (core; KIP-195).

Counterpart of createPartitions in Kafka's ReplicationControlManager, with its error codes and messages. The records of one
request are atomic, but the topics are judged separately: an invalid one gets its own error, the others are extended. Each
new partition gets as many replicas as the topic's first partition. If the first partition is being reassigned, only the
replicas that it will have afterwards count.
"""

from collections import Counter

from common.metadata.registrations import Topic
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.long_decisions import Sliced, SliceMeter
from controller.core.manual_assignment import validate_manual_assignment
from controller.core.new_partitions import new_partition_record
from controller.core.placement import place_replicas, placement_brokers
from controller.core.reassignment import assignment_of
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX, too_many_records
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn


def create_partitions(turn: Turn, request: CreatePartitionsRequest) -> Sliced[ControllerResult[CreatePartitionsResponse]]:
    """Extends the valid topics, in slices, and returns one result per topic. Writes nothing for `validate_only`."""
    response = CreatePartitionsResponse()
    records: list[ApiMessageAndVersion] = []
    events: list[ControllerEvent] = []
    meter = SliceMeter()
    occurrences = Counter(topic.name for topic in request.topics)
    for wish in {topic.name: topic for topic in request.topics}.values():
        if meter.ends_slice(1):
            yield
        result = CreatePartitionsTopicResult(name=wish.name)
        response.results.append(result)
        try:
            if occurrences[wish.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic, created = yield from _new_partitions(turn, wish, RECORDS_PER_REQUEST_MAX - len(records), meter)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        records += created
        fields = {"topic": topic.name, "topic_id": topic.id, "partitions": wish.count, "added": len(created)}
        events.append(ControllerEvent("partitions_created", fields))
    if request.validate_only:
        return ControllerResult([], response)
    return ControllerResult(records, response, events=events)


def _new_partitions(
    turn: Turn, wish: CreatePartitionsTopic, room: int, meter: SliceMeter
) -> Sliced[tuple[Topic, list[ApiMessageAndVersion]]]:
    state = turn.state
    topic = state.topic_named(wish.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    if count == 0:
        # Below metadata.version 3.6-IV1, a controller that ends while it creates hundreds of topics may leave one like this.
        reason = f"The topic {wish.name} was not created completely. Delete it and create it again."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, reason)
    _validate_count(wish, count)
    additional = wish.count - count
    # Refuse before anything of that size is built.
    if additional > room:
        raise too_many_records()
    replication_factor = len(assignment_of(topic.partitions[0]).target)
    if wish.assignments is None:
        brokers = placement_brokers(state)
        placed = place_replicas(brokers, partitions=additional, replication_factor=replication_factor, rng=turn.rng)
    else:
        placed = []
        for each in wish.assignments:
            if meter.ends_slice(1):
                yield
            placed.append(validate_manual_assignment(state, each.broker_ids, replication_factor))
    records: list[ApiMessageAndVersion] = []
    for index, replicas in enumerate(placed, start=count):
        if meter.ends_slice(1):
            yield
        record = new_partition_record(state, topic.id, index, replicas)
        if record is None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown.",
            )
        records.append(record)
    return topic, records


def _validate_count(wish: CreatePartitionsTopic, count: int) -> None:
    if wish.count == count:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wish.count < count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wish.name} currently has {count} partition(s); {wish.count} would not be an increase.",
        )
    if wish.assignments is not None and len(wish.assignments) != wish.count - count:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {wish.count - count} additional partition(s), but only {len(wish.assignments)} assignment(s) "
            "were specified.",
        )
