"""Waiting requests: each is completed once, by the right event, and leaves nothing behind."""

from broker.hosting.purgatory import FetchWaiter, FetchWaiters, ReplicationWaiters
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


def test_a_fetch_waits_for_bytes_of_its_own_kind() -> None:
    """Consumers wait for committed or stable bytes, followers for written ones. Bytes that arrived after the fetch read the
    partition and before it began to wait count."""

    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        deadline_ns = world.now_ns() + 1000 * NS_PER_MS
        consumer = FetchWaiter(env, min_bytes=10, deadline_ns=deadline_ns, isolation=ReadIsolation.HIGH_WATERMARK)
        follower = FetchWaiter(env, min_bytes=10, deadline_ns=deadline_ns, isolation=ReadIsolation.LOG_END)
        careful = FetchWaiter(env, min_bytes=10, deadline_ns=deadline_ns, isolation=ReadIsolation.TXN_COMMITTED)
        waiters = FetchWaiters()
        waiters.add(consumer, seen_bytes=100, readable_bytes=104)
        waiters.add(follower, seen_bytes=200, readable_bytes=200)
        waiters.add(careful, seen_bytes=100, readable_bytes=100)
        waiters.readable(counts(written=209, committed=109, stable=109))
        assert not consumer.is_complete
        assert not follower.is_complete
        waiters.readable(counts(written=210, committed=109, stable=109))
        assert follower.is_complete
        assert not consumer.is_complete
        waiters.readable(counts(written=210, committed=110, stable=109))
        assert consumer.is_complete
        assert not careful.is_complete
        waiters.readable(counts(written=210, committed=110, stable=110))
        assert careful.is_complete
        await consumer.wait()
        await follower.wait()
        assert world.now_ns() < deadline_ns

    SimulatedWorld(1).run(scenario)


def test_bytes_of_a_partition_that_is_held_back_end_no_wait() -> None:
    """Ten bytes in that partition change nothing; one byte in another partition, or a change of the partition, does."""

    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        deadline_ns = world.now_ns() + 1000 * NS_PER_MS
        one, two = (
            FetchWaiter(env, min_bytes=1, deadline_ns=deadline_ns, isolation=ReadIsolation.LOG_END) for _ in range(2)
        )
        held_back, other = FetchWaiters(), FetchWaiters()
        for waiter in (one, two):
            held_back.add_held_back(waiter)
        other.add(one, seen_bytes=0, readable_bytes=0)
        held_back.readable(counts(written=10, committed=10, stable=10))
        assert not one.is_complete
        other.readable(counts(written=1, committed=0, stable=0))
        assert one.is_complete
        assert not two.is_complete
        held_back.complete_all()
        assert two.is_complete

    SimulatedWorld(1).run(scenario)


def test_followers_are_woken_without_consumers() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        follower, consumer = (
            FetchWaiter(env, min_bytes=1, deadline_ns=world.now_ns() + NS_PER_MS, isolation=isolation)
            for isolation in (ReadIsolation.LOG_END, ReadIsolation.HIGH_WATERMARK)
        )
        waiters = FetchWaiters()
        for waiter in (follower, consumer):
            waiters.add(waiter, seen_bytes=0, readable_bytes=0)
        waiters.complete_followers()
        assert (follower.is_complete, consumer.is_complete) == (True, False)

    SimulatedWorld(1).run(scenario)


def test_a_fetch_ends_at_its_deadline() -> None:
    """The fetch ends exactly at its deadline."""

    async def scenario(world: SimulatedWorld) -> None:
        deadline_ns = world.now_ns() + 300 * NS_PER_MS
        waiter = FetchWaiter(world.node("a"), min_bytes=1, deadline_ns=deadline_ns, isolation=ReadIsolation.LOG_END)
        await waiter.wait()
        assert world.now_ns() == deadline_ns

    SimulatedWorld(1).run(scenario)


def test_a_change_of_the_partition_completes_every_fetch() -> None:
    """`complete_all` ends every wait, whatever its conditions, and the list of waiters is empty then."""

    async def scenario(world: SimulatedWorld) -> None:
        waiters = FetchWaiters()
        deadline_ns = world.now_ns() + 1
        waiter = FetchWaiter(
            world.node("a"), min_bytes=1000, deadline_ns=deadline_ns, isolation=ReadIsolation.HIGH_WATERMARK
        )
        waiters.add(waiter, seen_bytes=0, readable_bytes=0)
        waiters.complete_all()
        assert waiter.is_complete
        assert len(waiters) == 0

    SimulatedWorld(1).run(scenario)
