"""kafka-server-start: runs one node in the foreground (shell).

process.roles chooses controller, broker or both. If the configuration or a directory is invalid, the process ends with one
line on stderr and exit status 1. Once started, the node logs one event per line. SIGTERM causes a controlled shutdown with
exit status 0.
"""

import os
import sys
from typing import NoReturn

from common.environment.entry import ShutdownSignals, freeze_loaded_objects, run_daemon
from common.environment.interface import ListenFailed, LogDirError
from common.environment.real import RealEnvironment
from common.log_dirs.startup_scan import StartupError
from common.logging_setup import configure_logging
from common.raft.errors import QuorumFailure
from tools.arguments import ToolParser
from tools.errors import ToolError
from tools.node.configuration_file import load_config, overrides, read_properties
from tools.node.node import Node


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs the node and exits the process."""
    arguments = command_line().parse_args(argv)
    try:
        log_format = _log_format()
        file = read_properties(arguments.config)
        overriding = overrides(arguments.override, "--override")
        properties = file.values | overriding
        origins = file.origins | dict.fromkeys(overriding, "--override")
        config = load_config(properties, arguments.config, doubts=file.doubts, origins=origins)
    except ToolError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    configure_logging(log_format=log_format)

    async def run(env: RealEnvironment, signals: ShutdownSignals) -> int:
        status = 0
        try:
            await Node(env, config, properties, on_ready=freeze_loaded_objects).run(signals.wait)
        except* (StartupError, ListenFailed, QuorumFailure, LogDirError) as group:
            for error in _leaves(group):
                print(error, file=sys.stderr)
            status = 1
        return status

    run_daemon(run, node_name=f"{'-'.join(config.process_roles)}-{config.node_id}")


def entry() -> None:
    main()


def command_line() -> ToolParser:
    parser = ToolParser("kafka-server-start", "Run a Diskraft node in the foreground.")
    parser.add_argument("config", metavar="FILE", help="the node's server.properties")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="overrides the file and KAFKA_* variables"
    )
    return parser


def _log_format() -> str | None:
    """Raises ToolError."""
    log_format = os.environ.get("LOG_FORMAT") or None
    if log_format not in (None, "json", "console"):
        raise ToolError(f"LOG_FORMAT={log_format} is neither json nor console")
    return log_format


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


if __name__ == "__main__":
    entry()
