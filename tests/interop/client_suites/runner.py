"""What runs the tests of a client's suite: a pytest of their own, Go's tool or whatever else their authors run them with."""

import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class NoSource(Exception):
    """The suite cannot run here, because its source or its tools are missing. The message gives the reason."""


class SuiteFailed(Exception):
    """The suite did not run to its end. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one test: "passed", "failed" or "skipped", and the reason if it did not pass."""

    outcome: str
    reason: str


class Runner(ABC):
    @abstractmethod
    def prepare(self, home: Path) -> None:
        """Finds the source, and copies to `home` what has to be beside the tests. Raises NoSource."""

    @abstractmethod
    def run(
        self, home: Path, tests: Sequence[str], *, bootstrap: str, folder: Path, seconds_max: float
    ) -> dict[str, Outcome]:
        """Runs the tests against the cluster and returns the outcome of each by its id. Leaves their output in `folder`.
        Raises SuiteFailed."""


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """Reads lines of JSON with a test, its outcome and the reason."""
    found = map(json.loads, path.read_text().splitlines())
    return {each["test"]: Outcome(each["outcome"], each["reason"]) for each in found}


def run_logged(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], output: Path, seconds_max: float
) -> int:
    """Runs a command that leaves what it prints in `output`, and returns its exit status. Raises SuiteFailed if it takes too
    long."""
    with output.open("wb") as log:
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SuiteFailed(f"the tests took longer than {seconds_max:g} s (see {output})") from None
    return done.returncode
