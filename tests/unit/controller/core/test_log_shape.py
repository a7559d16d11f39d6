"""Transactions around an operation's records, and the records that a new active controller writes first."""

import pytest

from common.ids import ZERO_UUID, Offset
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, METADATA_VERSION_FEATURE
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ZkMigrationRecord,
    ZkMigrationState,
)
from controller.core.activation import generate_activation_records
from controller.core.transactions import Append, plan_append

NO_OPS = [ApiMessageAndVersion(NoOpRecord(), 0)] * 3


def test_what_fits_one_batch_is_one_batch() -> None:
    """Records that must be atomic are appended as one batch. The log may split other records into several batches."""
    assert plan_append(NO_OPS, is_atomic=True, level=21, name="n", batch_max=3) == Append(NO_OPS, is_atomic=True)
    assert plan_append(NO_OPS, is_atomic=False, level=21, name="n", batch_max=2) == Append(NO_OPS, is_atomic=False)


def test_more_than_one_batch_is_a_transaction() -> None:
    """The records keep their order, between a begin and an end record."""
    begin = ApiMessageAndVersion(BeginTransactionRecord(name="n"), 0)
    end = ApiMessageAndVersion(EndTransactionRecord(), 0)
    planned = plan_append(NO_OPS, is_atomic=True, level=21, name="n", batch_max=2)
    assert planned == Append([begin, *NO_OPS, end], is_atomic=False)


def test_few_large_records_are_a_transaction_too() -> None:
    """A batch also has a size limit in bytes, so a few large records can need a transaction."""
    large = PartitionRecord(replicas=list(range(2_000)), directories=[ZERO_UUID] * 2_000)
    planned = plan_append([ApiMessageAndVersion(large, 1)] * 100, is_atomic=True, level=21, name="n")
    assert not planned.is_atomic
    assert len(planned.records) == 102
    wordy = ConfigRecord(resource_name="t", name="retention.ms", value="0" * 30_000)
    assert not plan_append([ApiMessageAndVersion(wordy, 0)] * 100, is_atomic=True, level=21, name="n").is_atomic
    change = PartitionChangeRecord(isr=[1, 2, 3], directories=[ZERO_UUID] * 3)
    assert plan_append([ApiMessageAndVersion(change, 1)] * 10_000, is_atomic=True, level=21, name="n").is_atomic


def test_below_13_there_are_no_transactions() -> None:
    """Below metadata.version 13 the records keep their order but are not in a transaction."""
    assert plan_append(NO_OPS, is_atomic=True, level=12, name="n", batch_max=2) == Append(NO_OPS, is_atomic=False)


def records(
    state: MetadataState, bootstrap: list[FeatureLevelRecord], *, is_transaction_open: bool = False
) -> list[KnownRecord]:
    made = generate_activation_records(state, bootstrap, is_transaction_open=is_transaction_open)
    return [written.record for written in made]


def feature(name: str, level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=level)


def test_an_empty_log_gets_the_bootstrap_records() -> None:
    """As in Kafka, the bootstrap records are in a transaction: metadata.version first, then the other features and
    ZkMigrationState NONE."""
    bootstrap = [feature(DIRECTORY_NUMBERING_FEATURE, 1), feature("a.feature", 2), feature(METADATA_VERSION_FEATURE, 19)]
    assert records(MetadataState(), bootstrap) == [
        BeginTransactionRecord(name="Bootstrap records"),
        feature(METADATA_VERSION_FEATURE, 19),
        feature("a.feature", 2),
        feature(DIRECTORY_NUMBERING_FEATURE, 1),
        ZkMigrationRecord(zk_migration_state=0),
        EndTransactionRecord(),
    ]


@pytest.mark.parametrize(("level", "count"), [(12, 2), (7, 1)])
def test_old_levels_get_what_they_know(level: int, count: int) -> None:
    """Below metadata.version 13 there is no transaction, and below 8 there is no ZkMigrationState record."""
    assert len(records(MetadataState(), [feature(METADATA_VERSION_FEATURE, level)])) == count


@pytest.mark.parametrize("bootstrap", [[], [FeatureLevelRecord(name="a.feature", feature_level=1)]])
def test_a_bootstrap_without_metadata_version_is_refused(bootstrap: list[FeatureLevelRecord]) -> None:
    """Without metadata.version, the versions of all later records would be undefined."""
    with pytest.raises(ValueError, match=r"metadata\.version"):
        records(MetadataState(), bootstrap)


@pytest.mark.parametrize("migration", ZkMigrationState)
def test_a_migration_ends_where_it_is_no_longer_enabled(migration: ZkMigrationState) -> None:
    """As in Kafka, only a migration that has copied the metadata is ended, and only without
    zookeeper.metadata.migration.enable."""
    state = MetadataState()
    state.replay(feature(METADATA_VERSION_FEATURE, 19), offset=Offset(0))
    state.replay(ZkMigrationRecord(zk_migration_state=migration), offset=Offset(1))
    enabled = generate_activation_records(state, [], is_transaction_open=False, is_zk_migration_enabled=True)
    assert enabled == []
    ended = [ZkMigrationRecord(zk_migration_state=3)] if migration is ZkMigrationState.MIGRATION else []
    assert records(state, []) == ended


def test_a_log_in_order_gets_nothing_and_an_open_transaction_is_aborted() -> None:
    """An open transaction is aborted because the controller that began it is gone."""
    state = MetadataState()
    for offset, record in enumerate(records(MetadataState(), [feature(METADATA_VERSION_FEATURE, 21)])):
        state.replay(record, offset=offset)  # type: ignore[arg-type]
    assert records(state, []) == []
    aborted = records(state, [], is_transaction_open=True)
    assert len(aborted) == 1
    assert isinstance(aborted[0], AbortTransactionRecord)
