"""One replica of a partition on this broker, as leader or as follower (core).

Counterpart of the decisions in Kafka's Partition and Replica: the high watermark, the ISR, and who may join it. Events come
in as method calls with the time; effects come out as a list. `log_end_offset` is the *written* end of the log: an append
counts once the kernel has it, so nothing unwritten is acknowledged or read.

1. While an AlterPartition request is in flight there are two ISRs. The *committed* ISR is what the controller recorded. The
   *maximal* ISR also contains proposed members, and still contains members whose removal was proposed.
2. The high watermark is the smallest end offset over the maximal ISR: whichever ISR the controller settles on, every member
   must hold everything acknowledged. The high watermark also waits for caught-up replicas that could join the ISR. A replica
   that is fenced, shutting down (KIP-841) or on an offline directory cannot join: waiting for it would stall every acks=all
   produce (KAFKA-15021).
3. While the committed ISR is smaller than min.insync.replicas, the high watermark does not advance (KIP-966). Records on too
   few replicas are not committed, whatever acks they were produced with, and consumers cannot read them. A larger ISR or a
   lower minimum may release the high watermark, so both are events here.
4. A follower that the controller refuses is not proposed again at once. Until the metadata of this broker has caught up with
   the controller's, another proposal would be refused too. So each refusal doubles a pause, up to REFUSAL_PAUSE_MAX_NS,
   and newer metadata about the partition or the follower's broker ends it.
5. Easy to get wrong: a proposal may be dropped only when its fate is known: metadata with a *higher* partition epoch or a
   new leader epoch was applied, or the controller answered that it accepted the change or changed nothing.
6. A follower whose directory is suspected of hanging asks for no bytes at all. While it is in the ISR, acks=all produce
   requests get an error instead of waiting, because later responses on their connections, for partitions on other disks,
   would have to wait with them. The ISR stays as it is until the follower has lagged for too long or its directory is
   offline.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, Offset, PartitionEpoch
from common.metadata.registrations import BrokerRegistration, LeaderRecoveryState, PartitionRegistration
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS, NS_PER_S

NO_BROKER_EPOCH = BrokerEpoch(-1)
UNKNOWN_OFFSET = Offset(-1)
_NO_LEADER_EPOCH = LeaderEpoch(-1)
_NO_PARTITION_EPOCH = PartitionEpoch(-1)
_ZERO = Offset(0)
# How long a follower that was refused is not proposed again: after the first refusal, and at most.
REFUSAL_PAUSE_FIRST_NS = 50 * NS_PER_MS
REFUSAL_PAUSE_MAX_NS = 2 * NS_PER_S

# Errors that mean that the ISR is unchanged. The proposal is dropped, and a later fetch may propose again (rule 4).
_REVERTING_ERRORS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# Errors that mean that our state is outdated. The proposal, and so the maximal ISR, is kept until newer metadata arrives.
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
    """A member of a proposed ISR. A follower's epoch is that of its last fetch, or -1 if it has not fetched yet."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


# Compared by identity: two proposals with equal content are still two requests, and an answer belongs to one of them.
@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """A proposed ISR, to be sent to the controller until the proposal is answered or superseded."""

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
    """The controller accepted an ISR change."""

    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class IsrRejected:
    """The controller refused an ISR change. From `again_ns` on, the member that it would have added may be proposed again;
    None if it would have added none, or if newer metadata has to come first."""

    isr: tuple[BrokerId, ...]
    error: ErrorCode
    again_ns: int | None = None


Effect = HighWatermarkAdvanced | ProposeIsr | IsrCommitted | IsrRejected


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The controller's answer about one partition. The other fields are valid only if the error is NONE."""

    error: ErrorCode
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = _NO_LEADER_EPOCH
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: PartitionEpoch = _NO_PARTITION_EPOCH
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


@dataclass(slots=True)
class SessionClock:
    """When a follower's fetch session (KIP-227) fetched last. Its fetches name only the partitions with something new, but
    each of them says that the follower is where it was in all others."""

    last_fetch_ns: int
    is_over: bool = False
    """Whether the session has ended. If the follower has begun a new session, only that one counts."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last of several refusals of a follower in a row (rule 4), and the metadata that the leader had then."""

    count: int
    again_ns: int
    registration: BrokerRegistration | None
    partition_epoch: PartitionEpoch


@dataclass(slots=True)
class FollowerState:
    """What the leader knows about one follower. All fields change only when the follower fetches or is answered, or when
    its last fetches are looked up in the clock."""

    # The offset of the last fetch: the follower has written everything below it.
    log_end_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    last_fetch_ns: int = 0
    # The leader's log end at the last fetch. If the next fetch offset reaches this end, the follower was caught up at
    # `last_fetch_ns`.
    leader_end_at_last_fetch: Offset = UNKNOWN_OFFSET
    # The last time at which the follower is known to have had everything that the leader had; None if never. A new leader
    # counts ISR members as caught up.
    last_caught_up_ns: int | None = None
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    # The high watermark in the last answer to this follower. It may be above the follower's log end.
    sent_high_watermark: Offset = UNKNOWN_OFFSET
    # The clock of the session that the partition is part of. While the follower is at the log end, the session need not name
    # the partition.
    clock: SessionClock | None = None

    # Set when the controller refuses the follower as a member of the ISR, cleared when it accepts an ISR.
    refusal: Refusal | None = None

    def take_over_clock(self, leader_end: Offset) -> None:
        """Notes the fetches of the session that did not name the partition. To be called before the log end moves."""
        if self.clock is not None and self.log_end_offset >= leader_end and self.clock.last_fetch_ns > self.last_fetch_ns:
            self.last_fetch_ns = self.last_caught_up_ns = self.clock.last_fetch_ns
            self.leader_end_at_last_fetch = leader_end


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
    # Parallel to `replicas`: the directory of each, as far as its broker has reported it.
    directories: tuple[DirectoryId, ...] = ()
    committed_isr: tuple[BrokerId, ...] = ()
    # What a reassignment in progress adds and removes. Replicas that are being added follow and join the ISR like any other.
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    # As configured; may exceed the number of replicas, see `min_isr`. Changes when: the topic's configuration changes.
    min_insync_replicas: int = 1
    # Whether the topic's configuration throttles what this replica sends as leader and receives as follower (KIP-73).
    # Changes when: the topic's configuration changes.
    is_leader_throttled: bool = False
    is_follower_throttled: bool = False
    # On a follower: whether the log had reached the leader's high watermark as of the leader's last answer. Until the first
    # answer in a leader epoch: whether the replica is in the ISR. Changes when: the leader answers, a leader epoch begins.
    has_reached_leader: bool = False
    # The ISR change in flight. Invariant: only a leader has one, with its current leader epoch. Changes when: see rule 5.
    proposal: IsrProposal | None = None
    followers: dict[BrokerId, FollowerState] = field(default_factory=dict)
    # The followers that take nothing for now (rule 6). Changes when: they fetch, a leader epoch begins.
    halted_followers: set[BrokerId] = field(default_factory=set)

    log_start_offset: Offset = _ZERO
    log_end_offset: Offset = _ZERO
    # Invariant: never above log_end_offset. Goes back only by truncation; on a leader it advances only while
    # `has_enough_in_sync`.
    high_watermark: Offset = _ZERO
    # Where this leader's epoch begins. A follower that has not reached this offset lacks records of earlier epochs and may
    # not join the ISR.
    leader_epoch_start_offset: Offset = _ZERO

    # --- what the metadata says ----------------------------------------------------------------------------------

    def become_leader(
        self, partition: PartitionRegistration, *, now_ns: int, leader_epoch_start_offset: Offset
    ) -> list[Effect]:
        """Applies metadata that names this broker leader. `leader_epoch_start_offset` is used only for a new leader epoch:
        it is the end of the log in memory, including writes in flight."""
        is_new_epoch = self.role is not Role.LEADER or partition.leader_epoch > self.leader_epoch
        if not is_new_epoch and partition.partition_epoch <= self.partition_epoch:
            if partition.partition_epoch == self.partition_epoch:
                # The answer to a proposal came first. It does not say whether the change has completed a reassignment.
                self.adding_replicas, self.removing_replicas = partition.adding_replicas, partition.removing_replicas
            return []
        if is_new_epoch:
            self.leader_epoch_start_offset = leader_epoch_start_offset
            self.followers = {}
            self.halted_followers.clear()
        effects: list[Effect] = []
        if not is_new_epoch and self.proposal is not None and sorted(self.proposal.isr) == sorted(partition.isr):
            # The metadata with the accepted ISR arrived before the controller's answer.
            effects.append(IsrCommitted(self.committed_isr, partition.isr))
        self.role = Role.LEADER
        self._take_over(partition)
        known = self.followers
        # ISR members count as caught up now. Otherwise a new leader would remove them before their first fetch.
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
        if self.role is not Role.FOLLOWER or partition.leader_epoch > self.leader_epoch:
            self.has_reached_leader = self.local_id in partition.isr
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
        self.adding_replicas = partition.adding_replicas
        self.removing_replicas = partition.removing_replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self.proposal = None

    # --- what happens to the log ---------------------------------------------------------------------------------

    def written(self, log_end_offset: Offset, now_ns: int) -> list[Effect]:
        """Notes that the log is written up to `log_end_offset`."""
        self._take_over_clocks()
        self.log_end_offset = max(self.log_end_offset, log_end_offset)
        return self._maybe_advance_high_watermark(now_ns) if self.role is Role.LEADER else []

    def _take_over_clocks(self) -> None:
        for follower in self.followers.values():
            follower.take_over_clock(self.log_end_offset)

    def truncated(self, *, log_start_offset: Offset, log_end_offset: Offset) -> None:
        """Notes that the log was truncated or emptied, and where it starts and ends. The high watermark goes back if it was
        beyond the new end, and on if the log starts beyond it."""
        self._take_over_clocks()
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # A leader gets here when its log was reloaded. Its epoch began at the end of the log in memory. Some appends below
        # that end may have failed since, so the epoch start may lie beyond the new log end.
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, log_end_offset)
        # A follower may have some of those records. At their offsets the leader will now have others, which the follower has
        # only once it has truncated its log and fetched again.
        for follower in self.followers.values():
            follower.log_end_offset = min(follower.log_end_offset, log_end_offset)
        self.high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)

    def load_high_watermark(self, checkpointed: Offset) -> None:
        """Sets the high watermark from a checkpoint, limited to the range of the log."""
        self.high_watermark = min(max(checkpointed, self.log_start_offset), self.log_end_offset)

    def leader_high_watermark(self, high_watermark: Offset) -> list[Effect]:
        """On a follower: adopts the leader's high watermark, but not beyond the end of its own log."""
        if self.role is not Role.FOLLOWER:
            return []
        self.has_reached_leader = self.log_end_offset >= high_watermark
        bounded = min(high_watermark, self.log_end_offset)
        if bounded <= self.high_watermark:
            return []
        self.high_watermark = bounded
        return [HighWatermarkAdvanced(bounded)]

    # --- followers -----------------------------------------------------------------------------------------------

    def is_stale_fetch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Whether the fetch comes from an incarnation of the follower that has already been replaced (KIP-903)."""
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
        clock: SessionClock | None = None,
        is_halted: bool = False,
    ) -> list[Effect]:
        """Notes that a follower asked for `fetch_offset`, so the follower has written everything below that offset. If the
        fetch belongs to a session, its `clock` gives the times of later fetches that do not name the partition. A follower
        that `is_halted` asked for no bytes (rule 6)."""
        follower = self.followers.get(broker_id)
        if self.role is not Role.LEADER or follower is None or self.is_stale_fetch(broker_id, broker_epoch):
            return []
        if is_halted:
            self.halted_followers.add(broker_id)
        else:
            self.halted_followers.discard(broker_id)
        follower.take_over_clock(self.log_end_offset)
        follower.clock = clock
        if fetch_offset >= self.log_end_offset:
            follower.last_caught_up_ns = now_ns
        elif follower.leader_end_at_last_fetch != UNKNOWN_OFFSET and fetch_offset >= follower.leader_end_at_last_fetch:
            follower.last_caught_up_ns = max(follower.last_caught_up_ns or 0, follower.last_fetch_ns)
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_ns = now_ns
        follower.leader_end_at_last_fetch = self.log_end_offset
        follower.broker_epoch = broker_epoch
        # Expand first, so that the maximal ISR contains the new member when the high watermark is computed.
        expansion = [] if is_halted else self._maybe_expand_isr(broker_id, follower, now_ns)
        return expansion + self._maybe_advance_high_watermark(now_ns)

    def follower_halted(self, broker_id: BrokerId) -> None:
        """Notes that a follower asked for no bytes (rule 6) and that its log differs from the leader's, so nothing is known
        of what it has. Its next fetch from where the logs agree ends that."""
        if self.role is Role.LEADER and broker_id in self.followers:
            self.halted_followers.add(broker_id)

    def left_session(self, clock: SessionClock) -> None:
        """Notes that the partition is no longer part of the session with this clock, so its later fetches do not count."""
        for follower in self.followers.values():
            if follower.clock is clock:
                follower.take_over_clock(self.log_end_offset)
                follower.clock = None

    def brokers_changed(self, now_ns: int) -> list[Effect]:
        """Notes that registrations changed. A replica that is no longer eligible must not hold back the high watermark."""
        return self._maybe_advance_high_watermark(now_ns) if self.role is Role.LEADER else []

    def maybe_shrink_isr(self, now_ns: int) -> list[Effect]:
        """Proposes an ISR without the members that have lagged for too long. Call it periodically, because time alone may
        also release the high watermark: a replica that was about to join the ISR but fell silent no longer holds the high
        watermark back."""
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
        """Every broker that is, or by now may be, in the ISR recorded by the controller."""
        if self.proposal is None:
            return self.committed_isr
        return self.committed_isr + tuple(member for member in self.proposal.isr if member not in self.committed_isr)

    @property
    def low_watermark(self) -> Offset:
        """Everything below this offset is deleted on every replica in the ISR."""
        followers = (self.followers.get(member) for member in self.maximal_isr if member != self.local_id)
        starts = [UNKNOWN_OFFSET if each is None else each.log_start_offset for each in followers]
        return min(self.log_start_offset, *starts) if starts else self.log_start_offset

    def handle_alter_partition_result(
        self, proposal: IsrProposal, result: AlterPartitionResult, now_ns: int
    ) -> list[Effect]:
        """Handles the controller's answer to `proposal`, unless newer metadata has superseded the proposal."""
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
        # Other followers may have caught up while this request was in flight, and may join now. It is not enough that a
        # follower has reached the high watermark: a follower that was just removed for lagging may be exactly there, because
        # it held the high watermark back.
        for broker_id, follower in self.followers.items():
            if broker_id in result.isr:
                follower.refusal = None
            if self._is_caught_up(follower, now_ns):
                effects += self._maybe_expand_isr(broker_id, follower, now_ns)
        return effects + self._maybe_advance_high_watermark(now_ns)

    def _handle_alter_partition_error(self, proposal: IsrProposal, error: ErrorCode, now_ns: int) -> list[Effect]:
        if error in _REVERTING_ERRORS:
            self.proposal = None
            rejected = IsrRejected(proposal.isr, error, self._note_refusal(proposal, now_ns))
            return [rejected, *self._maybe_advance_high_watermark(now_ns)]
        if error in _WAITING_ERRORS:
            return [IsrRejected(proposal.isr, error)]
        return [ProposeIsr(proposal)]

    def _note_refusal(self, proposal: IsrProposal, now_ns: int) -> int | None:
        """Lengthens the pause of the follower that the proposal would have added. Returns its end."""
        for broker_id, follower in self.followers.items():
            if broker_id in proposal.isr and broker_id not in self.committed_isr:
                count = 0 if follower.refusal is None else follower.refusal.count
                pause_ns = min(REFUSAL_PAUSE_FIRST_NS << count, REFUSAL_PAUSE_MAX_NS)
                # The count stops where the pause stops growing.
                count += pause_ns < REFUSAL_PAUSE_MAX_NS
                registration = self.registration(broker_id)
                follower.refusal = Refusal(count, now_ns + pause_ns, registration, self.partition_epoch)
                return now_ns + pause_ns
        return None

    def _has_to_pause(self, broker_id: BrokerId, follower: FollowerState, now_ns: int) -> bool:
        refusal = follower.refusal
        if refusal is None or now_ns >= refusal.again_ns:
            return False
        if refusal.partition_epoch == self.partition_epoch and refusal.registration == self.registration(broker_id):
            return True
        follower.refusal = None
        return False

    def _maybe_expand_isr(self, broker_id: BrokerId, follower: FollowerState, now_ns: int) -> list[Effect]:
        if self.proposal is not None or broker_id in self.committed_isr or self._has_to_pause(broker_id, follower, now_ns):
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
            # Check the directory, too: a replica whose disk died a moment ago still looks caught up, and its broker is
            # healthy (KIP-858).
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
        """Sets the configured minimum. A lower one may release the high watermark."""
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

    # --- consumers that read from followers (KIP-392) ------------------------------------------------------------

    @property
    def is_readable_follower(self) -> bool:
        """Whether consumers may read here although this replica does not lead. Kafka leaves the ISR out of this rule. But a
        follower that has left the ISR may be far behind, and an error sends its consumers back to the leader."""
        return self.role is Role.FOLLOWER and self.local_id in self.committed_isr

    def readable_followers(self, fetch_offset: Offset) -> Iterator[tuple[BrokerId, FollowerState]]:
        """On a leader: yields the followers from which a consumer may read at `fetch_offset`. A follower whose removal from
        the ISR was proposed is left out at once, and so is one whose disk may hang."""
        for broker_id, follower in self.followers.items():
            is_in_sync = broker_id in self.committed_isr and (self.proposal is None or broker_id in self.proposal.isr)
            has_offset = follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            is_readable = is_in_sync and has_offset and broker_id not in self.halted_followers
            if is_readable and self._is_eligible(broker_id, follower):
                yield broker_id, follower

    def owes_high_watermark(self, broker_id: BrokerId, high_watermark: Offset) -> bool:
        """Whether no response has told this follower yet that the high watermark has reached this offset."""
        follower = self.followers.get(broker_id)
        return follower is not None and follower.sent_high_watermark < high_watermark

    def note_high_watermark_sent(self, broker_id: BrokerId, high_watermark: Offset) -> None:
        """Notes the high watermark in an answer to a follower."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.sent_high_watermark = max(follower.sent_high_watermark, high_watermark)

    # --- acks=all ------------------------------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, but never more than the partition has replicas."""
        return min(self.min_insync_replicas, max(len(self.replicas), 1))

    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be served. Only the ISR recorded by the controller counts, not the proposed one."""
        in_sync = len(self.committed_isr)
        return in_sync >= self.min_insync_replicas or in_sync >= self.min_isr

    @property
    def is_held_up(self) -> bool:
        """Whether acks=all waits for a follower whose disk may hang (rule 6)."""
        return bool(self.halted_followers) and not self.halted_followers.isdisjoint(self.maximal_isr)

    def acks_all_result(self, required_offset: Offset) -> ErrorCode | None:
        """Returns the answer for an append that ends at `required_offset`; None while it is not replicated yet."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return None
        if self.has_enough_in_sync():
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # --- throttles -----------------------------------------------------------------------------------------------

    def is_paced_to(self, follower: BrokerId) -> bool:
        """On a leader: whether what this follower fetches has to wait for the leader's replication quota. A proposed member
        of the ISR is exempt as well, because the high watermark waits for it."""
        return self.is_leader_throttled and follower not in self.maximal_isr

    @property
    def is_paced(self) -> bool:
        """On a follower: whether its fetches have to wait for the follower's replication quota. Like in Kafka, a follower
        that has reached the high watermark counts as in sync."""
        return self.is_follower_throttled and not self.has_reached_leader

    @property
    def is_catching_up(self) -> bool:
        """On a follower: whether nothing waits for it, because it is neither in the ISR nor about to join it."""
        return not self.has_reached_leader and self.local_id not in self.committed_isr

    # --- gauges --------------------------------------------------------------------------------------------------

    @property
    def is_under_replicated(self) -> bool:
        """Whether this leader has fewer replicas in the ISR than the partition is to have. Replicas that are being added do
        not count as missing, as in Kafka."""
        return self.role is Role.LEADER and len(self.committed_isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def is_reassigning(self) -> bool:
        """Whether this leader's partition is being reassigned."""
        return self.role is Role.LEADER and bool(self.adding_replicas or self.removing_replicas)
