"""The gate that keeps a new incarnation fenced (KIP-858): its set of replicas is fixed once, and it opens when applied
metadata has settled all of them."""

import pytest

from broker.core.hosted_replicas import ReplicaPlace
from broker.core.unfence_gate import UnfenceGate
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import UNASSIGNED

T = TopicId(Uuid(b"t" * 16))
D1 = DirectoryId(Uuid(b"1" * 16))
R0, R1, R2 = (TopicIdPartition(T, index) for index in range(3))


class Places:
    """Stands for replicas whose logs are in D1. The metadata names D1 only for those in `agreed`."""

    def __init__(self, *agreed: TopicIdPartition) -> None:
        self.agreed = dict.fromkeys(agreed)

    def __call__(self, key: TopicIdPartition) -> ReplicaPlace:
        return ReplicaPlace(
            assigned=D1 if key in self.agreed else UNASSIGNED,
            assigned_is_online=True,
            hosted=D1,
            has_wish=key not in self.agreed,
            is_being_created=False,
            is_unplaceable=False,
        )


def test_it_waits_for_what_is_not_settled_and_opens_when_the_last_one_is() -> None:
    """The gate does not wait for replicas that are settled when its set is fixed, nor for replicas that come later. Once a
    replica in the set has been settled, the gate never waits for it again."""
    gate = UnfenceGate()
    assert not gate.is_fixed
    gate.update(Places(R0))
    assert not gate.is_open
    gate.fix([R0, R1, R2], Places(R0))
    assert gate.is_fixed
    assert gate.waiting == (R1, R2)
    gate.update(Places(R1))
    assert gate.waiting == (R2,)
    assert not gate.is_open
    gate.update(Places(R2))
    assert gate.is_open


def test_an_empty_set_opens_at_once_and_the_set_is_fixed_once() -> None:
    """If there is no replica to wait for, the gate opens at once. Fixing the set a second time is an error."""
    gate = UnfenceGate()
    gate.fix([], Places())
    assert gate.is_open
    with pytest.raises(AssertionError, match="once"):
        gate.fix([R0], Places())
