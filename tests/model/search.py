"""Goes through all worlds that the cluster can get into, breadth first, so that a counterexample is a shortest one."""

from collections import deque
from dataclasses import dataclass, field

from tests.model.cluster import Cluster, Faults, Size, World
from tests.model.properties import is_settled, unsettled, violations
from tests.simulation.loop import rare_collections


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a search begins, and what may go wrong."""

    name: str
    size: Size
    faults: Faults
    is_settled: bool


@dataclass(slots=True)
class Found:
    """The outcome of a search. `story` is the way to `problem`, step by step; empty if all properties hold."""

    states: int = 0
    transitions: int = 0
    is_complete: bool = True
    problem: str = ""
    story: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        whole = "all" if self.is_complete else "the first"
        return (
            f"{name}: {whole} {self.states} states, {self.transitions} transitions: {self.problem or 'all properties hold'}"
        )


@rare_collections()
def search(setting: Setting, *, states_max: int) -> Found:
    """Searches until a property fails, or all worlds are known, or there are `states_max` of them."""
    cluster = Cluster(setting.size)
    first = cluster.first(setting.faults, is_settled=setting.is_settled)
    found = Found()
    # How each world was reached first: from which one, and by which step.
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    # The worlds that lead to each world without a fault.
    leading_to: dict[World, list[World]] = {}
    good: list[World] = []
    queue = deque([first])
    while queue:
        world = queue.popleft()
        problem = next(violations(cluster, world), "")
        if problem:
            found.problem, found.story = problem, _story(came_from, world)
            break
        if is_settled(cluster, world):
            good.append(world)
        if len(came_from) >= states_max:
            # What was not looked into may lead anywhere.
            found.is_complete = False
            good.append(world)
            continue
        for step in cluster.steps(world):
            found.transitions += 1
            if step.world not in came_from:
                came_from[step.world] = (world, step.name)
                queue.append(step.world)
            if not step.is_fault:
                leading_to.setdefault(step.world, []).append(world)
    found.states = len(came_from)
    if not found.problem:
        _find_stuck(cluster, came_from, leading_to, good, found)
    return found


def _find_stuck(
    cluster: Cluster,
    came_from: dict[World, tuple[World, str] | None],
    leading_to: dict[World, list[World]],
    good: list[World],
    found: Found,
) -> None:
    """Looks for a world from which the protocol alone never leads to a settled one."""
    reaching = set(good)
    queue = deque(good)
    while queue:
        for before in leading_to.get(queue.popleft(), ()):
            if before not in reaching:
                reaching.add(before)
                queue.append(before)
    stuck = next((world for world in came_from if world not in reaching), None)
    if stuck is not None:
        end = cluster.settled(stuck)
        found.problem = f"never settles: {'; '.join(unsettled(cluster, end))}"
        found.story = _story(came_from, stuck)


def _story(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    steps: list[str] = []
    while (before := came_from[world]) is not None:
        world, step = before
        steps.append(step)
    return steps[::-1]
