"""What the Kafka-named tools share on their command lines (shell).

Kafka's tools take long options, whole or not at all, and end with status 1 for a wrong command line. Easy to get wrong:
argparse would end with 2, and would take `--top` for `--topic`.
"""

import argparse
import sys
from importlib import metadata
from typing import Any, NoReturn


def version() -> str:
    """The installed version; a source tree that was never installed has none."""
    try:
        return metadata.version("diskraft")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


class ToolParser(argparse.ArgumentParser):
    """argparse with Kafka's exit status 1 for a wrong command line, and --version everywhere."""

    def __init__(self, prog: str, description: str | None = None, **options: Any) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, **options)
        self.add_argument("--version", action="version", version=f"diskraft {version()}")

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        self.print_usage(sys.stderr)
        sys.exit(1)


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """--bootstrap-server, as every Kafka tool has it."""
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="brokers to connect to")
