"""A pytest plugin for a client's suite: writes one line of JSON for each test, with its outcome and the reason.

The file is named by the environment variable OUTCOMES. A test has passed if nothing of it failed: neither its setup, nor the
call, nor its teardown. The reason is the last line of the error, or what the test said when it skipped itself.
"""

import json
import os
from pathlib import Path

import pytest

_outcomes: dict[str, tuple[str, str]] = {}


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else report.longreprtext).strip().splitlines()[0][:200]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before, _ = _outcomes.get(report.nodeid, ("passed", ""))
    if before == "failed":
        return
    if report.failed:
        _outcomes[report.nodeid] = ("failed", _reason(report))
    elif report.skipped:
        _outcomes[report.nodeid] = ("skipped", _reason(report))
    else:
        _outcomes.setdefault(report.nodeid, ("passed", ""))


def pytest_runtest_logfinish(nodeid: str) -> None:
    # Written after each test, so that a suite which is stopped half-way still says what it has done.
    outcome, reason = _outcomes[nodeid]
    with Path(os.environ["OUTCOMES"]).open("a") as file:
        file.write(json.dumps({"test": nodeid, "outcome": outcome, "reason": reason}) + "\n")
