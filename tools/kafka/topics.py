"""kafka-topics: create, list, describe, alter and delete topics, with Kafka's flags and output (shell).

Counterpart of Kafka's TopicCommand. For --create, --topic is a plain name; for the other actions it is a regular expression
in which a comma separates alternatives.
"""

import argparse
import re
import sys

from common.ids import uuid_text
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from common.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka.admin_client import AdminClient, check

TOPIC_RESOURCE = 2
TOPIC_SOURCE = 1
USE_DEFAULT = -1
REPLICATION_FACTOR_MAX = 32_767
FAILED = "Error while executing topic command "


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = _parser().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def _parser() -> argparse.ArgumentParser:
    parser = ToolParser("kafka-topics", "Create, list, describe, alter and delete topics.")
    add_bootstrap(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for action in ("create", "list", "describe", "alter", "delete"):
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action)
    parser.add_argument("--topic", help="the topic; a regular expression unless --create is given")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int)
    parser.add_argument(
        "--replica-assignment", metavar="1:2,2:1", help="broker ids per partition, for example 1:2,2:1 for two partitions"
    )
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--if-exists", action="store_true")
    parser.add_argument("--if-not-exists", action="store_true")
    parser.add_argument("--exclude-internal", action="store_true")
    parser.add_argument("--under-replicated-partitions", action="store_true")
    parser.add_argument("--unavailable-partitions", action="store_true")
    parser.add_argument("--under-min-isr-partitions", action="store_true")
    parser.add_argument("--at-min-isr-partitions", action="store_true")
    return parser


def _check(arguments: argparse.Namespace) -> None:
    """Checks what argparse cannot. Raises ToolError."""
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
    factor = arguments.replication_factor
    if factor is not None and not 1 <= factor <= REPLICATION_FACTOR_MAX:
        raise ToolError(f"The replication factor must be between 1 and {REPLICATION_FACTOR_MAX} inclusive")


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    with AdminClient(arguments.bootstrap_server) as client:
        match arguments.action:
            case "create":
                _create(client, arguments)
            case "list":
                for topic in _matching(client, arguments):
                    print(topic.name)
            case "describe":
                _describe(client, arguments)
            case "alter":
                _alter(client, arguments)
            case "delete":
                _delete(client, arguments)
    return 0


def _create(client: AdminClient, arguments: argparse.Namespace) -> None:
    topic = CreatableTopic(
        name=arguments.topic,
        num_partitions=USE_DEFAULT if arguments.partitions is None else arguments.partitions,
        replication_factor=USE_DEFAULT if arguments.replication_factor is None else arguments.replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in map(_key_value, arguments.config)],
    )
    if arguments.replica_assignment:
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=_broker_ids(part))
            for index, part in enumerate(arguments.replica_assignment.split(","))
        ]
    response: CreateTopicsResponse = client.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    for result in response.topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
            continue
        check(result.error_code, result.error_message, FAILED)
        print(f"Created topic {result.name}.")


def _key_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ToolError(f"--config {text} is not KEY=VALUE")
    return key.strip(), value.strip()


def _broker_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(":")]
    except ValueError:
        raise ToolError(f"--replica-assignment: '{text}' is not a list of broker ids separated by colons") from None


def _matching(client: AdminClient, arguments: argparse.Namespace) -> list[MetadataResponseTopic]:
    try:
        # As in Kafka: spaces and outer quotes are ignored, a comma separates alternatives.
        pattern = re.compile((arguments.topic or ".*").replace(",", "|").replace(" ", "").strip("\"'"))
    except re.error as error:
        raise ToolError(f"--topic {arguments.topic} is not a regular expression: {error}") from None
    topics = [topic for topic in client.metadata().topics if pattern.fullmatch(topic.name or "")]
    if arguments.exclude_internal:
        topics = [topic for topic in topics if not topic.is_internal]
    if arguments.topic and not topics and arguments.action != "list" and not arguments.if_exists:
        raise ToolError(f"{FAILED}: Topic '{arguments.topic}' does not exist as expected")
    return sorted(topics, key=lambda topic: topic.name or "")


def _alter(client: AdminClient, arguments: argparse.Namespace) -> None:
    topics = [
        CreatePartitionsTopic(
            name=topic.name or "",
            count=arguments.partitions,
            assignments=_added_assignments(arguments.replica_assignment, len(topic.partitions)),
        )
        for topic in _matching(client, arguments)
    ]
    if not topics:
        return
    response: CreatePartitionsResponse = client.send(CreatePartitionsRequest(topics=topics, timeout_ms=30_000))
    for result in response.results:
        check(result.error_code, result.error_message, FAILED)


def _added_assignments(text: str | None, count: int) -> list[CreatePartitionsAssignment] | None:
    """Returns the replicas of the partitions to be added. The option names those of all partitions, as in Kafka."""
    if text is None:
        return None
    return [CreatePartitionsAssignment(broker_ids=_broker_ids(part)) for part in text.split(",")[count:]]


def _delete(client: AdminClient, arguments: argparse.Namespace) -> None:
    names = {topic.topic_id: topic.name for topic in _matching(client, arguments)}
    if not names:
        return
    states = [DeleteTopicState(topic_id=topic_id) for topic_id in names]
    response: DeleteTopicsResponse = client.send(DeleteTopicsRequest(topics=states, timeout_ms=30_000))
    for result in response.responses:
        name = result.name or names.get(result.topic_id)
        check(result.error_code, result.error_message, f"{FAILED}: {name}")


def _describe(client: AdminClient, arguments: argparse.Namespace) -> None:
    topics = _matching(client, arguments)
    only_some = (
        arguments.under_replicated_partitions
        or arguments.unavailable_partitions
        or arguments.under_min_isr_partitions
        or arguments.at_min_isr_partitions
    )
    reassignments = _reassignments(client) if topics else {}
    for topic in topics:
        name = topic.name or ""
        ongoing = {index: each for (topic_name, index), each in reassignments.items() if topic_name == name}
        configs = _topic_configs(client, name)
        min_isr = int(configs.get("min.insync.replicas", ("1", False))[0])
        shown = [
            part for part in topic.partitions if _is_selected(part, ongoing.get(part.partition_index), arguments, min_isr)
        ]
        if only_some:
            for partition in shown:
                print(_partition_line(name, partition, ongoing.get(partition.partition_index)))
            continue
        overridden = ",".join(f"{key}={value}" for key, (value, is_set) in sorted(configs.items()) if is_set)
        first = topic.partitions[0] if topic.partitions else None
        replication_factor = 0 if first is None else _replication_factor(first, ongoing.get(first.partition_index))
        print(
            f"Topic: {topic.name}\tTopicId: {uuid_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}\t"
            f"ReplicationFactor: {replication_factor}\tConfigs: {overridden}"
        )
        for partition in shown:
            print(_partition_line(name, partition, ongoing.get(partition.partition_index)))


def _reassignments(client: AdminClient) -> dict[tuple[str, int], OngoingPartitionReassignment]:
    """Returns the reassignments in progress, by topic and partition."""
    response: ListPartitionReassignmentsResponse = client.send(ListPartitionReassignmentsRequest(timeout_ms=30_000))
    check(response.error_code, response.error_message, FAILED)
    return {
        (topic.name, partition.partition_index): partition for topic in response.topics for partition in topic.partitions
    }


def _replication_factor(partition: MetadataResponsePartition, ongoing: OngoingPartitionReassignment | None) -> int:
    """Returns the number of replicas without those that are being added, as Kafka's tool does."""
    # The reassignment may have been completed before the metadata was read.
    if ongoing is None or not {*ongoing.adding_replicas, *ongoing.removing_replicas} & {*partition.replica_nodes}:
        return len(partition.replica_nodes)
    return len(ongoing.replicas) - len(ongoing.adding_replicas)


def _is_selected(
    partition: MetadataResponsePartition,
    ongoing: OngoingPartitionReassignment | None,
    arguments: argparse.Namespace,
    min_isr: int,
) -> bool:
    isr = len(partition.isr_nodes)
    if arguments.under_replicated_partitions:
        return isr < _replication_factor(partition, ongoing)
    if arguments.unavailable_partitions:
        return partition.leader_id < 0
    if arguments.under_min_isr_partitions:
        return isr < min_isr
    if arguments.at_min_isr_partitions:
        return isr == min_isr
    return True


def _partition_line(topic: str, partition: MetadataResponsePartition, ongoing: OngoingPartitionReassignment | None) -> str:
    leader = str(partition.leader_id) if partition.leader_id >= 0 else "none"
    replicas = ",".join(map(str, partition.replica_nodes))
    isr = ",".join(map(str, partition.isr_nodes))
    changes = ""
    if ongoing is not None:
        adding = ",".join(map(str, ongoing.adding_replicas))
        changes = f"\tAdding Replicas: {adding}\tRemoving Replicas: {','.join(map(str, ongoing.removing_replicas))}"
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition_index}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        f"{changes}\tElr: N/A\tLastKnownElr: N/A"
    )


def _topic_configs(client: AdminClient, name: str) -> dict[str, tuple[str, bool]]:
    """Returns each key's value, and whether it is set on the topic itself."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
    response: DescribeConfigsResponse = client.send(DescribeConfigsRequest(resources=[resource]))
    return {
        entry.name: (entry.value or "", entry.config_source == TOPIC_SOURCE)
        for result in response.results
        for entry in result.configs
    }


if __name__ == "__main__":
    entry()
