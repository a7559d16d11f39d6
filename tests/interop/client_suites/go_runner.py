"""Runs the tests of a client for Go. They come with the module that our program for the client is made with."""

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """`address_variable` is the environment variable for what the tests are told of our cluster: the addresses of its
    brokers, or of Toxiproxy. It is empty if they are told nothing. `tags` are those of the build."""

    package: str
    address_variable: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""

    def prepare(self, home: Path) -> None:
        try:
            build_with_go("test", "-c", "-tags", self.tags, "-o", str(home / "tests"), self.package)
        except NotHere as error:
            raise NoSource(str(error)) from error

    def run(
        self, home: Path, tests: Sequence[str], *, bootstrap: str, folder: Path, seconds_max: float
    ) -> dict[str, Outcome]:
        # A test within another runs with all others of that one.
        names = {test.partition("/")[0] for test in tests}
        outcomes: dict[str, Outcome] = {}
        told = {self.address_variable: bootstrap} if self.address_variable else {}
        # A test that panics ends the process, so the others run in a new one.
        for process in itertools.count(1):
            missing = names - outcomes.keys()
            if not missing:
                return outcomes
            events = folder / f"events-{process}.jsonl"
            self._run_process(home, missing, told, events, seconds_max)
            ended = read_events(events.read_text().splitlines())
            if missing.isdisjoint(ended):
                raise SuiteFailed(f"{', '.join(sorted(missing))} did not run to an end (see {folder})")
            outcomes |= ended
        raise AssertionError("a count has no end")

    def _run_process(
        self, home: Path, names: Iterable[str], told: Mapping[str, str], events: Path, seconds_max: float
    ) -> None:
        limits = ["-test.run", f"^({'|'.join(sorted(names))})$", "-test.timeout", f"{seconds_max:g}s"]
        with events.open("wb") as lines, events.with_suffix(".log").open("wb") as log:
            subprocess.run(
                [find_go(), "tool", "test2json", "-t", str(home / "tests"), "-test.v=test2json", *limits],
                cwd=home,
                # Programs in the tests' folder come first.
                env=os.environ | {"PATH": f"{home}{os.pathsep}{os.environ['PATH']}", **self.environment, **told},
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=log,
                timeout=seconds_max + ENDING_SECONDS_MAX,
                check=False,
            )


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
            outcomes[test] = Outcome(OUTCOMES[action], "" if action == "pass" else said.get(test) or "it said nothing")
    return outcomes
