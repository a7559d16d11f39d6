"""The gate of KIP-858: fixed once, and open when every replica of the set is settled in applied metadata."""

import pytest

from broker.core.unfence_gate import UnfenceGate
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST, UNASSIGNED

T = TopicId(Uuid(b"t" * 16))
D1 = DirectoryId(Uuid(b"1" * 16))
REPLICA = TopicIdPartition(T, 0)


@pytest.mark.parametrize(
    ("assigned", "unplaceable", "opens"),
    [
        (UNASSIGNED, False, False),
        (D1, False, True),
        (LOST, False, True),
        (None, False, True),
        (UNASSIGNED, True, True),
    ],
)
def test_a_replica_is_settled_by_agreement_loss_removal_or_no_place(
    assigned: DirectoryId | None, unplaceable: bool, opens: bool
) -> None:
    """One replica, each way in which it can stop holding the broker back."""
    gate = UnfenceGate()
    assert not gate.is_open
    gate.fix([REPLICA])
    gate.update(assigned=lambda _: assigned, hosted={REPLICA: D1}, unplaceable=lambda _: unplaceable)
    assert gate.is_open is opens


def test_an_empty_set_opens_at_once_and_the_set_is_fixed_once() -> None:
    """Later assignments never count."""
    gate = UnfenceGate()
    gate.fix([])
    assert gate.is_open
    with pytest.raises(AssertionError, match="once"):
        gate.fix([REPLICA])
