"""One replica of a partition on this broker, as leader or as follower (core).

Answers to the decisions of Kafka's Partition and Replica: the high watermark, the ISR, and who may join it. Events come in
as method calls with the time; what follows comes out as a list of effects. `log_end_offset` here is the *written* end of the
log: an append counts once the kernel has it, so that nothing unwritten is acknowledged or read.

The ISR exists twice while an AlterPartition request is under way. The *committed* ISR is what the controller recorded; the
*maximal* ISR adds a member that was proposed and keeps one whose removal was. The high watermark is the smallest end offset
over the maximal ISR, because whichever of the two the controller settles on, each of its members must hold everything
acknowledged. It also waits for caught-up replicas that could join, but never for one that is fenced, leaving (KIP-841) or
on an offline directory: such a one would stall every acks=all produce (KAFKA-15021).

While the committed ISR is smaller than min.insync.replicas the high watermark stands still (KIP-966): what too few replicas
hold is not committed, whatever acks it was written with, and no consumer reads it. It advances as soon as the ISR has grown
or the configuration was lowered, so each of these is an event here.

Easy to get wrong: a proposal may only be forgotten when its fate is known, that is, when metadata with a *higher* partition
epoch was applied or the controller said that it changed nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, Offset, PartitionEpoch
from common.metadata.registrations import BrokerRegistration, LeaderRecoveryState, PartitionRegistration
from common.protocol.errors import ErrorCode

NO_BROKER_EPOCH = BrokerEpoch(-1)
UNKNOWN_OFFSET = Offset(-1)
_NO_LEADER_EPOCH = LeaderEpoch(-1)
_NO_PARTITION_EPOCH = PartitionEpoch(-1)
_ZERO = Offset(0)

# The change did not happen and nothing changed meanwhile: back to the committed ISR; a later fetch asks again.
_REVERTING_ERRORS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# What is known here is outdated: the metadata that is on its way settles it. Until then the maximal ISR stays as it is.
_WAITING_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Role(Enum):
    NONE = auto()
    LEADER = auto()
    FOLLOWER = auto()


# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A member of a proposed ISR; the epoch is the one of its last fetch, or -1 when it has not fetched yet."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


# By identity: two proposals with equal content are still two requests, and an answer belongs to one of them.
@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """To be sent to the controller until it is answered or superseded."""

    members: tuple[IsrMember, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        return tuple(member.broker_id for member in self.members)


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    proposal: IsrProposal


@dataclass(frozen=True, slots=True)
class IsrCommitted:
    """The controller accepted a change; the sizes tell whether it shrank or grew."""

    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class IsrRejected:
    """The controller refused a change."""

    isr: tuple[BrokerId, ...]
    error: ErrorCode


Effect = HighWatermarkAdvanced | ProposeIsr | IsrCommitted | IsrRejected


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The controller's answer about one partition; all but the error only count when it is NONE."""

    error: ErrorCode
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = _NO_LEADER_EPOCH
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: PartitionEpoch = _NO_PARTITION_EPOCH
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


@dataclass(slots=True)
class FollowerState:
    """What the leader knows of one follower, from its fetches."""

    # Changes when: it fetches. The follower has written everything below.
    log_end_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    last_fetch_ns: int = 0
    # Where the leader's log ended at that fetch: having reached it at the next one, the follower was caught up then.
    leader_end_at_last_fetch: Offset = UNKNOWN_OFFSET
    last_caught_up_ns: int | None = None
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


@dataclass(slots=True)
class PartitionReplica:
    """The state of one replica. `registration` looks a broker up in the newest applied metadata."""

    local_id: BrokerId
    registration: Callable[[BrokerId], BrokerRegistration | None]
    lag_time_max_ns: int

    role: Role = Role.NONE
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = _NO_LEADER_EPOCH
    partition_epoch: PartitionEpoch = _NO_PARTITION_EPOCH
    replicas: tuple[BrokerId, ...] = ()
    # Parallel to `replicas`: where each is, as far as its broker has told.
    directories: tuple[DirectoryId, ...] = ()
    committed_isr: tuple[BrokerId, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    # As configured; may exceed the number of replicas, see `min_isr`. Changes when: the topic's configuration does.
    min_insync_replicas: int = 1
    # Invariant: only a leader has one, and its leader epoch is the current one.
    proposal: IsrProposal | None = None
    followers: dict[BrokerId, FollowerState] = field(default_factory=dict)

    log_start_offset: Offset = _ZERO
    log_end_offset: Offset = _ZERO
    # Invariant: never above log_end_offset. Goes back only by truncation; on a leader it advances only while
    # `has_enough_in_sync`.
    high_watermark: Offset = _ZERO
    # Where this leader's epoch begins: a follower below has not seen the end of the previous epoch.
    leader_epoch_start_offset: Offset = _ZERO

    # --- what the metadata says ----------------------------------------------------------------------------------

    def become_leader(
        self, partition: PartitionRegistration, *, now_ns: int, leader_epoch_start_offset: Offset
    ) -> list[Effect]:
        """Applies metadata that names this broker leader. `leader_epoch_start_offset` counts for a new leader epoch only;
        it is the end of the log in memory, writes under way included."""
        is_new_epoch = self.role is not Role.LEADER or partition.leader_epoch > self.leader_epoch
        if not is_new_epoch and partition.partition_epoch <= self.partition_epoch:
            return []
        if is_new_epoch:
            self.leader_epoch_start_offset = leader_epoch_start_offset
            self.followers = {}
        effects: list[Effect] = []
        if not is_new_epoch and self.proposal is not None and sorted(self.proposal.isr) == sorted(partition.isr):
            # The record was quicker than the answer.
            effects.append(IsrCommitted(self.committed_isr, partition.isr))
        self.role = Role.LEADER
        self._take_over(partition)
        known = self.followers
        # Whoever is in the ISR counts as caught up now, otherwise a new leader would shrink it before the first fetch.
        self.followers = {
            replica: known.get(replica) or FollowerState(last_caught_up_ns=now_ns if replica in partition.isr else None)
            for replica in partition.replicas
            if replica != self.local_id
        }
        return effects + self._maybe_advance_high_watermark(now_ns)

    def become_follower(self, partition: PartitionRegistration) -> None:
        """Applies metadata that names another leader, or none."""
        if partition.leader_epoch < self.leader_epoch:
            return
        self.role = Role.FOLLOWER
        self._take_over(partition)
        self.followers = {}

    def _take_over(self, partition: PartitionRegistration) -> None:
        self.leader = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.replicas = partition.replicas
        self.directories = partition.directories
        self.committed_isr = partition.isr
        self.leader_recovery_state = partition.leader_recovery_state
        self.proposal = None

    # --- what happens to the log ---------------------------------------------------------------------------------

    def written(self, log_end_offset: Offset, now_ns: int) -> list[Effect]:
        """The log is written up to `log_end_offset`."""
        self.log_end_offset = max(self.log_end_offset, log_end_offset)
        return self._maybe_advance_high_watermark(now_ns) if self.role is Role.LEADER else []

    def truncated(self, log_end_offset: Offset) -> None:
        """The log was cut; the only way for the high watermark to go back."""
        self.log_end_offset = log_end_offset
        # A leader whose log was loaded again: its epoch may have begun behind appends that failed.
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, log_end_offset)
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restarted_at(self, offset: Offset) -> None:
        """The log was emptied and now starts, and ends, at `offset`."""
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def load_high_watermark(self, checkpointed: Offset) -> None:
        """Sets the high watermark from a checkpoint, within what the log holds."""
        self.high_watermark = min(max(checkpointed, self.log_start_offset), self.log_end_offset)

    def leader_high_watermark(self, high_watermark: Offset) -> list[Effect]:
        """As follower: takes over the leader's high watermark as far as the own log goes."""
        bounded = min(high_watermark, self.log_end_offset)
        if self.role is not Role.FOLLOWER or bounded <= self.high_watermark:
            return []
        self.high_watermark = bounded
        return [HighWatermarkAdvanced(bounded)]

    # --- followers -----------------------------------------------------------------------------------------------

    def is_stale_fetch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Whether the fetch comes from an incarnation of the follower that the metadata has already replaced (KIP-903)."""
        registration = self.registration(broker_id)
        return broker_epoch != NO_BROKER_EPOCH and registration is not None and registration.epoch > broker_epoch

    def follower_fetched(
        self,
        broker_id: BrokerId,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        broker_epoch: BrokerEpoch,
        now_ns: int,
    ) -> list[Effect]:
        """A follower asks for `fetch_offset` and thereby confirms that it has written everything below."""
        follower = self.followers.get(broker_id)
        if self.role is not Role.LEADER or follower is None or self.is_stale_fetch(broker_id, broker_epoch):
            return []
        if fetch_offset >= self.log_end_offset:
            follower.last_caught_up_ns = now_ns
        elif follower.leader_end_at_last_fetch != UNKNOWN_OFFSET and fetch_offset >= follower.leader_end_at_last_fetch:
            follower.last_caught_up_ns = max(follower.last_caught_up_ns or 0, follower.last_fetch_ns)
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_ns = now_ns
        follower.leader_end_at_last_fetch = self.log_end_offset
        follower.broker_epoch = broker_epoch
        # Expanding comes first: the new member is then in the maximal ISR that the high watermark looks at.
        return self._maybe_expand_isr(broker_id, follower) + self._maybe_advance_high_watermark(now_ns)

    def brokers_changed(self, now_ns: int) -> list[Effect]:
        """Registrations changed: a replica that is no longer eligible must not hold back the high watermark."""
        return self._maybe_advance_high_watermark(now_ns) if self.role is Role.LEADER else []

    def maybe_shrink_isr(self, now_ns: int) -> list[Effect]:
        """Proposes an ISR without the members that have not been caught up for too long. To be called now and then, because
        time alone may also release the high watermark from a replica that was going to join and then fell silent."""
        if self.role is not Role.LEADER:
            return []
        effects = self._maybe_advance_high_watermark(now_ns)
        staying = tuple(
            member
            for member in self.committed_isr
            if member == self.local_id or self._is_caught_up(self.followers.get(member), now_ns)
        )
        if self.proposal is None and len(staying) < len(self.committed_isr):
            effects += self._propose(staying)
        return effects

    # --- the ISR -------------------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Every broker that is, or may by now be, in the ISR that the controller has recorded."""
        if self.proposal is None:
            return self.committed_isr
        return self.committed_isr + tuple(member for member in self.proposal.isr if member not in self.committed_isr)

    def handle_alter_partition_result(
        self, proposal: IsrProposal, result: AlterPartitionResult, now_ns: int
    ) -> list[Effect]:
        """The controller answered `proposal`; answers to proposals that the metadata has overtaken are ignored."""
        if proposal is not self.proposal:
            return []
        if result.error is not ErrorCode.NONE:
            return self._handle_alter_partition_error(proposal, result.error, now_ns)
        if result.leader_epoch != self.leader_epoch or result.partition_epoch < self.partition_epoch:
            return []
        before = self.committed_isr
        self.proposal = None
        self.committed_isr = result.isr
        self.partition_epoch = result.partition_epoch
        self.leader_recovery_state = result.leader_recovery_state
        effects: list[Effect] = [IsrCommitted(before, result.isr)]
        # Somebody else may have caught up while this request was under way. Not so whoever was just thrown out and still
        # stands at the high watermark that it held back.
        for broker_id, follower in self.followers.items():
            if self._is_caught_up(follower, now_ns):
                effects += self._maybe_expand_isr(broker_id, follower)
        return effects + self._maybe_advance_high_watermark(now_ns)

    def _handle_alter_partition_error(self, proposal: IsrProposal, error: ErrorCode, now_ns: int) -> list[Effect]:
        rejected = IsrRejected(proposal.isr, error)
        if error in _REVERTING_ERRORS:
            self.proposal = None
            return [rejected, *self._maybe_advance_high_watermark(now_ns)]
        if error in _WAITING_ERRORS:
            return [rejected]
        return [ProposeIsr(proposal)]

    def _maybe_expand_isr(self, broker_id: BrokerId, follower: FollowerState) -> list[Effect]:
        if self.proposal is not None or broker_id in self.committed_isr:
            return []
        reached = max(self.high_watermark, self.leader_epoch_start_offset)
        if follower.log_end_offset < reached or not self._is_eligible(broker_id, follower):
            return []
        return self._propose((*self.committed_isr, broker_id))

    def _propose(self, isr: tuple[BrokerId, ...]) -> list[Effect]:
        self.proposal = IsrProposal(
            tuple(IsrMember(member, self._broker_epoch(member)) for member in isr),
            self.leader_epoch,
            self.partition_epoch,
        )
        return [ProposeIsr(self.proposal)]

    def _broker_epoch(self, broker_id: BrokerId) -> BrokerEpoch:
        if broker_id == self.local_id:
            registration = self.registration(broker_id)
            return NO_BROKER_EPOCH if registration is None else registration.epoch
        follower = self.followers.get(broker_id)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    def _is_eligible(self, broker_id: BrokerId, follower: FollowerState) -> bool:
        registration = self.registration(broker_id)
        return (
            registration is not None
            and not registration.fenced
            and not registration.in_controlled_shutdown
            and follower.broker_epoch in (NO_BROKER_EPOCH, registration.epoch)
            # A replica whose disk died was caught up a moment ago and will not be again; its broker is well (KIP-858).
            and registration.has_online_directory(self.directories[self.replicas.index(broker_id)])
        )

    def _is_caught_up(self, follower: FollowerState | None, now_ns: int) -> bool:
        if follower is None:
            return False
        if follower.log_end_offset == self.log_end_offset:
            return True
        return follower.last_caught_up_ns is not None and now_ns - follower.last_caught_up_ns <= self.lag_time_max_ns

    # --- the high watermark --------------------------------------------------------------------------------------

    def set_min_insync_replicas(self, min_insync_replicas: int, now_ns: int) -> list[Effect]:
        """The configuration changed; a lower minimum may release the high watermark."""
        self.min_insync_replicas = min_insync_replicas
        return self._maybe_advance_high_watermark(now_ns) if self.role is Role.LEADER else []

    def _maybe_advance_high_watermark(self, now_ns: int) -> list[Effect]:
        if not self.has_enough_in_sync():
            return []
        maximal_isr = self.maximal_isr
        lowest = self.log_end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset >= lowest:
                continue
            could_join = self._is_caught_up(follower, now_ns) and self._is_eligible(broker_id, follower)
            if broker_id in maximal_isr or could_join:
                lowest = follower.log_end_offset
        if lowest <= self.high_watermark:
            return []
        self.high_watermark = lowest
        return [HighWatermarkAdvanced(lowest)]

    # --- acks=all ------------------------------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, but never more than the partition has replicas."""
        return min(self.min_insync_replicas, max(len(self.replicas), 1))

    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be served: by the ISR that the controller has recorded, not the proposed one."""
        return len(self.committed_isr) >= self.min_isr

    def acks_all_result(self, required_offset: Offset) -> ErrorCode | None:
        """What to answer for an append that ends at `required_offset`; None while it is not yet replicated."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return None
        if self.has_enough_in_sync():
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # --- gauges --------------------------------------------------------------------------------------------------

    @property
    def is_under_replicated(self) -> bool:
        """Whether this leader has replicas outside the ISR."""
        return self.role is Role.LEADER and len(self.committed_isr) < len(self.replicas)
