"""The planted bugs fit the code as it is now, and the simulator finds some of them at once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.simulation.mutants import Found, Hunter, Run, failure_of
from tests.simulation.planted_bugs import DIRECTED_BUGS, PLANTED_BUGS
from tests.simulation.planting import DoesNotFit, Edit, PlantedBug


def right(number: int) -> int:
    return number + 1


@pytest.mark.parametrize("bug", [*PLANTED_BUGS, *DIRECTED_BUGS], ids=lambda bug: bug.name)
def test_every_bug_can_be_planted_and_taken_out(bug: PlantedBug) -> None:
    """Each edit finds its place in the production code, changes it, and is undone afterwards."""
    before = [edit.function.__code__ for edit in bug.edits]
    with bug.planted():
        assert all(edit.function.__code__ is not code for edit, code in zip(bug.edits, before, strict=True))
    assert [edit.function.__code__ for edit in bug.edits] == before


def test_a_planted_bug_is_seen_by_everybody_and_only_for_a_while() -> None:
    """Code that imported the function before the bug is planted runs the bug too, but only while it is planted."""
    known_before = right
    bug = PlantedBug("off by one", "", (Edit(right, "number + 1", "number + 2"),))
    with bug.planted():
        assert known_before(1) == 3
    assert known_before(1) == 2


@pytest.mark.parametrize("text", ["number - 1", "number"])
def test_a_bug_that_does_not_fit_is_refused(text: str) -> None:
    """A text that does not occur, or occurs more than once, is an error and changes nothing."""
    with pytest.raises(DoesNotFit), PlantedBug("none", "", (Edit(right, text, "0"),)).planted():
        pass
    assert right(1) == 2


class _Seeds:
    """Stands in for the swarm. The seeds in `alone` fail without a bug, the seeds in `with_bug` fail with one."""

    def __init__(self, *, alone: set[int], with_bug: set[int]) -> None:
        self.alone = alone
        self.with_bug = with_bug
        self.runs: list[Run] = []

    def __call__(self, runs: Sequence[Run]) -> list[str | None]:
        self.runs += runs
        return ["failed" if run.seed in (self.alone if run.bug is None else self.with_bug) else None for run in runs]


def test_a_seed_that_fails_without_the_bug_has_found_nothing() -> None:
    """The search for the bug continues after such a seed. No seed is run twice without a bug."""
    seeds = _Seeds(alone={2}, with_bug={2, 5})
    hunter = Hunter(seeds)
    assert hunter.hunt(PlantedBug("one", "", ()), range(1, 10)) == Found(seed=5, runs=5, found_by="failed")
    assert hunter.hunt(PlantedBug("other", "", ()), range(1, 10)) == Found(seed=5, runs=5, found_by="failed")
    assert [run.seed for run in seeds.runs if run.bug is None] == [2, 5]


def test_the_seed_that_found_a_rare_bug_before_is_tried_first() -> None:
    """If that seed does not find the bug any more, the others follow in their order."""
    seeds = _Seeds(alone=set(), with_bug={3, 7})
    rare = PlantedBug("rare", "", (), seed=7)
    assert Hunter(seeds).hunt(rare, range(1, 10)) == Found(seed=7, runs=1, found_by="failed")
    seeds.with_bug.remove(7)
    assert Hunter(seeds).hunt(rare, range(1, 10)) == Found(seed=3, runs=4, found_by="failed")
    seeds.with_bug.add(99)
    assert Hunter(seeds).hunt(replace(rare, seed=99), range(1, 10)) == Found(seed=99, runs=1, found_by="failed")


def test_a_bug_that_no_seed_finds_survives() -> None:
    """The search ends after the last seed, even if several seeds run side by side."""
    seeds = _Seeds(alone=set(), with_bug={11})
    assert Hunter(seeds, side_by_side=4).hunt(PlantedBug("any", "", ()), range(1, 11)) is None
    assert [run.seed for run in seeds.runs] == list(range(1, 11))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a fenced broker stays in the ISR",
        "metadata committed before it is synced",
        "a new log acknowledges before its name is durable",
    ],
)
def test_the_swarm_finds_a_planted_bug(name: str) -> None:
    """Nearly every seed finds these bugs, so one of the first five seeds must. It must fail with a violated invariant,
    not in some other way."""
    found_by = next(filter(None, (failure_of(Run(seed, name)) for seed in range(1, 6))), "")
    assert found_by.startswith("InvariantViolated: I"), found_by
