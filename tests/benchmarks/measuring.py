"""What the benchmarks share: the interpreter's build, the time a process spent on a CPU, its memory, percentiles, output."""

import json
import platform
import resource
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any


def is_optimized_build() -> bool:
    """Whether this interpreter was built with profile-guided optimisation, which matters more than its version."""
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def build_text() -> str:
    """The interpreter for the line that people read."""
    return f"CPython {platform.python_version()}, {'PGO' if is_optimized_build() else 'no PGO'}"


def print_result(benchmark: str, command: str, figures: dict[str, Any], text: str) -> None:
    """One line of JSON for programs and one for people."""
    build = {"python": platform.python_version(), "optimized_build": is_optimized_build()}
    print(json.dumps({"benchmark": benchmark, "command": command} | figures | build))
    print(f"{text} [{command}; {build_text()}]", flush=True)


def cpu_seconds(pid: int) -> float:
    """What all threads of the process have run so far, to the nanosecond. Threads that have ended are not in it."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            # It ended while we looked.
            continue
    return total / 1e9


def resident_bytes(pid: int) -> int:
    """Memory that the kernel holds for the process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least this fraction of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), -int(-len(ordered) * fraction // 1)) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Least, median and greatest: on a shared machine one number says too little."""
    return {
        "min": round(min(values), digits),
        "median": round(median(values), digits),
        "max": round(max(values), digits),
    }
