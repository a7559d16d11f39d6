"""`python -m tests.simulation --seed N | --seeds N`: runs seeds on simulated clusters and reports the results.

A failing seed is shrunk to a short schedule of faults that fails in the same way. The event log of the run with that short
schedule is printed with the traceback. `--faults 0,3,7` replays a seed with only these faults of its schedule.
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator, Sequence

from tests.simulation.event_log import readable
from tests.simulation.explaining import Outcome, run_and_free, run_plan, signature_of, with_faults
from tests.simulation.plans import draw_plan

DEFAULT_SEEDS = 20
SEEDS_PER_PROCESS = 40


def main() -> int:
    """Returns exit status 1 if a seed failed."""
    arguments = _parser().parse_args()
    if arguments.seed is not None:
        return _one_seed(arguments.seed, arguments.faults)
    started = time.monotonic()
    failed = count = 0
    seeds = range(arguments.first, arguments.first + (arguments.seeds or DEFAULT_SEEDS))
    for count, outcome in enumerate(_outcomes(seeds, arguments.jobs), start=1):
        rate = count / (time.monotonic() - started) * 3600
        print(f"{_line(outcome)}, {rate:.0f} seeds an hour", flush=True)
        if outcome.signature is not None:
            failed += 1
            print(outcome.story, file=sys.stderr, flush=True)
            if not arguments.keep_going:
                break
    seconds = time.monotonic() - started
    print(
        f"{count - failed} passed, {failed} failed, {count / seconds * 3600:.0f} seeds an hour with {arguments.jobs} job(s)"
    )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--seed", type=int, help="run this one and print its event log")
    group.add_argument("--seeds", type=int, help=f"run N seeds in a row (default {DEFAULT_SEEDS})")
    parser.add_argument("--first", type=int, default=1, help="the first of --seeds (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (default 1)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that failed")
    parser.add_argument(
        "--faults", type=_numbers, help="with --seed: only these faults of its schedule, by number from 0, with commas"
    )
    return parser


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _outcomes(seeds: Sequence[int], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run_and_free, seeds)
        return
    # Replace the worker processes now and then, because each run leaks some memory.
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(run_and_free, seeds)


def _line(outcome: Outcome) -> str:
    report = outcome.report
    verdict = "passed" if outcome.signature is None else f"FAILED ({outcome.signature})"
    return (
        f"seed {outcome.seed}: {verdict}, {len(report.faults)} faults ({report.withheld} withheld), "
        f"{report.acknowledged} acknowledged, {report.refused} refused, converged in {report.convergence_seconds:.1f} s "
        f"of {report.virtual_seconds:.0f} virtual s, trace {report.trace_hash[:12]}"
    )


# --- one seed ----------------------------------------------------------------------------------------------------


def _one_seed(seed: int, faults: list[int] | None) -> int:
    plan = draw_plan(seed)
    if faults is not None:
        plan = with_faults(plan, faults)
    print(plan)
    for number, fault in enumerate(draw_plan(seed).schedule):
        print(f"  {number:3} {'' if fault in plan.schedule else '(left out) '}{fault}")
    run, failure = run_plan(plan)
    print("\n".join(readable(run.world.events)))
    print(_line(Outcome(seed, run.report, None if failure is None else signature_of(failure))))
    if failure is not None:
        traceback.print_exception(failure)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
