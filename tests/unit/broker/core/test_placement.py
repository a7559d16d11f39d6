"""Which directory is chosen for a new replica: the one with the fewest replicas of its kind (preferred leader or follower),
then with the fewest logs, then with the most free bytes, but none below the floor of free bytes or inodes. Also the replica
counts that the choice uses."""

from dataclasses import replace

import pytest

from broker.core.placement import DirectoryLoad, PlacedReplicas, ReplicaKind, choose_directory, replica_kind
from common.ids import BrokerId, DirectoryId, TopicId, TopicIdPartition, Uuid

A = DirectoryId(Uuid(b"A" * 16))
B = DirectoryId(Uuid(b"B" * 16))
C = DirectoryId(Uuid(b"C" * 16))
TOPIC = TopicId(Uuid(b"T" * 16))
PREFERRED_LEADER, FOLLOWER = ReplicaKind


def load(
    directory_id: DirectoryId, leaders: int, followers: int = 0, usable_bytes: int = 10_000, free_inodes: int = 100
) -> DirectoryLoad:
    replicas = PlacedReplicas()
    for index in range(leaders + followers):
        replicas.place(TopicIdPartition(TOPIC, index), PREFERRED_LEADER if index < leaders else FOLLOWER)
    return DirectoryLoad(directory_id=directory_id, replicas=replicas, usable_bytes=usable_bytes, free_inodes=free_inodes)


def choose(*loads: DirectoryLoad, kind: ReplicaKind = PREFERRED_LEADER) -> DirectoryId | None:
    return choose_directory(loads, kind, usable_bytes_min=1000, free_inodes_min=10)


@pytest.mark.parametrize(("kind", "chosen"), [(PREFERRED_LEADER, B), (FOLLOWER, A)])
def test_fewest_of_the_kind_win(kind: ReplicaKind, chosen: DirectoryId) -> None:
    """Leaders and followers are counted separately, and these counts come before the number of logs and the space."""
    assert choose(load(A, 3, 0), load(B, 1, 9), load(C, 2, 1, 99_999), kind=kind) == chosen


def test_ties_go_to_the_fewest_logs() -> None:
    """If the counts of the replica's kind are equal, the number of logs decides before the space."""
    assert choose(load(A, 1, 5, 99_999), load(B, 1, 4), load(C, 2, 0)) == B
    assert choose(load(A, 5, 1, 99_999), load(B, 4, 1), load(C, 0, 2), kind=FOLLOWER) == B


def test_ties_go_to_the_most_free_bytes() -> None:
    """If the numbers of logs are equal, the free space decides."""
    assert choose(load(A, 1, 1, 2000), load(B, 1, 1, 3000), load(C, 1, 1, 2500)) == B


def test_full_ties_go_to_the_first_configured() -> None:
    """If everything is equal, the configuration order decides, whatever the ids are."""
    assert choose(load(C, 1), load(A, 1), load(B, 1)) == C


def test_a_directory_below_the_floor_is_left_out() -> None:
    """A directory below the floor in bytes or inodes is not chosen, even if it has the fewest replicas."""
    assert choose(load(A, 0, usable_bytes=999), load(B, 0, free_inodes=9), load(C, 7)) == C


def test_an_unsteady_directory_is_left_out_while_another_one_has_room() -> None:
    """Unlike a full directory, it is taken if there is no other: the disk may go on."""
    unsteady = replace(load(A, 0), is_unsteady=True)
    assert choose(unsteady, load(B, 7), load(C, 3)) == C
    assert choose(unsteady, load(B, 7, usable_bytes=0)) == A


def test_no_directory_qualifies() -> None:
    """If nothing is online, or everything is full, the choice is None."""
    assert choose() is None
    assert choose(load(A, 0, usable_bytes=0)) is None


def test_a_file_system_without_inode_counts_is_not_below_the_floor() -> None:
    """btrfs reports 0 inodes. If that counted as below the floor, its directories would never get a replica."""
    assert choose(load(A, 0, free_inodes=0)) == A


def test_the_first_replica_is_the_preferred_leader() -> None:
    """The first broker in the list is the preferred leader. A broker that is not in the list is a follower."""
    one, two, three = BrokerId(1), BrokerId(2), BrokerId(3)
    assert replica_kind(one, (one, two)) is PREFERRED_LEADER
    assert replica_kind(two, (one, two)) is FOLLOWER
    assert replica_kind(three, (one, two)) is FOLLOWER
    assert replica_kind(one, ()) is FOLLOWER


def test_a_replica_counts_once_however_often_it_is_placed_or_removed() -> None:
    """Placing a replica again can only change its kind. Removing it again does nothing."""
    replicas = PlacedReplicas()
    for kind, other in ((PREFERRED_LEADER, FOLLOWER), (FOLLOWER, PREFERRED_LEADER)) * 2:
        replicas.place(TopicIdPartition(TOPIC, 0), kind)
        replicas.place(TopicIdPartition(TOPIC, 0), kind)
        assert (replicas.count(kind), replicas.count(other), len(replicas)) == (1, 0, 1)
    replicas.place(TopicIdPartition(TOPIC, 1), PREFERRED_LEADER)
    for _ in range(2):
        replicas.remove(TopicIdPartition(TOPIC, 0))
        assert (replicas.count(PREFERRED_LEADER), replicas.count(FOLLOWER), len(replicas)) == (1, 0, 1)
