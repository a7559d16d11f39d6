"""The file names of the metadata log."""

import pytest

from common.ids import LeaderEpoch, Offset
from common.raft.core.offsets import (
    OffsetAndEpoch,
    is_leftover,
    parse_snapshot_name,
    partial_snapshot_path,
    snapshot_path,
)

SNAPSHOT = OffsetAndEpoch(Offset(300), LeaderEpoch(7))


def test_a_snapshot_is_found_again_by_its_name() -> None:
    """The file name holds the snapshot's offset and epoch. A partial file is not mistaken for a snapshot."""
    path = snapshot_path(SNAPSHOT)
    assert path == "__cluster_metadata-0/00000000000000000300-0000000007.checkpoint"
    assert parse_snapshot_name(path.partition("/")[2]) == SNAPSHOT
    partial = [partial_snapshot_path(SNAPSHOT, attempt).partition("/")[2] for attempt in (0, 1)]
    assert partial[0] != partial[1]
    assert all(parse_snapshot_name(name) is None and is_leftover(name) for name in partial)


@pytest.mark.parametrize(
    ("name", "leftover"),
    [
        ("00000000000000000300-0000000007.checkpoint.part", True),
        ("00000000000000000300-0000000007-4711.checkpoint.part", True),
        ("00000000000000000300-0000000007.checkpoint.deleted", True),
        ("00000000000000000300-0000000007.checkpoint", False),
        ("00000000000000000300.log.deleted", False),
        ("leader-epoch-checkpoint", False),
    ],
)
def test_leftovers_are_told_from_files_in_use(name: str, leftover: bool) -> None:
    """Half-written and half-deleted snapshots are leftovers, also under the names that Apache Kafka gives them."""
    assert is_leftover(name) is leftover
