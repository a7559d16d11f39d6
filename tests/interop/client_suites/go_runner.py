"""Runs the tests of a client for Go. They come with the module that our program for the client is made with."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.client_suites.runner import NoSource, Outcome, Runner, SuiteFailed
from tests.interop.clients.interface import NotHere
from tests.interop.clients.programs import build_with_go, find_go

OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
# What a test says of itself, after the place in its source.
SAID = re.compile(r"\s+\w+\.go:\d+: (.*)")
REASON_CHARACTERS_MAX = 200
# The tests end themselves at the time that they are given. This is how long that may take.
ENDING_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class GoRunner(Runner):
    """`addresses_variable` is the environment variable for the addresses of our brokers."""

    package: str
    addresses_variable: str
    environment: Mapping[str, str]

    def prepare(self, home: Path) -> None:
        try:
            build_with_go("test", "-c", "-o", str(home / "tests"), self.package)
        except NotHere as error:
            raise NoSource(str(error)) from error

    def run(
        self, home: Path, tests: Sequence[str], *, bootstrap: str, folder: Path, seconds_max: float
    ) -> dict[str, Outcome]:
        events, output = folder / "events.jsonl", folder / "tests.log"
        # A test within another runs with all others of that one.
        names = sorted({test.partition("/")[0] for test in tests})
        limits = ["-test.run", f"^({'|'.join(names)})$", "-test.timeout", f"{seconds_max:g}s"]
        with events.open("wb") as lines, output.open("wb") as log:
            subprocess.run(
                [find_go(), "tool", "test2json", "-t", str(home / "tests"), "-test.v=test2json", *limits],
                cwd=home,
                env=os.environ | {**self.environment, self.addresses_variable: bootstrap},
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=log,
                timeout=seconds_max + ENDING_SECONDS_MAX,
                check=False,
            )
        outcomes = read_events(events.read_text().splitlines())
        if missing := set(names) - outcomes.keys():
            raise SuiteFailed(f"{', '.join(sorted(missing))} did not run to an end (see {folder})")
        return outcomes


def read_events(lines: Iterable[str]) -> dict[str, Outcome]:
    """Reads what `go tool test2json` prints. The reason of a test is what it said last."""
    said: dict[str, str] = {}
    outcomes: dict[str, Outcome] = {}
    for event in map(json.loads, lines):
        test, action = event.get("Test"), event["Action"]
        if test is None:
            continue
        if action == "output" and (line := SAID.match(event["Output"])):
            said[test] = line[1].strip()[:REASON_CHARACTERS_MAX]
        elif action in OUTCOMES:
            outcomes[test] = Outcome(OUTCOMES[action], "" if action == "pass" else said.get(test, "it said nothing"))
    return outcomes
