"""kafka-leader-election: elects preferred leaders, or leaders for partitions that have none (shell).

Counterpart of Kafka's LeaderElectionCommand, with the same flags, checks and output.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from admin.client import AdminClient
from admin.errors import AdminError, TimedOut
from admin.partitions import TopicPartition
from common.protocol.errors import ErrorCode
from common.protocol.messages.elect_leaders import ElectionType
from tools.arguments import ToolParser, int32
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin
from tools.kafka.java_exceptions import exception_text
from tools.kafka.json_text import is_integer, parse_json


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser(
        "kafka-leader-election",
        "Elect new leaders for a set of partitions: preferred leaders, or leaders from outside the ISR.",
    )
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help="brokers to connect to")
    parser.add_argument(
        "--admin.config", dest="admin_config", metavar="FILE", help="properties file with the client's settings"
    )
    parser.add_argument(
        "--election-type",
        type=str.lower,
        choices=[each.name.lower() for each in ElectionType],
        help="preferred: where the first replica does not lead; unclean: where there is no leader",
    )
    parser.add_argument("--topic", help="the topic of one partition")
    parser.add_argument("--partition", type=int32, help="the partition of --topic")
    parser.add_argument("--all-topic-partitions", action="store_true", help="all partitions that need the election")
    parser.add_argument("--path-to-json-file", metavar="PATH", help='{"partitions": [{"topic": "t", "partition": 0}, …]}')
    return parser


def _check(arguments: argparse.Namespace) -> None:
    """Checks the options as Kafka's tool does. Raises ToolError."""
    missing = [name for name in ("bootstrap_server", "election_type") if getattr(arguments, name) is None]
    if missing:
        raise ToolError(f"Missing required option(s): {', '.join(missing).replace('_', '-')}")
    ways = (arguments.topic is not None, arguments.all_topic_partitions, arguments.path_to_json_file is not None)
    if sum(ways) != 1:
        raise ToolError(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
        )
    if arguments.topic is not None and arguments.partition is None:
        raise ToolError("Missing required option(s): partition")
    if arguments.topic is None and arguments.partition is not None:
        raise ToolError("Option partition is only allowed if topic is used")


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    election_type = ElectionType[arguments.election_type.upper()]
    partitions = _topic_partitions(arguments)

    async def work(admin: AdminClient) -> dict[TopicPartition, AdminError | None]:
        try:
            return await admin.elect_leaders(election_type, partitions)
        except TimedOut as error:
            raise ToolError(f"Timeout waiting for election results: {error}") from error
        except AdminError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                raise ToolError("Timeout waiting for election results") from error
            raise ToolError(f"Error while making request: {error}") from error

    results = run_admin(arguments.bootstrap_server, work, command_config=arguments.admin_config)
    _report(election_type, dict(sorted(results.items())))
    return 0


def _topic_partitions(arguments: argparse.Namespace) -> list[TopicPartition] | None:
    if arguments.all_topic_partitions:
        return None
    if arguments.topic is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    return _read_partitions(arguments.path_to_json_file)


def _read_partitions(path: str) -> list[TopicPartition]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"--path-to-json-file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"--path-to-json-file {path} is not a text in UTF-8: {error}") from error
    if not text.strip():
        raise ToolError("Replica election data is empty")
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        raise ToolError(f"--path-to-json-file {path} is not JSON: {error}") from error
    if not isinstance(data, dict) or "partitions" not in data:
        raise ToolError('Replica election data is missing "partitions" field')
    partitions = [_partition(entry) for entry in _entries(data["partitions"])]
    duplicates = sorted({each for each in partitions if partitions.count(each) > 1})
    if duplicates:
        raise ToolError(f"Replica election data contains duplicate partitions: [{', '.join(map(str, duplicates))}]")
    return partitions


def _entries(partitions: Any) -> list[Any]:
    if not isinstance(partitions, list):
        raise ToolError('"partitions" of the replica election data is not a list')
    return partitions


def _partition(entry: Any) -> TopicPartition:
    topic, partition = (entry.get("topic"), entry.get("partition")) if isinstance(entry, dict) else (None, None)
    # JSON's true and false are instances of int.
    if not isinstance(topic, str) or not isinstance(partition, int) or isinstance(partition, bool):
        raise ToolError(f"{json.dumps(entry)} of the replica election data names no topic and partition")
    if not is_integer(partition):
        raise ToolError(f"the partition in {json.dumps(entry)} of the replica election data is out of range")
    return TopicPartition(topic, partition)


def _report(election_type: ElectionType, results: dict[TopicPartition, AdminError | None]) -> None:
    """Prints the outcome like Kafka's tool. Raises ToolError if an election failed."""
    elected = [partition for partition, error in results.items() if error is None]
    errors = {partition: error for partition, error in results.items() if error is not None}
    needless = [partition for partition, error in errors.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {partition: error for partition, error in errors.items() if partition not in needless}
    name = election_type.name
    if elected:
        print(f"Successfully completed leader election ({name}) for partitions {', '.join(map(str, elected))}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(map(str, needless))}")
    for partition, error in failed.items():
        print(f"Error completing leader election ({name}) for partition: {partition}: {exception_text(error)}")
    if failed:
        raise ToolError(f"{len(failed)} replica(s) could not be elected")


if __name__ == "__main__":
    entry()
