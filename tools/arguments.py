"""The command-line conventions of the Kafka-named tools (shell).

Kafka's tools take long options without abbreviations and exit with status 1 for a wrong command line. By default argparse
would exit with 2 and accept `--top` for `--topic`.
"""

import argparse
import sys
from importlib import metadata
from typing import Any, NoReturn


def version() -> str:
    """Returns the installed version, or "unknown" in a source tree that was never installed."""
    try:
        return metadata.version("diskraft")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


class ToolParser(argparse.ArgumentParser):
    """argparse with Kafka's exit status 1 for a wrong command line, and --version in every tool."""

    def __init__(self, prog: str, description: str | None = None, **options: Any) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, **options)
        self.add_argument("--version", action="version", version=f"diskraft {version()}")

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        self.print_usage(sys.stderr)
        sys.exit(1)


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Adds --bootstrap-server and --command-config, as in every Kafka tool that connects to brokers."""
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="brokers to connect to")
    parser.add_argument("--command-config", metavar="FILE", help="properties file with settings of the admin client")
