"""One node's place in the metadata quorum: role, epoch, leader and high watermark (core).

Counterpart of Kafka's QuorumState and EpochState classes, in the style of etcd's raft: the driver reports what happened,
then takes a `Ready` and carries it out.

    unattached --campaign--> candidate --majority of votes--> leader --resign--> unattached
    any role --leader_discovered(a leader, of a newer epoch or of this epoch if it had none yet)--> follower
    any role --leader_discovered(no leader, in a newer epoch)--> unattached

An observer takes the same path as a follower but has no vote. Two rules:

1. Every change of epoch, vote or leader is *staged* first: it appears as `Ready.election` and takes effect in
   `election_persisted`. So no response ever shows an epoch that a restart could forget.
2. A restarted leader never continues its old epoch. It may have lost an unsynced log tail that its followers had already
   fetched. The new epoch lets the followers detect that their logs diverge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from common.ids import BrokerId, LeaderEpoch, Offset
from common.raft.core.election_state import ElectionState
from common.raft.core.replica_progress import LeaderProgress, Progress


class QuorumViolation(Exception):
    """Something happened that a correct quorum rules out, for example two leaders in one epoch. Fatal."""


class Role(Enum):
    UNATTACHED = auto()
    CANDIDATE = auto()
    LEADER = auto()
    FOLLOWER = auto()


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The newest epoch that this node knows, and its leader if known."""

    leader_id: BrokerId | None
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The content of an epoch's first record, which the new leader has to append."""

    epoch: LeaderEpoch
    leader_id: BrokerId
    voters: tuple[BrokerId, ...]
    granting_voters: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The driver's next actions, in the order of the fields. `election` must be durable before anything else happens."""

    election: ElectionState | None = None
    leader_change: LeaderChange | None = None
    leader_and_epoch: LeaderAndEpoch | None = None
    high_watermark: Offset | None = None


class Quorum:
    """The quorum state machine of one node. The driver calls it and carries out what `take_ready` returns."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        voters: Sequence[BrokerId],
        election: ElectionState,
        last_log_epoch: LeaderEpoch,
        high_watermark: Offset,
    ) -> None:
        """`high_watermark` is the offset known to be committed at startup: the end of the newest snapshot."""
        self.node_id = node_id
        # The voters in the configuration. Never changes: the quorum is static.
        self.voters = tuple(voters)
        # The epoch, leader and vote in effect. Invariant: durable, so it changes only in `election_persisted`. Exception at
        # startup: if the log has a newer epoch than the quorum-state file, the file was lost. The log proves the newer
        # epoch; the leader and vote in that epoch are unknown.
        self.election = election if election.epoch >= last_log_epoch else ElectionState(last_log_epoch)
        # The progress of all replicas, as seen by the leader. Invariant: not None exactly while the role is LEADER. Created
        # when this node becomes leader, dropped when the epoch or the leadership ends.
        self.progress: LeaderProgress | None = None
        # Everything before this offset is committed. Never decreases, not even from one epoch to the next.
        self._high_watermark = high_watermark
        # The election state that waits to be persisted. Not None from `_stage` to `election_persisted`. A later change
        # replaces a staged one.
        self._staged: ElectionState | None = None
        # The voters that granted this node their vote in its present candidacy. Reset when the node becomes a candidate.
        self._granted: tuple[BrokerId, ...] = ()
        # The LeaderChange that a new leader has to append. Set when this node becomes leader, cleared when `take_ready`
        # returns it or the leader resigns first.
        self._leader_change: LeaderChange | None = None
        # The leader and the high watermark that `take_ready` last reported. It reports them again only if they have changed.
        self._announced = LeaderAndEpoch(None, LeaderEpoch(-1))
        self._announced_high_watermark = high_watermark
        leads_elsewhere = self.election.leader_id not in (None, node_id)
        # A voter does not follow a stored leader that is not among the voters: the quorum was reconfigured, and that node
        # may be gone for good. An observer trusts the stored leader; its own configuration may be the outdated one.
        may_lead = not self.is_voter or self.election.leader_id in self.voters
        # The current role. Changes only in `election_persisted` and `resign`.
        self.role = Role.FOLLOWER if leads_elsewhere and may_lead else Role.UNATTACHED

    @property
    def epoch(self) -> LeaderEpoch:
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def leader_id(self) -> BrokerId | None:
        """The leader of this epoch, if known. After a restart or resignation the node does not name itself."""
        return self.election.leader_id if self.role in (Role.LEADER, Role.FOLLOWER) else None

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def high_watermark(self) -> Offset:
        return self._high_watermark

    @property
    def can_elect_itself(self) -> bool:
        """Whether this node is unattached and its own vote is a majority. With more voters, other nodes have to vote."""
        return self.is_voter and _is_majority(1, len(self.voters)) and self.role is Role.UNATTACHED

    @property
    def has_staged_election(self) -> bool:
        """Whether a change of epoch, vote or leader waits to be persisted."""
        return self._staged is not None

    # --- elections -----------------------------------------------------------------------------------------------
    def campaign(self) -> None:
        """Stages this node's vote for itself in the next epoch."""
        if not self.is_voter:
            raise QuorumViolation(f"node {self.node_id} is no voter and cannot be elected")
        self._stage(ElectionState(epoch=LeaderEpoch(self.epoch + 1), voted_id=self.node_id))

    def vote_granted(self, voter_id: BrokerId) -> None:
        """Counts the vote of a voter (possibly this node) in the candidate's epoch. A majority stages the leadership."""
        if self.role is not Role.CANDIDATE or voter_id not in self.voters or voter_id in self._granted:
            return
        self._granted = (*self._granted, voter_id)
        if _is_majority(len(self._granted), len(self.voters)) and self._staged is None:
            self._stage(ElectionState(epoch=self.epoch, leader_id=self.node_id))

    def leader_discovered(self, leader_id: BrokerId | None, epoch: LeaderEpoch) -> None:
        """Stages the leader and epoch that another node named. Outdated or already known information changes nothing.

        Raises QuorumViolation if the epoch already has another leader.
        """
        newest = self._staged or self.election
        if epoch < newest.epoch or (leader_id is None and epoch == newest.epoch) or leader_id == self.node_id:
            return
        if epoch == newest.epoch:
            if newest.leader_id == leader_id:
                return
            if newest.leader_id is not None:
                raise QuorumViolation(f"epoch {epoch} has two leaders, {newest.leader_id} and {leader_id}")
        voted_id = newest.voted_id if epoch == newest.epoch else None
        self._stage(ElectionState(epoch=epoch, leader_id=leader_id, voted_id=voted_id))

    def election_persisted(self, log_end_offset: Offset) -> None:
        """Puts the staged change into effect. The caller has made it durable.

        If this node now leads, its epoch starts at `log_end_offset`.
        """
        if self._staged is None:
            raise QuorumViolation("no change of the election state was to be persisted")
        self.election, self._staged = self._staged, None
        self.progress = None
        if self.election.leader_id == self.node_id:
            self._become_leader(log_end_offset)
        elif self.election.leader_id is not None:
            self.role = Role.FOLLOWER
        elif self.election.voted_id == self.node_id:
            self.role = Role.CANDIDATE
            self._granted = ()
            self.vote_granted(self.node_id)
        else:
            self.role = Role.UNATTACHED

    def resign(self) -> None:
        """Stops leading at once. The epoch stays, but from now on it has no leader."""
        if self.role is Role.LEADER:
            self.role = Role.UNATTACHED
            self.progress = None
            self._leader_change = None

    def _become_leader(self, epoch_start_offset: Offset) -> None:
        self.role = Role.LEADER
        self.progress = LeaderProgress(
            node_id=self.node_id,
            epoch=self.epoch,
            epoch_start_offset=epoch_start_offset,
            voters={voter: Progress() for voter in self.voters},
            high_watermark=self._high_watermark,
        )
        self._leader_change = LeaderChange(self.epoch, self.node_id, self.voters, self._granted)

    def _stage(self, election: ElectionState) -> None:
        self._staged = election

    # --- the log -------------------------------------------------------------------------------------------------
    def log_flushed(self, end_offset: Offset) -> None:
        """Notes that this node has fsynced everything before `end_offset`. On a leader this may commit records."""
        if self.progress is not None and self.progress.local_flushed(end_offset):
            self._high_watermark = self.progress.high_watermark

    def leader_progress(self) -> LeaderProgress:
        """Returns the progress of the replicas. Raises QuorumViolation if this node is not the leader."""
        if self.progress is None:
            raise QuorumViolation(f"node {self.node_id} does not lead epoch {self.epoch}")
        return self.progress

    @property
    def reportable_high_watermark(self) -> Offset:
        """The high watermark for responses to Fetch and DescribeQuorum: -1 until a majority has stored a record of the
        leader's own epoch."""
        progress = self.progress
        is_known = progress is not None and progress.high_watermark > progress.epoch_start_offset
        return self._high_watermark if is_known else Offset(-1)

    def replica_progressed(self) -> None:
        """Adopts the high watermark after a Fetch moved it in `leader_progress()`."""
        if self.progress is not None:
            self._high_watermark = max(self._high_watermark, self.progress.high_watermark)

    def leader_reported(self, high_watermark: Offset, *, log_end_offset: Offset) -> None:
        """Takes over the leader's high watermark from a Fetch response, but never beyond the end of the local log."""
        if self.role is not Role.FOLLOWER:
            return
        self._high_watermark = max(self._high_watermark, min(high_watermark, log_end_offset))

    def snapshot_installed(self, end_offset: Offset) -> None:
        """Raises the high watermark to the end of an installed snapshot, which holds only committed records."""
        self._high_watermark = max(self._high_watermark, end_offset)

    # --- the driver's side ---------------------------------------------------------------------------------------
    def take_ready(self) -> Ready:
        """Returns what the driver has to do next. While an election is staged, returns only that election."""
        if self._staged is not None:
            return Ready(election=self._staged)
        leader_change, self._leader_change = self._leader_change, None
        leader_and_epoch = self.leader_and_epoch if self.leader_and_epoch != self._announced else None
        self._announced = self.leader_and_epoch
        moved = self._high_watermark > self._announced_high_watermark
        self._announced_high_watermark = self._high_watermark
        return Ready(
            leader_change=leader_change,
            leader_and_epoch=leader_and_epoch,
            high_watermark=self._high_watermark if moved else None,
        )


def _is_majority(votes: int, voters: int) -> bool:
    return votes >= voters // 2 + 1
