"""Apache Kafka's log cleaner is killed at any of its renames, and a broker of Diskraft starts on the directory.

The cleaner renames the files of a compacted segment one by one, the .log file first: from .cleaned to .swap, then, once the
old segments have the suffix .deleted, to the final name. Kafka keeps no empty batch at a segment's end, so the compacted
segment may end below the next one. No record may be lost, and the transaction index must be the one of the segment that is
served. The test makes the files and the renames.
"""

import asyncio
import struct

import pytest

from common.ids import Offset
from common.records.batch import split_batches
from common.storage.log import Log
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, attached, created, log_files
from tests.unit.common.storage.test_compacted_transactions import RETENTION_MS, end, indexed, seen, send
from tests.unit.common.storage.test_log_compaction import CONFIG, compact, latest, put

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
Files = dict[str, bytes]
# Three or four files of the new segment, twice, and seven of the old ones.
RENAMES = 15


async def history(log: Log) -> list[int]:
    """Fills two segments of which compaction makes one, without their last batch, and two that stay. The third one is too
    large for the group. Returns their base offsets."""
    await put(log, ("once", "v"), ("k", "old"))
    await send(log, 1, ("k", "aborted"))
    await end(log, 1, is_commit=False)
    await log.roll()
    await put(log, ("stays", "v"))
    await send(log, 1, ("sent", "committed"))
    await end(log, 1, is_commit=True)
    await put(log, ("k", "soon replaced"))
    await log.roll()
    await put(log, ("k", "new" * 400))
    await log.roll()
    await send(log, 2, ("last", "committed"))
    await end(log, 2, is_commit=True)
    log.replicated_up_to(log.log_end_offset)
    await log.flush()
    return [*map(int, log.segment_base_offsets)]


def compacted(ours: Files) -> Files:
    """Returns the files of the compacted segment as Kafka would write them."""
    *kept, (last, _) = split_batches(memoryview(ours[f"{0:020}.log"]))
    assert last.record_count == 0
    newest = kept[-1][0]
    files = {
        ".log": b"".join(view for _, view in kept),
        ".index": b"",
        ".timeindex": struct.pack(">qi", newest.max_timestamp, newest.last_offset),
        # Kafka creates this file with its first entry.
        ".txnindex": ours.get(f"{0:020}.txnindex", b""),
    }
    return {suffix: content for suffix, content in files.items() if content or suffix != ".txnindex"}


def renames(old: Files, new: Files, bases: list[int]) -> list[tuple[str, str]]:
    """Returns the cleaner's renames in their order."""
    first = f"{0:020}"
    replaced = [f"{base:020}{suffix}" for base in bases[:2] for suffix in SUFFIXES]
    return [
        *((f"{first}{suffix}.cleaned", f"{first}{suffix}.swap") for suffix in new),
        *((name, f"{name}.deleted") for name in replaced if name in old),
        *((f"{first}{suffix}.swap", f"{first}{suffix}") for suffix in new),
    ]


class Prepared:
    """A folder as the cleaner has left it after `renamed` of its renames."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.disk = world.disk(PATH)

    async def prepare(self, renamed: int, *, is_marker_kept: bool) -> None:
        log = await created(self.world, CONFIG)
        bases = await history(log)
        self.end_offset, self.recovery_point = log.log_end_offset, log.recovery_point
        self.before = await seen(log, self.end_offset)
        await log.close()
        old = log_files(self.disk)
        log = await Log.load(await attached(self.world, node="b"), FOLDER, CONFIG)
        for now_ms in (5000,) if is_marker_kept else (20_000, 20_000, 20_000 + RETENTION_MS):
            await compact(log, end=bases[-1], now_ms=now_ms)
        assert bool(await indexed(log)) == is_marker_kept
        await log.close()
        new = compacted(log_files(self.disk))
        files = old | {f"{0:020}{suffix}.cleaned": content for suffix, content in new.items()}
        for name, new_name in renames(old, new, bases)[:renamed]:
            files[new_name] = files.pop(name)
        for name in log_files(self.disk):
            self.disk.delete(f"{FOLDER}/{name}")
        for name, content in files.items():
            self.disk.write(f"{FOLDER}/{name}", content)

    async def check(self, log: Log) -> None:
        """No key has lost its latest record, and none is hidden from a consumer with read_committed."""
        log.replicated_up_to(log.log_end_offset)
        assert (log.recovery.reason, log.log_end_offset) == (None, self.end_offset)
        found = await seen(log, self.end_offset)
        assert found.items() <= self.before.items()
        assert latest(found) == latest(self.before)
        assert not [name for name in log_files(self.disk) if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("is_point_known", [True, False])
@pytest.mark.parametrize("is_marker_kept", [True, False])
@pytest.mark.parametrize("renamed", range(RENAMES + 1))
def test_a_kill_between_the_renames_of_kafkas_cleaner_loses_nothing(
    renamed: int, is_marker_kept: bool, is_point_known: bool
) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        prepared = Prepared(world)
        await prepared.prepare(renamed, is_marker_kept=is_marker_kept)
        recovery_point = prepared.recovery_point if is_point_known else Offset(0)
        log = await Log.load(await attached(world, node="c"), FOLDER, CONFIG, recovery_point=recovery_point)
        await prepared.check(log)

    SimulatedWorld(1).run(scenario)


async def load_or_crash(world: SimulatedWorld, node: str, crash_at: int, ending: str) -> Log | None:
    """Loads the log. Returns None if the node has crashed, as it does right after this many removals and renames."""
    crashed = asyncio.Event()
    changes = 0

    def count(_path: str, kind: str, _name: str) -> None:
        nonlocal changes
        changes += kind in ("remove", "rename")
        if changes == crash_at and not crashed.is_set():
            (world.crash if ending == "kill" else world.power_cut)(node)
            crashed.set()

    log_dir = await attached(world, node=node)
    world.operation_watchers.append(count)
    loading = asyncio.ensure_future(Log.load(log_dir, FOLDER, CONFIG))
    waiting = asyncio.ensure_future(crashed.wait())
    await asyncio.wait([loading, waiting], return_when=asyncio.FIRST_COMPLETED)
    world.operation_watchers.clear()
    for task in (loading, waiting):
        task.cancel()
    await asyncio.wait([loading, waiting])
    return None if crashed.is_set() else loading.result()


@pytest.mark.parametrize("ending", ["kill", "power cut"])
@pytest.mark.parametrize("is_marker_kept", [True, False])
@pytest.mark.parametrize("renamed", range(RENAMES))
def test_a_start_that_crashes_while_it_completes_or_undoes_the_renames_loses_nothing(
    renamed: int, is_marker_kept: bool, ending: str
) -> None:
    """The start crashes at its first removal or rename, the next start at its second one, and so on."""

    async def scenario(world: SimulatedWorld) -> None:
        prepared = Prepared(world)
        await prepared.prepare(renamed, is_marker_kept=is_marker_kept)
        crashes = 0
        while (log := await load_or_crash(world, f"crashed {crashes}", crashes + 1, ending)) is None:
            crashes += 1
        await prepared.check(log)

    SimulatedWorld(renamed).run(scenario)
