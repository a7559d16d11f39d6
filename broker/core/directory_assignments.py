"""The queue of replica-to-directory assignments that the controller has not confirmed, and when to send them (core).

Counterpart of Kafka's AssignmentsManager (KIP-858). It is level-triggered: `wish` is called again for every replica whose
metadata differs from its actual directory, so a lost or late response can delay agreement but not prevent it. Only the
newest wish of a replica is sent. A replica may move again while its request is in flight; the response to that request must
not clear the newer wish, nor one that a later change of the metadata has brought back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.core.directory_reports import DirectoryReports
from common.ids import DirectoryId, TopicIdPartition
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

if TYPE_CHECKING:
    from random import Random


# Kafka's limits: with ten directories, a request of this size stays below 64 KB.
ASSIGNMENTS_PER_REQUEST_MAX = 2250
BATCHING_DELAY_NS = 100 * NS_PER_MS
FIRST_RETRY_NS = 100 * NS_PER_MS
RETRY_MAX_NS = 10_000 * NS_PER_MS
JITTER = 0.02

# An assignment with one of these errors is dropped: the controller would refuse it again. Reconciliation calls `wish` again
# when the metadata has changed.
DROPPING_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)


@dataclass(slots=True)
class _Wish:
    """The directory to report for one replica, and the earliest time to send it."""

    directory_id: DirectoryId
    not_before_ns: int
    failures: int = 0
    # Whether `settle` was called while the request was in flight. If that request fails, the wish is not sent again.
    is_settled: bool = False
    # Whether `wish` was called while the request was in flight: the replica's metadata has changed and still differs. The
    # change may be later than what the controller did for the request, so the answer does not settle the wish.
    is_wished_again: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What follows from a response."""

    refused: dict[TopicIdPartition, int]
    """The error codes of the assignments to be retried."""

    final: list[TopicIdPartition]
    """The replicas that had to wait for this response (`DirectoryReports`)."""


class DirectoryAssignments:
    """The queue of wishes. `size` counts the unconfirmed assignments (metric QueuedReplicaToDirAssignments)."""

    def __init__(self, *, rng: Random, reports: DirectoryReports) -> None:
        self._rng = rng
        self._reports = reports
        # Assignments that are not sent yet; the newest wish wins.
        self._ready: dict[TopicIdPartition, _Wish] = {}
        # The assignments in the request in flight (at most one). Empty when no request is in flight.
        # Invariant: a replica is in both `_ready` and `_in_flight` only if it moved again after its request was sent.
        self._in_flight: dict[TopicIdPartition, _Wish] = {}
        # Consecutive requests that failed as a whole. The next response resets the count to 0.
        self._request_failures = 0
        # No request is sent before this time. Changes when: a request fails as a whole.
        self._retry_not_before_ns = 0

    @property
    def size(self) -> int:
        return len(self._ready.keys() | self._in_flight.keys())

    def has_pending_into(self, directory_id: DirectoryId) -> bool:
        """Whether an unconfirmed assignment names this directory."""
        return any(wish.directory_id == directory_id for queue in (self._ready, self._in_flight) for wish in queue.values())

    def wish(self, wishes: Mapping[TopicIdPartition, DirectoryId], now_ns: int) -> None:
        """Queues the directory to report for each replica, because its metadata or its directory has changed.

        A replica whose newest wish already names the directory keeps its place in the queue. If that wish is in flight, it
        is sent once more after the answer, unless it is settled by then."""
        for replica, directory_id in wishes.items():
            queued = self._ready.get(replica) or self._in_flight.get(replica)
            if queued is None or queued.directory_id != directory_id:
                self._ready[replica] = _Wish(directory_id, now_ns + BATCHING_DELAY_NS)
            else:
                queued.is_settled = False
                queued.is_wished_again = replica not in self._ready

    def settle(self, replicas: Sequence[TopicIdPartition]) -> None:
        """Drops the wishes of these replicas, because there is nothing left to report about them."""
        for replica in replicas:
            self._reports.settled(replica)
            self._ready.pop(replica, None)
            under_way = self._in_flight.get(replica)
            if under_way is not None:
                # If the request fails, do not send this wish again: it would contradict newer metadata. An outdated LOST
                # would even allow an unclean election to start the replica empty.
                under_way.is_settled = True

    def next_deadline_ns(self) -> int | None:
        """Returns when `next_batch` may have something to send; None while a request is in flight or the queue is empty."""
        if self._in_flight or not self._ready:
            return None
        return max(self._retry_not_before_ns, min(map(self._due_ns, self._ready.values())))

    def next_batch(self, now_ns: int) -> Mapping[DirectoryId, Sequence[TopicIdPartition]]:
        """Returns what to send now, by directory; empty if nothing is due. The batch counts as in flight until
        `handle_answer` or `handle_failure` is called."""
        deadline_ns = self.next_deadline_ns()
        if deadline_ns is None or now_ns < deadline_ns:
            return {}
        due = [replica for replica, wish in self._ready.items() if self._due_ns(wish) <= now_ns]
        batch: dict[DirectoryId, list[TopicIdPartition]] = {}
        for replica in due[:ASSIGNMENTS_PER_REQUEST_MAX]:
            wish = self._ready.pop(replica)
            wish.is_wished_again = False
            self._in_flight[replica] = wish
            self._reports.sent(replica, wish.directory_id)
            batch.setdefault(wish.directory_id, []).append(replica)
        return batch

    def _due_ns(self, wish: _Wish) -> int:
        # A full queue is sent without the batching delay, except for replicas that the controller refused.
        is_full = len(self._ready) >= ASSIGNMENTS_PER_REQUEST_MAX
        return self._retry_not_before_ns if is_full and wish.failures == 0 else wish.not_before_ns

    def handle_answer(self, error_codes: Mapping[tuple[DirectoryId, TopicIdPartition], int], now_ns: int) -> Answer:
        """Handles a response, which has one error code per assignment. An assignment that is missing from the response is
        sent again."""
        self._request_failures = 0
        answer = Answer({}, [])
        in_flight, self._in_flight = self._in_flight, {}
        for replica, wish in in_flight.items():
            code = error_codes.get((wish.directory_id, replica), int(ErrorCode.UNKNOWN_SERVER_ERROR))
            is_over = code == ErrorCode.NONE or code in DROPPING_ERRORS
            if is_over and self._reports.answered(replica):
                answer.final.append(replica)
            if wish.is_settled:
                continue
            if is_over:
                if wish.is_wished_again:
                    self._ready.setdefault(replica, _Wish(wish.directory_id, now_ns + BATCHING_DELAY_NS))
                continue
            answer.refused[replica] = code
            wish.failures += 1
            wish.not_before_ns = now_ns + self._back_off_ns(wish.failures)
            self._ready.setdefault(replica, wish)
        return answer

    def handle_failure(self, now_ns: int) -> None:
        """Handles a request that failed as a whole or got no response. Queues its wishes again, unless they are settled or
        the replica has a newer wish."""
        self._request_failures += 1
        in_flight, self._in_flight = self._in_flight, {}
        for replica, wish in in_flight.items():
            if not wish.is_settled:
                self._ready.setdefault(replica, wish)
        self._retry_not_before_ns = now_ns + self._back_off_ns(self._request_failures)

    def _back_off_ns(self, failures: int) -> int:
        delay_ns = min(FIRST_RETRY_NS * 2 ** min(failures - 1, 20), RETRY_MAX_NS)
        return int(delay_ns * self._rng.uniform(1 - JITTER, 1 + JITTER))
