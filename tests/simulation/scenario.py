"""Scenarios: text files of commands to a simulated cluster, with the recorded output below each command.

Shell of the tests. A line that begins with `#` is a comment, a line that begins with a blank is recorded output, and any
other line is a command (COMMANDS). `play` runs a file and returns it with its present output. The output must be the same
for every seed and for every version of the code that behaves the same, so it must not show latencies, ids, or the order of
independent events.
"""

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.simulation.cluster import CONTROLLER_PORT
from tests.simulation.environment import SimulatedWorld
from tests.simulation.request_tap import TappedNetwork
from tests.simulation.scenario_commands import ACTIONS
from tests.simulation.scenario_moves import MOVES
from tests.simulation.scenario_requests import REQUESTS
from tests.simulation.scenario_run import Arguments, Command, ScenarioRun
from tests.simulation.scenario_shows import SHOWS

COMMANDS: Mapping[str, Command] = MappingProxyType({**ACTIONS, **MOVES, **REQUESTS, **SHOWS})

FOLDER = Path(__file__).parents[1] / "scenarios"
INDENT = "    "


class ScenarioFailed(AssertionError):
    """A command failed. The text names its line."""


def scenario_files() -> list[Path]:
    """Returns all scenario files, sorted by name."""
    return sorted(FOLDER.glob("*.txt"))


def play(text: str, *, seed: int) -> str:
    """Runs the commands of a scenario. Returns the scenario with their present output."""
    world = SimulatedWorld(seed)
    world.network = network = TappedNetwork(world.network, seed, port=CONTROLLER_PORT)
    lines: list[str] = []
    failures: list[ScenarioFailed] = []

    async def whole(_: SimulatedWorld) -> None:
        async with asyncio.TaskGroup() as group:
            run = ScenarioRun(world, network, group)
            try:
                for number, line in enumerate(text.splitlines(), start=1):
                    if not line.startswith(" "):
                        lines.append(line.rstrip())
                        lines.extend(INDENT + shown for shown in await _carry_out(run, number, line))
            except ScenarioFailed as failed:
                # Raise it below, outside the TaskGroup, which would wrap it in an ExceptionGroup.
                failures.append(failed)
            run.close()

    world.run(whole)
    for failed in failures:
        raise failed
    return "\n".join(lines) + "\n"


async def _carry_out(run: ScenarioRun, number: int, line: str) -> list[str]:
    if not line.strip() or line.startswith("#"):
        return []
    words = shlex.split(line)
    name = next((name for size in (2, 1) if (name := " ".join(words[:size])) in COMMANDS), None)
    if name is None:
        raise ScenarioFailed(f"line {number}: no command is called '{line}'")
    arguments = Arguments(words[len(name.split()) :])
    try:
        shown = await COMMANDS[name](run, arguments)
        arguments.check_that_all_were_used()
    except (AssertionError, KeyError, ValueError) as error:
        raise ScenarioFailed(f"line {number}: {line}: {error}") from error
    return shown or []
