"""kafka-log-dirs: what the directories of brokers hold, as JSON in Apache Kafka's schema or in KIP-113's (shell).

Counterpart of Kafka's LogDirsCommand. Two lines for people come first and then the JSON on a single line, so programs parse
the last line. `--schema kip-113` prints only the JSON that the KIP defines, for one broker. A broker answers only for
itself, so the tool connects to each one.
"""

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from typing import Any

from admin.client import AdminClient
from admin.errors import AdminError
from admin.log_dirs import LogDirInfo
from common.protocol.errors import ErrorCode, error_name, is_known_error
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin

KIP_113 = "kip-113"

# How Kafka's tool prints the two errors that a directory can have.
JAVA_NAMES: Mapping[int, str] = {
    ErrorCode.KAFKA_STORAGE_ERROR: "org.apache.kafka.common.errors.KafkaStorageException",
    ErrorCode.LOG_DIR_NOT_FOUND: "org.apache.kafka.common.errors.LogDirNotFoundException",
}


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-log-dirs", "Show what the log directories of brokers hold.")
    add_bootstrap(parser)
    parser.add_argument("--describe", action="store_true", required=True, help="the only action")
    parser.add_argument("--schema", choices=("kafka", KIP_113), default="kafka", help="schema of the JSON (default: kafka)")
    kafka = parser.add_argument_group("for --schema kafka")
    kafka.add_argument("--broker-list", metavar="1,2", help="brokers to ask (default: all)")
    kafka.add_argument("--topic-list", metavar="A,B", help="topics to show (default: all)")
    kip = parser.add_argument_group(f"for --schema {KIP_113}")
    kip.add_argument("--broker", type=int, metavar="ID", help="the broker to ask")
    kip.add_argument("--log-dirs", metavar="DIR,DIR", help="directories to show (default: all)")
    kip.add_argument("--topics", metavar="A,B", help="topics to show (default: all)")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    describe = _describe_one if arguments.schema == KIP_113 else _describe_all

    async def work(admin: AdminClient) -> None:
        await describe(admin, arguments)

    run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Checks what argparse cannot. Raises ToolError."""
    is_kip = arguments.schema == KIP_113
    for flag, needs_kip in (
        ("--broker-list", False),
        ("--topic-list", False),
        ("--broker", True),
        ("--log-dirs", True),
        ("--topics", True),
    ):
        if getattr(arguments, flag[2:].replace("-", "_")) is not None and needs_kip != is_kip:
            raise ToolError(f"{flag} is for --schema {KIP_113 if needs_kip else 'kafka'} only")
    if is_kip and arguments.broker is None:
        raise ToolError(f"--schema {KIP_113} needs --broker: it describes one broker")


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


# --- Apache Kafka's schema -------------------------------------------------------------------------------------------


async def _describe_all(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topics = _words(arguments.topic_list)
    asked = _asked_brokers(arguments.broker_list, (await admin.describe_cluster()).broker_ids)
    print("Querying brokers for log directories information")
    described = await _described(admin, asked)
    print(f"Received log directory information from brokers {','.join(map(str, asked))}")
    brokers = [
        {"broker": broker_id, "logDirs": [_log_dir(path, info, topics) for path, info in log_dirs.items()]}
        for broker_id, log_dirs in described.items()
    ]
    _print_json({"version": 1, "brokers": brokers})


def _asked_brokers(text: str | None, existing: list[int]) -> list[int]:
    if not text:
        return existing
    try:
        asked = list(dict.fromkeys(int(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise ToolError(f"--broker-list {text} is not a comma-separated list of broker ids") from None
    unknown = [broker_id for broker_id in asked if broker_id not in existing]
    if unknown:
        raise _unknown_brokers("--broker-list", unknown, existing)
    return asked


def _unknown_brokers(flag: str, unknown: list[int], existing: list[int]) -> ToolError:
    return ToolError(
        f"ERROR: The given brokers do not exist from {flag}: {','.join(map(str, unknown))}. "
        f"Current existent brokers: {','.join(map(str, existing))}"
    )


async def _described(admin: AdminClient, broker_ids: list[int]) -> dict[int, dict[str, LogDirInfo]]:
    described = {}
    for broker_id, future in admin.describe_log_dirs(broker_ids).items():
        try:
            described[broker_id] = await future
        except AdminError as error:
            raise ToolError(f"broker {broker_id} does not describe its log directories: {error}") from error
    return described


def _log_dir(path: str, info: LogDirInfo, topics: Collection[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": str(partition),
            "size": replica.size,
            "offsetLag": replica.offset_lag,
            "isFuture": replica.is_future,
        }
        for partition, replica in info.replica_infos.items()
        if not topics or partition.topic in topics
    ]
    return {"logDir": path, "error": None if info.is_online else _error(info.error_code), "partitions": partitions}


def _error(code: int) -> str:
    # A newer broker may return a code that is not listed here.
    return JAVA_NAMES.get(code) or (error_name(code) if is_known_error(code) else f"error {code}")


# --- KIP-113's schema ------------------------------------------------------------------------------------------------


async def _describe_one(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topics, broker_id = _words(arguments.topics), arguments.broker
    existing = (await admin.describe_cluster()).broker_ids
    if broker_id not in existing:
        raise _unknown_brokers("--broker", [broker_id], existing)
    log_dirs = (await _described(admin, [broker_id]))[broker_id]
    paths = _words(arguments.log_dirs)
    unknown = [path for path in paths if path not in log_dirs]
    if unknown:
        raise ToolError(
            f"ERROR: The given log directories do not exist from --log-dirs: {','.join(unknown)}. "
            f"Log directories of broker {broker_id}: {','.join(log_dirs)}"
        )
    shown = [_kip_log_dir(path, info, topics) for path, info in log_dirs.items() if not paths or path in paths]
    _print_json({"version": 1, "log_dirs": shown})


def _kip_log_dir(path: str, info: LogDirInfo, topics: Collection[str]) -> dict[str, Any]:
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "size": replica.size,
            "offset_lag": replica.offset_lag,
            "is_temporary": replica.is_future,
        }
        for partition, replica in info.replica_infos.items()
        if not topics or partition.topic in topics
    ]
    return {"is_live": info.is_online, "path": path, "partitions": partitions}


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content, separators=(",", ":")))


if __name__ == "__main__":
    entry()
