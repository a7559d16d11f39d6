"""The leader's view of every replica's progress, and the high watermark that follows from it (core).

Counterpart of Kafka's LeaderState. Two rules govern the high watermark:

1. It is the highest offset for which a majority of the *voters* has durably stored every earlier record. The leader itself
   counts with what it has fsynced, not with what it has appended. A single voter is a majority of one.
2. Records of an earlier epoch are committed only together with a record of this epoch, as the Raft paper requires. So
   the watermark does not move until a majority has this epoch's LeaderChange.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from common.ids import ZERO_UUID, BrokerId, LeaderEpoch, Offset, Uuid

# Observers that have not fetched for this long are removed.
OBSERVER_SESSION_MS = 300_000
# Any client can claim to be an observer. At this limit, a new observer evicts the one that has been silent longest.
OBSERVERS_MAX = 1_000

_UNKNOWN = Offset(-1)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node and its metadata directory. The directory id is zero if the Fetch names none."""

    node_id: BrokerId
    directory_id: Uuid = ZERO_UUID


@dataclass(slots=True)
class Progress:
    """What the leader knows about one replica. All times are wall-clock times, -1 if unset."""

    # The replica has everything before this offset. None until its first Fetch (for the leader itself: its first fsync).
    # Invariant: never decreases for a voter within an epoch. May decrease for an observer, whose disk may be replaced.
    end_offset: Offset | None = None
    # Time of the last valid Fetch. Never decreases.
    last_fetch_ms: int = -1
    # The last time at which the replica is known to have had the leader's whole log. Never decreases.
    last_caught_up_ms: int = -1
    # The leader's log end at the replica's last Fetch. Once the replica has reached this offset, it counts as caught up at
    # the time of that Fetch.
    leader_end_at_last_fetch: Offset = _UNKNOWN
    # The high watermark in the newest response to this replica. If the watermark is higher now, the next Fetch is answered
    # at once, even without records.
    sent_high_watermark: Offset = _UNKNOWN
    # The connection on which `sent_high_watermark` was sent. A replica that fetches on another connection may have restarted
    # and forgotten the watermark, so it is sent again.
    sent_to: str = ""


@dataclass(slots=True)
class LeaderProgress:
    """The progress of all replicas in one epoch of this leader. Discarded when the epoch ends."""

    node_id: BrokerId
    epoch: LeaderEpoch
    # The offset of this epoch's LeaderChange record. Fixed. The high watermark cannot move until it passes this offset.
    epoch_start_offset: Offset
    # The progress of each voter. Invariant: the keys are the voters of the quorum, this node included, and never change.
    voters: dict[BrokerId, Progress]
    # Everything before this offset is committed. Starts at the watermark that this node already knew. Never decreases.
    high_watermark: Offset
    # The progress of each observer, in the order of the first Fetch. Invariant: at most OBSERVERS_MAX entries, none with a
    # voter's node id.
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)

    def local_flushed(self, end_offset: Offset) -> bool:
        """Notes that the leader has fsynced everything before `end_offset`. Returns whether the high watermark moved."""
        own = self.voters[self.node_id]
        if own.end_offset is None or end_offset > own.end_offset:
            own.end_offset = end_offset
        return self._maybe_advance()

    def fetched(self, replica: ReplicaKey, *, end_offset: Offset, leader_end: Offset, wall_ms: int) -> bool:
        """Notes a Fetch at `end_offset`: the replica has every earlier record. `leader_end` is the leader's log end.

        Returns whether the high watermark moved.
        """
        progress = self.progress_of(replica)
        if end_offset >= leader_end:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, wall_ms)
        elif progress.leader_end_at_last_fetch >= 0 and end_offset >= progress.leader_end_at_last_fetch:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.last_fetch_ms = max(progress.last_fetch_ms, wall_ms)
        progress.leader_end_at_last_fetch = leader_end
        # Keep the highest offset of a voter: it never goes back within an epoch. An observer's offset may go back (its disk
        # was replaced), which is harmless because an observer has no vote.
        if replica.node_id not in self.voters or progress.end_offset is None or end_offset > progress.end_offset:
            progress.end_offset = end_offset
        return replica.node_id in self.voters and self._maybe_advance()

    def progress_of(self, replica: ReplicaKey) -> Progress:
        """Returns the entry of a replica.

        Creates an entry for a new observer. At the limit, the observer whose last Fetch is the oldest loses its entry.
        """
        voter = self.voters.get(replica.node_id)
        if voter is not None:
            return voter
        observer = self.observers.get(replica)
        if observer is None:
            if len(self.observers) >= OBSERVERS_MAX:
                del self.observers[min(self.observers, key=lambda key: self.observers[key].last_fetch_ms)]
            observer = self.observers[replica] = Progress()
        return observer

    def forget_silent_observers(self, wall_ms: int) -> None:
        silent = [key for key, seen in self.observers.items() if wall_ms - seen.last_fetch_ms > OBSERVER_SESSION_MS]
        for key in silent:
            del self.observers[key]

    def _maybe_advance(self) -> bool:
        candidate = majority_offset([progress.end_offset for progress in self.voters.values()])
        if candidate is None or candidate <= self.epoch_start_offset or candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True


def majority_offset(end_offsets: Sequence[Offset | None]) -> Offset | None:
    """Returns the highest offset that a majority has reached, or None until a majority has reported an offset."""
    reached = sorted((Offset(-1) if end is None else end for end in end_offsets), reverse=True)
    candidate = reached[len(reached) // 2]
    return None if candidate < 0 else candidate
