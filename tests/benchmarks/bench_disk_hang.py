"""How a hanging disk affects a broker's other directories and its event loop.

    python -m tests.benchmarks.bench_disk_hang [--seconds 4] [--rate 200] [--size 16384] [--injected] [--folder FOLDER]

One log directory hangs with a write and a consumer's cold read pending on it. In another directory, the benchmark appends
`--size` bytes at a fixed rate. It measures the latency of these appends and the event loop's lag before and during the hang.
As root, the write really hangs (fsfreeze on a loop-mounted ext4, with a watchdog that thaws it); otherwise the benchmark
blocks the writer thread's os call. It always blocks the reader thread's os call, because a frozen file system would still
serve the read. Timers round up to the next millisecond, so one millisecond is subtracted from the lag. Prints one line of
JSON and one human-readable line.
"""

import argparse
import asyncio
import json
import os
import platform
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvloop

from common.environment import disk_operations
from common.environment.interface import Connection, Receiver
from common.environment.page_cache import PageCache
from common.environment.real import RealEnvironment
from common.environment.real_log_dir import RealLogDir, RealLogFile
from tests.benchmarks.measuring import is_optimized_build
from tests.hanging_disks import frozen
from tools.lab.disk_lab import make_disk, remove_disk, why_no_loop_disks

LAG_INTERVAL_NS = 2_000_000
HANG_TIMEOUT_NS = 60 * 10**9


class Hold:
    """Blocks one os call for one descriptor, in the thread that makes the call."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.fd = -1
        self.entered = threading.Event()
        self.released = threading.Event()

    def __call__(self, fd: int, *arguments: Any) -> Any:
        if fd == self.fd:
            self.entered.set()
            self.released.wait()
        return self._call(fd, *arguments)


class ColdConsumer:
    """The sending end of a connection to a consumer. It expects no data and tolerates the end of the connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def data_received(self, view: memoryview) -> None:
        raise AssertionError(f"the consumer said {bytes(view)!r}")

    def connection_lost(self, reason: str | None) -> None:
        self.reason = reason

    def writable(self) -> None:
        self.drained = True


class Samples:
    def __init__(self) -> None:
        self.values: list[int] = []

    def milliseconds(self, fraction: float) -> float:
        ordered = sorted(self.values)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * fraction))] / 1e6, 3)

    def figures(self, name: str) -> dict[str, float]:
        return {
            f"{name}_p50_ms": self.milliseconds(0.5),
            f"{name}_p99_ms": self.milliseconds(0.99),
            f"{name}_max_ms": self.milliseconds(1.0),
        }


async def measure(env: RealEnvironment, log_dir: RealLogDir, *, seconds: float, rate: int, size: int) -> dict[str, float]:
    """Measures the latency of appends at a fixed rate, each from its due time, and how late the event loop's timers fire."""
    appends, lags = Samples(), Samples()
    file = await log_dir.open("produce", create=True)
    end_ns = env.now_ns() + int(seconds * 1e9)
    payload = os.urandom(size)

    async def watch_loop() -> None:
        while (due_ns := env.now_ns() + LAG_INTERVAL_NS) < end_ns:
            await env.sleep_until(due_ns)
            # The timer rounds up to the event loop's millisecond.
            lags.values.append(max(0, env.now_ns() - due_ns - 1_000_000))

    async def produce() -> None:
        interval_ns, position = 10**9 // rate, 0
        due_ns = env.now_ns()
        while due_ns < end_ns:
            await env.sleep_until(due_ns)
            started_ns = env.now_ns()
            # Lateness caused by the event loop counts; lateness from the timer's rounding does not.
            waited_ns = max(0, started_ns - due_ns - 1_000_000)
            await log_dir.append(file, position, [payload])
            appends.values.append(env.now_ns() - started_ns + waited_ns)
            position += size
            due_ns += interval_ns

    async with asyncio.TaskGroup() as group:
        group.create_task(watch_loop())
        group.create_task(produce())
    await log_dir.truncate(file, 0)
    log_dir.close_file(file)
    return appends.figures("append") | lags.figures("lag")


@contextmanager
def hanging_disk(folder: Path, reason: str | None) -> Iterator[Path]:
    """Yields the path of a disk that can be frozen, or a plain path if there is a `reason` why no such disk can be made."""
    path = folder / "hung"
    if reason is not None:
        yield path
        return
    make_disk(path, size_mib=64)
    try:
        yield path
    finally:
        remove_disk(path)


async def run(arguments: argparse.Namespace, folder: Path, reason: str | None) -> dict[str, Any]:
    env = RealEnvironment("bench")
    write_hold, read_hold = Hold(os.pwritev), Hold(os.pread)
    disk_operations._pwritev, disk_operations._pread = write_hold, read_hold
    with hanging_disk(folder, reason) as hung_path:
        healthy, hung = [
            env.log_dir(str(path), operation_timeout_ns=HANG_TIMEOUT_NS) for path in (folder / "healthy", hung_path)
        ]
        assert isinstance(healthy, RealLogDir)
        assert isinstance(hung, RealLogDir)
        await healthy.attach(create=True)
        await hung.attach(create=True)
        await measure(env, healthy, seconds=1, rate=arguments.rate, size=arguments.size)
        before = await measure(env, healthy, seconds=arguments.seconds, rate=arguments.rate, size=arguments.size)

        file = await hung.open("segment", create=True)
        assert isinstance(file, RealLogFile)
        assert file.open_file is not None
        await hung.append(file, 0, [bytes(4 << 20)])
        await hung.fsync(file)
        os.posix_fadvise(file.open_file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        read_hold.fd = file.open_file.fd
        region = hung.region(file, 0, 4 << 20)

        with ExitStack() as hang:
            if reason is None:
                hang.enter_context(frozen(hung_path))
            else:
                write_hold.fd = file.open_file.fd
            hang.callback(write_hold.released.set)
            hang.callback(read_hold.released.set)
            pending = hung.append(file, 4 << 20, [b"x"])
            consumer, client = await cold_consumer(env)
            consumer.connection.send([b"header", region])
            await asyncio.get_running_loop().run_in_executor(None, read_hold.entered.wait)
            during = await measure(env, healthy, seconds=arguments.seconds, rate=arguments.rate, size=arguments.size)
            still_hung = hung.oldest_operation_age_ns > arguments.seconds * 1e9 and consumer.connection.queued_bytes > 0
        client.close()
        await pending
        consumer.connection.abort()
        del region
        await hung.close()
        await healthy.close()
    return {
        "benchmark": "disk_hang",
        "write_hang": "fsfreeze" if reason is None else "injected",
        "read_hang": "injected",
        "pending_all_the_time": still_hung,
        "residency_by_cachestat": residency_is_known(),
        "append_bytes": arguments.size,
        "appends_per_s": arguments.rate,
        "before": before,
        "during": during,
        "python": platform.python_version(),
        "optimized_build": is_optimized_build(),
    }


def residency_is_known() -> bool:
    """Whether this kernel can report what is in the page cache. Without this, the event loop never calls sendfile."""
    with open(__file__, "rb") as file:
        file.read()
        return PageCache().is_resident(file.fileno(), 0, 100)


async def cold_consumer(env: RealEnvironment) -> tuple[ColdConsumer, socket.socket]:
    """Returns the sending end of a new connection, and the client's socket, from which nothing is read."""
    accepted: asyncio.Future[ColdConsumer] = asyncio.get_running_loop().create_future()

    def accept(connection: Connection) -> Receiver:
        consumer = ColdConsumer(connection)
        accepted.set_result(consumer)
        return consumer

    listener = env.listen("127.0.0.1", 0, accept)
    client = socket.create_connection((listener.host, listener.port))
    consumer = await accepted
    listener.close()
    return consumer, client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--size", type=int, default=16 * 1024)
    parser.add_argument("--injected", action="store_true", help="do not try for a disk that really hangs")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        reason = "not asked for" if arguments.injected else why_no_loop_disks(folder)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(run(arguments, folder, reason))
    print(json.dumps(result))
    before, during = result["before"], result["during"]
    print(
        f"one disk hangs ({result['write_hang']} write and a cold read pending): appends on another directory "
        f"p50 {during['append_p50_ms']} ms, p99 {during['append_p99_ms']} ms "
        f"(before: {before['append_p50_ms']} and {before['append_p99_ms']}); loop lag p99 {during['lag_p99_ms']} ms, "
        f"max {during['lag_max_ms']} ms (before: {before['lag_p99_ms']} and {before['lag_max_ms']}); "
        f"CPython {result['python']}, {'PGO' if result['optimized_build'] else 'no PGO'}"
    )


if __name__ == "__main__":
    main()
