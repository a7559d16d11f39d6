"""The last step of `diskraft demo --report`: the report must name the dead disk and exactly its partitions (shell).

Runs `diskraft metadata export` and `diskraft reports` as a user would, on the metadata directory of the running controller.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytics.errors import AnalyticsError
from analytics.requirements import require_export, require_reports
from tools.errors import ToolError
from tools.reports import print_failures


@dataclass(frozen=True, slots=True)
class ExpectedFailure:
    """What the demo did: the directory that it killed and the partitions in it."""

    broker_id: int
    directory_id: str
    topic: str
    partitions: frozenset[int]


def require() -> None:
    """Raises ToolError, before anything is started, if the report cannot be produced."""
    try:
        require_export()
        require_reports()
    except AnalyticsError as error:
        raise ToolError(str(error)) from error


def run(metadata_log_dir: Path, out: Path, expected: ExpectedFailure) -> list[str]:
    """Prints the report on stderr. Returns one line per difference between the report and what happened. Raises
    ToolError."""
    _diskraft("metadata", "export", "--metadata-log-dir", str(metadata_log_dir), "--out", str(out))
    failures = json.loads(_diskraft("reports", "disk-failures", "--input", str(out), "--format", "json"))["failures"]
    print_failures(failures, to_stderr=True)
    differences = compare(failures, expected)
    for line in differences or ["the report names the disk that died and exactly the partitions in it"]:
        print(line, file=sys.stderr, flush=True)
    return differences


def compare(failures: list[dict[str, Any]], expected: ExpectedFailure) -> list[str]:
    """Returns one line per difference between the report and what happened."""
    named = [(failure["broker_id"], failure["directory_id"]) for failure in failures]
    wanted = [(expected.broker_id, expected.directory_id)]
    if named != wanted:
        return [f"the report names {named}, but the dead disk is {wanted}"]
    found = {(each["topic"], each["partition"]) for each in failures[0]["partitions"]}
    hosted = {(expected.topic, partition) for partition in expected.partitions}
    lines = []
    if missing := sorted(hosted - found):
        lines.append(f"the report is missing {missing}")
    if surplus := sorted(found - hosted):
        lines.append(f"the report names {surplus}, which were not on the disk")
    return lines


def _diskraft(*arguments: str) -> str:
    print(f"$ diskraft {' '.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "tools.diskraft", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise ToolError(f"diskraft {arguments[0]} failed with exit status {done.returncode}")
    return done.stdout
