"""One replica as leader and follower: high watermark, ISR and acks=all, with whole effect lists compared."""

from dataclasses import replace

import pytest

from broker.core.partition_replica import (
    NO_BROKER_EPOCH,
    REFUSAL_PAUSE_FIRST_NS,
    REFUSAL_PAUSE_MAX_NS,
    AlterPartitionResult,
    Effect,
    HighWatermarkAdvanced,
    IsrCommitted,
    IsrMember,
    IsrProposal,
    IsrRejected,
    PartitionReplica,
    ProposeIsr,
    Role,
    SessionClock,
)
from common.ids import (
    ZERO_UUID,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    Uuid,
)
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.registrations import BrokerRegistration, LeaderRecoveryState, PartitionRegistration
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_S

LAG_MAX = 30 * NS_PER_S
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def broker(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(broker_id),
        epoch=BrokerEpoch(100 + broker_id),
        incarnation_id=IncarnationId(ZERO_UUID),
        endpoints=(),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
    )


def partition(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=tuple(BrokerId(member) for member in replicas),
        directories=(UNASSIGNED,) * len(replicas),
        isr=tuple(BrokerId(member) for member in isr),
        removing_replicas=(),
        adding_replicas=(),
        leader=BrokerId(leader),
        leader_recovery_state=recovery,
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=PartitionEpoch(partition_epoch),
    )


def nobody(broker_id: BrokerId) -> BrokerRegistration | None:
    """Looks up a broker in metadata without any brokers."""


class LeaderContext:
    """Broker 1's replica of a partition on brokers 1, 2 and 3. Its methods pass the time `now_ns`, which the tests
    advance."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), *, log_end: int = 10, high_watermark: int = 0, min_insync: int = 1
    ) -> None:
        self.brokers = {BrokerId(number): broker(number) for number in (1, 2, 3)}
        self.now_ns = 1000 * NS_PER_S
        self.replica = PartitionReplica(ONE, self.brokers.get, LAG_MAX, min_insync_replicas=min_insync)
        self.replica.log_end_offset = Offset(log_end)
        self.replica.high_watermark = Offset(high_watermark)
        self.lead(partition(isr))

    def lead(self, registration: PartitionRegistration) -> list[Effect]:
        return self.replica.become_leader(
            registration, now_ns=self.now_ns, leader_epoch_start_offset=self.replica.log_end_offset
        )

    def fetch(
        self,
        broker_id: BrokerId,
        offset: int,
        *,
        epoch: int | None = None,
        clock: SessionClock | None = None,
        is_halted: bool = False,
    ) -> list[Effect]:
        return self.replica.follower_fetched(
            broker_id,
            fetch_offset=Offset(offset),
            log_start_offset=Offset(0),
            broker_epoch=BrokerEpoch(100 + broker_id if epoch is None else epoch),
            now_ns=self.now_ns,
            clock=clock,
            is_halted=is_halted,
        )

    def configure(self, min_insync: int) -> list[Effect]:
        return self.replica.set_min_insync_replicas(min_insync, self.now_ns)

    def write(self, end: int) -> list[Effect]:
        return self.replica.written(Offset(end), self.now_ns)

    def answer(self, result: AlterPartitionResult) -> list[Effect]:
        assert self.replica.proposal is not None
        return self.replica.handle_alter_partition_result(self.replica.proposal, result, self.now_ns)

    def accept(self, isr: tuple[int, ...], *, partition_epoch: int = 8) -> list[Effect]:
        return self.answer(
            AlterPartitionResult(
                error=ErrorCode.NONE,
                leader=ONE,
                leader_epoch=LeaderEpoch(5),
                isr=tuple(BrokerId(member) for member in isr),
                partition_epoch=PartitionEpoch(partition_epoch),
            )
        )


def proposed(effects: list[Effect]) -> list[IsrProposal]:
    return [effect.proposal for effect in effects if isinstance(effect, ProposeIsr)]


# --- high watermark ----------------------------------------------------------------------------------------------


def test_high_watermark_follows_the_slowest_isr_member() -> None:
    """The high watermark does not advance until every ISR member has fetched. Then it is the smallest end offset."""
    leader = LeaderContext()
    assert leader.write(20) == []
    assert leader.fetch(TWO, 20) == []
    assert leader.fetch(THREE, 15) == [HighWatermarkAdvanced(Offset(15))]
    assert leader.fetch(THREE, 20) == [HighWatermarkAdvanced(Offset(20))]
    assert leader.fetch(THREE, 12) == []
    assert leader.replica.high_watermark == 20


def test_a_leader_alone_in_the_isr_advances_with_its_own_writes() -> None:
    """With a single replica, what is written is committed."""
    leader = LeaderContext((1,))
    assert leader.replica.high_watermark == 10
    assert leader.write(11) == [HighWatermarkAdvanced(Offset(11))]


def test_high_watermark_waits_for_a_caught_up_replica_that_could_join() -> None:
    """A follower outside the ISR that has caught up is about to join the ISR. Records that the follower does not have must
    therefore not be committed."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    assert len(proposed(leader.fetch(TWO, 10))) == 1
    leader.answer(AlterPartitionResult(error=ErrorCode.INELIGIBLE_REPLICA))
    assert leader.write(20) == []
    leader.now_ns += LAG_MAX + 1
    assert leader.write(21) == [HighWatermarkAdvanced(Offset(21))]


@pytest.mark.parametrize("change", ["fenced", "in_controlled_shutdown", "epoch"])
def test_high_watermark_ignores_a_caught_up_replica_that_may_not_join(change: str) -> None:
    """KAFKA-15021: followers that are fenced, shutting down or restarted keep fetching, and must not stall acks=all."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.fetch(TWO, 10)
    leader.answer(AlterPartitionResult(error=ErrorCode.INELIGIBLE_REPLICA))
    assert leader.write(20) == []
    known = leader.brokers[TWO]
    changed = {
        "fenced": replace(known, fenced=True),
        "in_controlled_shutdown": replace(known, in_controlled_shutdown=True),
        "epoch": replace(known, epoch=BrokerEpoch(999)),
    }
    leader.brokers[TWO] = changed[change]
    assert leader.replica.brokers_changed(leader.now_ns) == [HighWatermarkAdvanced(Offset(20))]


def test_high_watermark_ignores_a_replica_on_a_failed_disk() -> None:
    """The follower's broker is healthy, and the follower was caught up a moment ago. But its assigned directory is gone, so
    it will not fetch again, and acks=all must not wait for the lag time to pass."""
    leader = LeaderContext((1, 2), log_end=10)
    alive, dead = DirectoryId(Uuid(b"A" * 16)), DirectoryId(Uuid(b"D" * 16))
    leader.brokers[THREE] = replace(leader.brokers[THREE], directories=(alive, dead))
    leader.lead(partition(leader_epoch=6)._replace(directories=(UNASSIGNED, UNASSIGNED, dead)))
    leader.fetch(TWO, 10)
    leader.fetch(THREE, 10)
    leader.write(20)
    leader.fetch(TWO, 20)
    shrunk = partition((1, 2), leader_epoch=6, partition_epoch=8)
    assert leader.lead(shrunk._replace(directories=(UNASSIGNED, UNASSIGNED, dead))) == []
    leader.brokers[THREE] = replace(leader.brokers[THREE], directories=(alive,))
    assert leader.replica.brokers_changed(leader.now_ns) == [HighWatermarkAdvanced(Offset(20))]
    # The replica cannot be proposed either, whatever it fetches.
    assert leader.fetch(THREE, 20) == []


def test_time_alone_releases_the_high_watermark() -> None:
    """If a follower that is about to join the ISR stops fetching, no more events arrive. The periodic ISR check must release
    the high watermark."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.fetch(TWO, 10)
    leader.answer(AlterPartitionResult(error=ErrorCode.INELIGIBLE_REPLICA))
    assert leader.write(20) == []
    leader.now_ns += LAG_MAX + 1
    assert leader.replica.maybe_shrink_isr(leader.now_ns) == [HighWatermarkAdvanced(Offset(20))]


def test_high_watermark_stands_still_below_min_insync_replicas() -> None:
    """While the committed ISR is too small, no write, fetch or passing of time advances the high watermark. Proposed members
    do not count."""
    leader = LeaderContext((1,), log_end=10, high_watermark=4, min_insync=2)
    assert leader.write(20) == []
    assert proposed(leader.fetch(TWO, 20)) != []
    leader.now_ns += 2 * LAG_MAX
    assert leader.replica.maybe_shrink_isr(leader.now_ns) == []
    assert leader.replica.brokers_changed(leader.now_ns) == []
    assert leader.replica.high_watermark == 4


def test_an_isr_that_has_grown_back_releases_the_high_watermark() -> None:
    """The high watermark advances with the answer to the proposal or with the record of the change, whichever comes
    first."""
    for is_record_first in (False, True):
        leader = LeaderContext((1,), log_end=10, high_watermark=4, min_insync=2)
        leader.fetch(TWO, 10)
        effects = leader.lead(partition((1, 2), partition_epoch=8)) if is_record_first else leader.accept((1, 2))
        assert effects == [IsrCommitted((ONE,), (ONE, TWO)), HighWatermarkAdvanced(Offset(10))]


def test_an_isr_that_shrinks_below_min_insync_replicas_stops_the_high_watermark() -> None:
    """The remaining members have all records but are too few to commit more. Records that were committed stay committed."""
    leader = LeaderContext((1, 2), log_end=10, min_insync=2)
    assert leader.fetch(TWO, 6) == [HighWatermarkAdvanced(Offset(6))]
    leader.now_ns += 2 * LAG_MAX
    assert proposed(leader.replica.maybe_shrink_isr(leader.now_ns)) != []
    assert leader.accept((1,)) == [IsrCommitted((ONE, TWO), (ONE,))]
    assert leader.write(20) == []
    assert leader.replica.high_watermark == 6


def test_a_lower_min_insync_replicas_releases_the_high_watermark() -> None:
    """The high watermark advances at once. Raising the minimum again does not move it back."""
    leader = LeaderContext((1,), log_end=10, high_watermark=4, min_insync=3)
    assert leader.configure(2) == []
    assert leader.configure(1) == [HighWatermarkAdvanced(Offset(10))]
    assert leader.configure(3) == []
    assert leader.replica.high_watermark == 10


def test_fewer_replicas_release_the_high_watermark() -> None:
    """A reassignment to one replica makes an ISR of one enough."""
    leader = LeaderContext((1,), log_end=10, high_watermark=4, min_insync=2)
    assert leader.lead(partition((1,), replicas=(1,), partition_epoch=8)) == [HighWatermarkAdvanced(Offset(10))]


def test_a_followers_high_watermark_does_not_depend_on_its_isr() -> None:
    """The leader decides what is committed. The ISR that a follower knows may be outdated, so the follower does not check
    it."""
    replica = PartitionReplica(TWO, nobody, LAG_MAX, log_end_offset=Offset(10), min_insync_replicas=2)
    replica.become_follower(partition((1,)))
    assert replica.leader_high_watermark(Offset(8)) == [HighWatermarkAdvanced(Offset(8))]
    assert replica.set_min_insync_replicas(1, 0) == []


def test_the_record_of_an_isr_change_may_come_before_its_answer() -> None:
    """The leader applies the ISR change once, whether its record or its answer comes first."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    [proposal] = proposed(leader.fetch(TWO, 10))
    assert leader.lead(partition((1, 2), partition_epoch=8)) == [IsrCommitted((ONE,), (ONE, TWO))]
    result = AlterPartitionResult(
        error=ErrorCode.NONE, leader=ONE, leader_epoch=LeaderEpoch(5), isr=(ONE, TWO), partition_epoch=PartitionEpoch(8)
    )
    assert leader.replica.handle_alter_partition_result(proposal, result, leader.now_ns) == []


def test_what_followers_had_of_a_leaders_lost_appends_does_not_count() -> None:
    """A new leader inherits an append that has not reached its disk yet, and a follower already has that record. The append
    fails and the log is reloaded without it. The next record gets the same offset, and the follower does not have it (seed
    90283)."""
    leader = LeaderContext((1, 2), log_end=8, high_watermark=8)
    leader.fetch(TWO, 10)
    leader.replica.truncated(log_start_offset=Offset(0), log_end_offset=Offset(8))
    assert leader.replica.written(Offset(9), leader.now_ns) == []
    assert leader.replica.high_watermark == 8
    assert leader.fetch(TWO, 9) == [HighWatermarkAdvanced(Offset(9))]


def test_follower_takes_over_the_high_watermark_within_its_log() -> None:
    """A follower's high watermark never exceeds its written log, and only a truncation moves it back."""
    replica = PartitionReplica(TWO, nobody, LAG_MAX)
    replica.become_follower(partition())
    replica.written(Offset(8), 0)
    assert replica.leader_high_watermark(Offset(5)) == [HighWatermarkAdvanced(Offset(5))]
    assert replica.leader_high_watermark(Offset(4)) == []
    assert replica.leader_high_watermark(Offset(50)) == [HighWatermarkAdvanced(Offset(8))]
    replica.truncated(log_start_offset=Offset(0), log_end_offset=Offset(6))
    assert (replica.log_end_offset, replica.high_watermark) == (6, 6)
    replica.truncated(log_start_offset=Offset(100), log_end_offset=Offset(100))
    assert (replica.log_start_offset, replica.log_end_offset, replica.high_watermark) == (100, 100, 100)


@pytest.mark.parametrize(("checkpointed", "expected"), [(0, 4), (7, 7), (50, 9)])
def test_a_checkpointed_high_watermark_is_bounded_by_the_log(checkpointed: int, expected: int) -> None:
    """The checkpoint may be older than the log's start or newer than its recovered end."""
    replica = PartitionReplica(ONE, nobody, LAG_MAX, log_start_offset=Offset(4), log_end_offset=Offset(9))
    replica.load_high_watermark(Offset(checkpointed))
    assert replica.high_watermark == expected


# --- shrinking ---------------------------------------------------------------------------------------------------


def test_isr_shrinks_after_the_lag_time() -> None:
    """The leader proposes to remove a member that lags longer than replica.lag.time.max.ms. The proposal has the epochs of
    the leader, the partition and the remaining members."""
    leader = LeaderContext()
    leader.fetch(TWO, 10)
    leader.fetch(THREE, 10)
    leader.write(20)
    leader.now_ns += LAG_MAX
    leader.fetch(TWO, 20)
    assert leader.replica.maybe_shrink_isr(leader.now_ns) == []
    leader.now_ns += 1
    effects = leader.replica.maybe_shrink_isr(leader.now_ns)
    [proposal] = proposed(effects)
    assert effects == [ProposeIsr(proposal)]
    assert proposal.members == (IsrMember(ONE, BrokerEpoch(101)), IsrMember(TWO, BrokerEpoch(102)))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)
    # The removal is not committed yet, so the member still holds back the high watermark.
    assert leader.replica.maximal_isr == (1, 2, 3)
    assert leader.replica.maybe_shrink_isr(leader.now_ns) == []
    assert leader.accept((1, 2)) == [IsrCommitted((ONE, TWO, THREE), (ONE, TWO)), HighWatermarkAdvanced(Offset(20))]


def test_a_member_that_never_fetched_has_the_lag_time_from_the_election_on() -> None:
    """A new leader gives ISR members the lag time to find it before it proposes to remove them."""
    leader = LeaderContext((1, 2))
    leader.now_ns += LAG_MAX
    assert leader.replica.maybe_shrink_isr(leader.now_ns) == []
    leader.now_ns += 1
    [proposal] = proposed(leader.replica.maybe_shrink_isr(leader.now_ns))
    assert proposal.isr == (ONE,)


def test_a_session_that_goes_on_fetching_confirms_what_it_does_not_name() -> None:
    """For ten minutes nothing is written and the session does not name the partition. The record after that does not cost
    the follower its place in the ISR, unless it lags from now on."""
    context = LeaderContext((1, 2))
    clock = SessionClock(context.now_ns)
    context.fetch(TWO, 10, clock=clock)
    context.now_ns += 600 * NS_PER_S
    clock.last_fetch_ns = context.now_ns
    context.write(11)
    context.now_ns += LAG_MAX
    assert proposed(context.replica.maybe_shrink_isr(context.now_ns)) == []
    context.now_ns += 1
    (proposal,) = proposed(context.replica.maybe_shrink_isr(context.now_ns))
    assert proposal.isr == (1,)


def test_a_session_that_no_longer_fetches_confirms_nothing() -> None:
    """The follower died ten minutes ago, with everything that there was. It lags as soon as there is more."""
    context = LeaderContext((1, 2))
    context.fetch(TWO, 10, clock=SessionClock(context.now_ns))
    context.now_ns += 600 * NS_PER_S
    assert proposed(context.replica.maybe_shrink_isr(context.now_ns)) == []
    context.write(11)
    assert len(proposed(context.replica.maybe_shrink_isr(context.now_ns))) == 1


def test_a_session_confirms_nothing_beyond_what_the_follower_has() -> None:
    """The session goes on fetching, but the follower does not get on with this partition."""
    context = LeaderContext((1, 2))
    clock = SessionClock(context.now_ns)
    context.fetch(TWO, 9, clock=clock)
    context.now_ns += LAG_MAX + 1
    clock.last_fetch_ns = context.now_ns
    context.write(11)
    assert len(proposed(context.replica.maybe_shrink_isr(context.now_ns))) == 1


@pytest.mark.parametrize("leaves", [True, False])
def test_a_partition_outside_the_session_is_not_confirmed_by_it(leaves: bool) -> None:
    """The follower has taken the partition out of its session, or fetches it without a session."""
    context = LeaderContext((1, 2))
    clock = SessionClock(context.now_ns)
    context.fetch(TWO, 10, clock=clock)
    if leaves:
        context.replica.left_session(clock)
    else:
        context.fetch(TWO, 10)
    context.now_ns += LAG_MAX + 1
    clock.last_fetch_ns = context.now_ns
    context.write(11)
    assert len(proposed(context.replica.maybe_shrink_isr(context.now_ns))) == 1


def test_a_follower_that_reaches_where_the_leader_was_counts_as_caught_up() -> None:
    """While producers write all the time, no fetch reaches the log's end. It is enough if a fetch reaches the end that the
    log had at the previous fetch."""
    leader = LeaderContext((1, 2))
    leader.fetch(TWO, 10)
    for end in range(20, 80, 10):
        leader.write(end)
        leader.now_ns += LAG_MAX // 2
        leader.fetch(TWO, end - 10)
        assert leader.replica.maybe_shrink_isr(leader.now_ns) == []


# --- expanding ---------------------------------------------------------------------------------------------------


def test_isr_expands_when_a_follower_reaches_the_high_watermark() -> None:
    """A follower may join once it has reached both the high watermark and the start of the leader's epoch."""
    leader = LeaderContext((1, 2), log_end=10, high_watermark=4)
    leader.fetch(TWO, 10)
    assert leader.replica.high_watermark == 10
    assert proposed(leader.fetch(THREE, 9)) == []
    [proposal] = proposed(leader.fetch(THREE, 10))
    assert proposal.members == (
        IsrMember(ONE, BrokerEpoch(101)),
        IsrMember(TWO, BrokerEpoch(102)),
        IsrMember(THREE, BrokerEpoch(103)),
    )
    assert leader.replica.maximal_isr == (1, 2, 3)
    assert leader.replica.committed_isr == (1, 2)
    assert leader.accept((1, 2, 3)) == [IsrCommitted((ONE, TWO), (ONE, TWO, THREE))]


def test_a_follower_below_the_epoch_start_may_not_join() -> None:
    """A new leader's high watermark may be too low. Only a follower that has reached the start of the leader's epoch
    certainly has all committed records."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.replica.high_watermark = Offset(3)
    assert proposed(leader.fetch(TWO, 5)) == []
    assert len(proposed(leader.fetch(TWO, 10))) == 1


def test_the_proposed_member_holds_back_the_high_watermark() -> None:
    """The controller may already have the proposed member in the ISR, so a record is committed only when that member has it,
    too."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.fetch(TWO, 10)
    leader.now_ns += 2 * LAG_MAX
    assert leader.write(20) == []
    assert leader.replica.acks_all_result(Offset(20)) is None


@pytest.mark.parametrize("change", ["fenced", "in_controlled_shutdown", "epoch", "unregistered"])
def test_an_ineligible_follower_is_not_proposed(change: str) -> None:
    """KIP-841 and KIP-903: a new member must be unfenced, not shutting down, and of the incarnation in the metadata."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    known = leader.brokers.pop(TWO)
    if change == "epoch":
        leader.brokers[TWO] = replace(known, epoch=BrokerEpoch(50))
    elif change != "unregistered":
        leader.brokers[TWO] = (
            replace(known, fenced=True) if change == "fenced" else replace(known, in_controlled_shutdown=True)
        )
    assert leader.fetch(TWO, 10) == []


def test_a_fetch_of_a_replaced_incarnation_changes_nothing() -> None:
    """A late fetch of the previous incarnation must not count for the new one, which may have lost records."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.brokers[TWO] = replace(leader.brokers[TWO], epoch=BrokerEpoch(500))
    assert leader.replica.is_stale_fetch(TWO, BrokerEpoch(102))
    assert leader.fetch(TWO, 10, epoch=102) == []
    assert leader.replica.followers[TWO].log_end_offset == -1


def test_a_fetch_without_epoch_is_accepted() -> None:
    """Followers with an older Fetch version send no broker epoch. The proposal then has -1, and the controller skips its
    epoch check for that member."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    [proposal] = proposed(leader.fetch(TWO, 10, epoch=-1))
    assert proposal.members[1] == IsrMember(TWO, NO_BROKER_EPOCH)


def test_two_followers_catch_up_one_after_the_other() -> None:
    """There is one proposal at a time. The answer to the first triggers the second, without waiting for a fetch."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    [first] = proposed(leader.fetch(TWO, 10))
    assert proposed(leader.fetch(THREE, 10)) == []
    effects = leader.accept((1, 2))
    [second] = proposed(effects)
    assert effects == [IsrCommitted((ONE,), (ONE, TWO)), ProposeIsr(second)]
    assert [first.isr, second.isr] == [(1, 2), (1, 2, 3)]
    assert second.partition_epoch == 8


# --- answers of the controller -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_an_ineligible_replica_reverts_the_proposal(error: ErrorCode) -> None:
    """The controller has changed nothing, so the proposed members are dropped from the maximal ISR at once. The leader does
    not retry."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.fetch(TWO, 10)
    again_ns = leader.now_ns + REFUSAL_PAUSE_FIRST_NS
    assert leader.answer(AlterPartitionResult(error=error)) == [IsrRejected((ONE, TWO), error, again_ns)]
    assert leader.replica.proposal is None
    assert leader.replica.maximal_isr == (1,)


def refuse(leader: LeaderContext) -> int:
    """Lets follower 2 be proposed and refused. Returns the pause in ns."""
    assert len(proposed(leader.fetch(TWO, 10))) == 1
    (rejected,) = leader.answer(AlterPartitionResult(error=ErrorCode.INELIGIBLE_REPLICA))
    assert isinstance(rejected, IsrRejected)
    assert rejected.again_ns is not None
    return rejected.again_ns - leader.now_ns


def test_a_follower_that_is_refused_is_proposed_again_after_longer_and_longer_pauses() -> None:
    """Rule 4: the metadata here is behind. However often the follower fetches, it is not proposed before the pause has
    passed. The pause doubles up to its bound, and an accepted ISR ends it."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    pauses = []
    for _ in range(9):
        pauses.append(refuse(leader))
        assert leader.fetch(TWO, 10) == []
        leader.now_ns += pauses[-1] - 1
        assert leader.fetch(TWO, 10) == []
        leader.now_ns += 1
    assert pauses == [min(REFUSAL_PAUSE_FIRST_NS << number, REFUSAL_PAUSE_MAX_NS) for number in range(9)]
    assert len(proposed(leader.fetch(TWO, 10))) == 1
    leader.accept((1, 2))
    leader.write(11)
    leader.now_ns += LAG_MAX + 1
    assert len(proposed(leader.replica.maybe_shrink_isr(leader.now_ns))) == 1
    leader.accept((1,), partition_epoch=9)
    leader.fetch(TWO, 11)
    assert leader.answer(AlterPartitionResult(error=ErrorCode.INELIGIBLE_REPLICA)) == [
        IsrRejected((ONE, TWO), ErrorCode.INELIGIBLE_REPLICA, leader.now_ns + REFUSAL_PAUSE_FIRST_NS)
    ]


@pytest.mark.parametrize("news", ["broker", "partition"])
def test_newer_metadata_ends_the_pause_of_a_refused_follower(news: str) -> None:
    """What the controller knew when it refused the follower may be what has just been applied here."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    refuse(leader)
    if news == "broker":
        leader.brokers[TWO] = replace(leader.brokers[TWO], lost_directories=(DirectoryId(Uuid(b"L" * 16)),))
    else:
        leader.lead(partition((1,), partition_epoch=8))
    assert len(proposed(leader.fetch(TWO, 10))) == 1


def test_the_pause_of_one_follower_does_not_hold_up_another_one() -> None:
    """Follower 2 is refused, follower 3 may join at once."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    refuse(leader)
    assert [each.isr for each in proposed(leader.fetch(THREE, 10))] == [(1, 3)]


def test_a_refused_shrink_has_no_pause() -> None:
    """Nobody would have joined. The periodic look proposes it again."""
    leader = LeaderContext((1, 2), log_end=20, high_watermark=10)
    leader.now_ns += LAG_MAX + 1
    leader.replica.maybe_shrink_isr(leader.now_ns)
    rejected = leader.answer(AlterPartitionResult(error=ErrorCode.OPERATION_NOT_ATTEMPTED))
    assert rejected == [IsrRejected((ONE,), ErrorCode.OPERATION_NOT_ATTEMPTED)]
    assert len(proposed(leader.replica.maybe_shrink_isr(leader.now_ns))) == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_an_outdated_proposal_waits_for_the_metadata(error: ErrorCode) -> None:
    """An earlier attempt, whose answer was lost, may have changed the ISR. So the leader keeps the maximal ISR until the
    metadata arrives."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.fetch(TWO, 10)
    assert leader.answer(AlterPartitionResult(error=error)) == [IsrRejected((ONE, TWO), error)]
    assert leader.replica.maximal_isr == (1, 2)
    leader.lead(partition((1,), partition_epoch=8))
    assert list(leader.replica.maximal_isr) == [ONE]


def test_other_errors_are_tried_again() -> None:
    """The same proposal goes out again, so that a late answer to the first attempt still fits."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    [proposal] = proposed(leader.fetch(TWO, 10))
    assert leader.answer(AlterPartitionResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)) == [ProposeIsr(proposal)]


def test_a_reassignment_ends_even_if_the_answer_to_the_proposal_comes_before_the_metadata() -> None:
    """The ISR with the new replica completes the reassignment. A follower that lags later makes the partition
    under-replicated, which it would not be as long as the replica counted as one to be added."""
    leader = LeaderContext((1, 2))
    leader.lead(partition((1, 2), replicas=(1, 2, 3), partition_epoch=8)._replace(adding_replicas=(THREE,)))
    leader.fetch(TWO, 10)
    leader.fetch(THREE, 10)
    leader.accept((1, 2, 3), partition_epoch=9)
    assert leader.replica.is_reassigning
    leader.lead(partition((1, 2, 3), replicas=(1, 2, 3), partition_epoch=9))
    assert not leader.replica.is_reassigning
    leader.write(20)
    leader.now_ns += 40 * NS_PER_S
    leader.fetch(TWO, 20)
    (shrunken,) = proposed(leader.replica.maybe_shrink_isr(leader.now_ns))
    leader.accept(shrunken.isr, partition_epoch=10)
    assert leader.replica.is_under_replicated


def test_metadata_of_the_same_partition_epoch_does_not_forget_a_newer_proposal() -> None:
    """The leader made another proposal after the answer to the previous one. Then the record of the previous change arrives.
    If the leader forgot the proposal now, its high watermark could advance without a member that the controller may already
    have recorded."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.fetch(TWO, 10)
    leader.fetch(THREE, 10)
    leader.accept((1, 2), partition_epoch=8)
    leader.lead(partition((1, 2), partition_epoch=8))
    assert leader.replica.maximal_isr == (1, 2, 3)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA])
def test_an_answer_overtaken_by_metadata_is_ignored(error: ErrorCode) -> None:
    """Metadata with a higher partition epoch is newer than the late answer, so the answer changes nothing."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    [proposal] = proposed(leader.fetch(TWO, 10))
    leader.lead(partition((1, 3), partition_epoch=9))
    result = AlterPartitionResult(
        error=error, leader=ONE, leader_epoch=LeaderEpoch(5), isr=(ONE, TWO), partition_epoch=PartitionEpoch(8)
    )
    assert leader.replica.handle_alter_partition_result(proposal, result, leader.now_ns) == []
    assert leader.replica.committed_isr == leader.replica.maximal_isr == (1, 3)


# --- acks=all ----------------------------------------------------------------------------------------------------


def test_acks_all_needs_enough_in_sync_replicas_before_and_after() -> None:
    """The result is NONE only if the high watermark covers the append and the recorded ISR is still large enough."""
    leader = LeaderContext((1, 2), min_insync=3)
    assert not leader.replica.has_enough_in_sync()
    leader.configure(2)
    assert leader.replica.has_enough_in_sync()
    leader.write(20)
    assert leader.replica.acks_all_result(Offset(20)) is None
    leader.fetch(TWO, 20)
    assert leader.replica.acks_all_result(Offset(20)) is ErrorCode.NONE
    leader.lead(partition((1,), partition_epoch=8))
    assert leader.replica.acks_all_result(Offset(20)) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_proposed_member_does_not_count_as_in_sync() -> None:
    """acks=all counts only members of the committed ISR, because the controller would elect no other replicas."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10, min_insync=2)
    leader.fetch(TWO, 10)
    assert leader.replica.maximal_isr == (1, 2)
    assert not leader.replica.has_enough_in_sync()


def test_min_insync_replicas_above_the_replication_factor_is_bounded() -> None:
    """A topic with one replica stays writable even if the cluster's default for min.insync.replicas is two."""
    leader = LeaderContext((1,), min_insync=2)
    leader.lead(partition((1,), replicas=(1,), partition_epoch=8))
    assert leader.replica.has_enough_in_sync()
    assert leader.replica.high_watermark == 10


def test_a_former_leader_acknowledges_nothing() -> None:
    """Whatever the high watermark was, a former leader acknowledges nothing, because the new leader's log may differ."""
    leader = LeaderContext((1,), log_end=10, high_watermark=10)
    leader.replica.become_follower(partition((2,), leader=2, leader_epoch=6, partition_epoch=8))
    assert leader.replica.acks_all_result(Offset(5)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_halted_member_of_the_isr_holds_acks_all_up_until_it_goes_on_or_leaves() -> None:
    """What it has written counts as ever, and the ISR stays as it is."""
    leader = LeaderContext((1, 2), log_end=10, high_watermark=4)
    assert leader.fetch(TWO, 8, is_halted=True) == [HighWatermarkAdvanced(Offset(8))]
    assert leader.replica.is_held_up
    assert leader.replica.maximal_isr == (1, 2)
    leader.fetch(TWO, 8)
    assert not leader.replica.is_held_up
    leader.fetch(TWO, 8, is_halted=True)
    leader.lead(partition((1,), partition_epoch=8))
    assert not leader.replica.is_held_up


def test_a_halted_follower_neither_joins_the_isr_nor_holds_anything_up() -> None:
    leader = LeaderContext((1, 2), log_end=10, high_watermark=4)
    assert proposed(leader.fetch(THREE, 10, is_halted=True)) == []
    assert not leader.replica.is_held_up
    assert len(proposed(leader.fetch(THREE, 10))) == 1


def test_a_new_leader_epoch_knows_of_no_halted_follower() -> None:
    leader = LeaderContext()
    leader.fetch(TWO, 10, is_halted=True)
    leader.lead(partition(leader_epoch=6, partition_epoch=8))
    assert not leader.replica.is_held_up


# --- roles -------------------------------------------------------------------------------------------------------


def test_a_new_leader_epoch_starts_over() -> None:
    """The leader forgets the followers' offsets from an earlier epoch, because the followers may have truncated their logs
    since."""
    leader = LeaderContext()
    leader.fetch(TWO, 10)
    leader.fetch(THREE, 10)
    leader.write(20)
    assert leader.lead(partition(leader_epoch=6, partition_epoch=8)) == []
    assert leader.replica.leader_epoch_start_offset == 20
    assert leader.replica.followers[TWO].log_end_offset == -1
    assert leader.replica.high_watermark == 10


def test_the_same_leader_epoch_keeps_what_is_known_of_the_followers() -> None:
    """A change of the ISR or of a directory must not reset the followers' end offsets or the start of the epoch."""
    leader = LeaderContext()
    leader.fetch(TWO, 10)
    leader.fetch(THREE, 10)
    leader.write(20)
    leader.fetch(TWO, 20)
    leader.brokers[THREE] = replace(leader.brokers[THREE], fenced=True)
    assert leader.lead(partition((1, 2), partition_epoch=8)) == [HighWatermarkAdvanced(Offset(20))]
    assert leader.replica.leader_epoch_start_offset == 10


def test_old_metadata_is_ignored() -> None:
    """An older partition epoch or an older leader epoch changes nothing."""
    leader = LeaderContext()
    leader.lead(partition((1, 2), partition_epoch=9))
    leader.lead(partition((1, 2, 3), partition_epoch=8))
    assert leader.replica.committed_isr == (1, 2)
    leader.replica.become_follower(partition(leader=2, leader_epoch=4))
    assert leader.replica.role is Role.LEADER


def test_recovering_ends_with_the_first_accepted_isr_change() -> None:
    """After an unclean election, the leader stays RECOVERING until the controller has accepted an ISR change."""
    leader = LeaderContext((1,), log_end=0)
    leader.lead(partition((1,), partition_epoch=8, recovery=LeaderRecoveryState.RECOVERING))
    assert leader.replica.leader_recovery_state == LeaderRecoveryState.RECOVERING
    leader.fetch(TWO, 0)
    leader.accept((1, 2), partition_epoch=9)
    assert leader.replica.leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_under_replicated() -> None:
    """Only a leader reports an under-replicated partition, and only the committed ISR counts."""
    leader = LeaderContext((1, 2))
    assert leader.replica.is_under_replicated
    leader.lead(partition((1, 2, 3), partition_epoch=8))
    assert not leader.replica.is_under_replicated


def test_a_reassignment_adds_a_replica() -> None:
    """The added replica does not make the partition under-replicated. It joins the ISR once it has caught up. From then on,
    the high watermark waits for it."""
    leader, four = LeaderContext((1, 2)), BrokerId(4)
    leader.brokers[four] = broker(4)
    reassigning = partition((1, 2), replicas=(4, 2, 1), partition_epoch=8)
    leader.lead(reassigning._replace(adding_replicas=(four,), removing_replicas=(ONE,)))
    assert leader.replica.is_reassigning
    assert not leader.replica.is_under_replicated
    leader.fetch(TWO, 10)
    (proposal,) = proposed(leader.fetch(four, 10))
    assert proposal.isr == (1, 2, 4)
    leader.accept((1, 2, 4), partition_epoch=9)
    leader.write(20)
    assert leader.fetch(TWO, 20) == []
    assert leader.fetch(four, 20) == [HighWatermarkAdvanced(Offset(20))]


def test_a_completed_reassignment_is_no_reassignment() -> None:
    """The metadata that completes the reassignment clears both lists, adding and removing. During a reassignment that only
    removes a replica, that replica still counts: without it in the ISR, the partition is under-replicated."""
    leader = LeaderContext((1, 2))
    leader.lead(partition((1, 2), partition_epoch=8)._replace(removing_replicas=(THREE,)))
    assert leader.replica.is_reassigning
    assert leader.replica.is_under_replicated
    leader.lead(partition((2, 1), replicas=(2, 1), partition_epoch=9))
    assert not leader.replica.is_reassigning
    assert not leader.replica.is_under_replicated


# --- throttles (KIP-73) ------------------------------------------------------------------------------------------


def test_a_leader_paces_only_followers_that_may_not_be_in_the_isr() -> None:
    """Broker 3 lags. Once it has caught up and is proposed, the high watermark waits for it, so it is no longer paced."""
    leader = LeaderContext((1, 2), log_end=10, high_watermark=10)
    assert not leader.replica.is_paced_to(THREE), "the topic throttles nothing"
    leader.replica.is_leader_throttled = True
    assert (leader.replica.is_paced_to(TWO), leader.replica.is_paced_to(THREE)) == (False, True)
    [_] = proposed(leader.fetch(THREE, 10))
    assert not leader.replica.is_paced_to(THREE)


def test_a_follower_is_paced_until_it_has_reached_the_leaders_high_watermark() -> None:
    """What the leader last answered decides."""
    replica = PartitionReplica(TWO, nobody, LAG_MAX, log_end_offset=Offset(10))
    replica.become_follower(partition((1,)))
    assert not replica.is_paced, "the topic throttles nothing"
    replica.is_follower_throttled = True
    assert replica.is_paced
    replica.leader_high_watermark(Offset(11))
    assert replica.is_paced
    replica.written(Offset(11), 0)
    replica.leader_high_watermark(Offset(11))
    assert not replica.is_paced
    replica.leader_high_watermark(Offset(20))
    assert replica.is_paced


def test_a_new_leader_epoch_asks_the_isr_whether_a_follower_is_paced() -> None:
    """Before the new leader's first answer. A change within the epoch, such as a larger ISR, leaves it to the answers."""
    replica = PartitionReplica(TWO, nobody, LAG_MAX, is_follower_throttled=True)
    replica.become_follower(partition())
    assert not replica.is_paced
    replica.leader_high_watermark(Offset(1))
    assert replica.is_paced
    replica.become_follower(partition(partition_epoch=8))
    assert replica.is_paced
    replica.become_follower(partition(leader=3, leader_epoch=6, partition_epoch=9))
    assert not replica.is_paced
    replica.become_follower(partition((3,), leader=3, leader_epoch=7, partition_epoch=10))
    assert replica.is_paced
