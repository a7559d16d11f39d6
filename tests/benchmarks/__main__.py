"""Runs the benchmarks one after the other, each in its own process.

    python -m tests.benchmarks [--quick] [NAME …]

Each prints its figures as JSON and as human-readable lines, together with figures to compare them with and the interpreter's
build. If a benchmark fails, the others still run, and the exit status is 1.
"""

import argparse
import signal
import subprocess
import sys
import time

# Name: arguments of a full run, arguments with --quick. The slow benchmarks come last.
BENCHMARKS: dict[str, tuple[list[str], list[str]]] = {
    "codec": ([], ["--seconds", "0.05", "--rounds", "3"]),
    "metadata_replay": ([], ["--partitions", "20000", "--rounds", "1"]),
    "long_operations": ([], ["--quick"]),
    "disk_hang": ([], ["--seconds", "1.5"]),
    "segment_roll": ([], ["--rounds", "1", "--seconds", "6"]),
    "recovery": ([], ["--mib", "8", "--rounds", "1"]),
    "heartbeat": ([], ["--quick"]),
    "produce_fetch": ([], ["--quick"]),
    "small_requests": ([], ["--quick"]),
    "export": ([], ["--partitions", "10000", "--rounds", "1"]),
    "report": ([], ["--records", "200000", "--rounds", "1"]),
    "memory": ([], ["--quick"]),
    "startup": ([], ["--quick"]),
    "log_creation": ([], ["--quick"]),
    "moves": ([], ["--quick"]),
    "idle": ([], ["--quick"]),
    "scale": ([], ["--quick"]),
    "controller_scale": ([], ["--quick"]),
    "disk_failure": ([], ["--quick"]),
    "clients": ([], ["--quick"]),
    "fault_detection": (["--rounds", "2"], ["--quick", "--only", "power cut"]),
}
SECONDS_MAX = 900.0
CLEANUP_SECONDS_MAX = 120.0


def run(name: str, *, quick: bool) -> bool:
    """Runs the benchmark and returns whether it completed."""
    module = f"tests.benchmarks.bench_{name}"
    arguments = BENCHMARKS[name][1 if quick else 0]
    print(f"== python -m {' '.join([module, *arguments])}", file=sys.stderr, flush=True)
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", module, *arguments])
    try:
        status = process.wait(SECONDS_MAX)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        # Unlike a kill, an interrupt lets the benchmark clean up its daemons and disks.
        process.send_signal(signal.SIGINT)
        process.wait(CLEANUP_SECONDS_MAX)
        print(f"== {name} was interrupted after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        return False
    print(f"== {name}: exit status {status} after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first look in a few minutes")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}")
    failed = [name for name in arguments.names or BENCHMARKS if not run(name, quick=arguments.quick)]
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
