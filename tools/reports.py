"""`diskraft reports`: what happened in the cluster, from exported metadata (shell)."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from analytics.errors import AnalyticsError
from analytics.requirements import require_reports
from tools.errors import ToolError
from tools.text_table import text_table

# The partitions come last: their list may be longer than a line, and all cells of a column are as wide as its widest.
COLUMNS: Final = ("directory", "broker", "time (UTC)", "leaders", "leaderless", "last after", "partitions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    commands = parser.add_subparsers(dest="report", required=True, metavar="REPORT")
    failures = commands.add_parser("disk-failures", help="each failed directory and the partitions it affected")
    failures.add_argument("--input", type=Path, required=True, metavar="DIR", help="the folder of an export")
    failures.add_argument("--format", choices=("table", "json"), default="table", help="json: one line (default table)")


def run(arguments: argparse.Namespace) -> int:
    """Prints one report. Raises ToolError."""
    try:
        require_reports()
        from analytics.disk_failures import report_disk_failures
        from analytics.spark import spark_session

        with spark_session("disk-failures") as spark:
            failures = [failure.as_json() for failure in report_disk_failures(spark, arguments.input)]
    except AnalyticsError as error:
        raise ToolError(str(error)) from error
    if arguments.format == "json":
        print(json.dumps({"failures": failures}))
    else:
        print_failures(failures)
    return 0


def print_failures(failures: list[dict[str, Any]], *, to_stderr: bool = False) -> None:
    """Prints the failures as a table."""
    rows = [COLUMNS]
    for failure in failures:
        last_ms = failure["last_change_ms"]
        rows.append(
            (
                failure["directory_id"],
                str(failure["broker_id"]),
                ("before " if failure["source"] == "snapshot" else "") + failure["time"],
                str(failure["leaders_moved"]),
                str(failure["leaderless"]),
                "-" if last_ms is None else f"{last_ms} ms",
                f"{len(failure['partitions'])}: {_ranges(failure['partitions'])}" if failure["partitions"] else "0",
            )
        )
    text = f"failed directories\n{text_table(rows)}" if failures else "no directory has failed\n"
    print(text, end="", file=sys.stderr if to_stderr else sys.stdout)


def _ranges(partitions: list[dict[str, Any]]) -> str:
    """Returns partition ranges by topic: `orders 0-3,7 logs 2`."""
    numbers: dict[str, list[int]] = {}
    for each in partitions:
        numbers.setdefault(each["topic"], []).append(each["partition"])
    return " ".join(f"{topic} {_joined(sorted(found))}" for topic, found in sorted(numbers.items()))


def _joined(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
