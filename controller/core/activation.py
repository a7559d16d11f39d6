"""Generates the records that a controller writes when it becomes active (core).

Counterpart of Kafka's ActivationRecordsGenerator. An empty log gets the bootstrap records in one transaction: first
metadata.version, then the other finalized features, then ZkMigrationState NONE. Apache Kafka's nodes expect to find that
last record once. A migration from ZooKeeper ends with the first controller that does not have
`zookeeper.metadata.migration.enable`. If the log ends in an open transaction, an abort record comes first, since the
controller that began the transaction is gone. One feature determines how the reserved directory ids are numbered on the
wire, so the features must precede any record that names a directory.
"""

from collections.abc import Sequence

from common.metadata.metadata_version import (
    METADATA_VERSION_FEATURE,
    TRANSACTIONS_LEVEL,
    ZK_MIGRATION_LEVEL,
)
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    ZkMigrationRecord,
    ZkMigrationState,
)


def generate_activation_records(
    state: MetadataState,
    bootstrap: Sequence[FeatureLevelRecord],
    *,
    is_transaction_open: bool,
    is_zk_migration_enabled: bool = False,
) -> list[ApiMessageAndVersion]:
    """Returns the first records of this controller's term; an empty list if the log needs none. Raises ValueError if the log
    has no metadata.version and the bootstrap records lack it too."""
    records: list[ApiMessageAndVersion] = []
    if is_transaction_open:
        abort = AbortTransactionRecord(reason="the controller that began it is no longer active")
        records.append(ApiMessageAndVersion(abort, 0))
    if METADATA_VERSION_FEATURE not in state.features:
        records += _bootstrap(bootstrap)
    if state.zk_migration_state is ZkMigrationState.MIGRATION and not is_zk_migration_enabled:
        records.append(ApiMessageAndVersion(ZkMigrationRecord(zk_migration_state=ZkMigrationState.POST_MIGRATION), 0))
    return records


def _bootstrap(features: Sequence[FeatureLevelRecord]) -> list[ApiMessageAndVersion]:
    ordered = sorted(features, key=lambda record: (record.name != METADATA_VERSION_FEATURE, record.name))
    level = ordered[0].feature_level if ordered and ordered[0].name == METADATA_VERSION_FEATURE else 0
    if level == 0:
        raise ValueError(f"the bootstrap records name no {METADATA_VERSION_FEATURE}")
    records = [ApiMessageAndVersion(record, 0) for record in ordered]
    if level >= ZK_MIGRATION_LEVEL:
        records.append(ApiMessageAndVersion(ZkMigrationRecord(zk_migration_state=ZkMigrationState.NONE), 0))
    if level >= TRANSACTIONS_LEVEL:
        begin = ApiMessageAndVersion(BeginTransactionRecord(name="Bootstrap records"), 0)
        records = [begin, *records, ApiMessageAndVersion(EndTransactionRecord(), 0)]
    return records
