"""`diskraft reports`: what happened in the cluster, from exported metadata (shell)."""

import argparse
import json
from pathlib import Path
from typing import Any

from analytics.errors import AnalyticsError
from analytics.requirements import require_reports
from tools.errors import ToolError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    commands = parser.add_subparsers(dest="report", required=True, metavar="REPORT")
    failures = commands.add_parser("disk-failures", help="each failed directory and the partitions it affected")
    failures.add_argument("--input", type=Path, required=True, metavar="DIR", help="the folder of an export")
    failures.add_argument("--format", choices=("table", "json"), default="table")


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
    from rich.console import Console
    from rich.table import Table

    table = Table(title="failed directories", box=None)
    for column in ("directory", "broker", "time (UTC)", "partitions", "leaders", "leaderless", "last after"):
        table.add_column(column, overflow="fold", no_wrap=column in ("directory", "time (UTC)"))
    for failure in failures:
        last_ms = failure["last_change_ms"]
        table.add_row(
            failure["directory_id"],
            str(failure["broker_id"]),
            ("before " if failure["source"] == "snapshot" else "") + failure["time"],
            f"{len(failure['partitions'])}: {_ranges(failure['partitions'])}" if failure["partitions"] else "0",
            str(failure["leaders_moved"]),
            str(failure["leaderless"]),
            "-" if last_ms is None else f"{last_ms} ms",
        )
    console = Console(stderr=to_stderr)
    if not console.is_terminal:
        # If the output is not a terminal, rich assumes 80 columns, which would cut up the lists of partitions.
        console.width = 160
    console.print(table if failures else "no directory has failed")


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
