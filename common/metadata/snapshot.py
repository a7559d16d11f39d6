"""Turns a MetadataState into the records that rebuild it (core).

Counterpart of the `write` methods of Kafka's MetadataImage. Replaying the records into an empty state gives an equal state.
This includes the lost directories, which are written in a tagged field of our own.

Feature records come first: metadata.version, then the numbering of directory ids, because a reader must know both before the
records that depend on them. The ZkMigrationState follows if the log has one, where Apache Kafka's nodes expect it.
"""

from collections.abc import Iterator

from common.metadata.directory_ids import MIGRATING
from common.metadata.metadata_version import (
    DIRECTORY_NUMBERING_FEATURE,
    IN_CONTROLLED_SHUTDOWN_LEVEL,
    METADATA_VERSION_FEATURE,
    ZK_MIGRATION_LEVEL,
    is_cordoning_supported,
    is_directory_assignment_supported,
    partition_record_version,
    register_broker_record_version,
)
from common.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration, Topic
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    ZkMigrationRecord,
)

# The first version of PartitionRecord that has them. Without the level for it, the feature cannot be on.
_ELIGIBLE_LEADER_REPLICAS_VERSION = 2
_FIRST_FEATURES = (METADATA_VERSION_FEATURE, DIRECTORY_NUMBERING_FEATURE)


class UnwritableMetadata(Exception):
    """The state contains something that cannot be written at its own metadata.version."""


def generate_snapshot_records(state: MetadataState) -> Iterator[ApiMessageAndVersion]:
    """Yields the records of the state as it is at the time of the call.

    The state may change during the iteration: this function copies the collections first, and the registrations in them are
    immutable. Raises UnwritableMetadata while iterating if the state contains something that its own metadata.version cannot
    express.
    """
    frozen = _shallow_copy(state)
    return _generate(frozen)


def _shallow_copy(state: MetadataState) -> MetadataState:
    """Copies only what the snapshot records are made from. The copy's indexes stay empty, and its offsets stay unset."""
    copy = MetadataState()
    copy.brokers = dict(state.brokers)
    copy.controllers = dict(state.controllers)
    copy.topics = {id_: Topic(topic.name, topic.id, dict(topic.partitions)) for id_, topic in state.topics.items()}
    copy.configs = {resource: dict(values) for resource, values in state.configs.items()}
    copy.features = dict(state.features)
    copy.metadata_version = state.metadata_version
    copy.next_producer_id = state.next_producer_id
    copy.zk_migration_state = state.zk_migration_state
    copy.kept_records = {record_type: dict(table) for record_type, table in state.kept_records.items()}
    return copy


def _generate(state: MetadataState) -> Iterator[ApiMessageAndVersion]:
    yield from _feature_records(state)
    if state.zk_migration_state is not None:
        yield ApiMessageAndVersion(ZkMigrationRecord(zk_migration_state=state.zk_migration_state), 0)
    level = state.metadata_version
    for controller in state.controllers.values():
        yield ApiMessageAndVersion(controller_record(controller), 0)
    for broker in state.brokers.values():
        yield ApiMessageAndVersion(broker_record(broker, level), register_broker_record_version(level))
    partition_version = partition_record_version(level)
    has_directories = is_directory_assignment_supported(level)
    for topic in state.topics.values():
        yield ApiMessageAndVersion(TopicRecord(name=topic.name, topic_id=topic.id), 0)
        for index, partition in topic.partitions.items():
            if not has_directories:
                _check_directories_unknown(topic, index, partition, level)
            record = _partition_record(topic, index, partition, has_directories)
            if partition_version >= _ELIGIBLE_LEADER_REPLICAS_VERSION:
                record.eligible_leader_replicas = list(partition.eligible_leader_replicas) or None
                record.last_known_elr = list(partition.last_known_elr) or None
            yield ApiMessageAndVersion(record, partition_version)
    for (resource_type, resource_name), values in state.configs.items():
        for name, value in values.items():
            config = ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
            yield ApiMessageAndVersion(config, 0)
    if state.next_producer_id > 0:
        # The snapshot does not say which broker got the last block. Apache Kafka's snapshots name no broker either.
        producer_ids = ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=state.next_producer_id)
        yield ApiMessageAndVersion(producer_ids, 0)
    for table in state.kept_records.values():
        for kept in table.values():
            yield ApiMessageAndVersion(kept, 0)


def _feature_records(state: MetadataState) -> Iterator[ApiMessageAndVersion]:
    names = [name for name in _FIRST_FEATURES if name in state.features]
    names += sorted(name for name in state.features if name not in _FIRST_FEATURES)
    for name in names:
        yield ApiMessageAndVersion(FeatureLevelRecord(name=name, feature_level=state.features[name]), 0)


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """Returns the record that makes this registration."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in controller.endpoints
        ],
        features=[
            ControllerFeature(name=each.name, min_supported_version=each.min_version, max_supported_version=each.max_version)
            for each in controller.features
        ],
    )


def broker_record(broker: BrokerRegistration, level: int) -> RegisterBrokerRecord:
    """Returns the record that makes this registration. Raises UnwritableMetadata if metadata.version `level` cannot express
    it."""
    if broker.in_controlled_shutdown and level < IN_CONTROLLED_SHUTDOWN_LEVEL:
        raise UnwritableMetadata(f"broker {broker.broker_id} is shutting down, which metadata.version {level} cannot say")
    if (broker.directories or broker.lost_directories) and not is_directory_assignment_supported(level):
        raise UnwritableMetadata(f"broker {broker.broker_id} has directories, which metadata.version {level} cannot name")
    if broker.is_migrating_zk_broker and level < ZK_MIGRATION_LEVEL:
        raise UnwritableMetadata(f"broker {broker.broker_id} is migrating, which metadata.version {level} cannot say")
    if broker.cordoned_directories and not is_cordoning_supported(level):
        raise UnwritableMetadata(f"broker {broker.broker_id} has cordons, which metadata.version {level} cannot express")
    cordoned = broker.cordoned_directories if is_cordoning_supported(level) else None
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in broker.endpoints
        ],
        features=[
            BrokerFeature(name=each.name, min_supported_version=each.min_version, max_supported_version=each.max_version)
            for each in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
        lost_log_dirs=list(broker.lost_directories),
    )


def _check_directories_unknown(topic: Topic, index: int, partition: PartitionRegistration, level: int) -> None:
    if any(directory_id != MIGRATING for directory_id in partition.directories):
        raise UnwritableMetadata(
            f"partition {topic.name}-{index} is assigned to directories, which metadata.version {level} cannot name"
        )


def _partition_record(topic: Topic, index: int, partition: PartitionRegistration, has_directories: bool) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if has_directories else [],
    )
