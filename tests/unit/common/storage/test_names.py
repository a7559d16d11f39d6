"""Folder and file names in Kafka's formats. Every generated name can be parsed back."""

import pytest

from common.storage.names import (
    FolderKind,
    PartitionFolder,
    marked_partition_folder,
    parse_partition_folder,
    parse_producer_snapshot_file,
    parse_segment_file,
    parse_snapshot_file,
    partition_folder,
    producer_snapshot_file,
    segment_file,
    snapshot_file,
)

UNIQUE = bytes(range(16))
HEX = "000102030405060708090a0b0c0d0e0f"


@pytest.mark.parametrize("topic", ["t", "a-b", "a.b", "a-1", "__cluster_metadata", "x.delete", "a-1.b-2"])
def test_a_partitions_folder_is_read_from_its_end(topic: str) -> None:
    # A topic may contain dashes and dots, so the partition and the suffix are parsed from the end of the name.
    assert parse_partition_folder(partition_folder(topic, 12)) == PartitionFolder(topic, 12)
    for kind in (FolderKind.DELETE, FolderKind.FUTURE, FolderKind.STRAY):
        name = marked_partition_folder(topic, 0, kind, UNIQUE)
        assert name == f"{topic}-0.{HEX}{kind.value}"
        assert parse_partition_folder(name) == PartitionFolder(topic, 0, kind, HEX)


def test_names_of_deleted_and_stray_logs_fit_a_file_system_and_future_ones_stay_whole() -> None:
    # Only the name of a future log must contain the whole topic, because the topic is parsed from it.
    topic = "x" * 249
    assert len(marked_partition_folder(topic, 100, FolderKind.DELETE, UNIQUE)) == 255
    assert len(marked_partition_folder(topic, 100, FolderKind.STRAY, UNIQUE)) == 255
    assert marked_partition_folder(topic, 100, FolderKind.FUTURE, UNIQUE).startswith(f"{topic}-100.")


@pytest.mark.parametrize(
    "name", ["lost+found", "t", "t-", "-1", "t-01", "t-x", "t-99999999999", "t-\u0661", "meta.properties", ""]
)
def test_what_is_no_partitions_folder_is_not_taken_for_one(name: str) -> None:
    assert parse_partition_folder(name) is None


def test_segment_files_have_twenty_digits() -> None:
    assert segment_file(42) == "00000000000000000042.log"
    assert parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex")
    assert parse_segment_file("00000000000000000042.txnindex") == (42, ".txnindex")
    for name in ("42.log", "00000000000000000042.log.deleted", "00000000000000000042.snapshot", "leader-epoch-checkpoint"):
        assert parse_segment_file(name) is None


def test_producer_snapshots_name_their_offset() -> None:
    assert producer_snapshot_file(1234) == "00000000000000001234.snapshot"
    assert parse_producer_snapshot_file(producer_snapshot_file(2**63 - 1)) == 2**63 - 1
    for name in ("00000000000000001234.snapshot.tmp", "1234.snapshot", f"{2**63:020d}.snapshot", "00000000000000001234.log"):
        assert parse_producer_snapshot_file(name) is None


def test_snapshot_files_name_offset_and_epoch() -> None:
    assert snapshot_file(7, 3) == "00000000000000000007-0000000003.checkpoint"
    assert parse_snapshot_file(snapshot_file(7, 3)) == (7, 3)
    assert parse_snapshot_file("00000000000000000007-0000000003.checkpoint.deleted") is None
