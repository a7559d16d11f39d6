"""Creates and deletes topics (core).

Counterpart of createTopics and deleteTopics in Kafka's ReplicationControlManager, with Kafka's error codes.

1. The records of one request are atomic, but the topics are judged separately: an invalid topic gets its own error, the
   others are created.
2. A topic's ConfigRecords come before its TopicRecord, so a broker that sees the partitions has their configuration.
3. The counts in a request are checked before anything of that size is built.
4. Thousands of topics, or of partitions, are decided in slices (`long_decisions`).
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.configuration.resolver import ConfigSource
from common.configuration.settings import ConfigError, field_of
from common.configuration.topic import (
    SERVED_ANYWAY,
    TOPIC_SETTINGS,
    default_topic_config,
    topic_config,
)
from common.configuration.value_text import value_text
from common.ids import METADATA_TOPIC_NAME, ZERO_UUID, BrokerId, TopicId, Uuid
from common.metadata.state import MetadataState
from common.metadata.topic_names import InvalidTopicName, collision_key, validate_topic_name
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    ConfigRecord,
    ConfigResourceType,
    RemoveTopicRecord,
    TopicRecord,
)
from controller.core.long_decisions import RESOURCE_COST, Sliced, SliceMeter
from controller.core.manual_assignment import validate_manual_assignment
from controller.core.new_partitions import new_partition_record
from controller.core.placement import place_replicas, placement_brokers
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX, too_many_records
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.topic_overrides import validate_overrides
from controller.core.turn import Turn

ALL_KEYS: Final = frozenset((*TOPIC_SETTINGS, *SERVED_ANYWAY))
# The value of num_partitions or replication_factor that asks for the server's default.
SERVER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class _NewTopic:
    """A validated topic and the records that create it."""

    name: str
    topic_id: TopicId
    replicas: Sequence[tuple[BrokerId, ...]]
    records: Sequence[ApiMessageAndVersion]
    overrides: Mapping[str, str]


def create_topics(turn: Turn, request: CreateTopicsRequest) -> Sliced[ControllerResult[CreateTopicsResponse]]:
    """Creates the valid topics and returns one result per topic. Writes nothing for `validate_only`."""
    response = CreateTopicsResponse()
    meter = SliceMeter()
    configs = _CreatedConfigs(turn)
    created: dict[str, _NewTopic] = {}
    room = RECORDS_PER_REQUEST_MAX
    wishes = {topic.name: topic for topic in request.topics}
    occurrences = Counter(topic.name for topic in request.topics)
    taken = _names_by_collision_key(turn.state, wishes)
    for name, wish in wishes.items():
        if meter.ends_slice(RESOURCE_COST):
            yield
        try:
            if occurrences[name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic '{name}' occurs twice in the request")
            _validate_name(turn.state, name, taken)
            topic = yield from _new_topic(turn, wish, room, meter)
        except ApiError as error:
            response.topics.append(CreatableTopicResult(name=name, error_code=error.code, error_message=error.message))
            continue
        room -= len(topic.records)
        created[name] = topic
        taken[collision_key(name)] = name
        response.topics.append(_created(topic, configs.of(topic.overrides), request.validate_only))
    if request.validate_only:
        return ControllerResult([], response)
    records = [record for topic in created.values() for record in topic.records]
    events = [
        ControllerEvent(
            "topic_created",
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": len(topic.replicas),
                "replication_factor": len(topic.replicas[0]),
            },
        )
        for topic in created.values()
    ]
    return ControllerResult(records, response, events=events)


def _names_by_collision_key(state: MetadataState, wishes: Iterable[str]) -> dict[str, str]:
    """Returns the names of the existing topics by collision key, or nothing if no requested name has a character that can
    collide."""
    if not any("_" in collision_key(name) for name in wishes):
        return {}
    return {collision_key(name): name for name in state.topic_ids}


def _validate_name(state: MetadataState, name: str, taken: Mapping[str, str]) -> None:
    try:
        validate_topic_name(name)
    except InvalidTopicName as error:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if name == METADATA_TOPIC_NAME:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in state.topic_ids:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(collision_key(name))
    if other is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic '{name}' would share its metric names with '{other}'")


def _new_topic(turn: Turn, wish: CreatableTopic, room: int, meter: SliceMeter) -> Sliced[_NewTopic]:
    state = turn.state
    overrides = _validated_overrides(state, wish)
    room -= len(overrides) + 1
    replicas = _assigned_replicas(state, wish) if wish.assignments else _placed_replicas(turn, wish, room)
    if len(replicas) > room:
        raise too_many_records()
    topic_id = TopicId(turn.new_uuid())
    records = [
        ApiMessageAndVersion(
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=wish.name, name=key, value=value), 0
        )
        for key, value in sorted(overrides.items())
    ]
    records.append(ApiMessageAndVersion(TopicRecord(name=wish.name, topic_id=topic_id), 0))
    for index, brokers in enumerate(replicas):
        if meter.ends_slice(1):
            yield
        record = new_partition_record(state, topic_id, index, brokers)
        if record is None:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if wish.assignments else ErrorCode.INVALID_REPLICATION_FACTOR
            raise ApiError(code, f"every broker of partition {index} is fenced or shutting down")
        records.append(record)
    return _NewTopic(wish.name, topic_id, replicas, records, overrides)


def _validated_overrides(state: MetadataState, wish: CreatableTopic) -> dict[str, str]:
    overrides = {config.name: config.value for config in wish.configs}
    try:
        validate_overrides(state, overrides, before={})
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {key: value for key, value in overrides.items() if value is not None}


def _assigned_replicas(state: MetadataState, wish: CreatableTopic) -> list[tuple[BrokerId, ...]]:
    if wish.replication_factor != SERVER_DEFAULT or wish.num_partitions != SERVER_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "with replica assignments, partitions and replication factor must both be -1"
        )
    by_index: dict[int, CreatableReplicaAssignment] = {}
    for assignment in wish.assignments:
        if assignment.partition_index in by_index:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {assignment.partition_index} is assigned twice")
        by_index[assignment.partition_index] = assignment
    if sorted(by_index) != list(range(len(by_index))):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
    size = len(by_index[0].broker_ids)
    return [validate_manual_assignment(state, by_index[index].broker_ids, size) for index in range(len(by_index))]


def _placed_replicas(turn: Turn, wish: CreatableTopic, room: int) -> list[tuple[BrokerId, ...]]:
    settings = turn.settings
    partitions = settings.num_partitions if wish.num_partitions == SERVER_DEFAULT else wish.num_partitions
    factor = settings.default_replication_factor
    if wish.replication_factor != SERVER_DEFAULT:
        factor = wish.replication_factor
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{wish.num_partitions} is no number of partitions")
    if factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{wish.replication_factor} is no replication factor")
    # Refuse before the costly placement. A refused topic takes no room, so one request may contain any number of topics that
    # are too large.
    if partitions > room:
        raise too_many_records()
    return place_replicas(placement_brokers(turn.state), partitions=partitions, replication_factor=factor, rng=turn.rng)


def _created(topic: _NewTopic, configs: list[CreatableTopicConfigs], is_validation: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if is_validation else topic.topic_id,
        num_partitions=len(topic.replicas),
        replication_factor=len(topic.replicas[0]),
        configs=configs,
    )


class _CreatedConfigs:
    """Describes the configurations of the new topics of one request. They share the entries of keys that they do not set."""

    def __init__(self, turn: Turn) -> None:
        self._state = turn.state
        self._resolver = turn.settings.resolver
        self._defaults = default_topic_config(self._resolver.server_config(turn.state))
        self._inherited = self._described({})

    def of(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        if not overrides:
            return self._inherited
        own = {each.name: each for each in self._described(overrides, overrides)}
        return [own.get(each.name, each) for each in self._inherited]

    def _described(self, overrides: Mapping[str, str], keys: Container[str] = ALL_KEYS) -> list[CreatableTopicConfigs]:
        effective = topic_config(self._defaults, overrides)
        configs = [
            CreatableTopicConfigs(
                name=key,
                value=value_text(getattr(effective, field_of(key))),
                config_source=self._resolver.topic_synonyms(self._state, overrides, key)[0].source,
            )
            for key in TOPIC_SETTINGS
            if key in keys
        ]
        for key, value in SERVED_ANYWAY.items():
            if key in keys:
                source = ConfigSource.DYNAMIC_TOPIC_CONFIG if key in overrides else ConfigSource.DEFAULT_CONFIG
                configs.append(CreatableTopicConfigs(name=key, value=value, config_source=source))
        return configs


# --- deletion ---------------------------------------------------------------------------------------------------


def delete_topics(turn: Turn, request: DeleteTopicsRequest) -> Sliced[ControllerResult[DeleteTopicsResponse]]:
    """Deletes topics by name or id, in slices, and returns one result for each name and each id. A topic named twice is not
    deleted, as in Kafka."""
    meter = SliceMeter()
    occurrences = Counter((wish.name, wish.topic_id) for wish in request.topics)
    occurrences.update((name, ZERO_UUID) for name in request.topic_names)
    response = DeleteTopicsResponse()
    named: dict[TopicId, list[DeletableTopicResult]] = {}
    for (name, topic_id), count in occurrences.items():
        if meter.ends_slice(1):
            yield
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        try:
            named.setdefault(_topic_to_delete(turn, name, topic_id, count), []).append(result)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
    records: list[ApiMessageAndVersion] = []
    events: list[ControllerEvent] = []
    for found, results in named.items():
        if meter.ends_slice(1):
            yield
        if len(results) > 1:
            for result in results:
                result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "the topic occurs twice in the request"
            continue
        topic_name = turn.state.topics[found].name
        results[0].name, results[0].topic_id = topic_name, found
        records.append(ApiMessageAndVersion(RemoveTopicRecord(topic_id=found), 0))
        events.append(ControllerEvent("topic_deleted", {"topic": topic_name, "topic_id": found}))
    return ControllerResult(records, response, events=events)


def _topic_to_delete(turn: Turn, name: str | None, topic_id: Uuid, occurrences: int) -> TopicId:
    if not turn.settings.is_topic_deletion_enabled:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if name is not None and topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named by name or by id, not by both")
    if name is None and topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
    if occurrences > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the topic occurs twice in the request")
    if name is not None:
        named = turn.state.topic_ids.get(name)
        if named is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return named
    if TopicId(topic_id) not in turn.state.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return TopicId(topic_id)
