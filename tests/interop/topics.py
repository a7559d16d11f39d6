"""Topic helpers of the interop tests and benchmarks: create topics with our own admin client and wait for their replicas."""

import time

from common.protocol.errors import ErrorCode
from common.protocol.messages.create_partitions import (
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
from common.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from common.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.blocking_admin import BlockingAdmin

READY_SECONDS = 120.0
POLL_SECONDS = 0.02
LATEST = -1
# A request may write 10,000 records: one for the topic, one for each of its settings and one for each partition.
PARTITIONS_PER_REQUEST_MAX = 9_000


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 3,
    replication_factor: int = 3,
    configs: dict[str, str] | None = None,
    assignments: dict[int, list[int]] | None = None,
    seconds: float = READY_SECONDS,
) -> str:
    """Creates the topic and returns its name once all its replicas are in sync, every replica has its log and every leader
    serves its partitions. `assignments` gives the brokers of each partition, preferred leader first. Without assignments,
    any number of partitions is created, in as many requests as it takes."""
    chosen = [CreatableReplicaAssignment(partition_index=each, broker_ids=ids) for each, ids in (assignments or {}).items()]
    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if chosen else min(partitions, PARTITIONS_PER_REQUEST_MAX),
        replication_factor=-1 if chosen else replication_factor,
        assignments=chosen,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    with BlockingAdmin(bootstrap) as admin:
        response: CreateTopicsResponse = admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        (result,) = response.topics
        assert result.error_code == ErrorCode.NONE, f"{name}: {result.error_message}"
        for count in range(
            2 * PARTITIONS_PER_REQUEST_MAX, partitions + PARTITIONS_PER_REQUEST_MAX, PARTITIONS_PER_REQUEST_MAX
        ):
            _extend(admin, name, min(count, partitions))
        replicas = wait_until_in_sync(
            admin, name, partitions=partitions, replication_factor=replication_factor, seconds=seconds
        )
        _wait_until_leaders_answer(admin, name, seconds)
        _wait_until_logs_exist(admin, name, replicas, seconds)
    return name


def _extend(admin: BlockingAdmin, name: str, partitions: int) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)], timeout_ms=30_000
    )
    response: CreatePartitionsResponse = admin.send(request)
    (result,) = response.results
    assert result.error_code == ErrorCode.NONE, f"{name}: {result.error_message}"


def delete_topic(bootstrap: str, name: str) -> None:
    """Deletes the topic."""
    with BlockingAdmin(bootstrap) as admin:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        response: DeleteTopicsResponse = admin.send(request)
        (result,) = response.responses
        assert result.error_code == ErrorCode.NONE, f"{name}: {result.error_message}"


def wait_until_listed(bootstrap: str, name: str) -> None:
    """Waits until every broker lists the topic. The controller answers CreateTopics before the brokers have fetched the
    records, and a client may ask any broker next."""
    deadline = time.monotonic() + READY_SECONDS
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    with BlockingAdmin(bootstrap) as admin:
        for broker_id in admin.brokers():
            while True:
                response: MetadataResponse = admin.send(request, broker_id)
                if response.topics[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    break
                assert time.monotonic() < deadline, f"broker {broker_id} does not list {name} after {READY_SECONDS:g} s"
                time.sleep(POLL_SECONDS)


def wait_until_in_sync(
    admin: BlockingAdmin, name: str, *, partitions: int, replication_factor: int, seconds: float = READY_SECONDS
) -> list[MetadataResponsePartition]:
    """Waits until every partition has a leader and an ISR of that size, and returns the partitions by number."""
    deadline = time.monotonic() + seconds
    while True:
        (topic,) = admin.metadata([name]).topics
        if len(topic.partitions) == partitions and all(
            part.leader_id >= 0 and len(part.isr_nodes) == replication_factor for part in topic.partitions
        ):
            return sorted(topic.partitions, key=lambda part: part.partition_index)
        if time.monotonic() > deadline:
            behind = [part for part in topic.partitions if len(part.isr_nodes) < replication_factor]
            raise AssertionError(f"{name} is not in sync after {seconds:g} s: {behind[:10]}")
        time.sleep(POLL_SECONDS + len(topic.partitions) / 5000)


def _wait_until_leaders_answer(admin: BlockingAdmin, name: str, seconds: float) -> None:
    """Waits until every leader answers ListOffsets. A full ISR does not show this: the controller sets a new partition's ISR
    before the leader has created its log, and until then acks=0 records are lost."""
    deadline = time.monotonic() + seconds
    waiting = {part.partition_index: part.leader_id for part in admin.metadata([name]).topics[0].partitions}
    while waiting:
        for leader_id in sorted(set(waiting.values())):
            asked = [
                ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                for index in waiting
                if waiting[index] == leader_id
            ]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
            response: ListOffsetsResponse = admin.send(request, leader_id)
            for answer in response.topics[0].partitions:
                if answer.error_code == ErrorCode.NONE:
                    del waiting[answer.partition_index]
        assert time.monotonic() < deadline, f"{name}: {len(waiting)} partitions are not led after {seconds:g} s"
        # Polling costs the brokers time that they need to create the logs, so many partitions are polled less often.
        time.sleep(POLL_SECONDS + len(waiting) / 5000)


def _wait_until_logs_exist(
    admin: BlockingAdmin, name: str, partitions: list[MetadataResponsePartition], seconds: float
) -> None:
    """Waits until every broker has a directory for each of its replicas. Answers of the leaders do not show this of the
    followers."""
    deadline = time.monotonic() + seconds
    for broker_id in sorted({broker_id for part in partitions for broker_id in part.replica_nodes}):
        hosted = {part.partition_index for part in partitions if broker_id in part.replica_nodes}
        asked = [DescribableLogDirTopic(topic=name, partitions=sorted(hosted))]
        while True:
            response: DescribeLogDirsResponse = admin.send(DescribeLogDirsRequest(topics=asked), broker_id)
            topics = [topic for log_dir in response.results for topic in log_dir.topics if topic.name == name]
            if hosted == {each.partition_index for topic in topics for each in topic.partitions}:
                break
            assert time.monotonic() < deadline, f"{name}: broker {broker_id} has only {topics} after {seconds:g} s"
            time.sleep(POLL_SECONDS + len(hosted) / 5000)
