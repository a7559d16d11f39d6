"""Runs `diskraft demo` as a user would, on loop-mounted disks and on plain directories."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, disks_taken_away

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEYS = [
    "acknowledged",
    "read_back",
    "lost",
    "duplicated",
    "partitions_in_failed_directory",
    "detect_ms",
    "leaders_moved_ms",
    "first_ack_ms",
]


@pytest.mark.root
def test_the_demo_on_loop_mounted_disks(loop_disks: None, tmp_path: Path) -> None:
    """The demo kills a disk by shutting down its file system in the kernel."""
    run_demo(tmp_path, "loop-mounted")


def test_the_demo_on_plain_directories(tmp_path: Path) -> None:
    """The demo renames the directory and puts an empty one in its place, which the probe's identity check must notice."""
    run_demo(tmp_path, "plain directories", "--plain")


def run_demo(folder: Path, says: str, *arguments: str) -> None:
    """Runs the demo and checks its output, its report and its duration."""
    started = time.monotonic()
    with disks_taken_away(folder):
        done = subprocess.run(
            [sys.executable, "-m", "tools.diskraft", "demo", "--dir", str(folder / "demo"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    assert time.monotonic() - started < 120
    assert done.returncode == 0, done.stderr
    assert says in done.stderr.splitlines()[0]
    report = json.loads(done.stdout.splitlines()[-1])
    assert list(report) == KEYS
    assert report["lost"] == 0
    assert report["acknowledged"] > 1000
    assert report["read_back"] >= report["acknowledged"]
    assert report["read_back"] - report["duplicated"] >= report["acknowledged"]
    assert report["partitions_in_failed_directory"] > 0
    # `detect_ms` may be close to 0: the disk is in use, so a write may fail before the next probe finds the fault.
    assert 0 <= report["detect_ms"] <= report["leaders_moved_ms"] < 10_000
    assert report["leaders_moved_ms"] <= report["first_ack_ms"] < 10_000
    assert not (folder / "demo").exists(), "the demo left its folder behind"
