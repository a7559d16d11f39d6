"""The cluster's metadata, built by replaying the records of the metadata log (core).

Counterpart of the replay methods of Kafka's controller and of its MetadataImage. One class serves the active controller, the
standbys and every broker. Two methods change the state: `replay` applies a record, and `replace_with` swaps in the state of
a snapshot. A record that contradicts the state raises ReplayError and leaves the state unusable. On the active controller
that is fatal.

Two rules about lost directories are easy to get wrong (docs/DESIGN.md, "Registration and fencing"):

1. A BrokerRegistrationChangeRecord with an empty directory list does not change the directories.
2. A registration with a new incarnation replaces the broker's lost directories with those in the record. A registration with
   the same incarnation keeps the lost directories, adds every directory that the record no longer lists, and removes every
   directory that the record lists as online again. Below metadata.version 17 a registration has no directories at all.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NoReturn

from common.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicIdPartition,
    Uuid,
)
from common.metadata.delta import ConfigResource, MetadataDelta
from common.metadata.directory_ids import MIGRATING
from common.metadata.kept_records import KEPT_RECORDS, KeptTable, keep
from common.metadata.metadata_version import (
    CONTROLLER_REGISTRATION_LEVEL,
    METADATA_VERSION_FEATURE,
    MINIMUM_LEVEL,
    ZK_MIGRATION_LEVEL,
    Features,
    is_cordoning_supported,
    is_directory_assignment_supported,
    supported_levels,
)
from common.metadata.partition_index import PartitionIndex
from common.metadata.registrations import (
    BrokerEndpoint,
    BrokerRegistration,
    ControllerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
    SupportedFeature,
    Topic,
)
from common.records.metadata_records import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    ControlledShutdownChange,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    FencingChange,
    KnownRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    ZkMigrationRecord,
    ZkMigrationState,
)

_NO_CONFIGS: Final = MappingProxyType[str, str]({})
# A table of interned tuples or ids is emptied once it has this many entries and at least as many as there are partitions.
# They are shared only to save memory, so emptying a table does no harm.
_INTERNED_MAX: Final = 100_000
# How many topics are copied before the event loop may run other tasks.
_TOPICS_PER_SLICE: Final = 200
_RECOVERY_STATES: Final = tuple(map(int, LeaderRecoveryState))
_ZK_MIGRATION_STATES: Final = tuple(map(int, ZkMigrationState))


class ReplayError(Exception):
    """A record contradicts the state built from the records before it."""


class UnsupportedFeatureLevel(ReplayError):
    """A feature is finalized at a level that this node does not support. Fatal for the node but not a bug: the text names
    the feature, the level and the supported range."""


class MetadataState:
    """The metadata of one cluster. Readers may use every attribute without an underscore but must not change any."""

    def __init__(self) -> None:
        # All registered brokers, fenced or not. Only UnregisterBrokerRecord removes one.
        # Invariant: a broker's epoch never decreases while it is registered.
        self.brokers: dict[BrokerId, BrokerRegistration] = {}
        # The newest registration of each controller. Entries are replaced, and all are removed once metadata.version falls
        # below CONTROLLER_REGISTRATION_LEVEL.
        self.controllers: dict[int, ControllerRegistration] = {}
        # All topics, in order of creation. A TopicRecord adds a topic, a RemoveTopicRecord removes it. PartitionRecord and
        # PartitionChangeRecord change the topic's `partitions`.
        self.topics: dict[TopicId, Topic] = {}
        # The ids of the topics by name. Invariant: contains exactly the topics in `topics`.
        self.topic_ids: dict[str, TopicId] = {}
        # The configuration set on each resource. Invariant: no inner dict is empty. Removing a topic removes its entry.
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        # The finalized level of each feature. Invariant: none is 0. A record with level 0 removes the feature. A level that
        # this node does not support may be an earlier one, which a later record takes back: `require_supported_levels`.
        self.features: dict[str, int] = {}
        # The finalized level of metadata.version. MINIMUM_LEVEL if the log has set no level or has removed it.
        self.metadata_version = MINIMUM_LEVEL
        # The first producer id that no broker has yet. Only rises, so no id is ever given out twice.
        self.next_producer_id = 0
        # The state of a migration from ZooKeeper; None if the log has no record of it. A log has the record even if nothing
        # was ever migrated, because Apache's nodes look for it in our snapshots.
        self.zk_migration_state: ZkMigrationState | None = None
        # The records that nothing acts on, by record type and key (`kept_records`). Invariant: no inner dict is empty, and
        # the records in it are never changed.
        self.kept_records: dict[int, KeptTable] = {}
        # The number of partitions of all topics together.
        self.partition_count = 0
        # The offset of the last replayed record; -1 before the first. A record that raised ReplayError does not count.
        self.last_offset = Offset(-1)
        # The offset of each broker's last RegisterBrokerRecord. If that record came from a snapshot, the offset of the last
        # record that the snapshot covers. Invariant: the keys are the keys of `brokers`.
        self.registration_offsets: dict[BrokerId, Offset] = {}
        # Counts the changes after which a partition that could not be helped before may be helped: a partition without a
        # leader, or one with an ISR member in a lost directory or on an unfenced broker in controlled shutdown. While it
        # stays the same, none of these partitions and nothing that their elections depend on has changed. Never decreases.
        self.election_changes = 0
        # The lost directories of all brokers, and the brokers in controlled shutdown that are not fenced.
        self._lost: frozenset[DirectoryId] = frozenset()
        self._leaving: frozenset[BrokerId] = frozenset()
        # Partitions by broker, directory, ISR member and leader. Invariant: indexes exactly the partitions in `topics`.
        self._index = PartitionIndex()
        # Intern tables: they make most equal tuples and ids the same object. This saves memory and speeds up comparisons.
        # `_make_room` empties the tables now and then, so code must not assume that equal tuples or ids are identical.
        self._interned_brokers: dict[tuple[int, ...], tuple[BrokerId, ...]] = {}
        self._interned_directories: dict[tuple[bytes, ...], tuple[DirectoryId, ...]] = {}
        self._interned_ids: dict[bytes, DirectoryId] = {}

    # --- reading ------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether both states describe the same cluster, no matter which records built them."""
        if not isinstance(other, MetadataState):
            return NotImplemented
        return (
            self.brokers == other.brokers
            and self.controllers == other.controllers
            and self.topics == other.topics
            and self.configs == other.configs
            and self.features == other.features
            and self.next_producer_id == other.next_producer_id
            and self.zk_migration_state == other.zk_migration_state
            and self.kept_records == other.kept_records
        )

    __hash__ = None  # type: ignore[assignment]

    def topic_named(self, name: str) -> Topic | None:
        """Returns the topic with this name, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: TopicId, partition: int) -> PartitionRegistration | None:
        """Returns the partition, or None if it does not exist."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    def require_supported_levels(self, features: Features) -> None:
        """Raises UnsupportedFeatureLevel if a node with these features does not support the level of one. To be called once
        the whole log has been replayed: a level that was lowered later is no obstacle."""
        for name, level in self.features.items():
            supported = supported_levels(features, name)
            if level not in supported:
                raise UnsupportedFeatureLevel(
                    f"feature {name} is finalized at level {level}, this node supports {supported}; "
                    f"lower it with kafka-features while a release that supports it runs, or go on with that release"
                )

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Returns the configuration of the resource, empty if nothing is set."""
        return self.configs.get((resource_type, name), _NO_CONFIGS)

    def partitions_in_directory(self, broker_id: BrokerId, directory_id: DirectoryId) -> list[TopicIdPartition]:
        """Returns the partitions whose replica on the broker is assigned to the directory, which may be a reserved id."""
        return self._index.in_directory(broker_id, directory_id)

    def partitions_of_broker(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        """Returns the partitions that have a replica on the broker, directory by directory."""
        return self._index.of_broker(broker_id)

    def assigned_directories(self, broker_id: BrokerId) -> list[DirectoryId]:
        """Returns the directories to which replicas on the broker are assigned, including the reserved ids."""
        return self._index.directories_of(broker_id)

    def partitions_with_broker_in_isr(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        """Returns the partitions that have the broker in their ISR, including the partitions that the broker leads."""
        return self._index.with_isr_member(broker_id)

    def partitions_led_by(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        """Returns the partitions that the broker leads. For NO_LEADER, returns the partitions without a leader."""
        return self._index.led_by(broker_id)

    def leads_any(self, broker_id: BrokerId) -> bool:
        """Whether the broker leads any partition."""
        return self._index.leads_any(broker_id)

    def reassigning_partitions(self) -> list[TopicIdPartition]:
        """Returns the partitions with a reassignment in progress."""
        return self._index.reassigning()

    def is_replica_online(self, broker_id: BrokerId, directory_id: DirectoryId) -> bool:
        """Whether the broker is registered (even if fenced) and the directory counts as online (KIP-858)."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory_id)

    def directory_owners(self) -> dict[DirectoryId, BrokerId]:
        """Maps every registered directory to its broker, lost directories included."""
        return {
            directory_id: broker.broker_id
            for broker in self.brokers.values()
            for directory_id in (*broker.directories, *broker.lost_directories)
        }

    def delta_since(self, before: "MetadataState") -> MetadataDelta:
        """Returns the changes from `before` to this state. Used when a snapshot has replaced the state `before`."""
        delta = MetadataDelta()
        delta.removed_topics.update((id_, topic) for id_, topic in before.topics.items() if id_ not in self.topics)
        for topic_id, topic in self.topics.items():
            known = before.topics.get(topic_id)
            if known is None:
                delta.created_topics[topic_id] = topic
            for index, partition in topic.partitions.items():
                former = None if known is None else known.partitions.get(index)
                if former != partition:
                    delta.note_partition(TopicIdPartition(topic_id, index), former, Offset(before.last_offset + 1))
        for broker_id in _keys_of_both(before.brokers, self.brokers):
            if before.brokers.get(broker_id) != self.brokers.get(broker_id):
                delta.changed_brokers[broker_id] = before.brokers.get(broker_id)
        for resource in _keys_of_both(before.configs, self.configs):
            if before.config(*resource) != self.config(*resource):
                delta.changed_configs[resource] = before.config(*resource)
        for name in _keys_of_both(before.features, self.features):
            if before.features.get(name, 0) != self.features.get(name, 0):
                delta.changed_features[name] = before.features.get(name, 0)
        return delta

    def replace_with(self, other: "MetadataState") -> "MetadataState":
        """Takes over the content of `other`, which must not be used afterwards. Returns a state with the old content.

        Used to load a snapshot or a long transaction while other objects hold a reference to this state. Those objects must
        not keep one of its dicts across an await.
        """
        before = MetadataState()
        before._take(self)
        self._take(other)
        return before

    def copy_in_slices(self) -> Generator[None, None, "MetadataState"]:
        """Makes a copy that can be replayed into while readers use this state. Yields after each slice; the state must not
        change before the end."""
        last_offset = self.last_offset
        copy = MetadataState()
        copy._take(self)
        copy.brokers = dict(self.brokers)
        copy.controllers = dict(self.controllers)
        copy.topic_ids = dict(self.topic_ids)
        copy.configs = {resource: dict(values) for resource, values in self.configs.items()}
        copy.features = dict(self.features)
        copy.kept_records = {record_type: dict(table) for record_type, table in self.kept_records.items()}
        copy.registration_offsets = dict(self.registration_offsets)
        yield
        copy.topics = {}
        for number, topic in enumerate(self.topics.values(), start=1):
            copy.topics[topic.id] = Topic(topic.name, topic.id, dict(topic.partitions))
            if number % _TOPICS_PER_SLICE == 0:
                yield
        copy._index = yield from self._index.copy_in_slices()
        assert self.last_offset == last_offset, "the state has changed while it was copied"
        return copy

    def _take(self, other: "MetadataState") -> None:
        self.brokers = other.brokers
        self.controllers = other.controllers
        self.topics = other.topics
        self.topic_ids = other.topic_ids
        self.configs = other.configs
        self.features = other.features
        self.metadata_version = other.metadata_version
        self.next_producer_id = other.next_producer_id
        self.zk_migration_state = other.zk_migration_state
        self.kept_records = other.kept_records
        self.partition_count = other.partition_count
        self.last_offset = other.last_offset
        self.registration_offsets = other.registration_offsets
        self.election_changes = max(self.election_changes, other.election_changes) + 1
        self._lost = other._lost
        self._leaving = other._leaving
        self._index = other._index
        self._interned_brokers = other._interned_brokers
        self._interned_directories = other._interned_directories
        self._interned_ids = other._interned_ids

    # --- replay -------------------------------------------------------------------------------------------------

    def replay_cost(self, record: KnownRecord) -> int:
        """Returns what the replay of the record costs, counted in changes of a partition. A record that removes a topic
        removes each of its partitions, others change one at most."""
        if not isinstance(record, RemoveTopicRecord):
            return 1
        topic = self.topics.get(TopicId(record.topic_id))
        return 1 if topic is None else 1 + len(topic.partitions)

    def replay(self, record: KnownRecord, *, offset: Offset, delta: MetadataDelta | None = None) -> None:
        """Applies one record and notes the changes in `delta`. Raises ReplayError."""
        replayer = _REPLAYERS.get(type(record))
        if replayer is None:
            raise ReplayError(f"offset {offset}: {type(record).__name__} cannot be replayed")
        replayer(self, record, offset, delta)
        self.last_offset = offset

    def _replay_register_broker(self, record: RegisterBrokerRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        broker_id = BrokerId(record.broker_id)
        before = self.brokers.get(broker_id)
        directories = self._sorted_ids(record.log_dirs)
        lost = self._sorted_ids(record.lost_log_dirs)
        if before is not None:
            if record.broker_epoch < before.epoch:
                _fail(offset, f"broker {broker_id} registers with epoch {record.broker_epoch}, it had {before.epoch}")
            if record.incarnation_id == before.incarnation_id and self._knows_directories(record):
                # Within an incarnation a lost directory stays lost until a registration lists it as online again. A
                # directory that was online and is missing from the new registration is lost too.
                lost = self._sorted_ids((*lost, *before.lost_directories, *before.directories), without=directories)
        registration = BrokerRegistration(
            broker_id=broker_id,
            epoch=BrokerEpoch(record.broker_epoch),
            incarnation_id=IncarnationId(record.incarnation_id),
            endpoints=tuple(
                BrokerEndpoint(each.name, each.host, each.port, each.security_protocol) for each in record.end_points
            ),
            features=tuple(
                SupportedFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in record.features
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=directories,
            lost_directories=lost,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            cordoned_directories=None if record.cordoned_log_dirs is None else self._sorted_ids(record.cordoned_log_dirs),
        )
        self._put_broker(registration, delta)
        self.registration_offsets[broker_id] = offset

    def _knows_directories(self, record: RegisterBrokerRecord) -> bool:
        """Whether the record can say which directories the broker has. Below 17 it cannot, and then none is remembered: an
        unsafe downgrade relies on that."""
        return bool(record.log_dirs) or is_directory_assignment_supported(self.metadata_version)

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, offset)
        if delta is not None:
            delta.changed_brokers.setdefault(broker.broker_id, broker)
        del self.brokers[broker.broker_id]
        self._note_broker_change()
        self.registration_offsets.pop(broker.broker_id, None)

    def _replay_broker_registration_change(
        self, record: BrokerRegistrationChangeRecord, offset: Offset, delta: MetadataDelta | None
    ) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, offset)
        fenced = broker.fenced
        if record.fenced == FencingChange.FENCE:
            fenced = True
        elif record.fenced == FencingChange.UNFENCE:
            fenced = False
        elif record.fenced != FencingChange.NONE:
            _fail(offset, f"broker {broker.broker_id} has the unknown fencing change {record.fenced}")
        in_controlled_shutdown = broker.in_controlled_shutdown
        if record.in_controlled_shutdown == ControlledShutdownChange.IN_CONTROLLED_SHUTDOWN:
            in_controlled_shutdown = True
        elif record.in_controlled_shutdown != ControlledShutdownChange.NONE:
            _fail(offset, f"broker {broker.broker_id} has the unknown shutdown change {record.in_controlled_shutdown}")
        directories, lost = broker.directories, broker.lost_directories
        if record.log_dirs:
            directories = self._sorted_ids(record.log_dirs)
            newly_lost = self._sorted_ids(broker.directories, without=directories)
            lost = self._sorted_ids((*lost, *newly_lost))
        changed = replace(
            broker,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            directories=directories,
            lost_directories=lost,
        )
        if record.cordoned_log_dirs is not None:
            changed = replace(changed, cordoned_directories=self._sorted_ids(record.cordoned_log_dirs))
        self._put_broker(changed, delta)

    def _replay_fence_broker(self, record: FenceBrokerRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        self._set_fenced(self._registered(record.id, record.epoch, offset), True, delta)

    def _replay_unfence_broker(self, record: UnfenceBrokerRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        self._set_fenced(self._registered(record.id, record.epoch, offset), False, delta)

    def _replay_register_controller(
        self, record: RegisterControllerRecord, _offset: Offset, _delta: MetadataDelta | None
    ) -> None:
        self.controllers[record.controller_id] = ControllerRegistration(
            controller_id=record.controller_id,
            incarnation_id=IncarnationId(record.incarnation_id),
            zk_migration_ready=record.zk_migration_ready,
            endpoints=tuple(
                BrokerEndpoint(each.name, each.host, each.port, each.security_protocol) for each in record.end_points
            ),
            features=tuple(
                SupportedFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in record.features
            ),
        )

    def _replay_unregister_controller(
        self, record: UnregisterControllerRecord, offset: Offset, _delta: MetadataDelta | None
    ) -> None:
        if self.controllers.pop(record.controller_id, None) is None:
            _fail(offset, f"controller {record.controller_id} is unregistered and was never registered")

    def _replay_topic(self, record: TopicRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        topic_id = TopicId(record.topic_id)
        if topic_id in self.topics:
            _fail(offset, f"topic '{record.name}' has the id of topic '{self.topics[topic_id].name}'")
        if record.name in self.topic_ids:
            _fail(offset, f"topic '{record.name}' exists already")
        topic = Topic(record.name, topic_id, {})
        self.topics[topic_id] = topic
        self.topic_ids[record.name] = topic_id
        if delta is not None:
            delta.created_topics[topic_id] = topic

    def _replay_remove_topic(self, record: RemoveTopicRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        topic = self.topics.pop(TopicId(record.topic_id), None)
        if topic is None:
            _fail(offset, "a topic is removed that does not exist")
        del self.topic_ids[topic.name]
        for index, partition in topic.partitions.items():
            self._index.remove(TopicIdPartition(topic.id, index), partition)
        self.partition_count -= len(topic.partitions)
        resource = (int(ConfigResourceType.TOPIC), topic.name)
        configs = self.configs.pop(resource, None)
        if delta is not None:
            delta.note_removed_topic(topic)
            if configs is not None:
                delta.changed_configs.setdefault(resource, configs)

    def _replay_partition(self, record: PartitionRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        topic = self.topics.get(TopicId(record.topic_id))
        if topic is None:
            _fail(offset, f"partition {record.partition_id} belongs to a topic that does not exist")
        replicas = self._broker_tuple(record.replicas, offset)
        partition = PartitionRegistration(
            replicas,
            self._directory_tuple(record.directories, len(replicas), offset),
            self._broker_tuple(record.isr, offset),
            self._broker_tuple(record.removing_replicas, offset),
            self._broker_tuple(record.adding_replicas, offset),
            BrokerId(record.leader),
            record.leader_recovery_state,
            LeaderEpoch(record.leader_epoch),
            PartitionEpoch(record.partition_epoch),
            self._broker_tuple(record.eligible_leader_replicas or [], offset),
            self._broker_tuple(record.last_known_elr or [], offset),
        )
        self._put_partition(topic, record.partition_id, partition, offset, delta)

    def _replay_partition_change(self, record: PartitionChangeRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        topic = self.topics.get(TopicId(record.topic_id))
        before = None if topic is None else topic.partitions.get(record.partition_id)
        if topic is None or before is None:
            _fail(offset, f"partition {record.partition_id} is changed and does not exist")
        replicas = before.replicas if record.replicas is None else self._broker_tuple(record.replicas, offset)
        if record.directories is not None:
            directories = self._directory_tuple(record.directories, len(replicas), offset)
        elif record.replicas is None:
            directories = before.directories
        else:
            directories = self._kept_directories(before, replicas, offset)
        leader, leader_epoch = before.leader, before.leader_epoch
        if record.leader != NO_LEADER_CHANGE:
            # Bump the epoch even if the record names the current leader again: that makes the followers start over.
            leader, leader_epoch = BrokerId(record.leader), LeaderEpoch(leader_epoch + 1)
        removing, adding = record.removing_replicas, record.adding_replicas
        recovery_state = record.leader_recovery_state
        eligible, last_known = record.eligible_leader_replicas, record.last_known_elr
        partition = PartitionRegistration(
            replicas,
            directories,
            before.isr if record.isr is None else self._broker_tuple(record.isr, offset),
            before.removing_replicas if removing is None else self._broker_tuple(removing, offset),
            before.adding_replicas if adding is None else self._broker_tuple(adding, offset),
            leader,
            before.leader_recovery_state if recovery_state == NO_RECOVERY_STATE_CHANGE else recovery_state,
            leader_epoch,
            PartitionEpoch(before.partition_epoch + 1),
            before.eligible_leader_replicas if eligible is None else self._broker_tuple(eligible, offset),
            before.last_known_elr if last_known is None else self._broker_tuple(last_known, offset),
        )
        self._put_partition(topic, record.partition_id, partition, offset, delta)

    def _replay_clear_elr(self, record: ClearElrRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        if not record.topic_name:
            topics = list(self.topics.values())
        elif (named := self.topic_named(record.topic_name)) is not None:
            topics = [named]
        else:
            _fail(offset, f"the eligible leader replicas of topic {record.topic_name} are cleared, which does not exist")
        for topic in topics:
            for index, partition in list(topic.partitions.items()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    epoch = PartitionEpoch(partition.partition_epoch + 1)
                    cleared = partition._replace(eligible_leader_replicas=(), last_known_elr=(), partition_epoch=epoch)
                    self._put_partition(topic, index, cleared, offset, delta)

    def _replay_config(self, record: ConfigRecord, _offset: Offset, delta: MetadataDelta | None) -> None:
        resource = (record.resource_type, record.resource_name)
        self.election_changes += 1
        if delta is not None and resource not in delta.changed_configs:
            delta.changed_configs[resource] = dict(self.config(*resource))
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        configs = self.configs.get(resource)
        if configs is not None:
            configs.pop(record.name, None)
            if not configs:
                del self.configs[resource]

    def _replay_feature_level(self, record: FeatureLevelRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        if record.feature_level < 0:
            _fail(offset, f"feature {record.name} has level {record.feature_level}")
        self.election_changes += 1
        if delta is not None:
            delta.changed_features.setdefault(record.name, self.features.get(record.name, 0))
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level
        if record.name == METADATA_VERSION_FEATURE:
            self.metadata_version = max(record.feature_level, MINIMUM_LEVEL)
            if self.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
                # Nodes that need the lower level do not know the record, so snapshots must not have it. Nothing is lost: the
                # controllers register again when the level rises.
                self.controllers.clear()
            if not is_cordoning_supported(self.metadata_version):
                # Snapshots at the lower level cannot express that a broker has reported no cordon. It does so again when the
                # level rises. A registration with cordons is replaced by the records that follow.
                for broker in [each for each in self.brokers.values() if each.cordoned_directories == ()]:
                    self._put_broker(replace(broker, cordoned_directories=None), delta)
            if self.metadata_version < ZK_MIGRATION_LEVEL:
                # Nodes that need the lower level do not know this record either. A log without it counts as never migrated.
                self.zk_migration_state = None

    def _replay_producer_ids(self, record: ProducerIdsRecord, offset: Offset, _delta: MetadataDelta | None) -> None:
        if record.next_producer_id <= self.next_producer_id:
            _fail(offset, f"the next producer id is {record.next_producer_id}, it was {self.next_producer_id}")
        self.next_producer_id = record.next_producer_id

    def _replay_kept(self, record: KnownRecord, _offset: Offset, _delta: MetadataDelta | None) -> None:
        keep(self.kept_records, record)

    def _replay_zk_migration(self, record: ZkMigrationRecord, offset: Offset, _delta: MetadataDelta | None) -> None:
        if record.zk_migration_state not in _ZK_MIGRATION_STATES:
            _fail(offset, f"there is no ZooKeeper migration state {record.zk_migration_state}")
        self.zk_migration_state = ZkMigrationState(record.zk_migration_state)

    def _replay_nothing(self, record: KnownRecord, offset: Offset, delta: MetadataDelta | None) -> None:
        """Ignores records that change nothing in this state, such as no-ops and transaction markers."""

    # --- brokers ------------------------------------------------------------------------------------------------

    def _registered(self, broker_id: int, epoch: int, offset: Offset) -> BrokerRegistration:
        broker = self.brokers.get(BrokerId(broker_id))
        if broker is None:
            _fail(offset, f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            _fail(offset, f"broker {broker_id} is named with epoch {epoch}, it has {broker.epoch}")
        return broker

    def _set_fenced(self, broker: BrokerRegistration, fenced: bool, delta: MetadataDelta | None) -> None:
        self._put_broker(replace(broker, fenced=fenced), delta)

    def _put_broker(self, broker: BrokerRegistration, delta: MetadataDelta | None) -> None:
        if delta is not None:
            delta.changed_brokers.setdefault(broker.broker_id, self.brokers.get(broker.broker_id))
        self.brokers[broker.broker_id] = broker
        self._note_broker_change()

    def _note_broker_change(self) -> None:
        brokers = self.brokers.values()
        self._lost = frozenset(each for broker in brokers for each in broker.lost_directories)
        self._leaving = frozenset(each.broker_id for each in brokers if each.in_controlled_shutdown and not each.fenced)
        self.election_changes += 1

    def _sorted_ids(
        self, ids: list[Uuid] | tuple[Uuid, ...], without: tuple[DirectoryId, ...] = ()
    ) -> tuple[DirectoryId, ...]:
        return tuple(sorted({self._interned_id(each) for each in ids}.difference(without)))

    # --- partitions ---------------------------------------------------------------------------------------------

    def _put_partition(
        self,
        topic: Topic,
        index: int,
        partition: PartitionRegistration,
        offset: Offset,
        delta: MetadataDelta | None,
    ) -> None:
        before = topic.partitions.get(index)
        _check_partition(topic.name, index, before, partition, offset)
        key = TopicIdPartition(topic.id, index)
        topic.partitions[index] = partition
        if partition.leader == NO_LEADER or self._may_have_to_leave_isr(partition):
            self.election_changes += 1
        if delta is not None:
            delta.note_partition(key, before, offset)
        if before is None:
            self.partition_count += 1
            self._index.add(key, partition)
        else:
            self._index.change(key, before, partition)

    def _may_have_to_leave_isr(self, partition: PartitionRegistration) -> bool:
        """Whether a member of the ISR is in a lost directory or on a broker in controlled shutdown."""
        isr = partition.isr
        if self._leaving and not self._leaving.isdisjoint(isr):
            return True
        return bool(self._lost) and any(
            directory in self._lost and replica in isr
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        )

    def _kept_directories(
        self, before: PartitionRegistration, replicas: tuple[BrokerId, ...], offset: Offset
    ) -> tuple[DirectoryId, ...]:
        # The record changes the replicas without naming directories, as controllers below metadata.version level 17 do. A
        # replica that stays keeps its directory; a new replica is MIGRATING.
        known = dict(zip(before.replicas, before.directories, strict=True))
        return self._directory_tuple([known.get(replica, MIGRATING) for replica in replicas], len(replicas), offset)

    def _broker_tuple(self, ids: list[int], offset: Offset) -> tuple[BrokerId, ...]:
        # Handle the empty tuple first: it is falsy, so the `or` below would treat it as not interned.
        if not ids:
            return ()
        return self._interned_brokers.get(tuple(ids)) or self._new_broker_tuple(ids, offset)

    def _new_broker_tuple(self, ids: list[int], offset: Offset) -> tuple[BrokerId, ...]:
        made = tuple(map(BrokerId, ids))
        if len(set(made)) != len(made):
            _fail(offset, f"a partition names a broker twice: {made}")
        self._make_room(self._interned_brokers)
        self._interned_brokers[made] = made
        return made

    def _directory_tuple(self, ids: Sequence[Uuid], size: int, offset: Offset) -> tuple[DirectoryId, ...]:
        if len(ids) != size:
            if ids:
                _fail(offset, f"a partition names {len(ids)} directories for {size} replicas")
            ids = (MIGRATING,) * size
        return self._interned_directories.get(tuple(ids)) or self._new_directory_tuple(ids)

    def _new_directory_tuple(self, ids: Sequence[Uuid]) -> tuple[DirectoryId, ...]:
        made = tuple(map(self._interned_id, ids))
        self._make_room(self._interned_directories)
        self._interned_directories[made] = made
        return made

    def _interned_id(self, id_: Uuid) -> DirectoryId:
        found = self._interned_ids.get(id_)
        if found is None:
            # Brokers may name any id in their assignments, so this table has to be emptied as well.
            self._make_room(self._interned_ids)
            found = self._interned_ids[id_] = DirectoryId(id_)
        return found

    def _make_room(self, interned: dict[Any, Any]) -> None:
        if len(interned) >= max(_INTERNED_MAX, self.partition_count):
            interned.clear()


def _fail(offset: Offset, message: str) -> NoReturn:
    raise ReplayError(f"offset {offset}: {message}")


def _check_partition(
    name: str, index: int, before: PartitionRegistration | None, partition: PartitionRegistration, offset: Offset
) -> None:
    replicas, isr, leader = partition.replicas, partition.isr, partition.leader
    if isr is not replicas:
        for member in isr:
            if member not in replicas:
                _fail(offset, f"partition {name}-{index} has ISR {isr} and replicas {replicas}")
    if leader not in isr and leader != NO_LEADER:
        _fail(offset, f"partition {name}-{index} has leader {leader} and ISR {isr}")
    if partition.leader_recovery_state not in _RECOVERY_STATES:
        _fail(offset, f"partition {name}-{index} has leader recovery state {partition.leader_recovery_state}")
    if before is not None and (
        partition.leader_epoch < before.leader_epoch or partition.partition_epoch < before.partition_epoch
    ):
        _fail(offset, f"partition {name}-{index} has an epoch that goes back")


def _keys_of_both(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> Iterator[Any]:
    yield from one
    yield from (key for key in other if key not in one)


_Replayer = Callable[[MetadataState, Any, Offset, MetadataDelta | None], None]

_REPLAYERS: Final = MappingProxyType[type, _Replayer](
    {
        RegisterBrokerRecord: MetadataState._replay_register_broker,
        UnregisterBrokerRecord: MetadataState._replay_unregister_broker,
        BrokerRegistrationChangeRecord: MetadataState._replay_broker_registration_change,
        FenceBrokerRecord: MetadataState._replay_fence_broker,
        UnfenceBrokerRecord: MetadataState._replay_unfence_broker,
        RegisterControllerRecord: MetadataState._replay_register_controller,
        UnregisterControllerRecord: MetadataState._replay_unregister_controller,
        TopicRecord: MetadataState._replay_topic,
        RemoveTopicRecord: MetadataState._replay_remove_topic,
        PartitionRecord: MetadataState._replay_partition,
        PartitionChangeRecord: MetadataState._replay_partition_change,
        ConfigRecord: MetadataState._replay_config,
        FeatureLevelRecord: MetadataState._replay_feature_level,
        ProducerIdsRecord: MetadataState._replay_producer_ids,
        **dict.fromkeys(KEPT_RECORDS, MetadataState._replay_kept),
        ZkMigrationRecord: MetadataState._replay_zk_migration,
        NoOpRecord: MetadataState._replay_nothing,
        ClearElrRecord: MetadataState._replay_clear_elr,
        # AbortTransactionRecord is missing on purpose: replay cannot undo records. TransactionBuffer drops aborted records.
        BeginTransactionRecord: MetadataState._replay_nothing,
        EndTransactionRecord: MetadataState._replay_nothing,
    }
)
