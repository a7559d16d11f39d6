"""`Standstills` detects when the machine's disk stalls, and measures for how long."""

import time
from pathlib import Path

import pytest

from tests.hanging_disks import frozen
from tests.integration.cluster import disks_taken_away, until
from tests.integration.standstills import Standstills
from tools.lab.disk_lab import make_disk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("loop_disks")]


def test_what_a_disk_takes_away_that_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    with disks_taken_away(tmp_path):
        make_disk(path, size_mib=32)
        with Standstills(path) as standstills:
            began = time.monotonic()
            with frozen(path):
                until(lambda: standstills.seconds_since(began) > 0.5, "the standstill is seen while it lasts")
            until(lambda: standstills.seconds_since(time.monotonic()) == 0, "it is over")
            assert 0.5 < standstills.seconds_since(began) < time.monotonic() - began
