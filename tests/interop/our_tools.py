"""Runs our tools as a user does, each in its own process. Returns output and exit status."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# A report by Spark has taken a minute while other JVMs were starting beside it.
SECONDS_MAX = 180
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a tool."""

    status: int
    lines: list[str]
    errors: list[str]


def run_tool(module: str, *arguments: str, given: str = "") -> Done:
    """Runs `module` of tools.kafka, for example "topics", with `given` as its stdin."""
    return _run(f"tools.kafka.{module}", *arguments, given=given)


def run_diskraft(*arguments: str) -> Done:
    """Runs the command `diskraft`."""
    return _run("tools.diskraft", *arguments)


def _run(module: str, *arguments: str, given: str = "") -> Done:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return Done(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())
