"""One node's place in the metadata quorum: role, epoch, leader and high watermark (core).

Answers to Kafka's QuorumState and EpochState classes, in the shape of etcd's raft: the driver tells what happened, then
takes a `Ready` and carries it out. A change of epoch, vote or leader is *staged*: it appears as `Ready.election` and takes
effect only with `election_persisted`, so that no answer ever shows an epoch that a restart could forget.

    unattached --campaign--> candidate --majority of votes--> leader --resign--> unattached
    any role --leader_discovered(newer epoch, or first leader of this one)--> follower (an observer is one that cannot vote)

Easy to get wrong: a restarted leader must never go on in its old epoch. It may have lost the unsynced end of its log, and
its followers may have fetched it; a new epoch makes them notice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from common.ids import BrokerId, LeaderEpoch, Offset, Uuid
from common.raft.core.election_state import ElectionState
from common.raft.core.replica_progress import LeaderProgress, Progress


class QuorumViolation(Exception):
    """Something that no correct quorum does, such as two leaders of one epoch. Fatal."""


class Role(Enum):
    UNATTACHED = auto()
    CANDIDATE = auto()
    LEADER = auto()
    FOLLOWER = auto()


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Who leads the metadata log in the newest epoch that this node knows."""

    leader_id: BrokerId | None
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of an epoch, still to be appended by its leader."""

    epoch: LeaderEpoch
    leader_id: BrokerId
    voters: tuple[BrokerId, ...]
    granting_voters: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """What the driver has to do now. `election` first, and durably; the rest in the order of the fields."""

    election: ElectionState | None = None
    leader_change: LeaderChange | None = None
    leader_and_epoch: LeaderAndEpoch | None = None
    high_watermark: Offset | None = None


class Quorum:
    """The quorum state machine of one node."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        directory_id: Uuid,
        voters: Sequence[BrokerId],
        election: ElectionState,
        last_log_epoch: LeaderEpoch,
        high_watermark: Offset,
    ) -> None:
        """`high_watermark` is what is known to be committed without asking: the end of the newest snapshot."""
        self.node_id = node_id
        self.directory_id = directory_id
        self.voters = tuple(voters)
        # A log that is ahead of the file (which was lost) proves the newer epoch; the vote in it is unknown.
        self.election = election if election.epoch >= last_log_epoch else ElectionState(last_log_epoch)
        self.progress: LeaderProgress | None = None
        self._high_watermark = high_watermark
        # Invariant: not None between the staging of a change and `election_persisted`; only one change is staged.
        self._staged: ElectionState | None = None
        self._granted: tuple[BrokerId, ...] = ()
        self._leader_change: LeaderChange | None = None
        self._announced = LeaderAndEpoch(None, LeaderEpoch(-1))
        self._announced_high_watermark = high_watermark
        leads_elsewhere = self.election.leader_id not in (None, node_id)
        # A voter waits for no leader from outside the voters: they were configured anew, and that one may be gone for good.
        # An observer goes by what it was told; its own configuration may be the old one.
        may_lead = not self.is_voter or self.election.leader_id in self.voters
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
        """The leader of this epoch. A node that restarted or resigned does not name itself."""
        return self.election.leader_id if self.role in (Role.LEADER, Role.FOLLOWER) else None

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def high_watermark(self) -> Offset:
        return self._high_watermark

    @property
    def can_elect_itself(self) -> bool:
        """Whether its own vote is a majority. With more voters an election needs the votes of others."""
        return self.is_voter and _is_majority(1, len(self.voters)) and self.role is Role.UNATTACHED

    @property
    def has_staged_election(self) -> bool:
        """Whether a change waits to be persisted, so that what is known of the epoch is about to change."""
        return self._staged is not None

    # --- elections -----------------------------------------------------------------------------------------------
    def campaign(self) -> None:
        """Stages this node's vote for itself in the next epoch."""
        if not self.is_voter:
            raise QuorumViolation(f"node {self.node_id} is no voter and cannot be elected")
        self._stage(
            ElectionState(epoch=LeaderEpoch(self.epoch + 1), voted_id=self.node_id, voted_directory_id=self.directory_id)
        )

    def vote_granted(self, voter_id: BrokerId) -> None:
        """A voter, this one included, granted its vote in the candidate's epoch."""
        if self.role is not Role.CANDIDATE or voter_id not in self.voters or voter_id in self._granted:
            return
        self._granted = (*self._granted, voter_id)
        if _is_majority(len(self._granted), len(self.voters)) and self._staged is None:
            self._stage(ElectionState(epoch=self.epoch, leader_id=self.node_id))

    def leader_discovered(self, leader_id: BrokerId | None, epoch: LeaderEpoch) -> None:
        """An answer of another node named this leader and epoch. What is old or known changes nothing."""
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
        """What `Ready.election` held is durable: it takes effect. `log_end_offset` is where a new epoch would begin."""
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
        """Stops leading, at once. The epoch stays on record; nobody leads it any more."""
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
        """This node has everything before `end_offset` durably. On a leader that can commit records."""
        if self.progress is not None and self.progress.local_flushed(end_offset):
            self._high_watermark = self.progress.high_watermark

    def leader_progress(self) -> LeaderProgress:
        """The replicas as this leader sees them. Raises QuorumViolation on any other node."""
        if self.progress is None:
            raise QuorumViolation(f"node {self.node_id} does not lead epoch {self.epoch}")
        return self.progress

    def replica_progressed(self) -> None:
        """A fetch moved the high watermark in `leader_progress()`."""
        if self.progress is not None:
            self._high_watermark = max(self._high_watermark, self.progress.high_watermark)

    def leader_reported(self, high_watermark: Offset, *, log_end_offset: Offset) -> None:
        """The leader's answer named its watermark; what this node does not have yet is not committed for it."""
        if self.role is not Role.FOLLOWER:
            return
        self._high_watermark = max(self._high_watermark, min(high_watermark, log_end_offset))

    def snapshot_installed(self, end_offset: Offset) -> None:
        """A snapshot holds committed records only, so the watermark is at least its end."""
        self._high_watermark = max(self._high_watermark, end_offset)

    # --- the driver's side ---------------------------------------------------------------------------------------
    def take_ready(self) -> Ready:
        """What is to be done since the last call. While an election is staged nothing else is handed out."""
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
