"""Compaction of a log with transactions: which records, markers and index entries go, and when.

The topic is compacted again and again with later clocks. A crash at each disk operation of one of these compactions changes
nothing of what a consumer with read_committed sees.
"""

import asyncio
from dataclasses import replace

import pytest

from common.ids import Offset
from common.records.batch import TRANSACTIONAL_BIT, read_header, split_batches
from common.records.end_transaction import EndTransactionMarker, decode_end_transaction, encode_marker_batch
from common.records.record import Record, encode_batch
from common.storage.compaction.cleaned_transactions import CleanedTransactions
from common.storage.log import Log
from common.storage.read_limits import ReadLimits
from common.storage.transaction_index import AbortedTransaction
from tests.property.test_transactions import consumed
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    append_batches,
    attached,
    content,
    crash_after,
    created,
    log_files,
)
from tests.unit.common.storage.test_log_compaction import CONFIG, SETTINGS, Pair, compact, latest, put

# The settings of `compact`: delete.retention.ms is 1000, a producer expires after 10000.
RETENTION_MS = 1000


async def send(log: Log, producer_id: int, *pairs: Pair, timestamp: int = 100) -> None:
    entry = log.producers.state.entries.get(producer_id)
    encoded = encode_batch(
        [Record(key.encode(), None if value is None else value.encode(), timestamp) for key, value in pairs],
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer_id,
        producer_epoch=0 if entry is None else entry.epoch,
        base_sequence=0 if entry is None else entry.last_sequence + 1,
    )
    await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=0).written


async def end(log: Log, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
    marker = EndTransactionMarker(producer_id, epoch, 0, is_commit)
    encoded = encode_marker_batch(marker, timestamp_ms=100)
    await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=0).written


async def batches_of(log: Log) -> list[str]:
    """Describes every batch: its last offset, and its marker or the number of its records."""
    found = []
    offset = log.log_start_offset
    while offset < log.written_offset:
        for header, view in split_batches(await log.read_bytes(offset, ReadLimits(max_bytes=500))):
            what = f"{header.record_count} records"
            if header.is_control:
                marker = decode_end_transaction(view)
                what = "emptied marker" if marker is None else "commit" if marker.is_commit else "abort"
            found.append(f"{header.last_offset}: {what}")
            offset = Offset(header.next_offset)
    return found


async def seen(log: Log, end_offset: int) -> dict[int, Pair]:
    """What a consumer with read_committed sees below `end_offset`."""
    found: dict[int, Pair] = {}
    position = int(log.log_start_offset)
    while position < end_offset:
        read, aborted = await log.read_with_aborted(position, ReadLimits(max_bytes=300, upper_offset=end_offset))
        found |= consumed(content(read), aborted, position)
        position = read.next_offset
    return found


async def indexed(log: Log) -> list[AbortedTransaction]:
    return await log.aborted_transactions(0, log.log_end_offset)


async def finish(log: Log) -> None:
    """Ends the segment, so that what was written so far can be compacted."""
    await log.roll()
    await put(log, ("last", "v"))


def test_aborted_records_go_at_once_and_their_marker_after_the_retention() -> None:
    """The aborted record is the latest one of its key. It does not hide the committed one before it. The retention begins
    with the compaction that finds no record of the transaction, so not with the one that removes them."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("k", "committed"))
        await send(log, 1, ("k", "aborted"), ("other", "aborted"))
        await end(log, 1, is_commit=False)
        await send(log, 1, ("z", "sent later"))
        await end(log, 1, is_commit=True)
        await finish(log)
        before = await seen(log, log.log_end_offset)
        await compact(log, end=6, now_ms=5000)
        assert await batches_of(log) == ["0: 1 records", "3: abort", "4: 1 records", "5: commit", "6: 1 records"]
        assert await indexed(log) == [AbortedTransaction(1, 1, 3, 4)]
        await compact(log, end=6, now_ms=5000)
        assert await indexed(log) == []
        await compact(log, end=6, now_ms=5000 + RETENTION_MS - 1)
        assert "3: abort" in await batches_of(log)
        await compact(log, end=6, now_ms=5000 + RETENTION_MS)
        assert await batches_of(log) == ["0: 1 records", "4: 1 records", "5: commit", "6: 1 records"]
        assert await seen(log, log.log_end_offset) == before

    SimulatedWorld(1).run(scenario)


def test_the_last_batch_of_a_producer_stays_although_the_map_was_full_before_it() -> None:
    """The map is full within a segment. The rest of the segment has not been read then, and the compaction cannot know that
    the aborted batch in it is the last one of its producer. Without it, the replica would take a retry for a new batch."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("a", "v"))
        await put(log, ("b", "v"))
        await send(log, 1, ("k", "aborted"))
        await end(log, 1, is_commit=False)
        await finish(log)
        small = replace(SETTINGS, keys_max=1)
        dirty = (await compact(log, end=4, settings=small)).end_offset
        assert dirty == 1
        expected = ["0: 1 records", "1: 1 records", "2: 0 records", "3: abort", "4: 1 records"]
        assert await batches_of(log) == expected
        assert (await compact(log, dirty, end=4, settings=small)).end_offset == 4
        assert await batches_of(log) == expected

    SimulatedWorld(1).run(scenario)


def test_a_commit_stays_as_long_as_a_record_of_its_transaction() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await send(log, 1, ("k", "old"))
        await end(log, 1, is_commit=True)
        await send(log, 2, ("stays", "v"))
        await end(log, 2, is_commit=True)
        await put(log, ("k", "new"))
        await finish(log)
        for now_ms in (5000, 5000 + RETENTION_MS):
            await compact(log, end=5, now_ms=now_ms)
            # Producer 1 has not expired, so its batch stays, without records, and with it the marker.
            expected = ["0: 0 records", "1: commit", "2: 1 records", "3: commit", "4: 1 records", "5: 1 records"]
            assert await batches_of(log) == expected
        await compact(log, end=5, now_ms=20_000)
        # Now the batches without records go, and the marker a retention later.
        assert (await batches_of(log))[:2] == ["1: commit", "2: 1 records"]
        for now_ms in (20_000, 20_000 + RETENTION_MS):
            await compact(log, end=5, now_ms=now_ms)
        assert await batches_of(log) == ["2: 1 records", "3: commit", "4: 1 records", "5: 1 records"]

    SimulatedWorld(1).run(scenario)


def test_an_aborted_transaction_stays_in_the_index_as_long_as_one_of_its_batches() -> None:
    """The batch is the last one of its producer. It has no records any more."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await send(log, 1, ("k", "aborted"))
        await end(log, 1, is_commit=False)
        await finish(log)
        entry = AbortedTransaction(1, 0, 1, 2)
        for now_ms in (5000, 5000 + RETENTION_MS):
            await compact(log, end=2, now_ms=now_ms)
            assert await batches_of(log) == ["0: 0 records", "1: abort", "2: 1 records"]
            assert await indexed(log) == [entry]
        await compact(log, end=2, now_ms=20_000)
        assert (await batches_of(log), await indexed(log)) == (["1: abort", "2: 1 records"], [entry])
        await compact(log, end=2, now_ms=20_000)
        assert (await batches_of(log), await indexed(log)) == (["1: abort", "2: 1 records"], [])
        await compact(log, end=2, now_ms=20_000 + RETENTION_MS)
        # It is the last batch of the segment, which marks the segment's end.
        assert await batches_of(log) == ["1: emptied marker", "2: 1 records"]
        assert not [name for name in log_files(world.disk(PATH)) if name.endswith(".txnindex")]

    SimulatedWorld(1).run(scenario)


def test_a_marker_that_raised_the_epoch_outlives_its_transaction() -> None:
    """After a loss of all snapshots, the old producer must still be fenced."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await send(log, 1, ("k", "aborted"))
        await end(log, 1, is_commit=False, epoch=1)
        await put(log, ("k", "new"))
        await finish(log)
        for now_ms in (5000, 5000, 5000 + RETENTION_MS):
            await compact(log, end=3, now_ms=now_ms)
        assert await batches_of(log) == ["1: emptied marker", "2: 1 records", "3: 1 records"]
        world.crash("a")
        log_dir = await attached(world, node="b")
        for name in log_files(world.disk(PATH)):
            if name.endswith(".snapshot"):
                await log_dir.remove(f"{FOLDER}/{name}")
        loaded = await Log.load(log_dir, FOLDER, CONFIG)
        assert loaded.producers.state.entries[1].epoch == 1
        assert loaded.first_unstable_offset is None

    SimulatedWorld(1).run(scenario)


def test_no_snapshot_before_a_compacted_segment_knows_a_transaction_that_has_lost_its_marker() -> None:
    """The segment between the records and the marker stays as it is, and its snapshot knows the open transaction. The
    snapshots after it are lost: they were damaged, or the broker was killed before it had written them."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await send(log, 1, ("k", "aborted"))
        await put(log, ("k0", "v"))
        await log.roll()
        await put(log, *((f"unchanged {number}", "v" * 100) for number in range(13)))
        await log.roll()
        await end(log, 1, is_commit=False)
        await put(log, ("k", "committed"))
        await finish(log)
        for now_ms in (20_000, 20_000, 20_000 + RETENTION_MS):
            await compact(log, end=17, now_ms=now_ms)
        assert not any("abort" in each for each in await batches_of(log))
        world.crash("a")
        log_dir = await attached(world, node="b")
        newest = max(name for name in log_files(world.disk(PATH)) if name.endswith(".snapshot"))
        await log_dir.remove(f"{FOLDER}/{newest}")
        loaded = await Log.load(log_dir, FOLDER, CONFIG, recovery_point=log.recovery_point)
        assert loaded.first_unstable_offset is None

    SimulatedWorld(1).run(scenario)


def test_nothing_is_compacted_beyond_an_open_transaction_and_the_rest_later() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await send(log, 1, ("k", "aborted"))
        await finish(log)
        unstable = log.first_unstable_offset
        assert unstable == 0
        assert (await compact(log, end=unstable)).end_offset == 0
        await end(log, 1, is_commit=False)
        await compact(log, end=1)
        # The marker is in the newest segment. The index of that segment tells compaction what it needs to know.
        assert await batches_of(log) == ["0: 0 records", "1: 1 records", "2: abort"]

    SimulatedWorld(1).run(scenario)


# --- without a log -----------------------------------------------------------------------------------------------
def test_a_transaction_over_several_segments_is_added_with_each() -> None:
    data = read_header(encode_batch([Record(b"k", b"v", 0)], attributes=TRANSACTIONAL_BIT, producer_id=1))
    transactions = CleanedTransactions()
    entry, later = AbortedTransaction(1, 0, 20, 21), AbortedTransaction(1, 25, 30, 31)
    kept: list[AbortedTransaction] = []
    transactions.add([entry])
    assert transactions.is_aborted(data._replace(base_offset=0))
    transactions.add([entry])
    assert transactions.is_aborted(data._replace(base_offset=10))
    transactions.add([entry, later])
    marker = encode_marker_batch(EndTransactionMarker(1, 0, 0, is_commit=False), timestamp_ms=0)
    header = read_header(marker)._replace(base_offset=20)
    assert not transactions.may_go(header, decode_end_transaction(marker), kept.append)
    assert kept == [entry]
    # Between the two there is a committed one, and a second marker without a transaction.
    assert transactions.may_go(header._replace(base_offset=21), decode_end_transaction(marker), kept.append)
    assert not transactions.is_aborted(data._replace(base_offset=22))
    assert transactions.is_aborted(data._replace(base_offset=25))
    assert transactions.may_go(header._replace(base_offset=40, record_count=0), None, kept.append)
    # A control record of another type is left alone.
    assert not transactions.may_go(header._replace(base_offset=41), None, kept.append)
    assert kept == [entry]


# --- crashes -----------------------------------------------------------------------------------------------------
async def history(log: Log) -> None:
    """Aborted and committed transactions in several segments, one of them over all of them."""
    await send(log, 9, ("long", "aborted"))
    for number in range(12):
        await send(log, 1 + number % 2, (f"k{number % 3}", f"v{number}"))
        await end(log, 1 + number % 2, is_commit=number % 3 != 1)
    await end(log, 9, is_commit=False)
    await send(log, 9, ("long", "committed"))
    await end(log, 9, is_commit=True)
    await finish(log)
    log.replicated_up_to(log.log_end_offset)
    await log.flush()


async def prepared(world: SimulatedWorld, *, is_second: bool) -> Log:
    log = await created(world, CONFIG)
    await history(log)
    for _ in range(2 if is_second else 0):
        await compact(log, end=log.log_end_offset - 1, now_ms=20_000)
    return log


def operations(*, is_second: bool) -> int:
    done: list[str] = []

    async def scenario(world: SimulatedWorld) -> None:
        log = await prepared(world, is_second=is_second)
        world.operation_watchers.append(lambda _, kind, name: done.append(f"{kind} {name}"))
        await compact(log, end=log.log_end_offset - 1, now_ms=20_000 + is_second * RETENTION_MS)

    SimulatedWorld(1).run(scenario)
    return len(done)


def test_a_start_of_apache_kafka_never_removes_what_is_swapped_in() -> None:
    """It takes a .swap file for a part of an unfinished split if a .cleaned file of the same or an earlier segment is there.
    By then the old segments are gone."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await prepared(world, is_second=False)
        swaps: set[str] = set()

        def look(_path: str, _kind: str, _name: str) -> None:
            names = log_files(world.disk(PATH))
            swapped = [name for name in names if name.endswith(".swap") and f"{name[:20]}.log.swap" in names]
            swaps.update(name[20:] for name in swapped)
            first_cleaned = min((name[:20] for name in names if name.endswith(".cleaned")), default=None)
            assert first_cleaned is None or all(name[:20] < first_cleaned for name in swapped), [*names]

        world.operation_watchers.append(look)
        await compact(log, end=log.log_end_offset - 1, now_ms=20_000)
        assert swaps == {".log.swap", ".txnindex.swap"}

    SimulatedWorld(1).run(scenario)


CRASHES = [(number, is_second) for is_second in (False, True) for number in range(operations(is_second=is_second))]


@pytest.mark.parametrize("ending", ["kill", "power cut"])
@pytest.mark.parametrize(("crash_at", "is_second"), CRASHES)
def test_a_crash_at_any_operation_changes_nothing_of_what_is_seen(crash_at: int, is_second: bool, ending: str) -> None:
    """In the first compaction records go, in a later one markers."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await prepared(world, is_second=is_second)
        before, end_offset, recovery_point = await seen(log, log.log_end_offset), log.log_end_offset, log.recovery_point
        crashed = crash_after(world, crash_at, ending)
        now_ms = 20_000 + is_second * RETENTION_MS
        running = asyncio.ensure_future(compact(log, end=log.log_end_offset - 1, now_ms=now_ms))
        waiting = asyncio.ensure_future(crashed.wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not crashed.is_set():
            # How many reads a compaction needs depends a little on the time that each takes.
            assert crash_at > 20
            world.crash("a")
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait([running, waiting])
        world.operation_watchers.clear()
        for start in (recovery_point, Offset(0)):
            log_dir = await attached(world)
            log = await Log.load(log_dir, FOLDER, CONFIG, recovery_point=start)
            assert (log.recovery.reason, log.log_end_offset) == (None, end_offset)
            log.replicated_up_to(log.log_end_offset)
            assert log.first_unstable_offset is None
            now = await seen(log, end_offset)
            assert now.items() <= before.items()
            assert latest(now) == latest(before)
            await compact(log, end=end_offset - 1, now_ms=now_ms)
            assert latest(await seen(log, end_offset)) == latest(before)
            world.crash("a")

    SimulatedWorld(crash_at).run(scenario)
