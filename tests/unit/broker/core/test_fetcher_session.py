"""What a follower names in its fetches, and what it makes of the answers (KIP-227)."""

from broker.core.fetcher_session import FetcherSession, SessionRequest
from common.ids import TopicId, TopicIdPartition, Uuid
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchResponse

TOPIC = TopicId(Uuid(b"t" * 16))
OTHER = TopicId(Uuid(b"o" * 16))


def key(index: int, topic_id: TopicId = TOPIC) -> TopicIdPartition:
    return TopicIdPartition(topic_id, index)


def wanted(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset)


def named(request: SessionRequest) -> dict[TopicId, list[tuple[int, int]]]:
    """Returns the partitions that the request names, and their offsets."""
    return {
        TopicId(topic.topic_id): [(each.partition, each.fetch_offset) for each in topic.partitions]
        for topic in request.topics
    }


def forgotten(request: SessionRequest) -> dict[TopicId, list[int]]:
    return {TopicId(topic.topic_id): topic.partitions for topic in request.forgotten_topics}


def established(*indexes: int) -> FetcherSession:
    """A session with id 7 whose first request named these partitions."""
    session = FetcherSession()
    for index in indexes:
        session.ask(key(index), wanted(index))
    assert session.answered(session.next_request(), FetchResponse(session_id=7))
    assert session.is_established
    return session


def test_the_first_request_names_everything_and_the_next_ones_changes() -> None:
    session = FetcherSession()
    session.ask(key(0), wanted(0))
    session.ask(key(1, OTHER), wanted(1))
    first = session.next_request()
    assert (first.session_id, first.session_epoch, first.begins_session) == (0, 0, True)
    assert named(first) == {TOPIC: [(0, 0)], OTHER: [(1, 0)]}
    session.answered(first, FetchResponse(session_id=7))
    for epoch in (1, 2):
        later = session.next_request()
        assert (later.session_id, later.session_epoch, named(later), forgotten(later)) == (7, epoch, {}, {})


def test_only_real_changes_are_named() -> None:
    session = established(0, 1, 2)
    session.ask(key(0), wanted(0))
    session.ask(key(1), wanted(1, offset=5))
    session.forget(key(2))
    session.forget(key(3))
    assert session.has_changes
    request = session.next_request()
    assert (named(request), forgotten(request)) == ({TOPIC: [(1, 5)]}, {TOPIC: [2]})
    assert not session.has_changes


def test_a_partition_that_is_forgotten_and_asked_for_again_is_only_named() -> None:
    session = established(0, 1)
    session.forget(key(0))
    session.ask(key(0), wanted(0))
    request = session.next_request()
    assert (named(request), forgotten(request)) == ({TOPIC: [(0, 0)]}, {})


def test_a_partition_that_is_asked_for_and_forgotten_again_is_not_named() -> None:
    session = established(0)
    session.ask(key(1), wanted(1))
    session.forget(key(1))
    assert named(session.next_request()) == {}


def test_without_a_slot_every_request_names_everything() -> None:
    session = FetcherSession()
    session.ask(key(0), wanted(0))
    for _ in range(3):
        request = session.next_request()
        assert named(request) == {TOPIC: [(0, 0)]}
        assert session.answered(request, FetchResponse(session_id=0))
        assert session.is_refused
        assert not session.is_established


def test_after_an_error_a_new_session_takes_the_place_of_the_old_one() -> None:
    """The request names the old session, so that the leader forgets it, and all partitions."""
    session = established(0, 1)
    session.ask(key(0), wanted(0, offset=3))
    lost = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert not session.answered(session.next_request(), lost)
    again = session.next_request()
    assert (again.session_id, again.session_epoch, named(again)) == (7, 0, {TOPIC: [(0, 3), (1, 0)]})
    session.answered(again, FetchResponse(session_id=8))
    assert session.next_request().session_id == 8


def test_a_request_that_was_not_answered_ends_the_session() -> None:
    session = established(0)
    session.next_request()
    session.failed()
    assert session.next_request().begins_session


def test_a_leader_that_closes_the_session_is_believed() -> None:
    session = established(0)
    assert session.answered(session.next_request(), FetchResponse(session_id=0))
    assert not session.is_established


def test_an_answer_tells_nothing_of_what_was_asked_later() -> None:
    """The second request overtakes the first. The answer to the first is not one for the partition that only the second
    names, and no longer one for the partition that the second asks for at another offset."""
    session = established(0, 1)
    first = session.next_request()
    session.ask(key(1), wanted(1, offset=9))
    session.ask(key(2), wanted(2))
    second = session.next_request()
    assert [session.asked(key(index), first) for index in range(4)] == [wanted(0), None, None, None]
    assert [session.asked(key(index), second) for index in range(3)] == [wanted(0), wanted(1, offset=9), wanted(2)]
    session.forget(key(0))
    assert session.asked(key(0), second) is None
