"""kafka-get-offsets: shows offsets of partitions by time, with Kafka's flags and output (shell).

Counterpart of Kafka's GetOffsetShell. A partition without a record as new as the given time is not shown.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from admin.client import AdminClient
from admin.errors import AdminError
from admin.partitions import TopicPartition
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin

TIMES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "latest": LATEST,
        "earliest": EARLIEST,
        "max-timestamp": MAX_TIMESTAMP,
        "earliest-local": EARLIEST_LOCAL,
        "latest-tiered": LATEST_TIERED,
    }
)
_INTEGER: Final = re.compile("-?[0-9]{1,19}")
# A topic, then nothing, a partition, or a range of partitions whose end is exclusive. Everything may be left out.
_RULE: Final = re.compile("([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
Filter = Callable[[TopicPartition], bool]


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-get-offsets", "Show offsets of partitions by time.")
    add_bootstrap(parser)
    parser.add_argument("--topic", help="a regular expression (default: all topics)")
    parser.add_argument("--partitions", metavar="0,1", help="partitions of these topics (default: all)")
    parser.add_argument(
        "--topic-partitions",
        metavar="T:0,U:0-3,…",
        help="instead of these two: a list of TOPIC, TOPIC:PARTITION and TOPIC:FROM-TO, where TO is exclusive, and TOPIC, "
        "FROM and TO may be left out",
    )
    parser.add_argument(
        "--time",
        default="latest",
        metavar="MS",
        help=f"milliseconds since 1970, -1 to -5, {', '.join(TIMES)} (default latest)",
    )
    parser.add_argument("--exclude-internal-topics", action="store_true", help="leave out internal topics")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    timestamp, is_wanted = _timestamp(arguments.time), _filter(arguments)

    async def work(admin: AdminClient) -> None:
        leaders = await _leaders(admin, is_wanted, exclude_internal=arguments.exclude_internal_topics)
        if not leaders:
            raise ToolError("Error occurred: Could not match any topic-partitions with the specified filters")
        known = {partition: leader for partition, leader in leaders.items() if leader is not None}
        listed = admin.list_offsets(known, timestamp)
        for partition, leader in sorted(leaders.items()):
            if leader is None:
                _print_skipped(partition, "it has no leader")
                continue
            try:
                found = await listed[partition]
            except AdminError as error:
                _print_skipped(partition, str(error))
                continue
            if found.offset is not None:
                print(f"{partition.topic}:{partition.partition}:{found.offset}")

    run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    return 0


def _print_skipped(partition: TopicPartition, reason: str) -> None:
    print(f"Skip getting offsets for topic-partition {partition} due to error: {reason}", file=sys.stderr)


async def _leaders(admin: AdminClient, is_wanted: Filter, *, exclude_internal: bool) -> dict[TopicPartition, int | None]:
    names = [topic.name for topic in await admin.list_topics() if not (exclude_internal and topic.is_internal)]
    leaders: dict[TopicPartition, int | None] = {}
    for name, described in admin.describe_topics(names).items():
        try:
            topic = await described
        except AdminError as error:
            # The topic was deleted meanwhile.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition)
            if is_wanted(partition):
                leaders[partition] = each.leader
    return leaders


# --- the command line ------------------------------------------------------------------------------------------------


def _timestamp(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    if _INTEGER.fullmatch(text) is None or not LATEST_TIERED <= int(text) < 2**63:
        names = ", ".join(f"{number} or {name}" for name, number in TIMES.items())
        raise ToolError(f"Error occurred: Malformed time argument {text}; it takes {names}, or milliseconds since 1970")
    return int(text)


def _filter(arguments: argparse.Namespace) -> Filter:
    if arguments.topic_partitions is not None:
        if arguments.topic is not None or arguments.partitions is not None:
            raise ToolError("Error occurred: --topic-partitions cannot be used with --topic or --partitions")
        rules = [_rule(text.strip()) for text in arguments.topic_partitions.split(",")]
        return lambda partition: any(rule(partition) for rule in rules)
    pattern = _pattern(".*" if arguments.topic is None else arguments.topic)
    wanted: set[int] | None = None
    if arguments.partitions is not None:
        try:
            wanted = {int(text) for text in arguments.partitions.split(",") if text.strip()}
        except ValueError:
            raise ToolError(
                "Error occurred: --partitions expects a comma separated list of numeric partition ids, but received: "
                f"{arguments.partitions}"
            ) from None
    return lambda each: pattern.fullmatch(each.topic) is not None and (wanted is None or each.partition in wanted)


def _rule(text: str) -> Filter:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ToolError(
            f"Error occurred: Invalid rule specification: {text}; --topic-partitions takes TOPIC:0, TOPIC:0-3, …"
        )
    topic, only, first, end = match.groups()
    pattern = _pattern(topic or ".*")
    if only:
        low, high = int(only), int(only) + 1
    else:
        low, high = int(first or 0), int(end) if end else sys.maxsize
    return lambda each: pattern.fullmatch(each.topic) is not None and low <= each.partition < high


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.replace(",", "|"))
    except re.error as error:
        raise ToolError(f"Error occurred: {text} is not a regular expression: {error}") from None


if __name__ == "__main__":
    entry()
