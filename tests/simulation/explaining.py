"""Runs a seed. If it fails, finds the shortest schedule that fails in the same way and prints the event log of that run.

Shell of the tests. An Outcome travels between processes, so it contains plain data only.
"""

import dataclasses
import gc
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.event_log import readable
from tests.simulation.plans import Plan, draw_plan
from tests.simulation.shrinking import shrink
from tests.simulation.swarm import SeedReport, SeedRun


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed. It is pickled, so it contains only texts and numbers."""

    seed: int
    report: SeedReport
    signature: str | None
    """The kind of failure, or None if the seed passed."""
    story: str = ""


def run_plan(plan: Plan) -> tuple[SeedRun, BaseException | None]:
    """Runs a plan. Returns the finished run and the exception it failed with, if any."""
    run = SeedRun(plan)
    try:
        run.run()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as failure:  # noqa: BLE001 (every failure of a seed is reported, none is swallowed)
        return run, failure
    return run, None


def with_faults(plan: Plan, numbers: Sequence[int]) -> Plan:
    """Returns the plan with only these faults of its schedule."""
    return dataclasses.replace(plan, schedule=tuple(plan.schedule[number] for number in numbers))


def run_and_explain(seed: int) -> Outcome:
    """Runs a seed. If it fails, shrinks its schedule and adds the event log of the shortest failing run."""
    plan = draw_plan(seed)
    run, failure = run_plan(plan)
    if failure is None:
        return Outcome(seed, run.report, None)
    signature = signature_of(failure)

    def still_fails(numbers: Sequence[int]) -> bool:
        _, other = run_plan(with_faults(plan, numbers))
        return other is not None and signature_of(other) == signature

    needed = shrink(range(len(plan.schedule)), still_fails)
    short, short_failure = run_plan(with_faults(plan, needed))
    told = short_failure or failure
    command = f"make simulate SEED={seed} FAULTS={','.join(map(str, needed))}"
    lines = [
        *readable(short.world.events),
        "".join(traceback.format_exception(told)).rstrip(),
        f"{plan} ({len(needed)} are enough):",
        *(f"  {number:3} {plan.schedule[number]}" for number in needed),
        f"signature: {signature}",
        f"replay the seed with: make simulate SEED={seed}",
        f"replay these faults with: {command}",
    ]
    return Outcome(seed, run.report, signature, "\n".join(lines))


def run_and_free(seed: int) -> Outcome:
    """Like `run_and_explain`, but also frees the world. During a run, the garbage collector runs so rarely that the worlds
    of several seeds would pile up."""
    outcome = run_and_explain(seed)
    gc.collect()
    return outcome


def signature_of(failure: BaseException) -> str:
    """Returns the kind of failure without details that differ between runs: the exception type, and the invariant if it
    names one."""
    if isinstance(failure, BaseExceptionGroup):
        return " + ".join(dict.fromkeys(signature_of(inner) for inner in failure.exceptions))
    name = type(failure).__name__
    invariant = getattr(failure, "invariant", None)
    cause = failure.__cause__
    if invariant is not None:
        return f"{name} {invariant}"
    return name if cause is None else f"{name} from {signature_of(cause)}"
