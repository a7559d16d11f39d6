"""The gauges count each leader as what it is now, whatever changed before."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.partition_replica import PartitionReplica, Role
from broker.core.replica_counts import ReplicaCounts, Standing
from common.ids import BrokerId, TopicId, TopicIdPartition, Uuid

TOPIC = TopicId(Uuid(b"T" * 16))


def replica(role: Role, isr: int, *, replicas: int = 3, min_isr: int = 2, adding: int = 0) -> PartitionReplica:
    """A replica with the first `isr` of its replicas in sync."""
    ids = tuple(BrokerId(number) for number in range(1, replicas + 1))
    return PartitionReplica(
        BrokerId(1),
        lambda _: None,
        0,
        role=role,
        replicas=ids,
        committed_isr=ids[:isr],
        adding_replicas=ids[replicas - adding :],
        min_insync_replicas=min_isr,
    )


def counted(counts: ReplicaCounts) -> dict[Standing, int]:
    return {standing: counts.count(standing) for standing in Standing if counts.count(standing)}


def test_what_a_leader_counts_as() -> None:
    """A leader below min.insync.replicas is under-replicated, too. One that is exactly at the minimum need not be. Replicas
    that are being added are not missing."""
    for isr, adding, expected in (
        (3, 0, {Standing.LEADER}),
        (2, 0, {Standing.LEADER, Standing.UNDER_REPLICATED, Standing.AT_MIN_ISR}),
        (1, 0, {Standing.LEADER, Standing.UNDER_REPLICATED, Standing.UNDER_MIN_ISR}),
        (2, 1, {Standing.LEADER, Standing.AT_MIN_ISR, Standing.REASSIGNING}),
    ):
        counts = ReplicaCounts()
        counts.note(TopicIdPartition(TOPIC, 0), replica(Role.LEADER, isr, adding=adding))
        assert counted(counts) == dict.fromkeys(expected, 1)


def test_followers_and_replicas_that_left_count_as_nothing() -> None:
    counts = ReplicaCounts()
    key = TopicIdPartition(TOPIC, 0)
    counts.note(key, replica(Role.LEADER, 1))
    for role in (Role.FOLLOWER, Role.NONE):
        counts.note(key, replica(role, 1))
        assert counted(counts) == {}


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(Role), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1)),
        max_size=30,
    )
)
def test_any_changes_end_in_the_counts_of_the_last_ones(changes: list[tuple[int, Role, int, int, int]]) -> None:
    """The counts after any changes are those of a table that has seen only the last state of each replica."""
    counts, fresh = ReplicaCounts(), ReplicaCounts()
    last: dict[TopicIdPartition, PartitionReplica] = {}
    for index, role, isr, min_isr, adding in changes:
        key = TopicIdPartition(TOPIC, index)
        last[key] = replica(role, isr, min_isr=min_isr, adding=adding)
        counts.note(key, last[key])
    for key, state in last.items():
        fresh.note(key, state)
    assert counted(counts) == counted(fresh)
