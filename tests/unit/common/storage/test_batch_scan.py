"""Scanning the batches of a segment, on a simulated disk that records the size of each read."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from common.environment.interface import LogDir, LogFile
from common.records.batch import BatchHeader, CorruptBatch, read_header
from common.storage.batch_scan import BATCH_PIECE, BatchScan
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import attached, batch

T = TypeVar("T")


async def scanned(log_dir: LogDir, file: LogFile, *, end: int) -> list[tuple[BatchHeader, bytes, int]]:
    scan = BatchScan(log_dir, file, end=end)
    found = []
    while (each := await scan.next()) is not None:
        header, view, position = each
        found.append((header, bytes(view), position))
    return found


def test_a_large_batch_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read has a deadline, so a batch length that may be corrupt must not cause one huge read. No byte is lost."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        batches = [bytes(batch(size=size, timestamp=size)[1]) for size in (30, 3 * BATCH_PIECE + 5, 40, BATCH_PIECE)]
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, batches)
        sizes: list[int] = []
        read, examine = log_dir.read, log_dir.examine

        def noted_read(file: LogFile, position: int, size: int) -> Awaitable[bytes]:
            sizes.append(size)
            return read(file, position, size)

        def noted_examine(file: LogFile, position: int, size: int, examination: Callable[[bytes], T]) -> Awaitable[T]:
            sizes.append(size)
            return examine(file, position, size, examination)

        monkeypatch.setattr(log_dir, "read", noted_read)
        monkeypatch.setattr(log_dir, "examine", noted_examine)
        end = sum(len(each) for each in batches)
        starts = [sum(len(each) for each in batches[:number]) for number in range(4)]
        expected = [(read_header(each), each, start) for each, start in zip(batches, starts, strict=True)]
        assert await scanned(log_dir, file, end=end) == expected
        assert max(sizes) == BATCH_PIECE

    SimulatedWorld(seed=1).run(scenario)


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_batch_ends_the_scan(damaged: int) -> None:
    """Recovery keeps what comes before the first damaged batch, whether it begins a piece, ends one or is larger."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        batches = [bytearray(batch(size=size, timestamp=size)[1]) for size in (30, 40, BATCH_PIECE + 5)]
        batches[damaged][-1] ^= 1
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, batches)
        scan = BatchScan(log_dir, file, end=sum(map(len, batches)))
        for expected in batches[:damaged]:
            found = await scan.next()
            assert found is not None
            assert bytes(found[1]) == expected
        with pytest.raises(CorruptBatch):
            await scan.next()

    SimulatedWorld(seed=1).run(scenario)
