"""Reassignments: the requests of the AdminClient and what it makes of the responses. A fake controller answers."""

import pytest

from admin.errors import InvalidArgument, RequestFailed
from admin.partitions import TopicPartition
from admin.reassignments import PartitionReassignment
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.unit.admin.cluster import FakeCluster
from tests.unit.common.net.worlds import World, run_simulated

T_0, T_1, U_0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_reassignments_are_started_and_cancelled_partition_by_partition() -> None:
    """One request for everything, to the controller. A partition that is refused does not fail the others."""

    def alter(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        def result(index: int, replicas: list[int] | None) -> ReassignablePartitionResponse:
            if replicas is not None:
                return ReassignablePartitionResponse(partition_index=index)
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message="nothing to cancel")

        return AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name=topic.name, partitions=[result(each.partition_index, each.replicas) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    async def scenario(world: World) -> None:
        answers = {ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter}
        async with FakeCluster(world, [answers, answers]) as cluster, cluster.admin() as admin:
            cluster.controller_id = 2
            results = admin.alter_partition_reassignments(
                {T_0: [1, 2], U_0: (2,), T_1: None}, allow_replication_factor_change=False
            )
            await results[T_0]
            await results[U_0]
            with pytest.raises(RequestFailed, match="nothing to cancel") as refused:
                await results[T_1]
            assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            (request,) = cluster[2].asked
            assert not request.allow_replication_factor_change
            assert [
                (topic.name, [(each.partition_index, each.replicas) for each in topic.partitions])
                for topic in request.topics
            ] == [("t", [(0, [1, 2]), (1, None)]), ("u", [(0, [2])])]
            assert cluster[1].asked == []

    run_simulated(scenario)


def test_a_refusal_of_the_whole_request_fails_every_partition() -> None:
    async def scenario(world: World) -> None:
        refusal = AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not for you"
        )
        answers = {ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda _: refusal}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            for future in admin.alter_partition_reassignments({T_0: [1], U_0: [1]}).values():
                with pytest.raises(RequestFailed, match="not for you"):
                    await future

    run_simulated(scenario)


def test_a_broker_id_that_cannot_be_sent_is_an_invalid_argument() -> None:
    async def scenario(world: World) -> None:
        answers = {ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda _: AlterPartitionReassignmentsResponse()}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            with pytest.raises(InvalidArgument):
                await admin.alter_partition_reassignments({T_0: [1 << 31]})[T_0]
            assert cluster[1].asked == []

    run_simulated(scenario)


def test_reassignments_of_some_partitions_are_listed() -> None:
    """The request names the partitions by topic; a partition that is not being reassigned has no result."""
    ongoing = OngoingPartitionReassignment(partition_index=1, replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2])

    def answer(_request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="t", partitions=[ongoing])])

    async def scenario(world: World) -> None:
        async with (
            FakeCluster(world, [{ApiKey.LIST_PARTITION_REASSIGNMENTS: answer}]) as cluster,
            cluster.admin() as admin,
        ):
            listed = await admin.list_partition_reassignments([T_0, U_0, T_1])
            assert listed == {T_1: PartitionReassignment((3, 1, 2), (3,), (2,))}
            (request,) = cluster[1].asked
            assert [(topic.name, topic.partition_indexes) for topic in request.topics] == [("t", [0, 1]), ("u", [0])]

    run_simulated(scenario)
