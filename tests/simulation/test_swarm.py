"""Runs a few simulated seeds, and tests that a seed replays exactly and that a failure is shrunk."""

import weakref
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from common.metadata.metadata_version import is_cordoning_supported, is_directory_assignment_supported
from common.time_units import NS_PER_S
from tests.simulation import explaining
from tests.simulation.cluster import CONTROLLER_ID, INTERNAL_SEGMENT_BYTES
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.event_log import readable
from tests.simulation.explaining import run_and_explain
from tests.simulation.faults import CLOCK_JUMPS, CLOCK_JUMPS_MS, FIRST_CLIENT_ID, KINDS, METADATA
from tests.simulation.hash_seeds import printed_under
from tests.simulation.history import Outcome
from tests.simulation.loop import rare_collections
from tests.simulation.moments import HALF_COMPACTED, HALF_SWAPPED
from tests.simulation.plans import ACKNOWLEDGED_FAULTS, ACKNOWLEDGED_KINDS, LOST_MOVER_FAULTS, draw_plan
from tests.simulation.shrinking import shrink
from tests.simulation.swarm import SeedReport, SeedRun, run_seed
from tests.simulation.violations import InvariantViolated

pytestmark = pytest.mark.timeout(120)

# Has transactional producers at transaction.version 0.
SEED_WITH_TRANSACTIONS = 58


@pytest.mark.slow
def test_a_seed_of_trouble_loses_nothing_and_ends_in_sync() -> None:
    """Disks and daemons fail while clients write. No acknowledged record is lost, and all replicas are in sync again."""
    report = run_seed(68)
    assert report.faults
    assert report.acknowledged > 0


@pytest.mark.slow
def test_a_seed_replays_exactly_under_any_hash_seed() -> None:
    """Two processes with different hash seeds give the same trace of everything that happened."""
    program = "from tests.simulation.swarm import run_seed; print(run_seed(59).trace_hash)"
    hashes = printed_under(("1", "2"), program)
    assert len(hashes[0]) == 32
    assert hashes[0] == hashes[1]


def test_a_plan_is_drawn_beforehand_and_every_kind_of_fault_is_drawn_by_some_seed() -> None:
    """The same seed gives the same plan. Faults are in order of time and end within 50 seconds."""
    assert draw_plan(7) == draw_plan(7)
    kinds = set()
    for seed in range(1, 101):
        plan = draw_plan(seed)
        assert [fault.at_ns for fault in plan.schedule] == sorted(fault.at_ns for fault in plan.schedule)
        for fault in plan.schedule:
            kinds.add(fault.kind)
            assert fault.at_ns + fault.duration_ns <= 50 * 10**9
            assert fault.node in (0, CONTROLLER_ID, FIRST_CLIENT_ID, *range(1, plan.brokers + 1))
    assert kinds == set(KINDS)


def test_some_seeds_with_moves_have_the_rare_faults_of_moves() -> None:
    """A mover that does not find the controller, and a broker that ends before a swap or between its two renames. Seeds
    without moves have none of them."""
    plans = [draw_plan(seed) for seed in range(1, 101)]
    half_swapped = [plan for plan in plans if any(fault.moment == HALF_SWAPPED for fault in plan.schedule)]
    cuts = [sum((fault.kind, fault.moment) == ("link cut", "move_caught_up") for fault in plan.schedule) for plan in plans]
    lost = [plan for plan, count in zip(plans, cuts, strict=True) if count >= LOST_MOVER_FAULTS]
    ends = [
        sum(fault.kind in ACKNOWLEDGED_KINDS and fault.moment == "assignments_acknowledged" for fault in plan.schedule)
        for plan in plans
    ]
    acknowledged = [plan for plan, count in zip(plans, ends, strict=True) if count >= ACKNOWLEDGED_FAULTS]
    for chosen in (half_swapped, lost, acknowledged):
        assert 5 < len(chosen) < 40
        assert all(plan.workload.move_pause is not None for plan in chosen)


def test_some_seeds_with_compaction_have_brokers_that_end_in_it() -> None:
    """They end while a compacted segment takes the place of the old ones. Seeds without compaction have no such fault."""
    plans = [draw_plan(seed) for seed in range(1, 101)]
    chosen = [plan for plan in plans if any(fault.moment == HALF_COMPACTED for fault in plan.schedule)]
    assert 5 < len(chosen) < 30
    assert all(plan.workload.compacted_topics for plan in chosen)


def test_some_seeds_compact_the_internal_topics() -> None:
    """All of them have other compacted topics too, and some have groups or transactions."""
    plans = [plan for plan in map(draw_plan, range(1, 301)) if INTERNAL_SEGMENT_BYTES[0] in plan.overrides]
    assert 20 < len(plans) < 60
    assert all(plan.workload.compacted_topics for plan in plans)
    assert len([plan for plan in plans if plan.workload.groups or plan.workload.transactional_producers]) > 10


def test_some_seeds_with_moves_have_disks_with_slow_appends() -> None:
    """Some of the disks are slow, so that a copy can be quicker than an append to the log, and the other way round."""
    plans = [draw_plan(seed) for seed in range(1, 101)]
    slow = [plan for plan in plans if plan.slow_disks]
    assert 20 < len(slow) < 60
    assert all(plan.workload.move_pause is not None and plan.append_ms_max for plan in slow)
    assert any(len(plan.slow_disks) < plan.brokers * plan.disks for plan in slow)
    assert all(("replica.fetch.response.max.bytes" in plan.overrides) == bool(plan.slow_disks) for plan in plans)


def test_some_seeds_have_a_level_without_directory_assignment() -> None:
    """Their brokers have one directory, because a broker with several cannot register."""
    low = [plan for plan in map(draw_plan, range(1, 301)) if not is_directory_assignment_supported(plan.level)]
    assert 15 < len(low) < 45
    assert {plan.disks for plan in low} == {1}
    assert len({plan.level for plan in low}) > 5


def test_some_seeds_have_deletions_of_records() -> None:
    """Their brokers look for segments to delete several times."""
    plans = [plan for plan in map(draw_plan, range(1, 301)) if plan.workload.trim_pause is not None]
    assert 40 < len(plans) < 80
    assert all(int(plan.overrides["log.retention.check.interval.ms"]) < 5_000 for plan in plans)


def test_some_seeds_have_clocks_that_jump() -> None:
    """Over all of them, a clock jumps in every way."""
    plans = [plan for plan in map(draw_plan, range(1, 301)) if any(fault.kind == CLOCK_JUMPS for fault in plan.schedule)]
    assert 25 < len(plans) < 65
    assert len({fault.amount % len(CLOCK_JUMPS_MS) for plan in plans for fault in plan.schedule}) == len(CLOCK_JUMPS_MS)


def test_some_seeds_have_throttles() -> None:
    """Most of them also have replicas that move or are reassigned."""
    plans = [plan for plan in map(draw_plan, range(1, 301)) if plan.throttle_pause is not None]
    assert 25 < len(plans) < 65
    moving = [plan for plan in plans if plan.workload.move_pause or plan.workload.reassignment_pause]
    assert len(moving) > len(plans) / 2


def test_some_seeds_have_full_disks_of_metadata() -> None:
    """In some of them it is the controller's, in others a broker's. Nothing else happens to these disks meanwhile."""
    full = [
        (plan, fault)
        for plan in map(draw_plan, range(1, 301))
        for fault in plan.schedule
        if (fault.kind, fault.disk) == ("disk full", METADATA)
    ]
    assert 20 < len({plan.seed for plan, _ in full}) < 55
    assert {fault.node == CONTROLLER_ID for _, fault in full} == {True, False}
    for plan, fault in full:
        assert {other.kind for other in plan.schedule if other.is_where(fault)} <= {"disk full", "disk slow"}


def test_some_seeds_have_cordons() -> None:
    """Their level can express them."""
    plans = [plan for plan in map(draw_plan, range(1, 301)) if plan.workload.cordon_pause is not None]
    assert 20 < len(plans) < 70
    assert all(is_cordoning_supported(plan.level) and plan.rise is None for plan in plans)
    assert any(plan.disks == 1 for plan in plans)


def test_of_those_most_rise_and_some_fall_again() -> None:
    """Some rise in the middle of the trouble. Most brokers get further disks afterwards, and some clusters fall again."""
    rises = [plan.rise for plan in map(draw_plan, range(1, 501)) if plan.rise is not None]
    assert len(rises) > 25
    assert all(is_directory_assignment_supported(rise.level) for rise in rises)
    assert 5 < sum(rise.at_ns is not None for rise in rises) < len(rises) - 5
    assert 5 < sum(rise.falls for rise in rises) < len(rises) - 5
    assert {rise.further_disks for rise in rises} == {0, 1, 2}


def test_of_the_seeds_with_transactions_some_change_their_level() -> None:
    """Each change is one: up or down, and over one level or two."""
    plans = [plan for plan in map(draw_plan, range(1, 501)) if plan.transaction_changes]
    assert 15 < len(plans) < 80
    steps: set[tuple[int, int]] = set()
    for plan in plans:
        levels = (plan.transaction_version, *(to for _, to in plan.transaction_changes))
        steps.update(pairwise(levels))
    assert steps == {(before, to) for before in range(3) for to in range(3) if before != to}


@pytest.mark.slow
def test_producers_go_on_while_the_level_of_their_transactions_changes() -> None:
    """The level goes up and down under them, with no other trouble. No transaction is torn, and between any two changes some
    are committed. In the drawn seeds, faults come in between."""
    levels = (1, 2, 1, 0, 2, 0)
    plan = draw_plan(SEED_WITH_TRANSACTIONS)
    assert plan.workload.transactional_producers and not plan.transaction_version
    changes = tuple((8 * number * NS_PER_S, to) for number, to in enumerate(levels))
    run = SeedRun(replace(plan, transaction_changes=changes, schedule=(), rise=None, outgrows=False))
    run.run()
    changed_ns = [each.at_ns for each in run.world.events_named("feature_updated")]
    assert len(changed_ns) == len(levels)
    committed_ns = [each.end_ns for each in run.history.transactions if each.outcome is Outcome.OK]
    for after_ns, until_ns in pairwise(changed_ns):
        assert any(after_ns < at_ns < until_ns for at_ns in committed_ns if at_ns is not None)


@pytest.mark.parametrize(
    ("needed", "expected"),
    [({3}, [3]), ({0}, [0]), ({1, 6}, [1, 6]), (set(), []), ({0, 1, 2, 3, 4, 5, 6, 7}, [0, 1, 2, 3, 4, 5, 6, 7])],
)
def test_shrinking_leaves_what_is_needed(needed: set[int], expected: list[int]) -> None:
    """A list fails if it contains all items of `needed`. Shrinking leaves just these."""

    def still_fails(items: Sequence[int]) -> bool:
        return needed <= set(items)

    assert shrink(range(8), still_fails) == expected


def test_a_failure_is_told_with_the_faults_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that fails because of its faults 1 and 3 is shrunk to these two, and the printed command replays just these."""
    whole = draw_plan(1)

    class FailingRun(SeedRun):
        def run(self) -> SeedReport:
            self.world.run(self._nothing)
            if {whole.schedule[1], whole.schedule[3]} <= set(self.plan.schedule):
                raise InvariantViolated("I6", "planted")
            return self.report

        async def _nothing(self, _: SimulatedWorld) -> None:
            pass

    monkeypatch.setattr("tests.simulation.explaining.SeedRun", FailingRun)
    outcome = run_and_explain(1)
    assert outcome.signature == "InvariantViolated I6"
    assert outcome.story.endswith("make simulate SEED=1 FAULTS=1,3")
    assert "InvariantViolated: I6: planted" in outcome.story


def test_the_event_log_is_one_line_an_event() -> None:
    """A line has the virtual time, the node, the event and its fields. The directory is the first field."""
    events = [
        SimulatedEvent(1_500_000_000, "broker-1", "error", "log_dir_failed", {"cause": "append: EIO", "log_dir": "/b1/d2"}),
        SimulatedEvent(2_000_000_001, "lab", "info", "fault", {"kind": "disk", "disk": ""}),
    ]
    assert list(readable(events)) == [
        "   1.500000s !broker-1    log_dir_failed                   log_dir=/b1/d2 cause='append: EIO'",
        "   2.000000s  lab         fault                            kind=disk",
    ]


def test_a_finished_run_leaves_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects refer to each other, so that only the garbage collector can free them. It runs rarely meanwhile."""
    worlds: list[weakref.ref[SimulatedWorld]] = []

    def run(seed: int) -> explaining.Outcome:
        world = SimulatedWorld(seed=seed)

        async def scenario(world: SimulatedWorld) -> None:
            world.node("n1")

        world.run(scenario)
        worlds.append(weakref.ref(world))
        return explaining.Outcome(seed, SeedReport(seed), None)

    monkeypatch.setattr(explaining, "run_and_explain", run)
    with rare_collections():
        run(1)
        assert worlds[0]() is not None
        explaining.run_and_free(2)
    assert [world() for world in worlds] == [None, None]
