"""The records of the metadata log, each declared once with all its versions (core).

Names, types and versions come from Apache Kafka's metadata schemas, so that Kafka's nodes and tools can read our log and we
can read theirs. Handlers and replay never see a version; `common.metadata.metadata_version` decides which version a cluster
may write.

The directories of PartitionRecord and PartitionChangeRecord are *assigned directory ids*: their reserved ids follow the
cluster's numbering. The `log_dirs` of broker records hold directory ids too (never paths), but reserved ids cannot occur
there, so they are never translated. Our own tags start at 10000: Kafka's readers would fail on a small tag that a later
Kafka version defines differently.
"""

from enum import IntEnum
from types import MappingProxyType
from typing import Final

from common.ids import NO_LEADER, ZERO_UUID, Uuid
from common.protocol.schema import (
    AssignedDirectoryId,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Kind,
    String,
    Struct,
    UInt16,
    field,
    message,
    struct,
)

# The value of PartitionChangeRecord.leader that leaves the leader unchanged. Not the same as NO_LEADER.
NO_LEADER_CHANGE: Final = -2
# The value of PartitionChangeRecord.leader_recovery_state that leaves the state unchanged.
NO_RECOVERY_STATE_CHANGE: Final = -1


class MetadataRecordType(IntEnum):
    """The record type numbers, named as Kafka's tools print them."""

    REGISTER_BROKER_RECORD = 0
    UNREGISTER_BROKER_RECORD = 1
    TOPIC_RECORD = 2
    PARTITION_RECORD = 3
    CONFIG_RECORD = 4
    PARTITION_CHANGE_RECORD = 5
    FENCE_BROKER_RECORD = 7
    UNFENCE_BROKER_RECORD = 8
    REMOVE_TOPIC_RECORD = 9
    DELEGATION_TOKEN_RECORD = 10
    USER_SCRAM_CREDENTIAL_RECORD = 11
    FEATURE_LEVEL_RECORD = 12
    CLIENT_QUOTA_RECORD = 14
    PRODUCER_IDS_RECORD = 15
    BROKER_REGISTRATION_CHANGE_RECORD = 17
    ACCESS_CONTROL_ENTRY_RECORD = 18
    REMOVE_ACCESS_CONTROL_ENTRY_RECORD = 19
    NO_OP_RECORD = 20
    ZK_MIGRATION_STATE_RECORD = 21
    REMOVE_USER_SCRAM_CREDENTIAL_RECORD = 22
    BEGIN_TRANSACTION_RECORD = 23
    END_TRANSACTION_RECORD = 24
    ABORT_TRANSACTION_RECORD = 25
    REMOVE_DELEGATION_TOKEN_RECORD = 26
    REGISTER_CONTROLLER_RECORD = 27
    CLEAR_ELR_RECORD = 28
    UNREGISTER_CONTROLLER_RECORD = 29


class FencingChange(IntEnum):
    """The values of BrokerRegistrationChangeRecord.fenced."""

    UNFENCE = -1
    NONE = 0
    FENCE = 1


class ZkMigrationState(IntEnum):
    """The values of ZkMigrationRecord.zk_migration_state: how far a migration from ZooKeeper has got (KIP-866). Kafka 3.5
    swapped 1 and 2. Kafka 3.4 wrote PRE_MIGRATION as 1, and never MIGRATION."""

    NONE = 0
    # The metadata is here. Brokers in ZooKeeper mode are restarted one by one.
    MIGRATION = 1
    # The controllers wait for the ZooKeeper brokers, and for the metadata that is still in ZooKeeper.
    PRE_MIGRATION = 2
    # The migration has ended and cannot be taken back.
    POST_MIGRATION = 3


class ControlledShutdownChange(IntEnum):
    """The values of BrokerRegistrationChangeRecord.in_controlled_shutdown. A broker leaves controlled shutdown only by
    registering as a new incarnation."""

    NONE = 0
    IN_CONTROLLED_SHUTDOWN = 1


class ConfigResourceType(IntEnum):
    """The values of ConfigRecord.resource_type."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


# --- brokers and controllers ------------------------------------------------------------------------------------


@struct
class BrokerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class BrokerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.REGISTER_BROKER_RECORD, versions="0-4", flexible="0+")
class RegisterBrokerRecord(Struct):
    """A broker was registered. A snapshot has one of these for each registered broker."""

    broker_id: Int32 = 0
    is_migrating_zk_broker: Bool = field(default=False, versions="2+")
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = field(default_factory=list)
    features: list[BrokerFeature] = field(default_factory=list)
    rack: String | None = None
    fenced: Bool = True
    in_controlled_shutdown: Bool = field(default=False, versions="1+")
    log_dirs: list[Uuid] = field(default_factory=list, versions="3+", tag=0)
    # The directories that get no new replicas (KIP-1066, metadata.version 30). None until the broker has reported them.
    cordoned_log_dirs: list[Uuid] | None = field(default=None, versions="4+", tag=1)
    # Our own field: the directories this incarnation registered and has lost since. Written in snapshots only.
    lost_log_dirs: list[Uuid] = field(default_factory=list, versions="3+", tag=10000)


@message(kind=Kind.RECORD, api_key=MetadataRecordType.UNREGISTER_BROKER_RECORD, versions="0", flexible="0+")
class UnregisterBrokerRecord(Struct):
    """A broker was removed for good."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.BROKER_REGISTRATION_CHANGE_RECORD, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord(Struct):
    """A registered broker was fenced or unfenced, began its controlled shutdown, or lost directories."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Int8 = field(default=0, tag=0)
    in_controlled_shutdown: Int8 = field(default=0, versions="1+", tag=1)
    # The ids of the directories that are still online. Empty means "no change", so the loss of the last directory cannot be
    # expressed here. A broker that loses its last directory is fenced.
    log_dirs: list[Uuid] = field(default_factory=list, versions="2+", tag=2)
    # None means "no change".
    cordoned_log_dirs: list[Uuid] | None = field(default=None, versions="3+", tag=3)


@message(kind=Kind.RECORD, api_key=MetadataRecordType.FENCE_BROKER_RECORD, versions="0", flexible="0+")
class FenceBrokerRecord(Struct):
    """Fences a broker in clusters below metadata.version 6."""

    id: Int32 = 0
    epoch: Int64 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.UNFENCE_BROKER_RECORD, versions="0", flexible="0+")
class UnfenceBrokerRecord(Struct):
    """Unfences a broker in clusters below metadata.version 6."""

    id: Int32 = 0
    epoch: Int64 = 0


@struct
class ControllerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class ControllerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.REGISTER_CONTROLLER_RECORD, versions="0", flexible="0+")
class RegisterControllerRecord(Struct):
    """A controller was registered (metadata.version 15 and later)."""

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: list[ControllerEndpoint] = field(default_factory=list)
    features: list[ControllerFeature] = field(default_factory=list)


@message(kind=Kind.RECORD, api_key=MetadataRecordType.UNREGISTER_CONTROLLER_RECORD, versions="0", flexible="0+")
class UnregisterControllerRecord(Struct):
    """A controller was removed for good (Apache Kafka 4.4)."""

    controller_id: Int32 = 0


# --- topics and partitions --------------------------------------------------------------------------------------


@message(kind=Kind.RECORD, api_key=MetadataRecordType.TOPIC_RECORD, versions="0", flexible="0+")
class TopicRecord(Struct):
    """A topic was created; its partitions follow in their own records."""

    name: String = ""
    topic_id: Uuid = ZERO_UUID


@message(kind=Kind.RECORD, api_key=MetadataRecordType.REMOVE_TOPIC_RECORD, versions="0", flexible="0+")
class RemoveTopicRecord(Struct):
    """A topic was deleted, along with its partitions and its configuration."""

    topic_id: Uuid = ZERO_UUID


@message(kind=Kind.RECORD, api_key=MetadataRecordType.PARTITION_RECORD, versions="0-2", flexible="0+")
class PartitionRecord(Struct):
    """The full state of one partition."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: list[Int32] = field(default_factory=list)
    isr: list[Int32] = field(default_factory=list)
    removing_replicas: list[Int32] = field(default_factory=list)
    adding_replicas: list[Int32] = field(default_factory=list)
    leader: Int32 = int(NO_LEADER)
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    # One directory id for each replica, in the order of `replicas`. Absent or empty means that every replica is MIGRATING.
    directories: list[AssignedDirectoryId] = field(default_factory=list, versions="1+")
    eligible_leader_replicas: list[Int32] | None = field(default=None, versions="2+", tag=1)
    last_known_elr: list[Int32] | None = field(default=None, versions="2+", tag=2)


@message(kind=Kind.RECORD, api_key=MetadataRecordType.PARTITION_CHANGE_RECORD, versions="0-2", flexible="0+")
class PartitionChangeRecord(Struct):
    """Changes to one partition. None and the two `NO_..._CHANGE` values leave a field unchanged."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=NO_LEADER_CHANGE, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=NO_RECOVERY_STATE_CHANGE, tag=5)
    # On the wire the tags are in ascending order, regardless of the order here.
    directories: list[AssignedDirectoryId] | None = field(default=None, versions="1+", tag=8)
    eligible_leader_replicas: list[Int32] | None = field(default=None, versions="2+", tag=6)
    last_known_elr: list[Int32] | None = field(default=None, versions="2+", tag=7)


# --- configuration and features ---------------------------------------------------------------------------------


@message(kind=Kind.RECORD, api_key=MetadataRecordType.CONFIG_RECORD, versions="0", flexible="0+")
class ConfigRecord(Struct):
    """One key in one resource's configuration; a null value deletes it."""

    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = None


@message(kind=Kind.RECORD, api_key=MetadataRecordType.FEATURE_LEVEL_RECORD, versions="0", flexible="0+")
class FeatureLevelRecord(Struct):
    """A feature was finalized at a level; level 0 removes the feature."""

    name: String = ""
    feature_level: Int16 = 0


# --- producers --------------------------------------------------------------------------------------------------


@message(kind=Kind.RECORD, api_key=MetadataRecordType.PRODUCER_IDS_RECORD, versions="0", flexible="0+")
class ProducerIdsRecord(Struct):
    """A broker got a block of producer ids. All ids below `next_producer_id` are taken."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


# --- quotas and security: kept for the nodes and tools that act on them -----------------------------------------


@struct
class QuotaEntity(Struct):
    entity_type: String = ""
    # None is the default entity of the type.
    entity_name: String | None = None


@message(kind=Kind.RECORD, api_key=MetadataRecordType.CLIENT_QUOTA_RECORD, versions="0", flexible="0+")
class ClientQuotaRecord(Struct):
    """One quota of a client, a user, or a combination of them was set or removed."""

    entity: list[QuotaEntity] = field(default_factory=list)
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@message(kind=Kind.RECORD, api_key=MetadataRecordType.ACCESS_CONTROL_ENTRY_RECORD, versions="0", flexible="0+")
class AccessControlEntryRecord(Struct):
    """An ACL was added."""

    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.REMOVE_ACCESS_CONTROL_ENTRY_RECORD, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord(Struct):
    """An ACL was removed."""

    id: Uuid = ZERO_UUID


@message(kind=Kind.RECORD, api_key=MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD, versions="0", flexible="0+")
class UserScramCredentialRecord(Struct):
    """A user's SCRAM credential for one mechanism was set."""

    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.REMOVE_USER_SCRAM_CREDENTIAL_RECORD, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord(Struct):
    """A user's SCRAM credential for one mechanism was removed."""

    name: String = ""
    mechanism: Int8 = 0


@message(kind=Kind.RECORD, api_key=MetadataRecordType.DELEGATION_TOKEN_RECORD, versions="0", flexible="0+")
class DelegationTokenRecord(Struct):
    """A delegation token was issued or renewed. The record has no secret: nodes derive the token's HMAC from its id."""

    owner: String = ""
    requester: String = ""
    renewers: list[String] = field(default_factory=list)
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


@message(kind=Kind.RECORD, api_key=MetadataRecordType.REMOVE_DELEGATION_TOKEN_RECORD, versions="0", flexible="0+")
class RemoveDelegationTokenRecord(Struct):
    """A delegation token expired or was revoked."""

    token_id: String = ""


# --- the log itself ---------------------------------------------------------------------------------------------


@message(kind=Kind.RECORD, api_key=MetadataRecordType.NO_OP_RECORD, versions="0", flexible="0+")
class NoOpRecord(Struct):
    """Changes nothing. Keeps the high watermark of an idle cluster moving."""


@message(kind=Kind.RECORD, api_key=MetadataRecordType.ZK_MIGRATION_STATE_RECORD, versions="0", flexible="0+")
class ZkMigrationRecord(Struct):
    """The state of a migration from ZooKeeper. A new log begins with NONE. Diskraft copies no metadata from ZooKeeper, so
    PRE_MIGRATION and MIGRATION come from controllers of Apache Kafka."""

    zk_migration_state: Int8 = ZkMigrationState.NONE


@message(kind=Kind.RECORD, api_key=MetadataRecordType.BEGIN_TRANSACTION_RECORD, versions="0", flexible="0+")
class BeginTransactionRecord(Struct):
    """The records that follow are applied all at once or not at all."""

    name: String | None = field(default=None, tag=0)


@message(kind=Kind.RECORD, api_key=MetadataRecordType.END_TRANSACTION_RECORD, versions="0", flexible="0+")
class EndTransactionRecord(Struct):
    """The open metadata transaction is complete."""


@message(kind=Kind.RECORD, api_key=MetadataRecordType.ABORT_TRANSACTION_RECORD, versions="0", flexible="0+")
class AbortTransactionRecord(Struct):
    """The open metadata transaction is aborted; its records are discarded."""

    reason: String | None = field(default=None, tag=0)


@message(kind=Kind.RECORD, api_key=MetadataRecordType.CLEAR_ELR_RECORD, versions="0", flexible="0+")
class ClearElrRecord(Struct):
    """The eligible leader replicas of a topic were forgotten (KIP-966), or those of all topics if the name is empty."""

    topic_name: String = ""


KnownRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | ZkMigrationRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RegisterControllerRecord
    | ProducerIdsRecord
    | ClientQuotaRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)

RECORD_CLASSES: Final = MappingProxyType[int, type[KnownRecord]](
    {
        MetadataRecordType.REGISTER_BROKER_RECORD: RegisterBrokerRecord,
        MetadataRecordType.UNREGISTER_BROKER_RECORD: UnregisterBrokerRecord,
        MetadataRecordType.TOPIC_RECORD: TopicRecord,
        MetadataRecordType.PARTITION_RECORD: PartitionRecord,
        MetadataRecordType.CONFIG_RECORD: ConfigRecord,
        MetadataRecordType.PARTITION_CHANGE_RECORD: PartitionChangeRecord,
        MetadataRecordType.FENCE_BROKER_RECORD: FenceBrokerRecord,
        MetadataRecordType.UNFENCE_BROKER_RECORD: UnfenceBrokerRecord,
        MetadataRecordType.REMOVE_TOPIC_RECORD: RemoveTopicRecord,
        MetadataRecordType.FEATURE_LEVEL_RECORD: FeatureLevelRecord,
        MetadataRecordType.BROKER_REGISTRATION_CHANGE_RECORD: BrokerRegistrationChangeRecord,
        MetadataRecordType.NO_OP_RECORD: NoOpRecord,
        MetadataRecordType.ZK_MIGRATION_STATE_RECORD: ZkMigrationRecord,
        MetadataRecordType.BEGIN_TRANSACTION_RECORD: BeginTransactionRecord,
        MetadataRecordType.END_TRANSACTION_RECORD: EndTransactionRecord,
        MetadataRecordType.ABORT_TRANSACTION_RECORD: AbortTransactionRecord,
        MetadataRecordType.REGISTER_CONTROLLER_RECORD: RegisterControllerRecord,
        MetadataRecordType.PRODUCER_IDS_RECORD: ProducerIdsRecord,
        MetadataRecordType.CLIENT_QUOTA_RECORD: ClientQuotaRecord,
        MetadataRecordType.ACCESS_CONTROL_ENTRY_RECORD: AccessControlEntryRecord,
        MetadataRecordType.REMOVE_ACCESS_CONTROL_ENTRY_RECORD: RemoveAccessControlEntryRecord,
        MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD: UserScramCredentialRecord,
        MetadataRecordType.REMOVE_USER_SCRAM_CREDENTIAL_RECORD: RemoveUserScramCredentialRecord,
        MetadataRecordType.DELEGATION_TOKEN_RECORD: DelegationTokenRecord,
        MetadataRecordType.REMOVE_DELEGATION_TOKEN_RECORD: RemoveDelegationTokenRecord,
        MetadataRecordType.CLEAR_ELR_RECORD: ClearElrRecord,
        MetadataRecordType.UNREGISTER_CONTROLLER_RECORD: UnregisterControllerRecord,
    }
)
