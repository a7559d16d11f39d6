"""Shared by the benchmarks: interpreter build, a process's CPU time and memory, percentiles, output."""

import json
import platform
import resource
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any


def is_optimized_build() -> bool:
    """Whether this interpreter was built with profile-guided optimisation, which affects speed more than its version.

    Debian and Ubuntu build theirs with `make profile-opt` instead of the configure option. Their packages have taken the
    flags of the second compilation out of the configuration; every other build keeps both flags, whether it used them or
    not."""
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return True
    return bool(sysconfig.get_config_var("PGO_PROF_GEN_FLAG")) and not sysconfig.get_config_var("PGO_PROF_USE_FLAG")


def build_text() -> str:
    """Returns the interpreter's version and whether it is an optimized build, in human-readable form."""
    return f"CPython {platform.python_version()}, {'PGO' if is_optimized_build() else 'no PGO'}"


def print_result(benchmark: str, command: str, figures: dict[str, Any], text: str) -> None:
    """Prints one line of JSON and one human-readable line."""
    build = {"python": platform.python_version(), "optimized_build": is_optimized_build()}
    print(json.dumps({"benchmark": benchmark, "command": command} | figures | build))
    print(f"{text} [{command}; {build_text()}]", flush=True)


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time so far of all threads of the process, to the nanosecond. Threads that have ended are not
    included."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            # The thread ended in between.
            continue
    return total / 1e9


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of the process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def percentile(values: Sequence[float], fraction: float) -> float:
    """Returns the smallest value such that at least this fraction of all values are at or below it."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), -int(-len(ordered) * fraction // 1)) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Returns minimum, median and maximum, because rounds differ on a shared machine and one number would not show it."""
    return {
        "min": round(min(values), digits),
        "median": round(median(values), digits),
        "max": round(max(values), digits),
    }
