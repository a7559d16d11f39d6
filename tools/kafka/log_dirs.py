"""kafka-log-dirs: what each broker's directories hold, as Kafka's one line of JSON (shell).

Counterpart of Kafka's LogDirsCommand. Two lines for people come first and then the JSON on a single line, so programs parse
the last line. A broker only answers for itself, so the tool connects to each one.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from common.configuration.endpoints import HostPort
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka.admin_client import AdminClient, check, error_name

# How Kafka's tool prints the two errors that a directory can have.
JAVA_NAMES: Mapping[int, str] = {
    ErrorCode.KAFKA_STORAGE_ERROR: "org.apache.kafka.common.errors.KafkaStorageException",
    ErrorCode.LOG_DIR_NOT_FOUND: "org.apache.kafka.common.errors.LogDirNotFoundException",
}


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    parser = ToolParser("kafka-log-dirs", "Show what the log directories of brokers hold.")
    add_bootstrap(parser)
    parser.add_argument("--describe", action="store_true", required=True)
    parser.add_argument("--broker-list", metavar="1,2", help="brokers to ask (default: all)")
    parser.add_argument("--topic-list", metavar="A,B", help="topics to show (default: all)")
    arguments = parser.parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def _run(arguments: argparse.Namespace) -> int:
    topics = set(filter(None, (arguments.topic_list or "").split(",")))
    with AdminClient(arguments.bootstrap_server) as client:
        brokers = client.brokers()
        asked = _asked_brokers(arguments.broker_list, brokers)
        print("Querying brokers for log directories information")
        answers = {broker_id: describe_broker(client, brokers[broker_id]) for broker_id in asked}
    print(f"Received log directory information from brokers {','.join(map(str, asked))}")
    described = [
        {"broker": broker_id, "logDirs": [_log_dir(result, topics) for result in results]}
        for broker_id, results in answers.items()
    ]
    print(json.dumps({"version": 1, "brokers": described}, separators=(",", ":")))
    return 0


def describe_broker(client: AdminClient, address: HostPort) -> list[DescribeLogDirsResult]:
    """Returns one broker's directories. Raises ToolError."""
    response: DescribeLogDirsResponse = client.send_to(address, DescribeLogDirsRequest(topics=None))
    check(response.error_code, None, f"broker {address} refuses to describe its log directories")
    return response.results


def _asked_brokers(text: str | None, brokers: dict[int, HostPort]) -> list[int]:
    if not text:
        return sorted(brokers)
    try:
        asked = list(dict.fromkeys(int(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise ToolError(f"--broker-list {text} is not a comma-separated list of broker ids") from None
    unknown = [broker_id for broker_id in asked if broker_id not in brokers]
    if unknown:
        raise ToolError(
            f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}. "
            f"Current existent brokers: {','.join(map(str, sorted(brokers)))}"
        )
    return asked


def _log_dir(result: DescribeLogDirsResult, topics: set[str]) -> dict[str, Any]:
    error = None
    if result.error_code != ErrorCode.NONE:
        # Use the plain number: a newer broker may return a code that is not listed here.
        error = JAVA_NAMES.get(result.error_code) or error_name(result.error_code)
    partitions = [
        {
            "partition": f"{topic.name}-{partition.partition_index}",
            "size": partition.partition_size,
            "offsetLag": partition.offset_lag,
            "isFuture": partition.is_future_key,
        }
        for topic in result.topics
        if not topics or topic.name in topics
        for partition in topic.partitions
    ]
    return {"logDir": result.log_dir, "error": error, "partitions": partitions}


if __name__ == "__main__":
    entry()
