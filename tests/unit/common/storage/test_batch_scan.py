"""Scanning the batches of a segment, on a simulated disk that records the size of each read."""

import asyncio

import pytest

from common.environment.interface import LogDir, LogFile
from common.records.batch import BatchHeader, read_header
from common.storage.batch_scan import BATCH_PIECE, BatchScan
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import attached, batch


async def scanned(log_dir: LogDir, file: LogFile, *, end: int) -> list[tuple[BatchHeader, bytes, int]]:
    scan = BatchScan(log_dir, file, position=0, end=end)
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
        read = log_dir.read

        def noted(file: LogFile, position: int, size: int) -> asyncio.Future[bytes]:
            sizes.append(size)
            return asyncio.ensure_future(read(file, position, size))

        monkeypatch.setattr(log_dir, "read", noted)
        end = sum(len(each) for each in batches)
        starts = [sum(len(each) for each in batches[:number]) for number in range(4)]
        expected = [(read_header(each), each, start) for each, start in zip(batches, starts, strict=True)]
        assert await scanned(log_dir, file, end=end) == expected
        assert max(sizes) == BATCH_PIECE

    SimulatedWorld(seed=1).run(scenario)
