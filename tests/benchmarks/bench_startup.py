"""How long each daemon takes to become ready and how much memory it then uses, empty and with 2,000 partitions.

    python -m tests.benchmarks.bench_startup [--quick] [--rounds 5] [--partitions 2000] [--folder FOLDER]

A controller and a broker with two directories are started one after the other. The time runs from the start of the process
to the event that shows it is ready (`controller_active`, `broker_running`). Starts after a clean shutdown are measured empty
and with partitions, starts after kill -9 only with partitions. After a kill, the controller only accepts the broker's new
incarnation once the old one's session has expired (9 s). For comparison, the benchmark also measures a Python process that
imports the daemons' modules and exits.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import print_result, resident_bytes, spread
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster, LocalNode

READY = {"controller": "controller_active", "broker": "broker_running"}
SECONDS_MAX = 300.0
DISKS = 2
MB = 1_000_000


@dataclass(slots=True)
class Starts:
    """The measurements of several starts of one daemon in one situation: empty, with partitions, or after a kill."""

    milliseconds: list[float] = field(default_factory=list)
    resident_mb: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {"ready_ms": spread(self.milliseconds, 0), "resident_mb": spread(self.resident_mb)}


def start(node: LocalNode, starts: Starts) -> None:
    started_at = time.time()
    node.start()
    event = node.wait_for(READY[node.files.role], seconds=SECONDS_MAX)
    starts.milliseconds.append((datetime.fromisoformat(event["timestamp"]).timestamp() - started_at) * 1000)
    assert node.pid is not None
    starts.resident_mb.append(resident_bytes(node.pid) / MB)


def measure(cluster: LocalCluster, rounds: int, end: Callable[[LocalNode], object]) -> dict[str, Starts]:
    """Ends and starts both nodes `rounds` times; the controller starts before the broker and ends after it."""
    controller, broker = Starts(), Starts()
    for _ in range(rounds):
        end(cluster.brokers[0])
        end(cluster.controller)
        start(cluster.controller, controller)
        start(cluster.brokers[0], broker)
    return {"controller": controller, "broker": broker}


def import_milliseconds(rounds: int) -> list[float]:
    """Measures a process that imports all modules of a node and exits."""
    found: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import tools.node.server_start"], check=True, env=os.environ)
        found.append((time.perf_counter() - started) * 1000)
    return found


def run(folder: Path, rounds: int, partitions: int) -> dict[str, dict[str, Starts]]:
    cluster = LocalCluster.create(folder, brokers=1, disks=DISKS, loop=False)
    try:
        cluster.start()
        empty = measure(cluster, rounds, LocalNode.stop)
        create_topic(cluster.bootstrap, "bench", partitions=partitions, replication_factor=1)
        loaded = measure(cluster, rounds, LocalNode.stop)
        killed = measure(cluster, rounds, LocalNode.kill)
    finally:
        cluster.kill()
        cluster.delete()
    return {"empty": empty, "loaded": loaded, "after_kill": killed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 200 partitions")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--partitions", type=int, help="default 2000")
    parser.add_argument("--folder", type=Path, help="where the nodes write (default: a new temporary folder)")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    partitions = arguments.partitions or (200 if arguments.quick else 2000)
    imports = import_milliseconds(rounds)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name:
        situations = run(Path(name) / "cluster", rounds, partitions)
    figures: dict[str, Any] = {"rounds": rounds, "partitions": partitions, "imports_ms": spread(imports, 0)}
    figures |= {
        situation: {role: starts.figures() for role, starts in by_role.items()} for situation, by_role in situations.items()
    }

    def told(role: str) -> str:
        empty, loaded, killed = (figures[situation][role] for situation in ("empty", "loaded", "after_kill"))
        return (
            f"{role} ready after {empty['ready_ms']['median']:.0f} ms with {empty['resident_mb']['median']:.0f} MB; with "
            f"{partitions} partitions {loaded['ready_ms']['median']:.0f} ms and {loaded['resident_mb']['median']:.0f} MB, "
            f"after kill -9 of both {killed['ready_ms']['median']:.0f} ms"
        )

    text = f"{told('controller')}; {told('broker')}; its imports alone take {figures['imports_ms']['median']:.0f} ms"
    print_result("startup", "python -m tests.benchmarks.bench_startup", figures, text)


if __name__ == "__main__":
    main()
