"""`python -m tests.simulation.mutants`: plants one bug after the other and lets the simulator find it.

The simulator must be able to fail. For each bug of planted_bugs.py seeds are run until one of them fails, and the table says
how many were needed and what found it. Easy to get wrong: a seed that fails without the bug as well has found nothing, so
the seed is run once more with the bug taken out again.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.planting import PlantedBug
from tests.simulation.swarm import run_seed

SEEDS_MAX = 500


@dataclass(frozen=True, slots=True)
class Hunt:
    """How one bug was hunted. `found_by` is None when it survived."""

    name: str
    seeds: int
    seed: int
    found_by: str | None


def hunt(bug: PlantedBug, *, first: int = 1, seeds_max: int = SEEDS_MAX) -> Hunt:
    """Runs seeds with the bug planted until one fails."""
    for count in range(1, seeds_max + 1):
        seed = first + count - 1
        with bug.planted():
            found_by = failure_of(seed)
        if found_by is not None and failure_of(seed) is None:
            return Hunt(bug.name, count, seed, found_by)
    return Hunt(bug.name, seeds_max, first, None)


def failure_of(seed: int) -> str | None:
    """What a seed fails with, in one line; None when it passes."""
    try:
        run_seed(seed)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _in_one_line(error)
    return None


def _in_one_line(error: BaseException) -> str:
    """The first single exception inside of groups, with the first line of its text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:100]


def hunt_all(bugs: Sequence[PlantedBug], *, first: int, seeds_max: int, jobs: int) -> Iterator[Hunt]:
    """All hunts, as they end."""
    tasks = [(PLANTED_BUGS.index(bug), first, seeds_max) for bug in bugs]
    # A process for each bug: whatever a bug breaks in memory ends with it.
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(_hunt_number, tasks, chunksize=1)


def _hunt_number(task: tuple[int, int, int]) -> Hunt:
    number, first, seeds_max = task
    return hunt(PLANTED_BUGS[number], first=first, seeds_max=seeds_max)


def main() -> int:
    """Exit status 1 when a bug survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--bug", help="only those whose name contains this")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"give up after N seeds (default {SEEDS_MAX})")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="bugs hunted at the same time (default 1)")
    arguments = parser.parse_args()
    bugs = [bug for bug in PLANTED_BUGS if arguments.bug is None or arguments.bug in bug.name]
    width = max((len(bug.name) for bug in bugs), default=0)
    survivors = 0
    print(f"{'bug':{width}}  seeds  found by")
    for result in hunt_all(bugs, first=arguments.first, seeds_max=arguments.seeds, jobs=arguments.jobs):
        survivors += result.found_by is None
        found_by = "SURVIVED" if result.found_by is None else f"{result.found_by} (seed {result.seed})"
        print(f"{result.name:{width}}  {result.seeds:5}  {found_by}", flush=True)
    print(f"{len(bugs) - survivors} of {len(bugs)} found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
