"""kafka-topics: create, list, describe, alter and delete topics, with Kafka's flags and output (shell).

Counterpart of Kafka's TopicCommand. For --create, --topic is a plain name; for the other actions it is a regular expression
in which a comma separates alternatives.
"""

import argparse
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

from admin.client import AdminClient
from admin.configs import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from admin.errors import AdminError
from admin.partitions import TopicPartition
from admin.reassignments import PartitionReassignment
from admin.topics import (
    BROKER_DEFAULT,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from common.ids import uuid_from_text, uuid_text
from common.protocol.errors import ErrorCode
from tools.arguments import ToolParser, add_bootstrap, int32
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin

REPLICATION_FACTOR_MAX = 32_767
# What fits into the request. The controller takes fewer.
PARTITIONS_MAX = 2**31 - 1
FAILED = "Error while executing topic command "
# How long --describe waits for the reassignments in progress.
REASSIGNMENTS_MS = 10_000


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-topics", "Create, list, describe, alter and delete topics.")
    add_bootstrap(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, what in (
        ("create", "create a topic"),
        ("list", "list the names of topics"),
        ("describe", "show partitions, leaders, replicas and ISRs of topics"),
        ("alter", "give topics more partitions"),
        ("delete", "delete topics"),
    ):
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=what)
    parser.add_argument("--topic", help="the topic; a regular expression unless --create is given")
    parser.add_argument("--topic-id", metavar="ID", help="with --describe: the topic with this id, whatever --topic says")
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="how many partitions the topic has (default num.partitions), or will have",
    )
    parser.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="with --create: replicas of each partition (default default.replication.factor)",
    )
    parser.add_argument(
        "--replica-assignment", metavar="1:2,2:1", help="broker ids per partition, for example 1:2,2:1 for two partitions"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --create: a key of the topic; may be repeated",
    )
    parser.add_argument("--if-exists", action="store_true", help="no error if no topic matches")
    parser.add_argument("--if-not-exists", action="store_true", help="with --create: no error if the topic exists")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out internal topics")
    for option, which in (
        ("under-replicated", "with fewer in-sync replicas than replicas"),
        ("unavailable", "without a leader"),
        ("under-min-isr", "with fewer in-sync replicas than min.insync.replicas"),
        ("at-min-isr", "with just min.insync.replicas in-sync replicas"),
    ):
        text = f"with --describe: only partitions {which}"
        parser.add_argument(f"--{option}-partitions", action="store_true", help=text)
    parser.add_argument(
        "--topics-with-overrides", action="store_true", help="with --describe: only topics with a configuration of their own"
    )
    parser.add_argument("--delete-config", action="append", metavar="KEY", help="no effect, as in Kafka; see kafka-configs")
    parser.add_argument(
        "--partition-size-limit-per-response", type=int, metavar="N", help="no effect: topics are described in one response"
    )
    return parser


# The options that select what --describe shows, and those that not every action takes, each with the actions that do.
_REPORTS = ("under_replicated_partitions", "unavailable_partitions", "under_min_isr_partitions", "at_min_isr_partitions")
_ACTIONS_OF_OPTION: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((*_REPORTS, "topics_with_overrides", "topic_id"), ("describe",)),
        "config": ("create", "alter"),
        "partitions": ("create", "alter"),
        "replication_factor": ("create", "alter"),
        "replica_assignment": ("create", "alter"),
        "if_exists": ("alter", "delete", "describe"),
        "if_not_exists": ("create",),
        "exclude_internal": ("list", "describe"),
    }
)


def _check(arguments: argparse.Namespace) -> None:
    """Checks what argparse cannot. Raises ToolError."""
    for option, actions in _ACTIONS_OF_OPTION.items():
        if getattr(arguments, option) not in (None, False, []) and arguments.action not in actions:
            raise ToolError(f"{_flag(option)} cannot be used with --{arguments.action}")
    for option in _REPORTS:
        if arguments.topics_with_overrides and getattr(arguments, option):
            raise ToolError(f"{_flag(option)} cannot be used with --topics-with-overrides")
    if arguments.action == "describe" and arguments.if_exists and arguments.topic is None and not arguments.topic_id:
        raise ToolError("--describe --if-exists needs --topic or --topic-id")
    if arguments.action in ("create", "alter", "delete") and not arguments.topic:
        raise ToolError(f"--{arguments.action} needs --topic")
    if arguments.action == "alter" and arguments.partitions is None:
        raise ToolError("--alter needs --partitions")
    if arguments.action == "alter" and (arguments.config or arguments.replication_factor is not None):
        raise ToolError("--alter changes the number of partitions only; leave out --config and --replication-factor")
    sizes = (arguments.partitions, arguments.replication_factor)
    if arguments.action == "create" and arguments.replica_assignment and sizes != (None, None):
        raise ToolError("--replica-assignment already sets these; leave out --partitions and --replication-factor")
    if arguments.partitions is not None and arguments.partitions < 1:
        raise ToolError("The partitions must be greater than 0")
    if arguments.partitions is not None and arguments.partitions > PARTITIONS_MAX:
        raise ToolError(f"The partitions must be at most {PARTITIONS_MAX}")
    factor = arguments.replication_factor
    if factor is not None and not 1 <= factor <= REPLICATION_FACTOR_MAX:
        raise ToolError(f"The replication factor must be between 1 and {REPLICATION_FACTOR_MAX} inclusive")


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    if arguments.delete_config:
        print("--delete-config has no effect; kafka-configs --alter --delete-config deletes it", file=sys.stderr)

    async def work(admin: AdminClient) -> None:
        try:
            await _ACTIONS[arguments.action](admin, arguments)
        except AdminError as error:
            raise ToolError(f"{FAILED}: {error}") from error

    run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    return 0


async def _create(admin: AdminClient, arguments: argparse.Namespace) -> None:
    assignments = enumerate(arguments.replica_assignment.split(",")) if arguments.replica_assignment else ()
    topic = NewTopic(
        arguments.topic,
        BROKER_DEFAULT if arguments.partitions is None else arguments.partitions,
        BROKER_DEFAULT if arguments.replication_factor is None else arguments.replication_factor,
        replicas_assignments={index: _broker_ids(part) for index, part in assignments},
        configs=dict(map(_key_value, arguments.config)),
    )
    try:
        await admin.create_topics([topic]).all()
    except AdminError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not arguments.if_not_exists:
            raise
    else:
        print(f"Created topic {topic.name}.")


def _key_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ToolError(f"--config {text} is not KEY=VALUE")
    return key.strip(), value.strip()


def _broker_ids(text: str) -> list[int]:
    try:
        return [int32(part) for part in text.split(":")]
    except argparse.ArgumentTypeError as error:
        raise ToolError(f"--replica-assignment: '{text}' is not a list of broker ids separated by colons: {error}") from None


async def _matching(admin: AdminClient, arguments: argparse.Namespace) -> list[TopicListing]:
    try:
        # As in Kafka: spaces and outer quotes are ignored, a comma separates alternatives.
        # An empty name matches nothing, as in Kafka: a script whose variable is not set must not get all topics.
        pattern = re.compile(
            (".*" if arguments.topic is None else arguments.topic).replace(",", "|").replace(" ", "").strip("\"'")
        )
    except re.error as error:
        raise ToolError(f"--topic {arguments.topic} is not a regular expression: {error}") from None
    topics = [topic for topic in await admin.list_topics() if pattern.fullmatch(topic.name)]
    if arguments.exclude_internal:
        topics = [topic for topic in topics if not topic.is_internal]
    if arguments.topic and not topics and arguments.action != "list" and not arguments.if_exists:
        raise ToolError(f"{FAILED}: Topic '{arguments.topic}' does not exist as expected")
    return topics


async def _with_id(admin: AdminClient, arguments: argparse.Namespace) -> list[TopicListing]:
    try:
        topic_id = uuid_from_text(arguments.topic_id)
    except ValueError:
        raise ToolError(
            f"--topic-id {arguments.topic_id} is not an id; --describe --topic NAME shows that of a topic"
        ) from None
    topics = [topic for topic in await admin.list_topics() if topic.topic_id == topic_id]
    if not topics and not arguments.if_exists:
        raise ToolError(f"{FAILED}: TopicId '{arguments.topic_id}' does not exist as expected")
    return topics


async def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    for topic in await _matching(admin, arguments):
        print(topic.name)


async def _alter(admin: AdminClient, arguments: argparse.Namespace) -> None:
    names = [topic.name for topic in await _matching(admin, arguments)]
    described = await admin.describe_topics(names).all() if names else {}
    wanted = {
        name: NewPartitions(arguments.partitions, _added_assignments(arguments.replica_assignment, len(topic.partitions)))
        for name, topic in described.items()
    }
    if wanted:
        await admin.create_partitions(wanted).all()


def _added_assignments(text: str | None, count: int) -> list[list[int]] | None:
    """Returns the replicas of the partitions to be added. The option names those of all partitions, as in Kafka."""
    return None if text is None else [_broker_ids(part) for part in text.split(",")[count:]]


async def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    names = {topic.topic_id: topic.name for topic in await _matching(admin, arguments)}
    if not names:
        return
    deleted = admin.delete_topics(names)
    for topic_id, future in deleted.items():
        try:
            await future
        except AdminError as error:
            raise ToolError(f"{FAILED}: {names[topic_id]}: {error}") from error


async def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    only_some = (
        arguments.under_replicated_partitions
        or arguments.unavailable_partitions
        or arguments.under_min_isr_partitions
        or arguments.at_min_isr_partitions
    )
    described = await _described(admin, arguments)
    reassignments = await _reassignments(admin) if described else {}
    for topic, configs in described:
        ongoing = {each.partition: found for each, found in reassignments.items() if each.topic == topic.name}
        min_isr = int(configs["min.insync.replicas"].value or "1") if "min.insync.replicas" in configs else 1
        if not only_some and (not arguments.topics_with_overrides or _overridden(configs)):
            print(_topic_line(topic, configs, ongoing))
        for partition in () if arguments.topics_with_overrides else topic.partitions:
            if _is_selected(partition, ongoing.get(partition.partition), arguments, min_isr):
                print(_partition_line(topic.name, partition, ongoing.get(partition.partition)))


async def _reassignments(admin: AdminClient) -> Mapping[TopicPartition, PartitionReassignment]:
    """Only the controller knows what is in progress. While it does not answer, it matters most which partitions have a
    leader, so the topics are described without it. Kafka's tool waits for a minute and then shows nothing."""
    try:
        return await admin.list_partition_reassignments(timeout_ms=REASSIGNMENTS_MS)
    except AdminError as error:
        print(f"Reassignments in progress are not shown: {error}", file=sys.stderr)
        return {}


async def _described(
    admin: AdminClient, arguments: argparse.Namespace
) -> list[tuple[TopicDescription, Mapping[str, ConfigEntry]]]:
    """Returns the matching topics with their configurations. Leaves out a topic that is deleted meanwhile."""
    find = _matching if arguments.topic_id is None else _with_id
    names = [topic.name for topic in await find(admin, arguments)]
    if not names:
        return []
    topics = admin.describe_topics(names)
    configs = admin.describe_configs(ConfigResource(ResourceType.TOPIC, name) for name in names)
    described = []
    for (name, topic), config in zip(topics.items(), configs.values(), strict=True):
        try:
            described.append((await topic, await config))
        except AdminError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ToolError(f"{FAILED}: {name}: {error}") from error
    return described


def _topic_line(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], ongoing: Mapping[int, PartitionReassignment]
) -> str:
    overridden = ",".join(f"{key}={entry.value or ''}" for key, entry in _overridden(configs).items())
    first = topic.partitions[0] if topic.partitions else None
    replication_factor = 0 if first is None else _replication_factor(first, ongoing.get(first.partition))
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {replication_factor}\tConfigs: {overridden}"
    )


def _overridden(configs: Mapping[str, ConfigEntry]) -> Mapping[str, ConfigEntry]:
    """Returns the entries that are set anywhere, on the topic or on the broker, as Kafka's tool shows them."""
    return {key: entry for key, entry in sorted(configs.items()) if entry.source is not ConfigSource.DEFAULT_CONFIG}


def _replication_factor(partition: PartitionDescription, ongoing: PartitionReassignment | None) -> int:
    """Returns the number of replicas without those that are being added, as Kafka's tool does."""
    # The reassignment may have been completed before the metadata was read.
    if ongoing is None or not {*ongoing.adding_replicas, *ongoing.removing_replicas} & {*partition.replicas}:
        return len(partition.replicas)
    return len(ongoing.replicas) - len(ongoing.adding_replicas)


def _is_selected(
    partition: PartitionDescription, ongoing: PartitionReassignment | None, arguments: argparse.Namespace, min_isr: int
) -> bool:
    isr = len(partition.isr)
    if arguments.under_replicated_partitions:
        return isr < _replication_factor(partition, ongoing)
    if arguments.unavailable_partitions:
        return partition.leader is None
    if arguments.under_min_isr_partitions:
        return partition.leader is None or isr < min_isr
    if arguments.at_min_isr_partitions:
        return isr == min_isr
    return True


def _partition_line(topic: str, partition: PartitionDescription, ongoing: PartitionReassignment | None) -> str:
    leader = "none" if partition.leader is None else str(partition.leader)
    replicas = ",".join(map(str, partition.replicas))
    isr = ",".join(map(str, partition.isr))
    changes = ""
    if ongoing is not None:
        adding = ",".join(map(str, ongoing.adding_replicas))
        changes = f"\tAdding Replicas: {adding}\tRemoving Replicas: {','.join(map(str, ongoing.removing_replicas))}"
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        f"{changes}\tElr: {_elr(partition.eligible_leader_replicas)}\tLastKnownElr: {_elr(partition.last_known_elr)}"
    )


def _elr(broker_ids: tuple[int, ...] | None) -> str:
    return "N/A" if broker_ids is None else ",".join(map(str, broker_ids))


_ACTIONS: Mapping[str, Callable[[AdminClient, argparse.Namespace], Coroutine[Any, Any, None]]] = MappingProxyType(
    {"create": _create, "list": _list, "describe": _describe, "alter": _alter, "delete": _delete}
)


if __name__ == "__main__":
    entry()
