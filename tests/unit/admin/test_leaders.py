"""Requests to the leaders of partitions: the AdminClient finds the new leader when the old one is gone or has changed."""

from typing import Any

import pytest

from admin.config import AdminConfig
from admin.errors import TimedOut
from admin.offsets import ListedOffset
from admin.partitions import TopicPartition
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from common.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from common.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.unit.admin.cluster import Answer, FakeCluster
from tests.unit.common.net.worlds import World, run_simulated

T0 = TopicPartition("t", 0)
CONFIG = AdminConfig(default_api_timeout_ms=20_000, request_timeout_ms=5_000)


class LedPartition:
    """A partition with two replicas. `leader_id` is the leader that every broker names."""

    def __init__(self) -> None:
        self.leader_id = 1

    def answers(self, broker_id: int) -> dict[ApiKey, Answer]:
        def code() -> ErrorCode:
            return ErrorCode.NONE if self.leader_id == broker_id else ErrorCode.NOT_LEADER_OR_FOLLOWER

        def describe(_request: Any) -> MetadataResponse:
            partitions = [MetadataResponsePartition(partition_index=0, leader_id=self.leader_id)]
            return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])

        def list_offsets(_request: Any) -> ListOffsetsResponse:
            found = ListOffsetsPartitionResponse(partition_index=0, offset=7, error_code=code())
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

        def delete_records(_request: Any) -> DeleteRecordsResponse:
            done = DeleteRecordsPartitionResult(partition_index=0, low_watermark=7, error_code=code())
            return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=[done])])

        return {
            ApiKey.METADATA: describe,
            ApiKey.LIST_OFFSETS: list_offsets,
            ApiKey.DELETE_RECORDS: delete_records,
        }


def test_a_dead_leader_is_followed_by_the_new_one() -> None:
    """The broker of the leader dies, and the controller elects another one nine seconds later. Neither call waits for the
    dead broker longer than that."""

    async def scenario(world: World) -> None:
        partition = LedPartition()
        brokers = [partition.answers(1), partition.answers(2)]
        async with FakeCluster(world, brokers) as cluster, cluster.admin(cluster[2].address, config=CONFIG) as admin:
            await admin.list_offsets({T0: 1}, LATEST).all()
            assert cluster[1].server is not None
            cluster[1].server.server.close()
            cluster[1].drop_connections()
            listed, deleted = admin.list_offsets({T0: 1}, LATEST), admin.delete_records({T0: -1})
            env = world.node("client")
            elected_ns = env.now_ns() + 9_000_000_000
            await env.sleep_until(elected_ns)
            cluster.hidden.add(1)
            partition.leader_id = 2
            assert (await listed[T0], await deleted[T0]) == (ListedOffset(7, None), 7)
            assert env.now_ns() - elected_ns < 3_000_000_000

    run_simulated(scenario)


def test_a_broker_that_leads_no_longer_is_not_asked_again() -> None:
    """The caller knows an old leader. That one refuses, and the client asks the new one."""

    async def scenario(world: World) -> None:
        partition = LedPartition()
        partition.leader_id = 2
        brokers = [partition.answers(1), partition.answers(2)]
        async with FakeCluster(world, brokers) as cluster, cluster.admin(config=CONFIG) as admin:
            assert await admin.list_offsets({T0: 1}, LATEST).all() == {T0: ListedOffset(7, None)}

    run_simulated(scenario)


def test_a_partition_that_has_lost_its_leader_waits_for_the_next_one() -> None:
    """As with Kafka's client, an election that comes within the timeout is enough. One that does not come is a timeout."""

    async def scenario(world: World) -> None:
        partition = LedPartition()
        partition.leader_id = -1
        async with FakeCluster(world, [partition.answers(1)]) as cluster, cluster.admin(config=CONFIG) as admin:
            listed, deleted = admin.list_offsets({T0: 1}, LATEST), admin.delete_records({T0: -1})
            with pytest.raises(TimedOut, match="Timed out waiting for the leader of t-0"):
                await admin.delete_records({T0: -1}, timeout_ms=2_000)[T0]
            partition.leader_id = 1
            assert (await listed[T0], await deleted[T0]) == (ListedOffset(7, None), 7)

    run_simulated(scenario)


def test_a_leader_that_never_answers_is_a_timeout() -> None:
    """The metadata goes on naming a broker that refuses. The error names the partition."""

    async def scenario(world: World) -> None:
        partition = LedPartition()
        answers = partition.answers(9) | {ApiKey.METADATA: partition.answers(1)[ApiKey.METADATA]}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin(config=CONFIG) as admin:
            with pytest.raises(TimedOut, match="Timed out waiting for the leader of t-0"):
                await admin.list_offsets({T0: 1}, LATEST)[T0]

    run_simulated(scenario)
