"""Runs the daemons of an earlier commit from their own source, so that a benchmark can compare itself with them in one run.

Figures of another day or machine mean little: the same code differs by a factor of two when something else runs beside it.
So a benchmark that has goals measures the earlier commit in turns with the current code, and `comparison` prints the goal
beside both. The source comes from git; where git or its history is missing, the comparison is left out with one line.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMIT: Final = "a9d2c8e"
_SOURCE_ROOT: Final = Path(__file__).parents[2]
# Runs in the earlier commit's source. Keeps the cluster until its standard input ends.
_RUN_CLUSTER: Final = """
import json, sys
from pathlib import Path
from tools.local_cluster import LocalCluster
cluster = LocalCluster.create(Path(sys.argv[1]), brokers=int(sys.argv[2]), disks=int(sys.argv[3]), loop=False)
try:
    cluster.start()
    print(json.dumps([cluster.bootstrap, [node.pid for node in cluster.brokers]]), flush=True)
    sys.stdin.read()
finally:
    cluster.kill()
    cluster.delete()
"""


@dataclass(frozen=True, slots=True)
class BaselineCluster:
    """A running cluster of the earlier commit."""

    bootstrap: str
    broker_pids: list[int]


@contextmanager
def baseline_cluster(folder: Path, *, brokers: int = 1, disks: int = 1) -> Iterator[BaselineCluster | None]:
    """Runs a cluster of the earlier commit, on this interpreter, in an empty folder. Yields None, and says why in one line,
    if its source cannot be had."""
    source = _extract_source(folder / "source")
    if source is None:
        yield None
        return
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN_CLUSTER, str(folder / "cluster"), str(brokers), str(disks)],
        cwd=source,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        started = process.stdout.readline()
        assert started, f"the cluster of {COMMIT} did not start"
        bootstrap, pids = json.loads(started)
        yield BaselineCluster(bootstrap, pids)
    finally:
        process.communicate()


def _extract_source(folder: Path) -> Path | None:
    # An archive and not a work tree, which would stay registered in the repository if the benchmark is killed.
    command = ["git", "-C", str(_SOURCE_ROOT), "archive", "--format=tar", COMMIT]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        print(f"not compared with {COMMIT}: there is no git history with it", file=sys.stderr, flush=True)
        return None
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def comparison(name: str, unit: str, *, now: float, goal: float | None, before: float | None) -> str:
    """Returns one figure as text, beside its goal and that of the earlier commit, as far as there are any."""
    beside = [] if goal is None else [f"goal {goal:,.0f}"]
    if before is not None:
        beside.append(f"{COMMIT} {before:,.0f}")
    return f"{name} {now:,.0f} {unit}" + (f" ({', '.join(beside)})" if beside else "")
