"""`diskraft`, the commands that Kafka has no tool for: demo, local cluster, disk lab, export and reports (shell)."""

import sys
from typing import Final

from tools import completion, disks, metadata, reports
from tools.arguments import ToolParser
from tools.errors import run_tool
from tools.lab import demo, local

MODULES: Final = {
    "demo": demo,
    "local": local,
    "disks": disks,
    "metadata": metadata,
    "reports": reports,
    "completion": completion,
}
TEXTS: Final = {
    "demo": "a cluster, a client, a disk that dies, and proof that no data was lost",
    "local": "run a cluster of real daemons on this machine",
    "disks": "show the disks of a cluster, move replicas between them; create, kill and revive loop-mounted ones",
    "metadata": "export the metadata log as Parquet files",
    "reports": "report on the cluster's history, from those files",
    "completion": "print a script for bash, zsh or fish that completes all commands",
}


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: MODULES[arguments.command].run(arguments))


def command_line() -> ToolParser:
    parser = ToolParser("diskraft", "A Kafka cluster for just a bunch of disks.", help_status=0)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in MODULES.items():
        module.add_arguments(commands.add_parser(name, help=TEXTS[name]))
    return parser


def entry() -> None:
    sys.exit(main())


if __name__ == "__main__":
    entry()
