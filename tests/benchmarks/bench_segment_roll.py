"""How rolling the segments of one log affects appends to another log of the same directory.

    python -m tests.benchmarks.bench_segment_roll [--rounds 3] [--seconds 12] [--load 40] [--segment 128] [--folder FOLDER]

One log takes `--load` MB/s in batches of 1 MB. Another log in the directory takes a small batch every 5 ms; the latency of
each is measured from its due time. Rounds in which the first log never rolls and rounds in which it rolls whenever it has
`--segment` MiB follow each other, so both see the same disk under the same load. A roll is under way until the full segment
is durable; only appends that were due during a roll count as such. Prints one line of JSON and one for people.
"""

import argparse
import asyncio
import json
import os
import platform
import sysconfig
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from common.environment.interface import LogDir
from common.environment.real import RealEnvironment
from common.ids import LeaderEpoch, TopicId
from common.records.batch import split_batches
from common.records.record import Record, encode_batch
from common.storage.append_pipeline import AwaitedAppend
from common.storage.log import Log
from common.storage.log_config import LogConfig

DEADLINE_NS = 600 * 10**9
INTERVAL_NS = 5_000_000
MB = 1_000_000
NO_ROLL = 1 << 31


@dataclass
class Latencies:
    """Latencies in nanoseconds."""

    values: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        ordered = sorted(self.values)
        at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        found = {f"{name}_ms": ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6 for name, share in at.items()}
        return {"appends": len(ordered), **{name: round(value, 2) for name, value in found.items()}}


class Round:
    """Both logs in a directory, for one round."""

    def __init__(self, env: RealEnvironment, big: Log, small: Log, *, load: int, end_ns: int) -> None:
        self._env = env
        self._big = big
        self._small = small
        self._load = load
        self._end_ns = end_ns
        self.during_rolls = Latencies()
        self.otherwise = Latencies()

    @property
    def is_rolling(self) -> bool:
        return self._big.recovery_point < self._big.segment_base_offsets[-1]

    async def fill(self) -> None:
        batch = encode_batch([Record(None, os.urandom(MB), 1)])
        due_ns = self._env.now_ns()
        while due_ns < self._end_ns:
            await self._env.sleep_until(due_ns)
            await append(self._big, batch)
            due_ns += 10**9 // self._load

    async def measure(self) -> None:
        batch = encode_batch([Record(None, bytes(100), 1)])
        due_ns = self._env.now_ns()
        while due_ns < self._end_ns:
            await self._env.sleep_until(due_ns)
            was_rolling = self.is_rolling
            await append(self._small, batch)
            latencies = self.during_rolls if was_rolling or self.is_rolling else self.otherwise
            latencies.values.append(self._env.now_ns() - due_ns)
            due_ns += INTERVAL_NS


async def append(log: Log, batch: bytes | bytearray) -> None:
    appended = AwaitedAppend()
    log.append_as_leader(
        split_batches(memoryview(bytearray(batch))),
        leader_epoch=LeaderEpoch(1),
        on_written=appended.written,
        on_failed=appended.failed,
    )
    await appended.ended


async def run_round(
    env: RealEnvironment, log_dir: LogDir, name: str, segment_bytes: int, arguments: argparse.Namespace
) -> Round:
    big = await Log.create(log_dir, f"{name}-0", LogConfig(segment_bytes=segment_bytes), TopicId(env.uuid()))
    small = await Log.create(log_dir, f"{name}-1", LogConfig(), TopicId(env.uuid()))
    round_ = Round(env, big, small, load=arguments.load, end_ns=env.now_ns() + int(arguments.seconds * 1e9))
    async with asyncio.TaskGroup() as group:
        group.create_task(round_.fill())
        group.create_task(round_.measure())
    for log in (big, small):
        # The next round begins with a disk that has nothing left to write.
        await log.close()
        await log_dir.remove(log.name)
    return round_


async def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    env = RealEnvironment("bench")
    log_dir = env.log_dir(str(folder / "disk"), operation_timeout_ns=DEADLINE_NS)
    await log_dir.attach(create=True)
    without, rolling = Latencies(), Latencies()
    for number in range(arguments.rounds):
        quiet = await run_round(env, log_dir, f"quiet{number}", NO_ROLL, arguments)
        without.values += quiet.otherwise.values
        rolls = await run_round(env, log_dir, f"rolls{number}", arguments.segment << 20, arguments)
        rolling.values += rolls.during_rolls.values
    await log_dir.close()
    result: dict[str, Any] = {
        "benchmark": "segment_roll",
        "load_mb_per_s": arguments.load,
        "segment_mib": arguments.segment,
        "without_rolls": without.figures(),
        "during_rolls": rolling.figures(),
    }
    ratio = result["during_rolls"]["p99_ms"] / result["without_rolls"]["p99_ms"]
    return result | {
        "p99_ratio": round(ratio, 2),
        "python": platform.python_version(),
        "optimized_build": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="the length of a round")
    parser.add_argument("--load", type=int, default=40, help="MB/s that the log that rolls takes")
    parser.add_argument("--segment", type=int, default=128, help="MiB of a segment")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, suppress(KeyboardInterrupt):
        result = uvloop.run(run(arguments, Path(folder)))
        without, during = result["without_rolls"], result["during_rolls"]
        print(json.dumps(result))
        print(
            f"appends to another log: p99 {without['p99_ms']} ms without rolls, {during['p99_ms']} ms during "
            f"rolls of {arguments.segment} MiB (ratio {result['p99_ratio']}; goal: at most 2); "
            f"longest {without['max_ms']} and {during['max_ms']} ms"
        )


if __name__ == "__main__":
    main()
