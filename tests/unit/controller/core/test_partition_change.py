"""The record that brings a partition into its target state. The tests compare the whole record."""

from collections.abc import Sequence

from common.ids import NO_LEADER, BrokerId, DirectoryId, LeaderEpoch, PartitionEpoch, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.metadata.registrations import BrokerRegistration, PartitionRegistration
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import PartitionChangeRecord
from controller.core.eligibility import Eligibility
from controller.core.partition_change import ElectionRules, PartitionTarget, moves_leader, partition_change
from controller.core.reassignment import assignment_of
from tests.unit.controller.core.context import directory
from tests.unit.controller.core.test_election import broker

TOPIC = TopicId(Uuid(b"t" * 16))
A, B, C = directory("a"), directory("b"), directory("c")
EVERYBODY = (broker(1, [A]), broker(2, [B]), broker(3, [C]))


def partition(
    *,
    isr: Sequence[int] = (1, 2, 3),
    leader: int = 1,
    directories: Sequence[DirectoryId] = (A, B, C),
    recovery: int = 0,
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        directories=tuple(directories),
        isr=tuple(map(BrokerId, isr)),
        removing_replicas=(),
        adding_replicas=(),
        leader=BrokerId(leader),
        leader_recovery_state=recovery,
        leader_epoch=LeaderEpoch(4),
        partition_epoch=PartitionEpoch(7),
    )


def change(
    current: PartitionRegistration,
    brokers: Sequence[BrokerRegistration] = EVERYBODY,
    *,
    level: int = 21,
    unclean: bool = False,
    isr: Sequence[int] | None = None,
    directories: Sequence[DirectoryId] | None = None,
    leader_recovery_state: int | None = None,
) -> ApiMessageAndVersion | None:
    state = MetadataState()
    for registration in brokers:
        state.brokers[registration.broker_id] = registration
    target = PartitionTarget(
        isr=None if isr is None else [BrokerId(each) for each in isr],
        assignment=None if directories is None else assignment_of(current)._replace(directories=tuple(directories)),
        leader_recovery_state=leader_recovery_state,
    )
    rules = ElectionRules(eligibility=Eligibility(state), is_unclean_allowed=unclean, metadata_version=level)
    return partition_change(TopicIdPartition(TOPIC, 0), current, target, rules)


def record(
    *,
    isr: list[int] | None = None,
    leader: int = -2,
    directories: Sequence[DirectoryId] | None = None,
    leader_recovery_state: int = -1,
    version: int = 1,
) -> ApiMessageAndVersion:
    made = PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        isr=isr,
        leader=leader,
        directories=None if directories is None else list(directories),
        leader_recovery_state=leader_recovery_state,
    )
    return ApiMessageAndVersion(made, version)


def test_no_change_is_no_record() -> None:
    """The election keeps the leader, and the ISR and the directories stay the same."""
    assert change(partition()) is None
    assert change(partition(), isr=[1, 2, 3], directories=[A, B, C], leader_recovery_state=0) is None


def test_a_smaller_isr_leaves_the_leader_alone() -> None:
    """The record has only the ISR, so the leader epoch stays."""
    made = change(partition(), isr=[1, 3])
    assert made == record(isr=[1, 3])
    assert made is not None
    assert not moves_leader(made)


def test_a_smaller_isr_names_the_leader_again_below_3_6() -> None:
    """Below 3.6, a record that shrinks the ISR also names the unchanged leader, which bumps the leader epoch. ISR growth
    does not."""
    assert change(partition(), level=11, isr=[1, 3]) == record(isr=[1, 3], leader=1, version=0)
    assert change(partition(isr=[1]), level=11, isr=[1, 2]) == record(isr=[1, 2], version=0)


def test_a_leader_outside_the_new_isr_is_replaced() -> None:
    """The first eligible ISR member in replica order becomes the leader."""
    made = change(partition(), isr=[3, 2])
    assert made == record(isr=[3, 2], leader=2)
    assert made is not None
    assert moves_leader(made)


def test_the_isr_never_becomes_empty() -> None:
    """The sole member stays, and the partition has no leader if that member cannot lead."""
    dead = (broker(1, [A], fenced=True), *EVERYBODY[1:])
    assert change(partition(isr=[1]), dead, isr=[]) == record(leader=NO_LEADER)
    assert change(partition(isr=[1], leader=-1), dead, isr=[]) is None


def test_any_change_heals_a_leaderless_partition() -> None:
    """An election is held whatever the reason for the change."""
    assert change(partition(isr=[2], leader=-1)) == record(leader=2)


def test_an_assignment_changes_directories_and_leader_in_one_record() -> None:
    """One record changes both, so the leader is never in a directory that is known to have failed."""
    gone = directory("gone")
    assert change(partition(), isr=[2, 3], directories=[gone, B, C]) == record(
        isr=[2, 3], leader=2, directories=[gone, B, C]
    )


def test_an_unclean_leader_is_alone_and_recovering() -> None:
    """The partition stays RECOVERING through a second unclean election."""
    dead = (broker(1, [A], fenced=True), *EVERYBODY[1:])
    assert change(partition(isr=[1]), dead, isr=[], unclean=True) == record(isr=[2], leader=2, leader_recovery_state=1)
    assert change(partition(isr=[1], recovery=1), dead, isr=[], unclean=True) == record(isr=[2], leader=2)


def test_a_lost_replica_is_revived_in_one_record() -> None:
    """One record sets the replica's directory to UNASSIGNED, makes the replica the leader and sets RECOVERING."""
    dead = (broker(1, [A], fenced=True), broker(3, [C]))
    assert change(partition(isr=[1], leader=-1, directories=[A, B, LOST]), dead, unclean=True) == record(
        isr=[3], leader=3, directories=[A, B, UNASSIGNED], leader_recovery_state=1
    )


def test_a_revived_replica_that_led_before_leads_in_a_new_epoch() -> None:
    """The record names the leader although its id is unchanged, because this bumps the leader epoch. It does so even if the
    partition was already RECOVERING."""
    for recovery in (0, 1):
        made = change(
            partition(isr=[3], leader=3, recovery=recovery),
            (broker(3, [C]),),
            directories=[A, B, LOST],
            unclean=True,
        )
        assert made == record(leader=3, directories=[A, B, UNASSIGNED], leader_recovery_state=-1 if recovery else 1)


def test_recovery_ends_by_the_leaders_word() -> None:
    """The leader of an uncleanly elected partition reports that it has recovered."""
    assert change(partition(isr=[1], recovery=1), isr=[1], leader_recovery_state=0) == record(leader_recovery_state=0)
