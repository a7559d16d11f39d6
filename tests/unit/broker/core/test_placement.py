"""The choice of a directory for a new replica: fewest logs, then most free bytes, never below the floor."""

from broker.core.placement import DirectoryLoad, choose_directory
from common.ids import DirectoryId, Uuid

A = DirectoryId(Uuid(b"A" * 16))
B = DirectoryId(Uuid(b"B" * 16))
C = DirectoryId(Uuid(b"C" * 16))


def load(directory_id: DirectoryId, logs: int, usable_bytes: int = 10_000, free_inodes: int = 100) -> DirectoryLoad:
    return DirectoryLoad(directory_id=directory_id, logs=logs, usable_bytes=usable_bytes, free_inodes=free_inodes)


def choose(*loads: DirectoryLoad) -> DirectoryId | None:
    return choose_directory(loads, usable_bytes_min=1000, free_inodes_min=10)


def test_fewest_logs_win() -> None:
    """The number of logs decides before the space does."""
    assert choose(load(A, 3, 99_999), load(B, 1), load(C, 2)) == B


def test_ties_go_to_the_most_free_bytes() -> None:
    """Equal numbers of logs are told apart by what is free."""
    assert choose(load(A, 1, 2000), load(B, 1, 3000), load(C, 1, 2500)) == B


def test_full_ties_go_to_the_first_configured() -> None:
    """With nothing to tell them apart the order of the configuration decides, whatever the ids are."""
    assert choose(load(C, 1), load(A, 1), load(B, 1)) == C


def test_a_directory_below_the_floor_is_left_out() -> None:
    """Neither bytes nor inodes may be below the floor, even where there are fewest logs."""
    assert choose(load(A, 0, usable_bytes=999), load(B, 0, free_inodes=9), load(C, 7)) == C


def test_no_directory_qualifies() -> None:
    """Nothing online, or everything full: there is no place, and the caller has to say so."""
    assert choose() is None
    assert choose(load(A, 0, usable_bytes=0)) is None


def test_a_file_system_without_inode_counts_is_not_below_the_floor() -> None:
    """btrfs reports no inodes at all; its directories would otherwise never take a replica."""
    assert choose(load(A, 0, free_inodes=0)) == A
