"""The AdminClient's calls about groups: which broker they ask, what they retry, and what they return."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from admin.errors import AdminError, InvalidArgument, UnsupportedRequest
from admin.groups import CommittedOffset, GroupDescription, GroupListing, GroupMember
from admin.partitions import TopicPartition
from common.configuration.endpoints import HostPort
from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode_with_version
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import TopicPartition as WireTopicPartition
from common.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from common.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from common.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from common.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.admin.cluster import Answer, FakeCluster
from tests.unit.common.net.worlds import HOST, Scenario, World

Run = Callable[[Scenario], None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def coordinated(world: World, answers: dict[ApiKey, Answer], *, moves: int = 0) -> FakeCluster:
    """Returns a cluster in which broker 2 coordinates every group and answers from the table. `moves` times, broker 1 is
    named as the coordinator first, which refuses everything."""
    left = [moves]

    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        assert (request.key_type, len(request.coordinator_keys)) == (0, 1)
        number = 1 if left[0] > 0 else 2
        left[0] -= 1
        server = cluster[number].server
        assert server is not None
        found = Coordinator(key=request.coordinator_keys[0], node_id=number, host=HOST, port=server.port)
        return FindCoordinatorResponse(coordinators=[found])

    refusing: dict[ApiKey, Answer] = {
        ApiKey.DELETE_GROUPS: lambda _: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)]
        )
    }
    both: dict[ApiKey, Answer] = {ApiKey.FIND_COORDINATOR: find}
    cluster = FakeCluster(world, [{**both, **refusing}, {**both, **answers}])
    return cluster


def listed(groups: list[ListedGroup], _request: ListGroupsRequest) -> ListGroupsResponse:
    return ListGroupsResponse(groups=groups)


def test_groups_of_all_brokers_are_listed(run: Run) -> None:
    """The filters reach the brokers. The groups are sorted by id, and their types written as Kafka's tools write them."""

    async def scenario(world: World) -> None:
        brokers = [DescribeClusterBroker(broker_id=number, host=HOST, port=1) for number in (1, 2)]
        groups = {
            1: [ListedGroup(group_id="b", protocol_type="consumer", group_state="Empty", group_type="classic")],
            2: [ListedGroup(group_id="a", protocol_type="", group_state="Stable", group_type="consumer")],
        }
        answers: list[dict[ApiKey, Answer]] = [
            {
                ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(brokers=brokers),
                ApiKey.LIST_GROUPS: partial(listed, groups[number]),
            }
            for number in (1, 2)
        ]
        async with FakeCluster(world, answers) as cluster, cluster.admin() as admin:
            assert await admin.groups.list(states=["Empty", "Stable"], types=["Classic"]) == [
                GroupListing("a", "", "Stable", "Consumer"),
                GroupListing("b", "consumer", "Empty", "Classic"),
            ]
            asked = [each for each in cluster[2].asked if isinstance(each, ListGroupsRequest)]
            assert asked == [ListGroupsRequest(states_filter=["Empty", "Stable"], types_filter=["Classic"])]

    run(scenario)


def described(**fields: Any) -> Answer:
    return lambda request: DescribeGroupsResponse(groups=[DescribedGroup(group_id=request.groups[0], **fields)])


def test_a_classic_group_is_described_with_the_partitions_of_its_members(run: Run) -> None:
    """Version 1 of the assignment is read like version 0. A member that waits for its assignment has no partitions."""
    assignment = encode_with_version(
        ConsumerProtocolAssignment(assigned_partitions=[WireTopicPartition(topic="t", partitions=[1, 0])]), 1
    )
    members = [
        DescribedGroupMember(
            member_id="m1", group_instance_id="i", client_id="c", client_host="/h", member_assignment=assignment
        ),
        DescribedGroupMember(member_id="m2"),
    ]

    async def scenario(world: World) -> None:
        answer = described(group_state="Stable", protocol_type="consumer", protocol_data="range", members=members)
        async with coordinated(world, {ApiKey.DESCRIBE_GROUPS: answer}) as cluster, cluster.admin() as admin:
            server = cluster[2].server
            assert server is not None
            assert await admin.groups.describe("g") == GroupDescription(
                "g",
                "Classic",
                "Stable",
                "range",
                (
                    GroupMember("m1", "i", "c", "/h", frozenset({T0, T1})),
                    GroupMember("m2", None, "", "", frozenset()),
                ),
                2,
                HostPort(HOST, server.port),
            )

    run(scenario)


def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs(run: Run) -> None:
    """One member has still to give a partition away, another uses the classic protocol."""

    def partitions(*numbers: int) -> DescribedAssignment:
        return DescribedAssignment(
            topic_partitions=[DescribedTopicPartitions(topic_name="t", partitions=list(numbers))] if numbers else []
        )

    members = [
        DescribedConsumer(
            member_id="m1",
            member_epoch=3,
            client_id="c",
            client_host="/h",
            assignment=partitions(0, 1),
            target_assignment=partitions(0),
            member_type=1,
        ),
        DescribedConsumer(member_id="m2", member_type=0),
        DescribedConsumer(member_id="m3"),
    ]
    group = DescribedConsumerGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=members,
    )

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {
            ApiKey.CONSUMER_GROUP_DESCRIBE: lambda _: ConsumerGroupDescribeResponse(groups=[group])
        }
        async with coordinated(world, answers) as cluster, cluster.admin() as admin:
            found = await admin.groups.describe("g")
            assert (found.type, found.state, found.assignor) == ("Consumer", "Reconciling", "uniform")
            assert (found.epoch, found.target_assignment_epoch) == (5, 4)
            nothing: frozenset[TopicPartition] = frozenset()
            assert found.members == (
                GroupMember("m1", None, "c", "/h", frozenset({T0, T1}), 3, frozenset({T0}), True),
                GroupMember("m2", None, "", "", nothing, 0, nothing, False),
                GroupMember("m3", None, "", "", nothing, 0, nothing, None),
            )

    run(scenario)


def test_a_classic_group_at_a_broker_that_knows_both_kinds(run: Run) -> None:
    """The broker does not find it among the groups of the consumer protocol."""

    async def scenario(world: World) -> None:
        missing = DescribedConsumerGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        answers: dict[ApiKey, Answer] = {
            ApiKey.CONSUMER_GROUP_DESCRIBE: lambda _: ConsumerGroupDescribeResponse(groups=[missing]),
            ApiKey.DESCRIBE_GROUPS: described(group_state="Empty", protocol_type="consumer"),
        }
        async with coordinated(world, answers) as cluster, cluster.admin() as admin:
            found = await admin.groups.describe("g")
            assert (found.type, found.state, found.epoch) == ("Classic", "Empty", None)

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (described(group_state="Dead"), ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        (
            described(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="no g"),
            ErrorCode.GROUP_ID_NOT_FOUND,
            "no g",
        ),
        (
            described(group_state="Stable", protocol_type="connect"),
            ErrorCode.INVALID_REQUEST,
            "GroupId g is not a consumer group (connect).",
        ),
        (
            described(
                group_state="Stable",
                protocol_type="consumer",
                members=[DescribedGroupMember(member_id="m", member_assignment=b"\0\0\0\0\0\7x")],
            ),
            ErrorCode.INVALID_REQUEST,
            "the assignment of a member cannot be read: ",
        ),
        (lambda _: DescribeGroupsResponse(), ErrorCode.UNKNOWN_SERVER_ERROR, "the response has 0 results instead of one"),
    ],
)
def test_groups_that_cannot_be_described(run: Run, answer: Answer, code: ErrorCode, text: str) -> None:
    """A group is unknown, is not one of consumers, or its description makes no sense."""

    async def scenario(world: World) -> None:
        async with coordinated(world, {ApiKey.DESCRIBE_GROUPS: answer}) as cluster, cluster.admin() as admin:
            with pytest.raises(AdminError) as raised:
                await admin.groups.describe("g")
            assert raised.value.code is code
            assert str(raised.value).startswith(text)
            assert isinstance(raised.value, InvalidArgument) == (code is ErrorCode.INVALID_REQUEST)

    run(scenario)


def test_a_call_follows_the_coordinator(run: Run) -> None:
    """Broker 1 is named twice and refuses. The request that broker 2 answers is the third."""

    async def scenario(world: World) -> None:
        codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

        def delete(_request: object) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=codes.pop(0))])

        async with coordinated(world, {ApiKey.DELETE_GROUPS: delete}, moves=2) as cluster, cluster.admin() as admin:
            await admin.groups.delete("g")
            assert codes == []

    run(scenario)


def test_a_coordinator_that_is_not_there_yet_is_waited_for(run: Run) -> None:
    """An error that waiting does not cure is raised at once."""

    async def scenario(world: World) -> None:
        codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3 + [ErrorCode.INVALID_GROUP_ID]

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            found = Coordinator(key=request.coordinator_keys[0], error_code=codes.pop(0), error_message="why")
            return FindCoordinatorResponse(coordinators=[found])

        async with FakeCluster(world, [{ApiKey.FIND_COORDINATOR: find}]) as cluster, cluster.admin() as admin:
            with pytest.raises(AdminError) as raised:
                await admin.groups.offsets("g")
            assert (raised.value.code, str(raised.value), codes) == (ErrorCode.INVALID_GROUP_ID, "why", [])

    run(scenario)


def test_a_broker_without_groups_is_named_as_such(run: Run) -> None:
    async def scenario(world: World) -> None:
        async with FakeCluster(world, [{}]) as cluster, cluster.admin() as admin:
            with pytest.raises(UnsupportedRequest, match="FIND_COORDINATOR"):
                await admin.groups.offsets("g")

    run(scenario)


def fetched(request: OffsetFetchRequest) -> OffsetFetchResponse:
    (asked,) = request.groups
    assert asked.topics is None
    partitions = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="m"),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=6, metadata=None),
        OffsetFetchResponsePartitions(partition_index=2, committed_offset=-1),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)])


def test_all_committed_offsets_of_a_group(run: Run) -> None:
    """A partition that is listed without an offset is left out."""

    async def scenario(world: World) -> None:
        async with coordinated(world, {ApiKey.OFFSET_FETCH: fetched}) as cluster, cluster.admin() as admin:
            assert await admin.groups.offsets("g") == {T0: CommittedOffset(5, 3, "m"), T1: CommittedOffset(6)}

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
def test_offsets_are_committed_from_outside(run: Run, code: ErrorCode) -> None:
    """The request is that of no member. The error of the second partition is raised."""

    def commit(request: OffsetCommitRequest) -> OffsetCommitResponse:
        assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
        (topic,) = request.topics
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 7), (1, 8)]
        partitions = [
            OffsetCommitResponsePartition(partition_index=index, error_code=error)
            for index, error in ((0, ErrorCode.NONE), (1, code))
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=topic.name, partitions=partitions)])

    async def scenario(world: World) -> None:
        async with coordinated(world, {ApiKey.OFFSET_COMMIT: commit}) as cluster, cluster.admin() as admin:
            call = admin.groups.alter_offsets("g", {T0: CommittedOffset(7), T1: CommittedOffset(8)})
            if code is ErrorCode.NONE:
                await call
                return
            with pytest.raises(AdminError) as raised:
                await call
            assert raised.value.code is code

    run(scenario)


def test_offsets_are_deleted_one_by_one(run: Run) -> None:
    """Each partition has its own result, and a partition that the answer lacks an error. That of the group is raised."""
    answers = [
        OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name="t",
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=0),
                        OffsetDeleteResponsePartition(partition_index=1, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
                    ],
                )
            ]
        ),
        OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND),
    ]

    async def scenario(world: World) -> None:
        given = iter(answers)
        async with coordinated(world, {ApiKey.OFFSET_DELETE: lambda _: next(given)}) as cluster, cluster.admin() as admin:
            missing = TopicPartition("u", 0)
            results = await admin.groups.delete_offsets("g", [T0, T1, missing])
            assert {each: error and error.code for each, error in results.items()} == {
                T0: None,
                T1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                missing: ErrorCode.UNKNOWN_SERVER_ERROR,
            }
            with pytest.raises(AdminError) as raised:
                await admin.groups.delete_offsets("g", [T0])
            assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario)
