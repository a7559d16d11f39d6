"""The calls of KIP-113: which requests are sent to which brokers, and what result each replica gets."""

from collections.abc import Callable
from typing import Any

import pytest

from admin.errors import RequestFailed
from admin.log_dirs import LogDirInfo, ReplicaInfo, ReplicaLogDirInfo
from admin.partitions import TopicPartition, TopicPartitionReplica
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from common.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from common.protocol.schema import VersionRange
from tests.unit.admin.cluster import Answer, FakeCluster
from tests.unit.common.net.worlds import Scenario, World, run_simulated

Run = Callable[[Scenario], None]


def partition(index: int, *, lag: int = 0, is_future: bool = False) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index, partition_size=100 + index, offset_lag=lag, is_future_key=is_future
    )


# t-0 moves from /d1 to /d2. t-1 is in /d2.
MOVING = DescribeLogDirsResponse(
    results=[
        DescribeLogDirsResult(
            log_dir="/d1",
            topics=[DescribeLogDirsTopic(name="t", partitions=[partition(0, lag=2)])],
            total_bytes=1000,
            usable_bytes=10,
        ),
        DescribeLogDirsResult(
            log_dir="/d2",
            topics=[DescribeLogDirsTopic(name="t", partitions=[partition(0, lag=7, is_future=True), partition(1)])],
            is_cordoned=True,
        ),
        DescribeLogDirsResult(log_dir="/d3", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
    ]
)


def replica(index: int, broker_id: int, topic: str = "t") -> TopicPartitionReplica:
    return TopicPartitionReplica(topic, index, broker_id)


def asked_topics(request: DescribeLogDirsRequest) -> dict[str, list[int]] | None:
    return None if request.topics is None else {topic.topic: topic.partitions for topic in request.topics}


def test_directories_are_described_with_their_replicas_sizes_and_errors(run: Run) -> None:
    """Unknown sizes are None. For an offline directory only the error is known."""

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {ApiKey.DESCRIBE_LOG_DIRS: lambda _: MOVING}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            described = await admin.describe_log_dirs([1])[1]
            assert described == {
                "/d1": LogDirInfo(0, {TopicPartition("t", 0): ReplicaInfo(100, 2, is_future=False)}, 1000, 10),
                "/d2": LogDirInfo(
                    0,
                    {
                        TopicPartition("t", 0): ReplicaInfo(100, 7, is_future=True),
                        TopicPartition("t", 1): ReplicaInfo(101, 0, is_future=False),
                    },
                    None,
                    None,
                    is_cordoned=True,
                ),
                "/d3": LogDirInfo(ErrorCode.KAFKA_STORAGE_ERROR, {}, None, None),
            }
            assert [info.is_online for info in described.values()] == [True, True, False]
            assert asked_topics(cluster[1].asked[0]) is None

    run(scenario)


def test_a_broker_that_refuses_is_an_error_of_that_broker_only(run: Run) -> None:
    """Broker 2 refuses with a top-level error code, which exists since version 3. Broker 1 answers."""

    async def scenario(world: World) -> None:
        refusal = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answers: list[dict[ApiKey, Answer]] = [
            {ApiKey.DESCRIBE_LOG_DIRS: lambda _: MOVING},
            {ApiKey.DESCRIBE_LOG_DIRS: lambda _: refusal},
        ]
        async with FakeCluster(world, answers) as cluster, cluster.admin() as admin:
            results = admin.describe_log_dirs([1, 2])
            assert list(await results[1]) == ["/d1", "/d2", "/d3"]
            with pytest.raises(RequestFailed) as caught:
                await results[2]
            assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_empty_list_of_directories_is_a_refusal(version: int) -> None:
    """Up to version 2 the response has no top-level error code, so a broker refuses with an empty list."""

    async def scenario(world: World) -> None:
        advertised = {key: VersionRange(0, 12) for key in (ApiKey.METADATA, ApiKey.API_VERSIONS)}
        answers: dict[ApiKey, Answer] = {ApiKey.DESCRIBE_LOG_DIRS: lambda _: DescribeLogDirsResponse()}
        advertised[ApiKey.DESCRIBE_LOG_DIRS] = VersionRange(version, version)
        async with FakeCluster(world, [answers], advertised=advertised) as cluster, cluster.admin() as admin:
            with pytest.raises(RequestFailed) as caught:
                await admin.describe_log_dirs([1]).all()
            assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run_simulated(scenario)


def test_a_replica_is_described_where_it_is_and_where_it_goes(run: Run) -> None:
    """Each broker is asked once, and only about its own replicas. A replica that is in no online directory has no directory
    in the result."""

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {ApiKey.DESCRIBE_LOG_DIRS: lambda _: MOVING}
        async with FakeCluster(world, [answers, answers]) as cluster, cluster.admin() as admin:
            described = await admin.describe_replica_log_dirs([replica(0, 1), replica(1, 2), replica(2, 1)]).all()
            assert described == {
                replica(0, 1): ReplicaLogDirInfo("/d1", 2, "/d2", 7),
                replica(1, 2): ReplicaLogDirInfo("/d2", 0, None, -1),
                replica(2, 1): ReplicaLogDirInfo(None, -1, None, -1),
            }
            assert [asked_topics(cluster[id_].asked[0]) for id_ in (1, 2)] == [{"t": [0, 2]}, {"t": [1]}]

    run(scenario)


def test_an_unexpected_error_of_a_directory_hides_its_replicas() -> None:
    """An offline directory is an expected error. After any other error of a directory, the client cannot know where the
    broker's replicas are, so it raises that error for each of them."""

    async def scenario(world: World) -> None:
        broken = DescribeLogDirsResponse(
            results=[*MOVING.results, DescribeLogDirsResult(log_dir="/d4", error_code=ErrorCode.LOG_DIR_NOT_FOUND)]
        )
        answers: dict[ApiKey, Answer] = {ApiKey.DESCRIBE_LOG_DIRS: lambda _: broken}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            with pytest.raises(RequestFailed, match="/d4 of broker 1 has the error LOG_DIR_NOT_FOUND") as caught:
                await admin.describe_replica_log_dirs([replica(0, 1)]).all()
            assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND

    run_simulated(scenario)


def test_each_replica_is_altered_by_itself(run: Run) -> None:
    """Replicas move on two brokers, to two directories. Each broker gets one request, grouped by directory and topic. Each
    replica has its own result. A replica that is missing from the response gets an error."""
    codes = {("a", 0): ErrorCode.NONE, ("a", 1): ErrorCode.REPLICA_NOT_AVAILABLE, ("b", 0): ErrorCode.LOG_DIR_NOT_FOUND}

    def alter(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=topic.name,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                        for index in topic.partitions
                        if (topic.name, index) in codes
                    ],
                )
                for log_dir in request.dirs
                for topic in log_dir.topics
            ]
        )

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {ApiKey.ALTER_REPLICA_LOG_DIRS: alter}
        async with FakeCluster(world, [answers, answers]) as cluster, cluster.admin() as admin:
            results = admin.alter_replica_log_dirs(
                {
                    replica(0, 1, "a"): "/d1",
                    replica(1, 1, "a"): "/d2",
                    replica(0, 1, "b"): "/d1",
                    replica(0, 2, "a"): "/d1",
                    replica(9, 2, "b"): "any",
                }
            )
            await results[replica(0, 1, "a")]
            await results[replica(0, 2, "a")]
            errors: dict[Any, Any] = {
                replica(1, 1, "a"): "REPLICA_NOT_AVAILABLE",
                replica(0, 1, "b"): "LOG_DIR_NOT_FOUND",
                replica(9, 2, "b"): "the response has no result for b-9-2. Call: alterReplicaLogDirs",
            }
            for key, text in errors.items():
                with pytest.raises(RequestFailed, match=text):
                    await results[key]
            sent = {
                id_: [
                    (log_dir.path, {topic.name: topic.partitions for topic in log_dir.topics})
                    for request in broker.asked
                    for log_dir in request.dirs
                ]
                for id_, broker in cluster.brokers.items()
            }
            assert sent == {
                1: [("/d1", {"a": [0], "b": [0]}), ("/d2", {"a": [1]})],
                2: [("/d1", {"a": [0]}), ("any", {"b": [9]})],
            }

    run(scenario)
