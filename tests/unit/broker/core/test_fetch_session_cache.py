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
