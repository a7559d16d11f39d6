"""What a controller writes when it becomes the active one (core).

Answers to Kafka's ActivationRecordsGenerator. An empty log gets the bootstrap records: within one transaction the finalized
features, metadata.version first, and ZkMigrationState NONE, which Apache's nodes expect once. A log that ends in an open
transaction gets an abort, since the controller that began it is gone. Easy to get wrong: the feature that numbers the
reserved directory ids must come before anything that names a directory; readers learn the numbering from it.
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
)

ZK_MIGRATION_NONE = 0


def generate_activation_records(
    state: MetadataState, bootstrap: Sequence[FeatureLevelRecord], *, is_transaction_open: bool
) -> list[ApiMessageAndVersion]:
    """The first records of this controller's term; none where the log is in order. Raises ValueError when the log is empty
    and the bootstrap records, which the quorum driver always has, name no metadata.version."""
    records: list[ApiMessageAndVersion] = []
    if is_transaction_open:
        abort = AbortTransactionRecord(reason="the controller that began it is no longer active")
        records.append(ApiMessageAndVersion(abort, 0))
    if METADATA_VERSION_FEATURE not in state.features:
        records += _bootstrap(bootstrap)
    return records


def _bootstrap(features: Sequence[FeatureLevelRecord]) -> list[ApiMessageAndVersion]:
    ordered = sorted(features, key=lambda record: (record.name != METADATA_VERSION_FEATURE, record.name))
    level = ordered[0].feature_level if ordered and ordered[0].name == METADATA_VERSION_FEATURE else 0
    if level == 0:
        raise ValueError(f"the bootstrap records name no {METADATA_VERSION_FEATURE}")
    records = [ApiMessageAndVersion(record, 0) for record in ordered]
    if level >= ZK_MIGRATION_LEVEL:
        records.append(ApiMessageAndVersion(ZkMigrationRecord(zk_migration_state=ZK_MIGRATION_NONE), 0))
    if level >= TRANSACTIONS_LEVEL:
        begin = ApiMessageAndVersion(BeginTransactionRecord(name="Bootstrap records"), 0)
        records = [begin, *records, ApiMessageAndVersion(EndTransactionRecord(), 0)]
    return records
