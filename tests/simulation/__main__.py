"""`python -m tests.simulation --seed N | --seeds N`: runs seeds of trouble on simulated clusters and says what happened."""

import argparse
import sys
import time

from tests.simulation.chaos import run_seed

DEFAULT_SEEDS = 20


def main() -> int:
    """Exit status 1 as soon as a seed fails; its traceback and the command that replays it are printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--seed", type=int, help="run this one")
    group.add_argument("--seeds", type=int, help=f"run N seeds in a row (default {DEFAULT_SEEDS})")
    parser.add_argument("--first", type=int, default=1, help="the first of --seeds (default 1)")
    arguments = parser.parse_args()
    seeds = (
        [arguments.seed]
        if arguments.seed is not None
        else [arguments.first + number for number in range(arguments.seeds or DEFAULT_SEEDS)]
    )
    started = time.monotonic()
    for count, seed in enumerate(seeds, start=1):
        succeeded = False
        try:
            report = run_seed(seed)
            succeeded = True
        finally:
            if not succeeded:
                print(f"seed {seed} failed; replay it with: make simulate SEED={seed}", file=sys.stderr)
        rate = count / (time.monotonic() - started) * 3600
        print(
            f"seed {seed}: {report.acknowledged} acknowledged, {report.refused} refused, "
            f"{report.virtual_seconds:.0f} virtual s, trace {report.trace_hash[:12]}, {rate:.0f} seeds an hour"
        )
        if arguments.seed is not None:
            print("\n".join(report.faults))
    print(f"{len(seeds)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
