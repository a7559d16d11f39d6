"""How the replicas of a partition change when a reassignment begins, is replaced, completes or is reverted."""

import pytest

from common.ids import BrokerId, DirectoryId, LeaderEpoch, PartitionEpoch
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.registrations import PartitionRegistration
from controller.core.reassignment import Assignment, Revert, assignment_of, completed, reassigned, reverted
from tests.unit.controller.core.context import directory


def ids(*broker_ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, broker_ids))


def kept(*broker_ids: int) -> tuple[DirectoryId, ...]:
    """Returns the directory of each broker's replica. It depends only on the broker."""
    return tuple(directory(str(broker_id)) for broker_id in broker_ids)


def assigned(*replicas: int, adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> Assignment:
    return Assignment(ids(*replicas), kept(*replicas), ids(*adding), ids(*removing))


def partition(before: Assignment, isr: tuple[int, ...]) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=before.replicas,
        directories=before.directories,
        isr=ids(*isr),
        removing_replicas=before.removing,
        adding_replicas=before.adding,
        leader=BrokerId(isr[0]),
        leader_recovery_state=0,
        leader_epoch=LeaderEpoch(1),
        partition_epoch=PartitionEpoch(1),
    )


@pytest.mark.parametrize(
    ("before", "target", "expected"),
    [
        pytest.param(assigned(1, 2), (2, 3), assigned(2, 3, 1, adding=(3,), removing=(1,)), id="one moves"),
        pytest.param(assigned(2, 1), (3, 4), assigned(3, 4, 1, 2, adding=(3, 4), removing=(1, 2)), id="all move"),
        pytest.param(assigned(1), (1, 3, 2), assigned(1, 3, 2, adding=(2, 3)), id="more replicas"),
        pytest.param(assigned(1, 2, 3), (3,), assigned(3, 1, 2, removing=(1, 2)), id="fewer replicas"),
        pytest.param(assigned(1, 2, 3), (3, 1, 2), assigned(3, 1, 2), id="another order"),
        pytest.param(
            assigned(2, 3, 1, adding=(3,), removing=(1,)),
            (2, 4),
            assigned(2, 4, 1, 3, adding=(3, 4), removing=(1, 3)),
            id="another target",
        ),
        pytest.param(
            assigned(2, 3, 1, adding=(3,), removing=(1,)),
            (1, 2),
            assigned(1, 2, 3, adding=(3,), removing=(3,)),
            id="back to the original replicas",
        ),
        pytest.param(
            assigned(2, 3, 1, adding=(3,), removing=(1,)),
            (1, 2, 3),
            assigned(1, 2, 3, adding=(3,)),
            id="the replica to be removed may stay",
        ),
    ],
)
def test_a_reassignment_begins(before: Assignment, target: tuple[int, ...], expected: Assignment) -> None:
    """The replicas of the target come first, followed by those to be removed. A replica counts as added or removed in
    comparison with the replicas before any reassignment."""
    assert reassigned(before, ids(*target), lambda broker_id: directory(str(broker_id))) == expected


def test_only_new_replicas_get_a_directory() -> None:
    """A replica that stays keeps its directory. So does a replica that will be removed."""
    after = reassigned(assigned(1, 2), ids(3, 2), lambda _: UNASSIGNED)
    assert after.directories == (UNASSIGNED, *kept(2, 1))


@pytest.mark.parametrize(
    ("assignment", "isr", "expected"),
    [
        pytest.param(assigned(1, 2), (1, 2), None, id="no reassignment"),
        pytest.param(assigned(2, 3, 1, adding=(3,), removing=(1,)), (1, 2), None, id="added replica not in sync"),
        pytest.param(
            assigned(2, 3, 1, adding=(3,), removing=(1,)),
            (1, 3),
            (assigned(2, 3), ids(3)),
            id="replica that stays not in sync",
        ),
        pytest.param(
            assigned(2, 3, 4, 1, adding=(3, 4), removing=(1,)), (1, 2, 3), None, id="one of the added replicas not in sync"
        ),
        pytest.param(
            assigned(2, 3, 4, 5, 0, 1, adding=(5,), removing=(0, 1)), (0, 1, 5), None, id="fewer replicas, not all in sync"
        ),
        pytest.param(
            assigned(1, 2, 3, adding=(3,), removing=(3,)), (1, 3), None, id="back to the original, not all in sync"
        ),
        pytest.param(
            assigned(2, 3, 1, adding=(3,), removing=(1,)), (1, 3, 2), (assigned(2, 3), ids(3, 2)), id="all in sync"
        ),
        pytest.param(assigned(1, 2, adding=(2,)), (2, 1), (assigned(1, 2), ids(2, 1)), id="nothing removed"),
        pytest.param(assigned(1, 2, removing=(2,)), (2,), None, id="only the removed replica in sync"),
        pytest.param(assigned(1, 2, removing=(2,)), (1,), (assigned(1), ids(1)), id="nothing added"),
        pytest.param(
            assigned(2, 4, 1, 3, adding=(3, 4), removing=(1, 3)),
            (1, 2, 3, 4),
            (assigned(2, 4), ids(2, 4)),
            id="a replica that only an earlier reassignment added",
        ),
    ],
)
def test_a_reassignment_is_completed_when_what_it_adds_is_in_sync(
    assignment: Assignment, isr: tuple[int, ...], expected: tuple[Assignment, tuple[BrokerId, ...]] | None
) -> None:
    """The reassignment completes once every replica that it adds is in the ISR; if it reduces the number of replicas, once
    all that are left are in the ISR. The removed replicas leave the ISR at that moment."""
    assert completed(assignment, ids(*isr)) == expected


@pytest.mark.parametrize(
    ("before", "isr", "expected"),
    [
        pytest.param(
            assigned(2, 3, 1, adding=(3,), removing=(1,)),
            (3, 2, 1),
            Revert(assigned(2, 1), ids(2, 1), is_unclean=False),
            id="added replica in sync",
        ),
        pytest.param(
            assigned(2, 4, 1, 3, adding=(3, 4), removing=(1, 3)),
            (1, 3),
            Revert(assigned(2, 1), ids(1), is_unclean=False),
            id="two reassignments",
        ),
        pytest.param(
            assigned(3, 1, 2, adding=(3,), removing=(1, 2)),
            (3,),
            Revert(assigned(1, 2), ids(1), is_unclean=True),
            id="only the added replica in sync",
        ),
    ],
)
def test_a_reassignment_is_reverted(before: Assignment, isr: tuple[int, ...], expected: Revert) -> None:
    """The original replicas remain. If none of them is in the ISR, an unclean election makes the first one the ISR."""
    assert reverted(partition(before, isr)) == expected
    assert assignment_of(partition(before, isr)) == before
