"""Waiting requests: each is completed once, by the right event, and leaves nothing behind."""

from broker.hosting.purgatory import FetchWait, FetchWatchers, PartitionWatcher, ReplicationWaiters, WatchedPartitions
from broker.hosting.readable_bytes import ReadableBytes, ReadIsolation
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS
from tests.simulation.environment import SimulatedWorld


def counts(*, written: int, committed: int, stable: int) -> ReadableBytes:
    """Returns counts with these values."""
    readable = ReadableBytes()
    for end_offset, size in enumerate((stable, committed - stable, written - committed), start=1):
        readable.written(Offset(end_offset), size)
    readable.advanced(high_watermark=Offset(2), last_stable_offset=Offset(1))
    return readable


def test_replication_waiters_are_completed_in_order() -> None:
    """An advance of the high watermark completes the waiters whose offset it has reached, with the error passed in that
    call."""
    done: list[tuple[int, ErrorCode]] = []
    waiters = ReplicationWaiters()
    for offset in (3, 5, 9):
        waiters.add(Offset(offset), lambda error, offset=offset: done.append((offset, error)))  # type: ignore[misc]
    waiters.complete_up_to(Offset(2), ErrorCode.NONE)
    assert done == []
    waiters.complete_up_to(Offset(5), ErrorCode.NONE)
    assert done == [(3, ErrorCode.NONE), (5, ErrorCode.NONE)]
    waiters.complete_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert done[2:] == [(9, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert len(waiters) == 0


def test_replication_waiters_beyond_the_end_of_a_log_fail() -> None:
    """Waiters for offsets beyond the log's end fail. Waiters for records that the log still has keep waiting, in order."""
    done: list[tuple[int, ErrorCode]] = []
    waiters = ReplicationWaiters()
    for offset in (3, 5, 9, 12):
        waiters.add(Offset(offset), lambda error, offset=offset: done.append((offset, error)))  # type: ignore[misc]
    waiters.complete_beyond(Offset(5), ErrorCode.KAFKA_STORAGE_ERROR)
    assert done == [(9, ErrorCode.KAFKA_STORAGE_ERROR), (12, ErrorCode.KAFKA_STORAGE_ERROR)]
    waiters.complete_up_to(Offset(5), ErrorCode.NONE)
    assert done[2:] == [(3, ErrorCode.NONE), (5, ErrorCode.NONE)]


def test_a_duplicate_does_not_wait_for_later_appends() -> None:
    """The duplicate of an earlier batch begins to wait after later appends did, and is answered before them."""
    done: list[int] = []
    waiters = ReplicationWaiters()
    for offset in (5, 9, 3, 5):
        waiters.add(Offset(offset), lambda error, offset=offset: done.append(offset))  # type: ignore[misc]
    waiters.complete_up_to(Offset(3), ErrorCode.NONE)
    assert done == [3]
    waiters.complete_up_to(Offset(6), ErrorCode.NONE)
    assert done == [3, 5, 5]
    assert len(waiters) == 1


def test_a_wait_for_replication_can_be_given_up() -> None:
    """If a wait is cancelled, its callback is never called, and nothing of it stays behind. The others keep waiting."""
    done: list[int] = []
    waiters = ReplicationWaiters()
    give_up = [waiters.add(Offset(7), lambda error, number=number: done.append(number)) for number in range(3)]  # type: ignore[misc]
    give_up[1]()
    assert len(waiters) == 2
    waiters.complete_up_to(Offset(7), ErrorCode.NONE)
    assert done == [0, 2]


class Fetch:
    """A fetch that watches some partitions and may wait."""

    def __init__(self, *partitions: FetchWatchers, isolation: ReadIsolation = ReadIsolation.LOG_END, seen: int = 0) -> None:
        self.watched: WatchedPartitions[PartitionWatcher] = WatchedPartitions()
        self.watchers = [PartitionWatcher(self.watched, isolation) for _ in partitions]
        for watcher, partition in zip(self.watchers, partitions, strict=True):
            watcher.seen_bytes = seen
            partition.add(watcher)

    def begin_wait(self, world: SimulatedWorld, *, min_bytes: int = 1, within_ms: int = 1000) -> FetchWait:
        deadline_ns = world.now_ns() + within_ms * NS_PER_MS
        self.watched.wait = FetchWait(world.node("a"), min_bytes=min_bytes, deadline_ns=deadline_ns)
        return self.watched.wait


def test_a_fetch_waits_for_bytes_of_its_own_kind() -> None:
    """Consumers wait for committed or stable bytes, followers for written ones. Each byte counts once. The partition says
    when a follower's wait may end."""

    async def scenario(world: SimulatedWorld) -> None:
        partition = FetchWatchers()
        follower, consumer, careful = (
            Fetch(partition, isolation=isolation, seen=100).begin_wait(world, min_bytes=10)
            for isolation in (ReadIsolation.LOG_END, ReadIsolation.HIGH_WATERMARK, ReadIsolation.TXN_COMMITTED)
        )
        partition.wake_followers(counts(written=109, committed=104, stable=100))
        assert not follower.is_over
        partition.readable(counts(written=110, committed=109, stable=109))
        assert not follower.is_over
        partition.wake_followers(counts(written=110, committed=109, stable=109))
        assert [wait.is_over for wait in (follower, consumer, careful)] == [True, False, False]
        partition.readable(counts(written=110, committed=110, stable=109))
        assert [wait.is_over for wait in (consumer, careful)] == [True, False]
        partition.readable(counts(written=110, committed=110, stable=110))
        assert careful.is_over
        await careful.until_over()

    SimulatedWorld(1).run(scenario)


def test_bytes_of_a_partition_that_is_held_back_end_no_wait() -> None:
    """Ten bytes in that partition change nothing; one byte in another partition, or a change of the partition, does."""

    async def scenario(world: SimulatedWorld) -> None:
        held_back, other = FetchWatchers(), FetchWatchers()
        fetches = Fetch(held_back, other), Fetch(held_back)
        one, two = (fetch.begin_wait(world) for fetch in fetches)
        for fetch in fetches:
            fetch.watchers[0].is_held_back = True
        held_back.wake_followers(counts(written=10, committed=10, stable=10))
        assert not one.is_over
        other.wake_followers(counts(written=1, committed=0, stable=0))
        assert (one.is_over, two.is_over) == (True, False)
        held_back.end_waits()
        assert two.is_over

    SimulatedWorld(1).run(scenario)


def test_a_partition_knows_who_waits() -> None:
    """A fetch that watches the partition but has been answered does not wait. A follower from which consumers may read waits
    for them, too."""

    async def scenario(world: SimulatedWorld) -> None:
        partition = FetchWatchers()
        for isolation in ReadIsolation:
            fetch = Fetch(partition, isolation=isolation)
            assert not partition.has_waiting_follower
            assert not partition.has_waiting_consumer
            fetch.begin_wait(world)
            is_followers = isolation is ReadIsolation.LOG_END
            assert partition.has_waiting_follower == is_followers
            assert partition.has_waiting_consumer != is_followers
            fetch.watchers[0].ends_with_high_watermark = is_followers
            assert partition.has_waiting_consumer
            fetch.watched.wait = None

    SimulatedWorld(1).run(scenario)


def test_followers_are_woken_without_consumers() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        partition = FetchWatchers()
        follower = Fetch(partition, isolation=ReadIsolation.LOG_END).begin_wait(world)
        consumer = Fetch(partition, isolation=ReadIsolation.HIGH_WATERMARK).begin_wait(world)
        partition.end_waits_of_followers()
        assert (follower.is_over, consumer.is_over) == (True, False)

    SimulatedWorld(1).run(scenario)


def test_the_high_watermark_ends_the_waits_of_those_who_ask_for_it() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        partition = FetchWatchers()
        asking, other = Fetch(partition), Fetch(partition)
        asking.watchers[0].ends_with_high_watermark = True
        waits = asking.begin_wait(world), other.begin_wait(world)
        partition.high_watermark_advanced()
        assert [wait.is_over for wait in waits] == [True, False]

    SimulatedWorld(1).run(scenario)


def test_a_fetch_ends_at_its_deadline() -> None:
    """The fetch ends exactly at its deadline."""

    async def scenario(world: SimulatedWorld) -> None:
        begun_ns = world.now_ns()
        await Fetch(FetchWatchers()).begin_wait(world, within_ms=300).until_over()
        assert world.now_ns() == begun_ns + 300 * NS_PER_MS

    SimulatedWorld(1).run(scenario)


def test_every_change_is_noted_whether_a_fetch_waits_or_not() -> None:
    """A change that ends no wait is noted, too: the next answer of the session has to tell it."""

    async def scenario(world: SimulatedWorld) -> None:
        for change in (
            FetchWatchers.changed,
            FetchWatchers.end_waits,
            lambda partition: partition.readable(counts(written=0, committed=0, stable=0)),
        ):
            partition = FetchWatchers()
            idle, waiting = Fetch(partition), Fetch(partition)
            waiting.begin_wait(world)
            change(partition)
            assert list(idle.watched.changed) == idle.watchers
            assert list(waiting.watched.changed) == waiting.watchers

    SimulatedWorld(1).run(scenario)


def test_between_two_fetches_a_partition_notifies_once() -> None:
    """The watcher of a fetch that waits stays, because it counts bytes. The other one has nothing more to learn."""

    async def scenario(world: SimulatedWorld) -> None:
        partition = FetchWatchers()
        idle, waiting = Fetch(partition), Fetch(partition)
        waiting.begin_wait(world)
        assert len(partition) == 2
        partition.changed()
        assert len(partition) == 1
        idle.watched.changed.clear()
        partition.changed()
        assert not idle.watched.changed

    SimulatedWorld(1).run(scenario)
