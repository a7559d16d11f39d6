"""kafka-delete-records: deletes the records of partitions below given offsets (shell).

Counterpart of Kafka's DeleteRecordsCommand, with the same flags, checks and output. As there, a partition that refuses is
reported in the output, and the exit status is 0.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from admin.client import AdminClient
from admin.errors import AdminError
from admin.partitions import TopicPartition
from tools.arguments import ToolParser
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin
from tools.kafka.java_exceptions import exception_text
from tools.kafka.json_text import is_integer, parse_json

_EARLIEST_VERSION = 1


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> argparse.ArgumentParser:
    parser = ToolParser("kafka-delete-records", "Delete the records of partitions below the given offsets.")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", required=True, help="brokers to connect to")
    parser.add_argument(
        "--offset-json-file",
        metavar="PATH",
        required=True,
        help='{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}; offset -1 deletes all records',
    )
    parser.add_argument("--command-config", metavar="FILE", help="properties file with the client's settings")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    offsets = _read_offsets(arguments.offset_json_file)

    async def work(admin: AdminClient) -> dict[TopicPartition, int | AdminError]:
        results = admin.delete_records(offsets)
        outcomes: dict[TopicPartition, int | AdminError] = {}
        for partition in offsets:
            try:
                outcomes[partition] = await results[partition]
            except AdminError as error:
                outcomes[partition] = error
        return outcomes

    print("Executing records delete operation")
    outcomes = run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    print("Records delete operation completed:")
    for partition, outcome in outcomes.items():
        if isinstance(outcome, AdminError):
            print(f"partition: {partition}\terror: {exception_text(outcome)}")
        else:
            print(f"partition: {partition}\tlow_watermark: {outcome}")
    return 0


def _read_offsets(path: str) -> dict[TopicPartition, int]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"--offset-json-file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"--offset-json-file {path} is not a text in UTF-8: {error}") from error
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        raise ToolError(f"The input string is not a valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise ToolError("The input string is not a valid JSON")
    version = data.get("version", _EARLIEST_VERSION)
    if version != _EARLIEST_VERSION:
        raise ToolError(f"Not supported version field value {version}")
    if not isinstance(data.get("partitions"), list):
        raise ToolError("Missing partitions field")
    entries = [_entry(each) for each in data["partitions"]]
    partitions = [partition for partition, _ in entries]
    duplicates = sorted({each for each in partitions if partitions.count(each) > 1})
    if duplicates:
        raise ToolError(f"Offset json file contains duplicate topic partitions: {', '.join(map(str, duplicates))}")
    return dict(entries)


def _entry(entry: Any) -> tuple[TopicPartition, int]:
    fields = entry if isinstance(entry, dict) else {}
    topic, partition, offset = fields.get("topic"), fields.get("partition"), fields.get("offset")
    # JSON's true and false are instances of int.
    if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int:
        raise ToolError(f"{json.dumps(entry)} of the offset json file has no topic, partition and offset")
    if not is_integer(partition) or not is_integer(offset, bits=64):
        raise ToolError(f"the partition or the offset in {json.dumps(entry)} of the offset json file is out of range")
    return TopicPartition(topic, partition), offset


if __name__ == "__main__":
    entry()
