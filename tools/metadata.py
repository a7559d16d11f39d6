"""`diskraft metadata`: exports the metadata log for analysis (shell)."""

import argparse
import sys
from pathlib import Path

from analytics.errors import AnalyticsError
from analytics.requirements import require_export
from tools.errors import ToolError, is_unwritten_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    export = commands.add_parser("export", help="write the records as Parquet files, continuing after the last export")
    export.add_argument("--metadata-log-dir", type=Path, required=True, metavar="DIR", help="a node's metadata directory")
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="output folder for the Parquet files")


def run(arguments: argparse.Namespace) -> int:
    """Runs one subcommand. Raises ToolError."""
    try:
        require_export()
        return _export(arguments.metadata_log_dir, arguments.out)
    except AnalyticsError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        if is_unwritten_output(error):
            raise
        raise ToolError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


def _export(metadata_log_dir: Path, out: Path) -> int:
    from analytics.export import export_metadata

    def show(records: int) -> None:
        print(f"\r  {records:,} records", end="", file=sys.stderr, flush=True)

    is_terminal = sys.stderr.isatty()
    try:
        summary = export_metadata(metadata_log_dir, out, on_progress=show if is_terminal else lambda _records: None)
    finally:
        if is_terminal:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)
    if summary.records:
        offsets = f"offsets {summary.first_offset} to {summary.next_offset - 1}"
        print(f"{summary.records} records ({offsets}) in {summary.files} new files in {out}")
        print(f"directory numbering: {summary.numbering.value}")
    else:
        print(f"nothing new after offset {summary.next_offset - 1}" if summary.next_offset else "the log is empty")
    return 0
