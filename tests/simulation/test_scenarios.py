"""Every scenario still shows what is recorded in it. DISKRAFT_REWRITE_SCENARIOS=1 records anew; then read the difference."""

import os
from pathlib import Path

import pytest

from tests.simulation.scenario import play, scenario_files

REWRITE = os.environ.get("DISKRAFT_REWRITE_SCENARIOS") == "1"
SEED = 1


@pytest.mark.parametrize("path", scenario_files(), ids=lambda path: path.stem)
def test_a_scenario_shows_what_is_recorded(path: Path) -> None:
    """The commands of the file, carried out on a cluster of production daemons, show what stands below each of them."""
    recorded = path.read_text()
    shown = play(recorded, seed=SEED)
    if REWRITE:
        path.write_text(shown)
    else:
        assert shown == recorded, f"{path.name}: if this is as it should be, record it with DISKRAFT_REWRITE_SCENARIOS=1"
