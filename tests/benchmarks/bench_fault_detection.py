"""How long it takes after each disk fault until the directory is offline, its leaders have moved, and clients can write.

    python -m tests.benchmarks.bench_fault_detection [--quick] [--rounds 5] [--only TEXT] [--folder FOLDER]

Needs root, loop devices and FUSE. The cluster is that of the fault matrix: three brokers in their own processes with four
disks each, under load from two librdkafka clients with acks=all, one for the partitions in the directory and one for all
others. Times count from the moment the fault is complete. An operation's deadline is 2 s, the probe interval 1 s. The goals
until the directory is offline: 50 ms (p99) on a busy disk, 2 s on an idle one, the deadline plus 1 s on a hung one.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import percentile, print_result
from tests.integration.faults.matrix import CASES, DEADLINE_MS, PROBE_MS, ROLES, Seen, go_through, matrix_cluster
from tools.lab.disk_lab import why_no_loop_disks


def measure(folder: Path, *, rounds: int, only: str) -> list[Seen]:
    """Causes each fault `rounds` times on a leader's and on a follower's disk."""
    rows: list[Seen] = []
    with matrix_cluster(folder) as matrix:
        for case in CASES:
            for role in ROLES * rounds if only in case.name else ():
                seen = go_through(matrix, case, role)
                rows.append(seen)
                print(f"  {case.name}, {role}: offline after {seen.offline * 1000:.0f} ms", file=sys.stderr, flush=True)
    return rows


def spread_ms(values: list[float]) -> dict[str, float]:
    return {
        "p50": round(percentile(values, 0.5) * 1000, 1),
        "p99": round(percentile(values, 0.99) * 1000, 1),
        "max": round(max(values) * 1000, 1),
    }


def figures_of(name: str, rows: list[Seen]) -> dict[str, Any]:
    """Returns one fault's figures, in milliseconds."""
    return {
        "fault": name,
        "faults": len(rows),
        "bound_ms": rows[0].case.bound * 1000,
        "deadline_ms": DEADLINE_MS,
        "probe_ms": PROBE_MS,
        "offline_ms": spread_ms([row.offline for row in rows]),
        "moved_ms": spread_ms([row.moved for row in rows]),
        "stood_still_ms": spread_ms([row.stood_still for row in rows]),
        "elsewhere_ms": spread_ms([row.elsewhere for row in rows]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each fault once on each kind of replica")
    parser.add_argument("--rounds", type=int, help="how often each fault, on each kind of replica (default 5)")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this in their name")
    parser.add_argument("--folder", type=Path, help="where the disks' images lie (default: a new temporary folder)")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name:
        reason = why_no_loop_disks(Path(name), faulty=True)
        if reason is not None:
            sys.exit(f"fault_detection was not measured, no faulty disks can be made here: {reason}")
        rows = measure(Path(name) / "lab", rounds=rounds, only=arguments.only)
    for case in CASES:
        found = [row for row in rows if row.case is case]
        if found:
            figures = figures_of(case.name, found)
            text = (
                f"{case.name}, {len(found)} times: directory offline after {figures['offline_ms']['p50']:.0f} ms (max "
                f"{figures['offline_ms']['max']:.0f}, bound {figures['bound_ms']:.0f}), its partitions stood still for "
                f"{figures['stood_still_ms']['max']:.0f} ms at most, others for {figures['elsewhere_ms']['max']:.0f}"
            )
            print_result("fault_detection", "python -m tests.benchmarks.bench_fault_detection", figures, text)


if __name__ == "__main__":
    main()
