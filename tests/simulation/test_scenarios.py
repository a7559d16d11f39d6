"""Replays every scenario and compares it with the recorded output. DISKRAFT_REWRITE_SCENARIOS=1 records the output again.
Review the difference afterwards."""

import os
from pathlib import Path

import pytest

from tests.simulation.scenario import COMMANDS, ScenarioFailed, play, scenario_files

REWRITE = os.environ.get("DISKRAFT_REWRITE_SCENARIOS") == "1"
# The output must be the same for every seed. Run with another seed to check that.
SEED = int(os.environ.get("DISKRAFT_SCENARIO_SEED", "1"))


@pytest.mark.parametrize("path", scenario_files(), ids=lambda path: path.stem)
def test_a_scenario_shows_what_is_recorded(path: Path) -> None:
    """Runs the commands in the file on a cluster of production daemons. The output must equal the output recorded below each
    command."""
    recorded = path.read_text()
    shown = play(recorded, seed=SEED)
    if REWRITE:
        path.write_text(shown)
    else:
        assert shown == recorded, f"{path.name}: if this is as it should be, record it with DISKRAFT_REWRITE_SCENARIOS=1"


@pytest.mark.parametrize("path", scenario_files(), ids=lambda path: path.stem)
def test_a_scenario_opens_with_what_it_shows(path: Path) -> None:
    """The first lines explain what the scenario shows: a sentence of a KIP, or the story of a bug."""
    head = path.read_text().split("\n\n", maxsplit=1)[0]
    assert len(head) > 80, f"{path.name} opens with {head!r}: tell first what it shows, as others do (over 80 characters)"
    assert all(line.startswith("# ") for line in head.splitlines())


def test_recorded_output_is_replaced_and_the_rest_kept() -> None:
    """Comments and blank lines stay; old output is removed wherever it is."""
    old = "# A story.\n    not there any more\n\ncluster brokers=1 disks=2\nshow broker 1\n    something else\n# The end.\n"
    new = (
        "# A story.\n\ncluster brokers=1 disks=2\nshow broker 1\n    process       RUNNING\n"
        "    registration  unfenced, online b1/d1,b1/d2\n# The end.\n"
    )
    assert play(old, seed=1) == new
    assert play(new, seed=2) == new


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("fail-disc broker=1 dir=1", "no command is called"),
        ("fail-disk broker=1", "dir= is missing"),
        ("fail-disk broker=1 dir=1 errno=EIO now", "not understood: now"),
        ("advance 3", "3 is no duration"),
        ("await leader t-0=1 within=1s", "t"),
        ("await log_dir_failed within=1s", "not so within"),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_named(line: str, complaint: str) -> None:
    """The error names the line. A misspelt option must not be ignored."""
    with pytest.raises(ScenarioFailed, match=r"^line 2: ") as caught:
        play(f"cluster brokers=1 disks=1\n{line}\n", seed=1)
    assert complaint in str(caught.value)


def test_every_command_is_used() -> None:
    """A command that no scenario uses would be untested."""
    text = "\n".join(path.read_text() for path in scenario_files())
    lines = text.splitlines()
    assert [name for name in COMMANDS if not any(line == name or line.startswith(f"{name} ") for line in lines)] == []
