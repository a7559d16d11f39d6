"""The container's entry point: configure from KAFKA_* variables, format on the first start, run the server (shell).

Counterpart of /etc/kafka/docker/run in Kafka's official image. This process execs the server, so that the server gets the
container runtime's signals. If some volumes are formatted, an empty one is a disk that was lost or mounted in the wrong
place, not a first start. Formatting that volume could let the broker lead with an empty log, so the start fails instead.
"""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import javaproperties

from common.configuration.environment_variables import properties_from_environment
from common.configuration.server import ServerConfig
from common.environment.interface import Environment, LogDirError
from common.environment.real import RealEnvironment
from common.storage.meta_properties import MalformedMetaProperties
from common.storage.meta_properties_file import load_meta_properties
from tools.arguments import ToolParser
from tools.errors import ToolError, run_tool
from tools.kafka import storage
from tools.node.configuration_file import load_config, read_properties

# The default cluster id of Kafka's official image. Existing compose files rely on it.
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
OPERATION_TIMEOUT_NS = 30 * 10**9
MOUNTED_FILE = Path("/mnt/shared/config/server.properties")
FINAL_FILE = Path("/opt/kafka/config/server.properties")

# One node with both roles, used when the image is run without any configuration.
DEFAULT_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/var/lib/kafka/data",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "diskraft.prometheus.listener": "0.0.0.0:9404",
}


def main(argv: list[str] | None = None) -> int:
    """Prepares the node and execs its server. Returns only if the preparation fails or --format-empty is given."""
    parser = ToolParser("python -m tools.node.docker_run", "Prepare and run the node of a container.")
    parser.add_argument(
        "--format-empty", action="store_true", help="format empty directories even if others are formatted, then exit"
    )
    arguments = parser.parse_args(argv)
    return run_tool(lambda: _run(format_empty=arguments.format_empty))


def _run(*, format_empty: bool) -> int:
    if not os.environ.get("KAFKA_LISTENERS", "absent"):
        # Compose files use an empty KAFKA_LISTENERS for "not set", but the tools below would read it as "no listeners".
        del os.environ["KAFKA_LISTENERS"]
    properties = node_properties(os.environ, MOUNTED_FILE)
    config = load_config(properties, "the container's configuration")
    _write(properties, FINAL_FILE)
    if format_empty or asyncio.run(_is_first_start(config)):
        cluster_id = os.environ.get("CLUSTER_ID") or DEFAULT_CLUSTER_ID
        arguments = ["format", "--config", str(FINAL_FILE), "--cluster-id", cluster_id, "--ignore-formatted"]
        if config.is_standalone:
            arguments.append("--standalone")
        status = storage.main(arguments)
        if status != 0:
            return status
    if not format_empty:
        _become_server(FINAL_FILE)
    return 0


def node_properties(variables: Mapping[str, str], mounted: Path) -> dict[str, str]:
    """Returns the mounted file overlaid with KAFKA_* variables, or DEFAULT_PROPERTIES if there is neither a file nor a
    variable. Raises ToolError."""
    given = properties_from_environment(variables)
    properties = _mounted_properties(mounted) | given if mounted.exists() else given
    if not properties:
        return dict(DEFAULT_PROPERTIES)
    roles = {role.strip() for role in properties.get("process.roles", "").split(",")}
    if roles == {"controller"} and properties.get("advertised.listeners"):
        raise ToolError("KAFKA_ADVERTISED_LISTENERS cannot be set if KAFKA_PROCESS_ROLES is controller; leave it out")
    if properties.get("advertised.listeners") and not properties.get("listeners"):
        properties["listeners"] = re.sub(r"://[^,]*:", "://0.0.0.0:", properties["advertised.listeners"])
    return properties


def _mounted_properties(mounted: Path) -> dict[str, str]:
    found = read_properties(str(mounted))
    for doubt in found.doubts:
        # What is written for the node has each key once.
        print(f"{mounted}: {doubt}", file=sys.stderr)
    return found.values


async def is_first_start(env: Environment, config: ServerConfig) -> bool:
    """Returns True if no directory is formatted yet, so that all of them may be formatted.

    Raises ToolError if some are formatted and others empty, or if one is unusable on the first start.
    """
    formatted: list[str] = []
    empty: list[str] = []
    unusable: dict[str, str] = {}
    for path in config.all_log_dirs:
        log_dir = env.log_dir(path, operation_timeout_ns=OPERATION_TIMEOUT_NS)
        try:
            await log_dir.attach(create=True)
            if await load_meta_properties(log_dir) is None:
                empty.append(path)
                # A folder of the host that is missing is created by Docker, as root. Only a write shows it.
                await log_dir.lock()
            else:
                formatted.append(path)
            await log_dir.close()
        except MalformedMetaProperties as malformed:
            unusable[path] = str(malformed)
        except LogDirError as error:
            log_dir.take_offline(error)
            unusable[path] = str(error)
    if formatted and empty:
        raise ToolError(
            f"Log directory {', '.join(empty)} is empty while {formatted[0]} is formatted: is its volume mounted? If its "
            "disk is new, format it: docker-compose run --rm --no-deps SERVICE "
            "python -m tools.node.docker_run --format-empty"
        )
    if unusable and not formatted:
        path, why = next(iter(unusable.items()))
        raise ToolError(
            f"Log directory {path} cannot be used: {why}. No directory is formatted yet, and the first start formats all of "
            f"them; make it writable for user {os.geteuid()}."
        )
    return not formatted


async def _is_first_start(config: ServerConfig) -> bool:
    return await is_first_start(RealEnvironment("docker-run"), config)


def _write(properties: Mapping[str, str], path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(javaproperties.dumps(dict(properties), timestamp=False), encoding="utf-8")
    except OSError as error:
        raise ToolError(
            f"cannot write {path}: {error.strerror}; if the root file system is read-only, or the image runs as another "
            f"user, mount a tmpfs at {path.parent} that user {os.geteuid()} may write to"
        ) from error


def _become_server(path: Path) -> NoReturn:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "tools.node.server_start", str(path)])


def entry() -> None:
    sys.exit(main())


if __name__ == "__main__":
    entry()
