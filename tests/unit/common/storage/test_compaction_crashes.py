"""A crash at each disk operation of a compaction: no key loses its latest record, and no offset changes.

A compaction is run once to count its operations, then again for each of them with a kill or a power cut right after that
operation has taken effect. The log is loaded again, with and without its recovery point, and compacted to the end.
"""

import asyncio

import pytest

from common.ids import Offset
from common.storage.log import Log
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, attached, crash_after, created, log_files
from tests.unit.common.storage.test_log_compaction import CONFIG, Pair, compact, latest, put, records_of


async def history(log: Log) -> None:
    """Writes keys that are replaced, one that is deleted, and one that is written only once."""
    await put(log, ("once", "v"), ("gone", "v"))
    for number in range(30):
        await put(log, (f"k{number % 3}", f"v{number}"))
        if number == 5:
            await put(log, ("gone", None))
    await log.roll()
    await put(log, ("k0", "active"))
    await log.flush()


def operations() -> list[str]:
    """Returns what a whole compaction does to the disk, in order."""
    done: list[str] = []

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await history(log)
        world.operation_watchers.append(lambda _, kind, name: done.append(f"{kind} {name.rpartition('/')[2]}"))
        await compact(log)

    SimulatedWorld(1).run(scenario)
    return done


COUNT = len(operations())


def test_the_names_of_a_swap_in_order() -> None:
    """Each rename is durable before the next step relies on it."""
    done = operations()
    kinds = [each for each in done if each.startswith(("rename", "fsync_dir", "remove"))]
    at = next(number for number, each in enumerate(kinds) if each.startswith("rename"))
    first = f"{0:020}"
    # An operation is known by the old name.
    assert kinds[at : at + 3] == [f"rename {first}.log.cleaned", f"fsync_dir {FOLDER}", f"rename {first}.log"]
    swapped = kinds.index(f"rename {first}.log.swap")
    assert kinds[swapped - 1] == kinds[swapped + 1] == f"fsync_dir {FOLDER}"
    assert {each.split()[0] for each in kinds[at + 3 : swapped - 1]} == {"remove", "rename"}


@pytest.mark.parametrize("ending", ["kill", "power cut"])
@pytest.mark.parametrize("is_point_known", [True, False])
@pytest.mark.parametrize("crash_at", range(COUNT))
def test_a_crash_at_any_operation_loses_no_latest_record(crash_at: int, is_point_known: bool, ending: str) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await history(log)
        before, recovery_point = await records_of(log), log.recovery_point
        crashed = crash_after(world, crash_at, ending)
        running = asyncio.ensure_future(compact(log))
        await crashed.wait()
        running.cancel()
        await asyncio.wait([running])
        world.operation_watchers.clear()
        again = await Log.load(
            await attached(world), FOLDER, CONFIG, recovery_point=recovery_point if is_point_known else Offset(0)
        )
        await check(world, again, before)
        await compact(again)
        await check(world, again, before)

    SimulatedWorld(crash_at).run(scenario)


async def check(world: SimulatedWorld, log: Log, before: dict[int, Pair]) -> None:
    found = await records_of(log)
    assert log.recovery.reason is None
    assert log.log_end_offset == max(before) + 1
    assert latest(found) == latest(before)
    assert all(before[offset] == pair for offset, pair in found.items())
    left = [name for name in log_files(world.disk(PATH)) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert not left
