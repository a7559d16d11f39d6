"""`python -m tests.simulation.mutants`: plants one bug after the other and lets the simulator find it.

This proves that the simulator can fail. For each bug of planted_bugs.py it runs seeds until one fails, and prints a table
with the seed that failed, the number of seeds that were run, and the failure. If a rare bug names a seed that has found it
before, that seed is run first. A seed that also fails without the bug has found nothing, so each failing seed is run once
more without the bug.
"""

import argparse
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.planting import PlantedBug
from tests.simulation.swarm import run_seed

SEEDS_MAX = 500
# In CPU time: on a busy machine a seed may take many times as long. A bug may keep the simulation from ever ending.
SEED_SECONDS_MAX = 300
FOUND_BY_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Run:
    """One seed, with a bug (by name) or without. It is sent to another process, so it contains plain data only."""

    seed: int
    bug: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The seed that failed because of a bug, the number of seeds run so far, and the failure."""

    seed: int
    runs: int
    found_by: str


class SeedNeverEnded(BaseException):
    """Not an Exception, so that `except Exception` in a daemon does not catch it."""


class Runner(Protocol):
    """Carries out runs, perhaps in parallel. Returns their failures in the same order, None for a seed that passed."""

    def __call__(self, runs: Sequence[Run]) -> list[str | None]: ...


def failure_of(run: Run) -> str | None:
    """Runs a seed. Returns its failure in one line, or None if it passed."""
    bug = next((each for each in PLANTED_BUGS if each.name == run.bug), None)
    try:
        with nullcontext() if bug is None else bug.planted():
            run_seed(run.seed)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as failure:  # noqa: BLE001 (any failure of a seed has found the bug)
        return _in_one_line(failure)
    return None


def _in_one_line(failure: BaseException) -> str:
    """Returns the type and the first line of an exception, or of the first one inside exception groups."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    text = str(failure).strip().partition("\n")[0]
    return f"{type(failure).__name__}: {text}"[:FOUND_BY_WIDTH]


class Hunter:
    """Hunts one bug after the other. Remembers which seeds fail without a bug."""

    def __init__(self, run_all: Runner, *, side_by_side: int = 1) -> None:
        self._run_all = run_all
        self._side_by_side = side_by_side
        self._own_failures: dict[int, str | None] = {}

    def hunt(self, bug: PlantedBug, seeds: Sequence[int]) -> Found | None:
        """Runs seeds with the bug planted until a seed fails that passes without the bug. The seed that the bug names comes
        first, whether or not it is one of these. Returns None if the bug survives all."""
        seeds = [*dict.fromkeys([*([] if bug.seed is None else [bug.seed]), *seeds])]
        for begin in range(0, len(seeds), self._side_by_side):
            group = seeds[begin : begin + self._side_by_side]
            failures = self._run_all([Run(seed, bug.name) for seed in group])
            for number, (seed, failure) in enumerate(zip(group, failures, strict=True), start=begin + 1):
                if failure is not None and self._own_failure(seed) is None:
                    return Found(seed, number, failure)
        return None

    def _own_failure(self, seed: int) -> str | None:
        if seed not in self._own_failures:
            [self._own_failures[seed]] = self._run_all([Run(seed)])
            if self._own_failures[seed] is not None:
                print(f"seed {seed} fails without a bug: {self._own_failures[seed]}", file=sys.stderr, flush=True)
        return self._own_failures[seed]


def _failure_within_time(run: Run) -> str | None:
    """`failure_of` with a time limit, for a worker process."""

    def give_up(_: int, __: FrameType | None) -> None:
        raise SeedNeverEnded(f"not over after {SEED_SECONDS_MAX} s of CPU time")

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, SEED_SECONDS_MAX)
    try:
        return failure_of(run)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> int:
    """Returns exit status 1 if a bug survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--bug", default="", help="only those whose name contains this")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"give up after N seeds (default {SEEDS_MAX})")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--pinned", action="store_true", help="only the bugs that name a seed, with only that seed")
    parser.add_argument("--jobs", type=int, default=1, help="seeds that run side by side (default 1)")
    arguments = parser.parse_args()
    bugs = [bug for bug in PLANTED_BUGS if arguments.bug in bug.name and (bug.seed is not None or not arguments.pinned)]
    # Replace the worker processes now and then, because a failed run leaks a lot of memory.
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=20) as pool:
        hunter = Hunter(lambda runs: pool.map(_failure_within_time, runs, chunksize=1), side_by_side=arguments.jobs)
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        found = _print_table(bugs, lambda bug: hunter.hunt(bug, seeds if not arguments.pinned else [bug.seed or 0]))
    by_seeds = "the seed that it names" if arguments.pinned else f"one of the seeds {seeds[0]} to {seeds[-1]}"
    print(f"{found} of {len(bugs)} planted bugs found by {by_seeds}")
    return 0 if found == len(bugs) else 1


def _print_table(bugs: Sequence[PlantedBug], hunt: Callable[[PlantedBug], Found | None]) -> int:
    """Prints one line for each bug as soon as its hunt is over. Returns how many bugs were found."""
    width = max((len(bug.name) for bug in bugs), default=0)
    count = 0
    print(f"{'bug':{width}}  seed  runs  found by")
    for bug in bugs:
        found = hunt(bug)
        count += found is not None
        result = "   -     -  SURVIVED" if found is None else f"{found.seed:4}  {found.runs:4}  {found.found_by}"
        print(f"{bug.name:{width}}  {result}", flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main())
