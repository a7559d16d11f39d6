"""The planted bugs fit the code as it is now, and the simulator finds some of them at once."""

import pytest

from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.planting import DoesNotFit, Edit, PlantedBug


def right(number: int) -> int:
    return number + 1


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted_and_taken_out(bug: PlantedBug) -> None:
    """Each edit finds its place in the production code, changes it, and leaves it as it was."""
    before = [edit.function.__code__ for edit in bug.edits]
    with bug.planted():
        assert all(edit.function.__code__ is not code for edit, code in zip(bug.edits, before, strict=True))
    assert [edit.function.__code__ for edit in bug.edits] == before


def test_a_planted_bug_is_seen_by_everybody_and_only_for_a_while() -> None:
    """Whoever holds the function from before has the bug too; afterwards nobody has."""
    known_before = right
    bug = PlantedBug("off by one", "", (Edit(right, "number + 1", "number + 2"),))
    with bug.planted():
        assert known_before(1) == 3
    assert known_before(1) == 2


@pytest.mark.parametrize("text", ["number - 1", "number"])
def test_a_bug_that_does_not_fit_is_refused(text: str) -> None:
    """A text that is not there, or there more than once, is an error and changes nothing."""
    with pytest.raises(DoesNotFit), PlantedBug("none", "", (Edit(right, text, "0"),)).planted():
        pass
    assert right(1) == 2
