"""The queue of assignments: batching, retries, the newest wish wins, and nothing is lost or kept forever.

A wish is the directory that the broker wants the metadata to name for a replica.
"""

import random

from broker.core.directory_assignments import ASSIGNMENTS_PER_REQUEST_MAX, DirectoryAssignments
from broker.core.directory_reports import DirectoryReports
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

T = TopicId(Uuid(b"t" * 16))
D1 = DirectoryId(Uuid(b"1" * 16))
D2 = DirectoryId(Uuid(b"2" * 16))
P0, P1 = TopicIdPartition(T, 0), TopicIdPartition(T, 1)


def assignments() -> DirectoryAssignments:
    return DirectoryAssignments(rng=random.Random(1), reports=DirectoryReports())


def test_wishes_are_batched_and_confirmed() -> None:
    """Two wishes made together are sent in one request after the batching delay, and are dropped once confirmed."""
    queue = assignments()
    queue.wish({P0: D1, P1: D2}, 0)
    assert queue.next_deadline_ns() == 100 * NS_PER_MS
    assert queue.next_batch(50 * NS_PER_MS) == {}
    assert queue.next_batch(100 * NS_PER_MS) == {D1: [P0], D2: [P1]}
    assert queue.size == 2
    assert queue.next_deadline_ns() is None
    assert queue.handle_answer({(D1, P0): 0, (D2, P1): 0}, 110 * NS_PER_MS).refused == {}
    assert queue.size == 0


def test_the_answer_to_an_old_request_does_not_clear_a_newer_wish() -> None:
    """If the replica moves again while its request is in flight, the new directory is still sent."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.wish({P0: D2}, 100 * NS_PER_MS)
    assert queue.size == 1
    queue.handle_answer({(D1, P0): 0}, 150 * NS_PER_MS)
    assert queue.next_batch(200 * NS_PER_MS) == {D2: [P0]}


def test_a_refusal_of_an_old_wish_does_not_bring_it_back() -> None:
    """If the replica moves again and the request in flight is refused, the newer directory is sent."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.wish({P0: D2}, 100 * NS_PER_MS)
    assert queue.handle_answer({(D1, P0): ErrorCode.UNKNOWN_SERVER_ERROR}, 150 * NS_PER_MS).refused == {
        P0: ErrorCode.UNKNOWN_SERVER_ERROR
    }
    assert queue.next_batch(200 * NS_PER_MS) == {D2: [P0]}


def test_an_assignment_under_way_is_pending() -> None:
    """An assignment is pending until it is confirmed, whether it was sent or not. The check of log.dir.failure.timeout.ms
    relies on that."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    assert queue.has_pending_into(D1)
    queue.next_batch(100 * NS_PER_MS)
    assert queue.has_pending_into(D1)
    assert not queue.has_pending_into(D2)
    queue.handle_answer({(D1, P0): 0}, 150 * NS_PER_MS)
    assert not queue.has_pending_into(D1)


def test_only_the_newest_wish_is_sent() -> None:
    """A wish that was replaced before it was sent is never sent."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.wish({P0: D2}, 10 * NS_PER_MS)
    assert queue.next_batch(110 * NS_PER_MS) == {D2: [P0]}


def test_a_failed_request_is_sent_again_with_newer_wishes_kept() -> None:
    """When a request fails, no wish is lost, and a wish that was replaced meanwhile is not sent again."""
    queue = assignments()
    queue.wish({P0: D1, P1: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.wish({P0: D2}, 100 * NS_PER_MS)
    queue.handle_failure(200 * NS_PER_MS)
    deadline_ns = queue.next_deadline_ns()
    assert deadline_ns is not None
    assert deadline_ns > 290 * NS_PER_MS
    assert queue.next_batch(deadline_ns) == {D2: [P0], D1: [P1]}


def test_errors_that_cannot_change_drop_the_entry() -> None:
    """An assignment for a deleted topic is not retried (KAFKA-17190). An assignment that is missing from the response is."""
    queue = assignments()
    queue.wish({P0: D1, P1: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    refused = queue.handle_answer({(D1, P0): ErrorCode.UNKNOWN_TOPIC_ID}, 100 * NS_PER_MS).refused
    assert refused == {P1: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert queue.size == 1


def test_a_refused_replica_backs_off_by_itself() -> None:
    """One bad partition does not slow the others down."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.handle_answer({(D1, P0): ErrorCode.UNKNOWN_SERVER_ERROR}, 100 * NS_PER_MS)
    queue.wish({P1: D1}, 100 * NS_PER_MS)
    assert queue.next_batch(201 * NS_PER_MS)[D1][-1] == P1


def test_a_full_queue_is_sent_at_once_in_requests_of_bounded_size() -> None:
    """When a broker with thousands of replicas starts, the first request does not wait for the batching delay."""
    queue = assignments()
    queue.wish({TopicIdPartition(T, partition): D1 for partition in range(ASSIGNMENTS_PER_REQUEST_MAX + 5)}, 0)
    assert queue.next_deadline_ns() == 0
    assert len(queue.next_batch(0)[D1]) == ASSIGNMENTS_PER_REQUEST_MAX
    assert queue.size == ASSIGNMENTS_PER_REQUEST_MAX + 5


def test_settled_replicas_leave_the_queue_and_pending_directories_are_seen() -> None:
    """If the metadata agrees before the wish is sent, the wish is dropped and is no longer pending."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    assert queue.has_pending_into(D1)
    queue.settle([P0])
    assert not queue.has_pending_into(D1)
    assert queue.next_deadline_ns() is None


def test_what_was_settled_while_its_request_was_under_way_is_not_repeated() -> None:
    """A replica is settled while its request is in flight: the metadata agrees. If the request fails, it is not repeated for
    this replica. If LOST were sent again for a replica that has come back, the replica would leave the ISR."""
    for failed in (True, False):
        queue = assignments()
        queue.wish({P0: D1, P1: D1}, 0)
        queue.next_batch(100 * NS_PER_MS)
        queue.settle([P0])
        assert queue.size == 2
        if failed:
            queue.handle_failure(200 * NS_PER_MS)
        else:
            queue.handle_answer({(D1, P0): 42, (D1, P1): 42}, 200 * NS_PER_MS)
        assert queue.next_batch(1000 * NS_PER_MS) == {D1: [P1]}


def test_an_answer_does_not_settle_what_later_metadata_brought_back() -> None:
    """The controller records the assignment, then a late request of this broker overwrites it. The broker applies both
    before it gets the answer to the first: the metadata differs again, and the wish is sent once more."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.settle([P0])
    queue.wish({P0: D1}, 150 * NS_PER_MS)
    assert queue.handle_answer({(D1, P0): ErrorCode.NONE}, 200 * NS_PER_MS).refused == {}
    assert queue.size == 1
    assert queue.next_batch(300 * NS_PER_MS) == {D1: [P0]}
    queue.handle_answer({(D1, P0): ErrorCode.NONE}, 310 * NS_PER_MS)
    assert queue.size == 0


def test_what_is_settled_before_the_answer_is_not_sent_again() -> None:
    """Another change of the partition comes while the request is in flight, then the one with the assignment."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.wish({P0: D1}, 110 * NS_PER_MS)
    queue.handle_answer({(D1, P0): ErrorCode.NONE}, 120 * NS_PER_MS)
    queue.settle([P0])
    assert queue.size == 0
    assert queue.next_deadline_ns() is None


def test_a_wish_that_comes_back_while_under_way_is_repeated() -> None:
    """A wish is settled and then made again, unchanged, before the answer arrives. If the request fails, the wish is sent
    again."""
    queue = assignments()
    queue.wish({P0: D1}, 0)
    queue.next_batch(100 * NS_PER_MS)
    queue.settle([P0])
    queue.wish({P0: D1}, 100 * NS_PER_MS)
    queue.handle_failure(200 * NS_PER_MS)
    assert queue.next_batch(1000 * NS_PER_MS) == {D1: [P0]}


def test_a_full_queue_of_refused_replicas_names_a_deadline_at_which_something_is_due() -> None:
    """At the deadline there must be something to send. Otherwise the caller would wake up, find nothing, and do the same
    again in a busy loop."""
    queue = assignments()
    replicas = [TopicIdPartition(T, partition) for partition in range(ASSIGNMENTS_PER_REQUEST_MAX)]
    queue.wish(dict.fromkeys(replicas, D1), 0)
    queue.next_batch(0)
    queue.handle_answer({(D1, replica): ErrorCode.UNKNOWN_SERVER_ERROR for replica in replicas}, 10 * NS_PER_MS)
    deadline_ns = queue.next_deadline_ns()
    assert deadline_ns is not None
    assert deadline_ns > 100 * NS_PER_MS
    assert queue.next_batch(deadline_ns) != {}
