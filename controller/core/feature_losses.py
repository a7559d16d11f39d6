"""What a lower metadata.version cannot express, and the records that remove it (core).

Counterpart of the `handleLoss` calls of Kafka's image writer, as records: every node forgets the same things at the same
offset, and snapshots at the lower level can be written.

Partition changes come before the record of the new level, because only the old level can name directories. Registrations
come after it, because only below 17 a registration without directories clears those that its incarnation had registered.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from common.ids import TopicIdPartition
from common.metadata import metadata_version
from common.metadata.directory_ids import LOST, MIGRATING
from common.metadata.registrations import BrokerRegistration, PartitionRegistration
from common.metadata.snapshot import broker_record
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    DelegationTokenRecord,
    KnownRecord,
    MetadataRecordType,
    PartitionChangeRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationState,
)
from controller.core.long_decisions import Sliced, ends_slice

# How many names a description lists.
_NAMES_MAX = 10


@dataclass(slots=True)
class Losses:
    """Everything that the lower level cannot express."""

    level: int = 0
    brokers_with_directories: list[BrokerRegistration] = field(default_factory=list)
    brokers_in_controlled_shutdown: list[BrokerRegistration] = field(default_factory=list)
    cordoned_brokers: list[BrokerRegistration] = field(default_factory=list)
    migrating_brokers: list[BrokerRegistration] = field(default_factory=list)
    # None if there is nothing to lose. The replay of the lower level forgets the state, which takes no record of its own.
    zk_migration_state: ZkMigrationState | None = None
    assigned_partitions: list[TopicIdPartition] = field(default_factory=list)
    # Names of the first of `assigned_partitions`.
    partition_names: list[str] = field(default_factory=list)
    # Names of the partitions whose last in-sync replica is LOST, if they have another replica. Not even an unsafe downgrade
    # may forget that: the controller would elect a replica without a log, and while it leads, no other one can be elected.
    lost_leaders: list[str] = field(default_factory=list)
    scram_credentials: list[UserScramCredentialRecord] = field(default_factory=list)
    delegation_tokens: list[DelegationTokenRecord] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.brokers_with_directories
            or self.brokers_in_controlled_shutdown
            or self.cordoned_brokers
            or self.migrating_brokers
            or self.zk_migration_state
            or self.assigned_partitions
            or self.scram_credentials
            or self.delegation_tokens
        )

    def description(self) -> list[str]:
        """Returns a phrase for each kind of loss, naming the first brokers, partitions, users and tokens."""
        found = (
            ("the registered directories of brokers", [str(each.broker_id) for each in self.brokers_with_directories]),
            ("the directories of partitions", self.partition_names),
            ("the controlled shutdown of brokers", [str(each.broker_id) for each in self.brokers_in_controlled_shutdown]),
            ("the cordoned directories of brokers", [str(each.broker_id) for each in self.cordoned_brokers]),
            ("the ZooKeeper mode of brokers", [str(each.broker_id) for each in self.migrating_brokers]),
            (
                "the state of the migration from ZooKeeper,",
                [] if self.zk_migration_state is None else [self.zk_migration_state.name],
            ),
            ("the SCRAM credentials of users", [each.name for each in self.scram_credentials]),
            ("the delegation tokens", [each.token_id for each in self.delegation_tokens]),
        )
        more = len(self.assigned_partitions) - len(self.partition_names)
        return [f"{what} {_listed(names, more if what.endswith('partitions') else 0)}" for what, names in found if names]

    def reason_to_refuse(self) -> str | None:
        """Returns why not even an unsafe downgrade is possible."""
        if not self.lost_leaders:
            return None
        return (
            f"metadata.version {metadata_version.level_name(self.level)} cannot express that the last in-sync replica of "
            f"the partitions {_listed(self.lost_leaders)} is LOST: it would be elected without its log. "
            "Put its directory back into log.dirs and restart its broker, or elect another replica with "
            "kafka-leader-election --election-type unclean."
        )


def _has_lost_leader(partition: PartitionRegistration) -> bool:
    return (
        LOST in partition.directories
        and len(partition.replicas) > 1
        and any(partition.directory(member) == LOST for member in partition.isr)
    )


def _listed(names: list[str], more: int = 0) -> str:
    more += max(0, len(names) - _NAMES_MAX)
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more else "")


def _find_lost_assignments(state: MetadataState, losses: Losses) -> Sliced[None]:
    partitions = ((topic, *each) for topic in state.topics.values() for each in topic.partitions.items())
    for number, (topic, index, partition) in enumerate(partitions):
        if any(directory_id != MIGRATING for directory_id in partition.directories):
            losses.assigned_partitions.append(TopicIdPartition(topic.id, index))
            if len(losses.partition_names) < _NAMES_MAX:
                losses.partition_names.append(f"{topic.name}-{index}")
        if _has_lost_leader(partition):
            losses.lost_leaders.append(f"{topic.name}-{index}")
        if ends_slice(number):
            yield


def find_losses(state: MetadataState, level: int) -> Sliced[Losses]:
    """Returns what metadata.version `level`, which is lower than the present one, cannot express."""
    losses = Losses(level)
    # By id, as people read them. The state has them in the order of their registrations.
    brokers = [state.brokers[broker_id] for broker_id in sorted(state.brokers)]
    if state.metadata_version >= metadata_version.DIRECTORY_ASSIGNMENT_LEVEL > level:
        losses.brokers_with_directories = [each for each in brokers if each.directories or each.lost_directories]
        yield from _find_lost_assignments(state, losses)
    if not metadata_version.is_cordoning_supported(level):
        losses.cordoned_brokers = [each for each in brokers if each.cordoned_directories]
    if level < metadata_version.IN_CONTROLLED_SHUTDOWN_LEVEL:
        losses.brokers_in_controlled_shutdown = [each for each in brokers if each.in_controlled_shutdown]
    if level < metadata_version.ZK_MIGRATION_LEVEL:
        losses.migrating_brokers = [each for each in brokers if each.is_migrating_zk_broker]
        if state.zk_migration_state is not ZkMigrationState.NONE:
            losses.zk_migration_state = state.zk_migration_state
    if level < metadata_version.SCRAM_LEVEL:
        losses.scram_credentials = [
            each
            for each in _kept(state, MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD)
            if isinstance(each, UserScramCredentialRecord)
        ]
    if level < metadata_version.DELEGATION_TOKEN_LEVEL:
        losses.delegation_tokens = [
            each
            for each in _kept(state, MetadataRecordType.DELEGATION_TOKEN_RECORD)
            if isinstance(each, DelegationTokenRecord)
        ]
    return losses


def _kept(state: MetadataState, record_type: MetadataRecordType) -> Iterable[KnownRecord]:
    return state.kept_records.get(record_type, {}).values()


def generate_records_before(state: MetadataState, losses: Losses) -> Sliced[list[ApiMessageAndVersion]]:
    """Returns the records that must precede the record of the lower level: they need the present one."""
    records: list[ApiMessageAndVersion] = []
    version = metadata_version.partition_change_record_version(state.metadata_version)
    for number, key in enumerate(losses.assigned_partitions):
        partition = state.partition(*key)
        assert partition is not None
        change = PartitionChangeRecord(
            partition_id=key.partition, topic_id=key.topic_id, directories=[MIGRATING] * len(partition.replicas)
        )
        records.append(ApiMessageAndVersion(change, version))
        if ends_slice(number):
            yield
    for scram in losses.scram_credentials:
        gone = RemoveUserScramCredentialRecord(name=scram.name, mechanism=scram.mechanism)
        records.append(ApiMessageAndVersion(gone, 0))
    records += [
        ApiMessageAndVersion(RemoveDelegationTokenRecord(token_id=token.token_id), 0) for token in losses.delegation_tokens
    ]
    return records


def generate_records_after(losses: Losses) -> list[ApiMessageAndVersion]:
    """Returns the records that must follow the record of the lower level: registrations as that level can express them."""
    affected = (
        *losses.brokers_with_directories,
        *losses.brokers_in_controlled_shutdown,
        *losses.cordoned_brokers,
        *losses.migrating_brokers,
    )
    brokers = {each.broker_id: each for each in affected}
    version = metadata_version.register_broker_record_version(losses.level)
    return [
        ApiMessageAndVersion(broker_record(_expressible(brokers[id_], losses.level), losses.level), version)
        for id_ in sorted(brokers)
    ]


def _expressible(broker: BrokerRegistration, level: int) -> BrokerRegistration:
    has_directories = metadata_version.is_directory_assignment_supported(level)
    return replace(
        broker,
        directories=broker.directories if has_directories else (),
        lost_directories=broker.lost_directories if has_directories else (),
        cordoned_directories=None,
        in_controlled_shutdown=broker.in_controlled_shutdown and level >= metadata_version.IN_CONTROLLED_SHUTDOWN_LEVEL,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and level >= metadata_version.ZK_MIGRATION_LEVEL,
    )
