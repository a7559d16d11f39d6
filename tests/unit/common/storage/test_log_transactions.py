"""Transactions through the life of a log: index files, restarts, crashes, truncation, deletion, moves, damage.

`history` has two producers. Producer 1 aborts two transactions and commits one, producer 2 spans all of them and aborts.
"""

import random
from collections.abc import Awaitable

import pytest

from common.environment.interface import LogFile
from common.ids import Offset
from common.records.batch import TRANSACTIONAL_BIT, read_header
from common.records.end_transaction import EndTransactionMarker, encode_marker_batch
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.log_segments import LogSegments
from common.storage.names import TRANSACTION_INDEX_SUFFIX
from common.storage.read_limits import ReadLimits
from common.storage.segment import Segment
from common.storage.transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    TOPIC_ID,
    append_batches,
    append_fetched,
    attached,
    created,
    log_files,
    offsets_in,
)
from tests.unit.common.storage.producers.headers import produced_batch

# Room for four batches in a segment.
FOUR = LogConfig(segment_bytes=4 * 82, index_interval_bytes=150)


async def send(log: Log, producer_id: int) -> None:
    """Appends a transactional batch of one record."""
    entry = log.producers.state.entries.get(producer_id)
    sequence = 0 if entry is None else entry.last_sequence + 1
    await append_batches(log, [produced_batch(producer_id, sequence, attributes=TRANSACTIONAL_BIT)], epoch=0).written


async def end(log: Log, producer_id: int, *, is_commit: bool) -> None:
    encoded = encode_marker_batch(EndTransactionMarker(producer_id, 0, 3, is_commit), timestamp_ms=1000)
    await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=0).written


async def history(log: Log) -> None:
    """Writes offsets 0 to 12. The segments begin at 0, 4, 8 and 12."""
    await send(log, 1)
    await send(log, 2)
    await end(log, 1, is_commit=False)  # 2
    await send(log, 1)
    await send(log, 1)
    await end(log, 1, is_commit=True)  # 5
    await send(log, 1)
    await send(log, 2)
    await send(log, 1)
    await end(log, 1, is_commit=False)  # 9
    await send(log, 3)
    await end(log, 2, is_commit=False)  # 11
    await end(log, 3, is_commit=True)  # 12


FIRST = AbortedTransaction(1, 0, 2, 1)
SECOND = AbortedTransaction(1, 6, 9, 1)
THIRD = AbortedTransaction(2, 1, 11, 10)


def index_files(disk: SimulatedDisk) -> dict[int, list[AbortedTransaction]]:
    """The content of the .txnindex files, by base offset."""
    found = {}
    for name, content in log_files(disk).items():
        if name.endswith(".txnindex"):
            index = TransactionIndex.from_bytes(content, base_offset=int(name[:20]))
            found[int(name[:20])] = [index[number] for number in range(len(index))]
    return found


async def all_aborted(log: Log) -> list[AbortedTransaction]:
    return await log.aborted_transactions(0, log.log_end_offset)


async def load(world: SimulatedWorld, log: Log, node: str, *, clean: bool = False) -> Log:
    recovery_point = log.recovery_point
    return await Log.load(await attached(world, node=node), FOLDER, FOUR, recovery_point=recovery_point, clean=clean)


def test_a_segment_with_aborted_transactions_gets_an_index_file_when_it_is_rolled() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await log.flush()
        assert log.segment_base_offsets == [0, 4, 8, 12]
        assert index_files(world.disk(PATH)) == {0: [FIRST], 8: [SECOND, THIRD]}
        assert await all_aborted(log) == [FIRST, SECOND, THIRD]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize(
    ("start", "upper", "expected"),
    [
        (0, 1, [FIRST]),
        (0, 2, [FIRST, THIRD]),
        (2, 3, [FIRST, THIRD]),
        (3, 5, [THIRD]),
        (4, 8, [SECOND, THIRD]),
        (10, 12, [THIRD]),
        (12, 13, []),
    ],
)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_reader_gets_the_aborted_transactions_of_its_range(
    start: int, upper: int, expected: list[AbortedTransaction], is_loaded: bool
) -> None:
    """Also those whose markers are in later segments."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        if is_loaded:
            await log.close()
            log = await load(world, log, "b", clean=True)
        assert await log.aborted_transactions(start, upper) == expected
        assert log.may_have_aborted(start) or not expected

    SimulatedWorld(1).run(scenario)


def test_reads_of_a_log_without_aborted_transactions_read_no_file() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        for _ in range(5):
            await send(log, 1)
            await end(log, 1, is_commit=True)
        read: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: read.append(name))
        assert await all_aborted(log) == []
        assert read == []
        assert index_files(world.disk(PATH)) == {}

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("ending", ["clean", "kill", "power cut"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_restarts_keep_index_and_open_transactions(ending: str, count: int) -> None:
    """The newest segment has an aborted transaction, too, and two are open."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await send(log, 1)
        await send(log, 2)
        await end(log, 2, is_commit=False)
        await send(log, 3)
        last = AbortedTransaction(2, 14, 15, 13)
        for life in range(count):
            if ending == "clean":
                await log.close()
            elif ending == "power cut":
                await log.flush()
            world.crash("a" if life == 0 else f"b{life}")
            if ending == "power cut":
                world.disk(PATH).lose_unsynced(random.Random(life))
            log = await load(world, log, f"b{life + 1}", clean=ending == "clean")
            assert await all_aborted(log) == [FIRST, SECOND, THIRD, last]
            entries = log.producers.state.entries
            assert {each: entries[each].transaction_first_offset for each in entries} == {1: 13, 2: -1, 3: 16}
            log.replicated_up_to(log.log_end_offset)
            assert log.first_unstable_offset == 13
        await end(log, 1, is_commit=False)
        assert await all_aborted(log) == [FIRST, SECOND, THIRD, last, AbortedTransaction(1, 13, 17, 16)]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("cut", range(14))
@pytest.mark.parametrize("is_loaded", [False, True])
def test_truncation_takes_back_what_the_markers_did(cut: int, is_loaded: bool) -> None:
    """The index has the entries whose markers are left, the transactions of the others are open again, and the files of the
    cut segments are gone: a restart finds the same."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await log.close()
        log = await load(world, log, "b", clean=True)
        log.lower_recovery_point(Offset(cut))
        await log.truncate_to(Offset(cut))
        expected = [each for each in (FIRST, SECOND, THIRD) if each.last_offset < cut]
        if is_loaded:
            world.crash("b")
            log = await load(world, log, "c")
        assert await all_aborted(log) == expected
        log.replicated_up_to(log.log_end_offset)
        # By offset: nothing, producer 1, both, ... The last one of producer 1 begins at 6.
        unstable = [None, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10, None]
        assert log.first_unstable_offset == unstable[cut]
        await log.roll()
        on_disk = [each for entries in index_files(world.disk(PATH)).values() for each in entries]
        assert sorted(on_disk) == sorted(expected)

    SimulatedWorld(1).run(scenario)


def test_a_truncation_does_not_read_each_marker_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a follower with thousands of transactions is out of step with its leader for seconds, and producers wait."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=100_000))
        for _ in range(40):
            await send(log, 1)
            await end(log, 1, is_commit=True)
        await send(log, 2)
        reads = 0
        read = log.log_dir.read

        def noted_read(file: LogFile, position: int, size: int) -> Awaitable[bytes]:
            nonlocal reads
            reads += 1
            return read(file, position, size)

        monkeypatch.setattr(log.log_dir, "read", noted_read)
        assert await log.truncate_to(Offset(80)) == 80
        assert log.producers.state.entries.keys() == {1}
        assert reads < 10

    SimulatedWorld(1).run(scenario)


def test_a_log_is_loaded_although_a_batch_has_an_earlier_offset_than_the_one_before() -> None:
    """No checksum covers the base offset of a batch, and below the recovery point nothing is checked at a start."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        for number in range(10):
            await send(log, number + 1)
        await log.flush()
        disk = world.disk(PATH)
        for name in log_files(disk):
            if name.endswith(".snapshot"):
                await log.log_dir.remove(f"{FOLDER}/{name}")
        world.crash("a")
        content = bytearray(log_files(disk)[f"{0:020d}.log"])
        end_of_third_base_offset = 2 * len(content) // 4 + 7
        assert content[end_of_third_base_offset] == 2
        content[end_of_third_base_offset] = 0
        disk.write(f"{FOLDER}/{0:020d}.log", bytes(content))
        loaded = await Log.load(await attached(world, node="b"), FOLDER, FOUR, recovery_point=log.recovery_point)
        assert loaded.log_end_offset == 10

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("base_offset", [0, 8, 12])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_rebuilt_at_start(base_offset: int, clean: bool) -> None:
    """Also that of the newest segment, from a clean stop."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await send(log, 1)
        await end(log, 1, is_commit=False)
        last = AbortedTransaction(1, 13, 14, 15)
        await log.close()
        world.crash("a")
        disk = world.disk(PATH)
        disk.write(f"{FOLDER}/{base_offset:020d}.txnindex", b"x" * 50)
        log = await load(world, log, "b", clean=clean)
        assert await all_aborted(log) == [FIRST, SECOND, THIRD, last]
        await log.close()
        assert index_files(disk) == {0: [FIRST], 8: [SECOND, THIRD], 12: [last]}

    SimulatedWorld(1).run(scenario)


def test_an_index_that_is_lost_while_the_log_is_open_is_an_error_of_the_reader() -> None:
    """Without it, aborted records would be returned as if they were committed."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await log.close()
        log = await load(world, log, "b", clean=True)
        world.disk(PATH).delete(f"{FOLDER}/{0:020d}.txnindex")
        with pytest.raises(CorruptTransactionIndex):
            await log.read_with_aborted(0, ReadLimits(max_bytes=100, upper_offset=5))
        read, aborted = await log.read_with_aborted(4, ReadLimits(max_bytes=100, upper_offset=5))
        assert (read.next_offset, aborted) == (5, [THIRD])

    SimulatedWorld(1).run(scenario)


def test_an_index_file_without_its_segment_is_removed_at_start() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await log.close()
        world.crash("a")
        disk = world.disk(PATH)
        for name in (f"{40:020d}.txnindex", f"{0:020d}.txnindex.cleaned", f"{4:020d}.txnindex.swap"):
            disk.write(f"{FOLDER}/{name}", b"")
        log = await load(world, log, "b", clean=True)
        assert sorted(index_files(disk)) == [0, 8]
        assert not [name for name in log_files(disk) if name.endswith((".cleaned", ".swap"))]

    SimulatedWorld(1).run(scenario)


def test_a_reader_beyond_the_last_segment_with_aborted_transactions_need_not_look_for_any() -> None:
    """Not before there is one, nor in segments after it, even when the log is loaded again."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        assert not log.may_have_aborted(0)
        await history(log)
        for _ in range(8):
            await send(log, 3)
        await end(log, 3, is_commit=True)
        await log.flush()
        assert [offset for offset in range(log.log_end_offset) if log.may_have_aborted(offset)] == list(range(12))
        await log.close()
        log = await load(world, log, "b", clean=True)
        assert [offset for offset in range(log.log_end_offset) if log.may_have_aborted(offset)] == list(range(12))

    SimulatedWorld(1).run(scenario)


def test_retention_deletes_the_index_with_its_segment() -> None:
    """The transaction of producer 2 began in a deleted segment. It is still known to be aborted, and an open one stays open,
    from the log start on."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await send(log, 3)
        await log.flush()
        await log.delete_segments_before(Offset(8))
        assert sorted(index_files(world.disk(PATH))) == [8]
        assert await log.aborted_transactions(8, 13) == [SECOND, THIRD]
        await log.roll()
        await log.delete_segments_before(Offset(14))
        assert index_files(world.disk(PATH)) == {}
        log.replicated_up_to(log.log_end_offset)
        assert log.first_unstable_offset == 14
        await end(log, 3, is_commit=True)
        log.replicated_up_to(log.log_end_offset)
        assert log.first_unstable_offset is None

    SimulatedWorld(1).run(scenario)


def test_starting_over_forgets_all_transactions() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await send(log, 1)
        await log.truncate_fully_and_start_at(Offset(40))
        assert (log.first_unstable_offset, await all_aborted(log), index_files(world.disk(PATH))) == (None, [], {})

    SimulatedWorld(1).run(scenario)


def test_the_copy_of_a_move_has_the_same_index_and_open_transactions() -> None:
    """It begins in the middle of a transaction, whose beginning was deleted, and has the folder's name in the end."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await history(log)
        await send(log, 3)
        await log.delete_segments_before(Offset(4))
        copy = await Log.create(
            log.log_dir, f"{FOLDER}.{'ab' * 16}-future", FOUR, TOPIC_ID, start_offset=log.log_start_offset
        )
        while copy.log_end_offset < log.log_end_offset:
            data = await log.read_bytes(copy.log_end_offset, ReadLimits(max_bytes=200))
            await append_fetched(copy, memoryview(bytearray(data))).written
        await copy.take_over(log)
        await log.delete_rename(bytes(16))
        await copy.rename(FOLDER)
        # The first batch of producer 2 that the copy has is at 7.
        assert await copy.aborted_transactions(4, 13) == [
            SECOND._replace(last_stable_offset=7),
            THIRD._replace(first_offset=7),
        ]
        copy.replicated_up_to(copy.log_end_offset)
        assert copy.first_unstable_offset == 13
        assert [first for first, _ in offsets_in(await copy.read_bytes(8, ReadLimits(max_bytes=200)))] == [8, 9]

    SimulatedWorld(1).run(scenario)


def test_a_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, FOUR)
        await send(log, 1)
        await end(log, 1, is_commit=True)
        log.replicated_up_to(Offset(1))
        assert log.first_unstable_offset == 0
        log.replicated_up_to(Offset(2))
        assert log.first_unstable_offset is None

    SimulatedWorld(1).run(scenario)


def test_an_unchanged_log_with_aborted_transactions_writes_nothing_when_it_is_closed() -> None:
    async def load_all(log: Log) -> Log:
        return await Log.load(log.log_dir, FOLDER, LogConfig(), recovery_point=log.recovery_point, clean=True)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig())
        await history(log)
        await log.close()
        assert index_files(world.disk(PATH)) == {0: [FIRST, SECOND, THIRD]}
        loaded = await load_all(log)
        operations: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: operations.append(f"{kind} {name}"))
        await loaded.close()
        assert operations == []
        # One more aborted transaction changes only this index.
        again = await load_all(loaded)
        await send(again, 1)
        await end(again, 1, is_commit=False)
        await again.close()
        assert len(index_files(world.disk(PATH))[0]) == 4

    SimulatedWorld(1).run(scenario)


def test_an_index_is_found_while_the_folder_gets_another_name() -> None:
    """A rename and a read run on different threads. The file has its new name before the log knows that."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        index = TransactionIndex()
        index.append(FIRST)
        await log_dir.mkdir("old-0")
        segment = Segment(log_dir, "old-0", 0)
        await log_dir.replace_file(segment.path(TRANSACTION_INDEX_SUFFIX), index.to_bytes())
        segment.take_transactions(index, has_file=True)
        segment.transactions = None
        segments = LogSegments([segment])
        segments.begin_move_to("new-0")
        # Before the rename, the file has its old name.
        assert (await segment.load_transactions()).overlapping(0, 9) == [FIRST]
        segment.transactions = None
        await log_dir.rename("old-0", "new-0")
        assert (await segment.load_transactions()).overlapping(0, 9) == [FIRST]

    SimulatedWorld(1).run(scenario)
