"""The command-line conventions of the Kafka-named tools (shell).

As in Kafka's tools, a long option may be abbreviated as long as it stays unambiguous, a tool without any argument shows its
help, and a wrong command line is status 1 (argparse's default is 2).
"""

import argparse
import math
import sys
from functools import partial
from importlib import metadata
from typing import Any, NoReturn, TextIO

from tools.errors import run_tool


def version() -> str:
    """Returns the installed version, or "unknown" in a source tree that was never installed."""
    try:
        return metadata.version("diskraft")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


ADDRESSES = "HOST:PORT[,…]"


class ToolParser(argparse.ArgumentParser):
    """argparse with Kafka's exit status 1 for a wrong command line, and --version in every tool. `help_status` is the exit
    status of the tool without any argument."""

    def __init__(
        self,
        prog: str,
        description: str | None = None,
        *,
        help_status: int = 1,
        is_subcommand: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(prog=prog, description=description, **options)
        self._help_status = help_status
        self._is_subcommand = is_subcommand
        self.add_argument("--version", action="version", version=f"diskraft {version()}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if not given and self._needs_arguments():
            self.print_help(sys.stdout if self._help_status == 0 else sys.stderr)
            sys.exit(self._help_status)
        return super().parse_known_args(given, namespace)

    def add_subparsers(self, **options: Any) -> Any:
        options.setdefault("parser_class", partial(ToolParser, help_status=self._help_status, is_subcommand=True))
        return super().add_subparsers(**options)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints a help text or the version. argparse itself ignores errors, such as a full disk."""
        status = run_tool(lambda: _written(message, file or sys.stderr))
        if status != 0:
            sys.exit(status)

    def _needs_arguments(self) -> bool:
        # For a subcommand that lacks an option, the name of the option says more than the help.
        kind = argparse._SubParsersAction if self._is_subcommand else argparse.Action
        return any(action.required for action in self._actions if isinstance(action, kind))

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        self.print_usage(sys.stderr)
        sys.exit(1)


def _written(message: str, file: TextIO) -> int:
    file.write(message)
    return 0


def seconds(text: str) -> float:
    """The type of an option that takes a time in seconds."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def int32(text: str) -> int:
    """The type of an option with a number that is sent in 32 bits, such as a broker id."""
    return _integer(text, 31)


def int64(text: str) -> int:
    """The type of an option with a number that is sent in 64 bits, such as an offset."""
    return _integer(text, 63)


def _integer(text: str, bits: int) -> int:
    low, high = -(1 << bits), (1 << bits) - 1
    try:
        value = int(text)
    except ValueError:
        value = high + 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from {low} to {high}")
    return value


def add_bootstrap(parser: argparse.ArgumentParser, *, or_controllers: bool = False, is_required: bool = True) -> None:
    """Adds --bootstrap-server and --command-config, as in every Kafka tool that connects to brokers. `or_controllers` adds
    --bootstrap-controller for the tools that can ask controllers as well (KIP-919)."""
    if or_controllers:
        add_either_bootstrap(parser)
    else:
        parser.add_argument("--bootstrap-server", required=is_required, metavar=ADDRESSES, help="brokers to connect to")
    parser.add_argument("--command-config", metavar="FILE", help="properties file with settings of the admin client")


def add_client_config(parser: argparse.ArgumentParser, client: str) -> None:
    """Adds --producer.config or --consumer.config, also by its name since Kafka 4.2."""
    help_text = f"properties file for the {client}"
    parser.add_argument(f"--{client}.config", "--command-config", dest=f"{client}_config", metavar="FILE", help=help_text)


def add_either_bootstrap(
    parser: argparse.ArgumentParser, server: str = "", controller: str = "", *, is_required: bool = True
) -> None:
    """Adds --bootstrap-server and --bootstrap-controller. At most one may be given, and one must be if `is_required`.
    `server` and `controller` are their short forms, if they have any."""
    either = parser.add_mutually_exclusive_group(required=is_required)
    for flag, short, nodes in (
        ("--bootstrap-server", server, "brokers"),
        ("--bootstrap-controller", controller, "controllers"),
    ):
        either.add_argument(*filter(None, (short, flag)), metavar=ADDRESSES, help=f"{nodes} to connect to")
