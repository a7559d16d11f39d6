"""How far every replica of the metadata log has come, seen from its leader, and the high watermark (core).

Answers to Kafka's LeaderState. The high watermark is the highest offset that a majority of the *voters* has durably; the
leader's own entry is what it has fsynced, not what it has appended, and one voter is nothing but a majority of one. Easy to
get wrong: records of an earlier epoch are committed only together with a record of this epoch, so the watermark does not
move before a majority has this epoch's LeaderChange.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from common.ids import ZERO_UUID, BrokerId, LeaderEpoch, Offset, Uuid

# An observer that has not fetched for this long is no longer listed.
OBSERVER_SESSION_MS = 300_000
# Anybody may claim to be an observer; beyond this many the one that was silent for longest is forgotten.
OBSERVERS_MAX = 1_000

_UNKNOWN = Offset(-1)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log. The directory id is that of its metadata directory, zero when it names none."""

    node_id: BrokerId
    directory_id: Uuid = ZERO_UUID


@dataclass(slots=True)
class Progress:
    """What the leader knows of one replica. Wall-clock times, -1 when there is none yet."""

    end_offset: Offset | None = None
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    # The leader's log end when the replica fetched last: a replica that has since come that far was caught up then.
    leader_end_at_last_fetch: Offset = _UNKNOWN
    # The watermark in the newest answer to it; a newer one is sent at once instead of waiting with the long poll.
    sent_high_watermark: Offset = _UNKNOWN
    # The connection that it was sent on. Whoever fetches on another one may have restarted and forgotten it.
    sent_to: str = ""


@dataclass(slots=True)
class LeaderProgress:
    """The replicas of one epoch of this leader. Thrown away with the epoch."""

    node_id: BrokerId
    epoch: LeaderEpoch
    epoch_start_offset: Offset
    voters: dict[BrokerId, Progress]
    high_watermark: Offset
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)

    def local_flushed(self, end_offset: Offset) -> bool:
        """The leader itself has everything before `end_offset` on its disk. True when the high watermark moved."""
        own = self.voters[self.node_id]
        if own.end_offset is None or end_offset > own.end_offset:
            own.end_offset = end_offset
        return self._maybe_advance()

    def fetched(self, replica: ReplicaKey, *, end_offset: Offset, leader_end: Offset, wall_ms: int) -> bool:
        """A replica asked for records from `end_offset` on, so it has all before. True when the high watermark moved."""
        progress = self.progress_of(replica)
        if end_offset >= leader_end:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, wall_ms)
        elif progress.leader_end_at_last_fetch >= 0 and end_offset >= progress.leader_end_at_last_fetch:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.last_fetch_ms = max(progress.last_fetch_ms, wall_ms)
        progress.leader_end_at_last_fetch = leader_end
        # A voter never goes back within an epoch; an observer may (its disk was replaced) and counts for nothing.
        if replica.node_id not in self.voters or progress.end_offset is None or end_offset > progress.end_offset:
            progress.end_offset = end_offset
        return replica.node_id in self.voters and self._maybe_advance()

    def progress_of(self, replica: ReplicaKey) -> Progress:
        """The entry of a replica, made when it is new."""
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
    """The highest offset that a majority has reached; None while a majority has not been heard of."""
    reached = sorted((Offset(-1) if end is None else end for end in end_offsets), reverse=True)
    candidate = reached[len(reached) // 2]
    return None if candidate < 0 else candidate
