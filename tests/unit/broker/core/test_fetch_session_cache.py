"""Which fetch sessions are kept when there are more than slots (KIP-227)."""

from dataclasses import dataclass

from broker.core.fetch_session_cache import PROTECTED_NS, FetchSessionCache, next_epoch

LATER_NS = PROTECTED_NS + 1


@dataclass
class Session:
    session_id: int
    size: int = 1
    is_follower: bool = False
    created_ns: int = 0
    used_ns: int = 0

    def __len__(self) -> int:
        return self.size


def cache(*sessions: Session) -> tuple[FetchSessionCache[Session], list[int]]:
    """Returns a full cache, and the list of the ids that have left it."""
    removed: list[int] = []
    full: FetchSessionCache[Session] = FetchSessionCache(
        len(sessions), on_removed=lambda each: removed.append(each.session_id)
    )
    for session in sessions:
        assert full.add(session, session.created_ns)
    return full, removed


def test_epochs_start_over_at_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 0x7FFF_FFFE, 0x7FFF_FFFF)] == [1, 2, 0x7FFF_FFFF, 1]


def test_a_removed_session_is_not_found() -> None:
    full, removed = cache(Session(1), Session(2))
    full.remove(1)
    full.remove(7)
    assert (full.find(1), removed, len(full), full.evictions) == (None, [1], 1, 0)


def test_without_slots_there_is_no_session() -> None:
    empty, _ = cache()
    assert not empty.add(Session(1), 0)


def test_the_session_that_was_used_longest_ago_leaves() -> None:
    """It was last used more than two minutes ago, so even a follower with many partitions leaves for a small consumer."""
    full, removed = cache(Session(1, size=100, is_follower=True), Session(2))
    full.touch(full.find(2) or Session(0))
    assert full.add(Session(3), LATER_NS)
    assert (removed, full.evictions) == ([1], 1)


def test_a_consumer_takes_no_place_of_a_young_session() -> None:
    full, removed = cache(Session(1), Session(2))
    assert not full.add(Session(3, size=100), PROTECTED_NS)
    assert removed == []


def test_a_follower_takes_the_place_of_the_smallest_consumer() -> None:
    full, removed = cache(Session(1, size=5), Session(2, size=3), Session(3, size=1, is_follower=True))
    assert full.add(Session(4, is_follower=True), 0)
    assert removed == [2]
    assert full.add(Session(5, is_follower=True), 0)
    assert removed == [2, 1]
    assert not full.add(Session(6, is_follower=True, size=9), 0)


def test_of_two_old_sessions_in_use_the_larger_one_stays() -> None:
    """All were used a moment ago. A new consumer needs more partitions than the smallest session."""
    full, removed = cache(Session(1, size=5, used_ns=LATER_NS), Session(2, size=3, used_ns=LATER_NS))
    assert not full.add(Session(3, size=3), LATER_NS)
    assert full.add(Session(4, size=4, created_ns=LATER_NS, used_ns=LATER_NS), LATER_NS)
    assert removed == [2]
    assert [session.session_id for session in full] == [1, 4]


def roomy(partitions_max: int) -> tuple[FetchSessionCache[Session], list[int]]:
    """Returns an empty cache with slots for all, and the list of the ids that have left it."""
    removed: list[int] = []
    return FetchSessionCache(
        9, on_removed=lambda each: removed.append(each.session_id), partitions_max=partitions_max
    ), removed


def test_the_partitions_of_all_sessions_are_limited() -> None:
    """By the rules for slots. A session that would not get enough room makes no other one leave."""
    sessions, removed = roomy(10)
    assert not sessions.add(Session(1, size=11), 0)
    assert all(sessions.add(Session(each, size=3), 0) for each in (2, 3, 4))
    assert not sessions.add(Session(5, size=2), 0)
    assert sessions.add(Session(6, size=1), 0)
    assert sessions.partitions == 10
    assert not sessions.add(Session(7, size=11, is_follower=True), 0)
    assert (removed, sessions.evictions) == ([], 0)
    assert sessions.add(Session(8, size=4, is_follower=True), 0)
    assert (removed, sessions.evictions, sessions.partitions) == ([6, 2], 2, 10)
    sessions.remove(3)
    assert sessions.partitions == 7


def test_a_session_that_grows_takes_the_room_of_others_or_leaves() -> None:
    """Sessions in use are protected from a young consumer, but not from a follower."""
    sessions, removed = roomy(10)
    consumer, follower = Session(1, size=4), Session(2, size=4, is_follower=True)
    assert sessions.add(consumer, 0)
    assert sessions.add(follower, 0)
    consumer.size = 6
    sessions.note_size(consumer, 0)
    consumer.size = 5
    sessions.note_size(consumer, 0)
    assert (removed, sessions.partitions) == ([], 9)
    follower.size = 6
    sessions.note_size(follower, 0)
    assert (removed, sessions.partitions) == ([1], 6)
    assert sessions.add(Session(3, size=4), 0)
    young = sessions.find(3)
    assert young is not None
    young.size = 5
    sessions.note_size(young, 0)
    assert (removed, sessions.partitions, sessions.evictions) == ([1, 3], 6, 2)
    sessions.note_size(young, 0)
    assert sessions.partitions == 6
