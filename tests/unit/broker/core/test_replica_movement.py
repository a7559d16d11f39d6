"""The states of a move, one step at a time (KIP-113, KIP-858)."""

from broker.core.replica_movement import ReplicaMovement
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import UNASSIGNED

A, B, C = (DirectoryId(Uuid(letter * 16)) for letter in (b"A", b"B", b"C"))
KEY = TopicIdPartition(TopicId(Uuid(b"T" * 16)), 0)


def moving_to_b() -> ReplicaMovement:
    movement = ReplicaMovement()
    movement.begin(KEY, B)
    return movement


def test_a_move_is_reported_once_it_has_caught_up_and_swaps_once_the_metadata_agrees() -> None:
    movement = moving_to_b()
    assert movement.target(KEY) == B
    assert movement.reported(KEY) is None
    assert not movement.may_swap(KEY, B), "it has not caught up"
    assert movement.caught_up(KEY, A)
    assert movement.reported(KEY) == B
    assert not movement.may_swap(KEY, A)
    assert movement.may_swap(KEY, B)


def test_catching_up_again_is_not_news() -> None:
    movement = moving_to_b()
    assert movement.caught_up(KEY, A)
    assert not movement.caught_up(KEY, A)
    assert not movement.caught_up(KEY, B)
    assert movement.may_swap(KEY, B)


def test_an_assignment_from_before_the_move_does_not_count() -> None:
    """The metadata already named the target before the copy caught up. It must name another directory before naming the
    target counts as an acknowledgement."""
    movement = moving_to_b()
    assert not movement.caught_up(KEY, B)
    assert movement.reported(KEY) is None
    assert not movement.may_swap(KEY, B)
    assert movement.caught_up(KEY, A)
    assert movement.may_swap(KEY, B)


def test_a_replica_that_the_metadata_has_not_assigned_yet_can_move() -> None:
    assert moving_to_b().caught_up(KEY, UNASSIGNED)


def test_another_target_starts_over() -> None:
    movement = moving_to_b()
    assert movement.caught_up(KEY, A)
    movement.begin(KEY, C)
    assert movement.target(KEY) == C
    assert movement.reported(KEY) is None
    assert not movement.may_swap(KEY, C)


def test_an_ended_move_leaves_nothing() -> None:
    movement = moving_to_b()
    assert movement.caught_up(KEY, A)
    movement.end(KEY)
    movement.end(KEY)
    assert KEY not in movement
    assert len(movement) == 0
    assert movement.target(KEY) is None
    assert movement.reported(KEY) is None
