"""Recovery of logs after a crash: how fast they are checked, and how long the event loop is busy with it.

    python -m tests.benchmarks.bench_recovery [--disks 3] [--logs 4] [--mib 32] [--batch 200 16384] [--rounds 3]
        [--folder FOLDER]

Each disk has `--logs` logs of `--mib` MiB in batches of `--batch` bytes. All are loaded at the same time, without the marker
of a clean shutdown and from the first segment on, as after a crash before the first checkpoint. Printed are MB/s, the CPU
time of the event loop's thread per MB beside that of the whole process, and the longest that the loop did not run anything
else. The pages of the files are dropped by recovery itself, which reads what the disk has. For comparison, each round also
computes the checksums alone, of the same bytes in memory and on one thread.
"""

import argparse
import asyncio
import resource
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from crc32c import crc32c

from common.environment.interface import LogDir
from common.environment.real import RealEnvironment
from common.ids import LeaderEpoch, TopicId
from common.records.batch import BATCH_OVERHEAD, split_batches
from common.records.record import Record, encode_batch
from common.storage.append_pipeline import AwaitedAppend
from common.storage.log import Log
from common.storage.log_config import LogConfig
from tests.benchmarks.measuring import print_result, spread

DEADLINE_NS = 600 * 10**9
MB = 1_000_000
# Between two looks of the watcher nothing else is due, so what it waits beyond this is what the loop was busy.
LOOK_NS = 1_000_000
APPEND_BYTES = 1 << 20


@dataclass(slots=True)
class Figures:
    """The figures of all rounds with one size of batches."""

    mb_per_s: list[float] = field(default_factory=list)
    loop_ms_per_mb: list[float] = field(default_factory=list)
    process_ms_per_mb: list[float] = field(default_factory=list)
    longest_step_ms: list[float] = field(default_factory=list)
    checksums_ms_per_mb: list[float] = field(default_factory=list)


class LoopWatcher:
    """Notes the longest time in which the event loop ran nothing else."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            due = time.monotonic_ns() + LOOK_NS
            await asyncio.sleep(LOOK_NS / 1e9)
            self.longest_ns = max(self.longest_ns, time.monotonic_ns() - due)

    async def end(self) -> int:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        return self.longest_ns


async def fill(log_dir: LogDir, name: str, topic_id: TopicId, size: int, batch_bytes: int) -> None:
    """Creates a log of `size` bytes in batches of `batch_bytes` and closes it."""
    log = await Log.create(log_dir, name, LogConfig(), topic_id)
    batch = bytes(encode_batch([Record(None, bytes(max(0, batch_bytes - BATCH_OVERHEAD - 10)), 1)]))
    for _ in range(max(1, size // APPEND_BYTES)):
        appended = AwaitedAppend()
        log.append_as_leader(
            split_batches(memoryview(bytearray(batch * max(1, APPEND_BYTES // len(batch))))),
            leader_epoch=LeaderEpoch(1),
            on_written=appended.written,
            on_failed=appended.failed,
        )
        await appended.ended
    await log.close()


async def load_all(log_dirs: list[LogDir], names: list[str], figures: Figures, bytes_in_all: int) -> None:
    watcher = LoopWatcher()
    await asyncio.sleep(0)
    started, loop_cpu, all_cpu = time.perf_counter(), time.thread_time(), process_seconds()
    async with asyncio.TaskGroup() as group:
        loads = [group.create_task(Log.load(log_dir, name, LogConfig())) for log_dir in log_dirs for name in names]
    seconds = time.perf_counter() - started
    megabytes = bytes_in_all / MB
    figures.mb_per_s.append(megabytes / seconds)
    figures.loop_ms_per_mb.append((time.thread_time() - loop_cpu) * 1000 / megabytes)
    figures.process_ms_per_mb.append((process_seconds() - all_cpu) * 1000 / megabytes)
    figures.longest_step_ms.append(await watcher.end() / 1e6)
    for load in loads:
        log = load.result()
        assert not log.recovery.lost_anything
        await log.close()


def written_bytes(folder: Path, batch_bytes: int) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{batch_bytes}-*/*/*.log"))


def process_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def checksums_ms_per_mb(batch_bytes: int) -> float:
    content = bytes(batch_bytes)
    count = max(1, 32 * MB // batch_bytes)
    started = time.thread_time()
    for _ in range(count):
        crc32c(content)
    return (time.thread_time() - started) * 1000 / (count * batch_bytes / MB)


async def run(arguments: argparse.Namespace, folder: Path) -> dict[int, Figures]:
    env = RealEnvironment("bench")
    found: dict[int, Figures] = {}
    for batch_bytes in arguments.batch:
        figures = found[batch_bytes] = Figures()
        log_dirs = [
            env.log_dir(str(folder / f"{batch_bytes}-{number}"), operation_timeout_ns=DEADLINE_NS)
            for number in range(arguments.disks)
        ]
        names = [f"log-{number}" for number in range(arguments.logs)]
        for log_dir in log_dirs:
            await log_dir.attach(create=True)
            for name in names:
                await fill(log_dir, name, TopicId(env.uuid()), arguments.mib << 20, batch_bytes)
        size = written_bytes(folder, batch_bytes)
        for _ in range(arguments.rounds):
            await load_all(log_dirs, names, figures, size)
            figures.checksums_ms_per_mb.append(checksums_ms_per_mb(batch_bytes))
        for log_dir in log_dirs:
            for name in names:
                await log_dir.remove(name)
            await log_dir.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disks", type=int, default=3)
    parser.add_argument("--logs", type=int, default=4, help="logs of each disk")
    parser.add_argument("--mib", type=int, default=32, help="size of each log")
    parser.add_argument("--batch", type=int, nargs="+", default=[200, 16384], help="bytes of a batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        found = uvloop.run(run(arguments, Path(folder)))
    for batch_bytes, figures in found.items():
        rows = {name: spread(getattr(figures, name), 2) for name in Figures.__slots__}
        print_result(
            "recovery",
            f"python -m tests.benchmarks.bench_recovery --batch {batch_bytes}",
            {"batch_bytes": batch_bytes} | rows,
            f"recovery, batches of {batch_bytes} bytes: {rows['mb_per_s']['median']} MB/s, event loop "
            f"{rows['loop_ms_per_mb']['median']} of {rows['process_ms_per_mb']['median']} ms/MB "
            f"(checksums alone {rows['checksums_ms_per_mb']['median']}), longest step "
            f"{rows['longest_step_ms']['median']} ms",
        )


if __name__ == "__main__":
    main()
