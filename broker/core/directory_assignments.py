"""Which replica-to-directory assignments the controller must still hear of, and when to send them (core).

Answers to Kafka's AssignmentsManager (KIP-858) and is level-triggered: `wish` is called again for every replica whose
metadata differs from where it lives, so a lost or late answer delays agreement and never prevents it. Only the newest wish
of a replica is ever sent. Easy to get wrong: the answer to an old request must not clear a wish that is newer than it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.ids import DirectoryId, TopicIdPartition
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

if TYPE_CHECKING:
    from random import Random


# Kafka's numbers: a request of this size stays below 64 KB with ten directories.
ASSIGNMENTS_PER_REQUEST_MAX = 2250
BATCHING_DELAY_NS = 100 * NS_PER_MS
FIRST_RETRY_NS = 100 * NS_PER_MS
RETRY_MAX_NS = 10_000 * NS_PER_MS
JITTER = 0.02

# The controller will never take these; reconciliation wishes again when the metadata has moved.
DROPPING_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)


@dataclass(slots=True)
class _Wish:
    """Where a replica really is, and from when on that may be sent."""

    directory_id: DirectoryId
    not_before_ns: int
    failures: int = 0
    # Settled while its request was under way: if that fails, there is nothing to repeat.
    is_settled: bool = False


class DirectoryAssignments:
    """The queue. `size` counts what the controller has not confirmed (metric QueuedReplicaToDirAssignments)."""

    def __init__(self, *, rng: Random) -> None:
        self._rng = rng
        # Replicas whose directory the controller has not been told about yet, newest wish wins.
        self._ready: dict[TopicIdPartition, _Wish] = {}
        # What the one request under way carries.
        # Invariant: a replica is in `ready` or in `in_flight`, or in both only when it moved again after its request left.
        self._in_flight: dict[TopicIdPartition, _Wish] = {}
        self._request_failures = 0
        self._retry_not_before_ns = 0

    @property
    def size(self) -> int:
        return len(self._ready.keys() | self._in_flight.keys())

    def has_pending_into(self, directory_id: DirectoryId) -> bool:
        """Whether an unconfirmed assignment names this directory."""
        return any(wish.directory_id == directory_id for queue in (self._ready, self._in_flight) for wish in queue.values())

    def wish(self, wishes: Mapping[TopicIdPartition, DirectoryId], now_ns: int) -> None:
        """Takes in where replicas really are. A wish that is already queued or under way unchanged keeps its place."""
        for replica, directory_id in wishes.items():
            queued = self._ready.get(replica) or self._in_flight.get(replica)
            if queued is None or queued.directory_id != directory_id:
                self._ready[replica] = _Wish(directory_id, now_ns + BATCHING_DELAY_NS)
            else:
                queued.is_settled = False

    def settle(self, replicas: Sequence[TopicIdPartition]) -> None:
        """The metadata agrees about these replicas, or they are gone: nothing is left to say."""
        for replica in replicas:
            self._ready.pop(replica, None)
            under_way = self._in_flight.get(replica)
            if under_way is not None:
                # Repeated after a failure it would contradict what the metadata has agreed on since, LOST above all.
                under_way.is_settled = True

    def next_deadline_ns(self) -> int | None:
        """When `next_batch` may have something to send; None while a request is under way or the queue is empty."""
        if self._in_flight or not self._ready:
            return None
        return max(self._retry_not_before_ns, min(map(self._due_ns, self._ready.values())))

    def next_batch(self, now_ns: int) -> Mapping[DirectoryId, Sequence[TopicIdPartition]]:
        """What to send now, by directory; empty when nothing is due. It counts as under way until one of the two answers."""
        deadline_ns = self.next_deadline_ns()
        if deadline_ns is None or now_ns < deadline_ns:
            return {}
        due = [replica for replica, wish in self._ready.items() if self._due_ns(wish) <= now_ns]
        batch: dict[DirectoryId, list[TopicIdPartition]] = {}
        for replica in due[:ASSIGNMENTS_PER_REQUEST_MAX]:
            wish = self._ready.pop(replica)
            self._in_flight[replica] = wish
            batch.setdefault(wish.directory_id, []).append(replica)
        return batch

    def _due_ns(self, wish: _Wish) -> int:
        # A full queue does not wait for more to come; a replica that the controller refused waits all the same.
        is_full = len(self._ready) >= ASSIGNMENTS_PER_REQUEST_MAX
        return self._retry_not_before_ns if is_full and wish.failures == 0 else wish.not_before_ns

    def handle_answer(
        self, error_codes: Mapping[tuple[DirectoryId, TopicIdPartition], int], now_ns: int
    ) -> dict[TopicIdPartition, int]:
        """The request was answered, with a code per assignment. Returns the codes that were neither success nor a drop.

        An assignment that the answer leaves out is sent again."""
        self._request_failures = 0
        refused: dict[TopicIdPartition, int] = {}
        in_flight, self._in_flight = self._in_flight, {}
        for replica, wish in in_flight.items():
            code = error_codes.get((wish.directory_id, replica), int(ErrorCode.UNKNOWN_SERVER_ERROR))
            if code == ErrorCode.NONE or code in DROPPING_ERRORS or wish.is_settled:
                continue
            refused[replica] = code
            wish.failures += 1
            wish.not_before_ns = now_ns + self._back_off_ns(wish.failures)
            self._ready.setdefault(replica, wish)
        return refused

    def handle_failure(self, now_ns: int) -> None:
        """The request as a whole failed or got no answer: everything goes back, newer wishes stay."""
        self._request_failures += 1
        in_flight, self._in_flight = self._in_flight, {}
        for replica, wish in in_flight.items():
            if not wish.is_settled:
                self._ready.setdefault(replica, wish)
        self._retry_not_before_ns = now_ns + self._back_off_ns(self._request_failures)

    def _back_off_ns(self, failures: int) -> int:
        delay_ns = min(FIRST_RETRY_NS * 2 ** min(failures - 1, 20), RETRY_MAX_NS)
        return int(delay_ns * self._rng.uniform(1 - JITTER, 1 + JITTER))
