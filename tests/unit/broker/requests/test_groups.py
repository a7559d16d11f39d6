"""The requests about groups and offsets over the real core, on a broker that coordinates them, in every version.

What the core decides has tests of its own. These tests are about what the handlers add: older forms of a request, several
groups in one, topic ids, and topics that do not exist.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.coordinator.core.group_partition import group_partition
from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from common.ids import TopicId, Uuid
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_groups import DeleteGroupsRequest
from common.protocol.messages.describe_groups import DescribeGroupsRequest
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from common.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from common.protocol.messages.list_groups import ListGroupsRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from common.protocol.messages.sync_group import SyncGroupRequest
from common.time_units import NS_PER_S
from tests.unit.broker.cluster import TOPIC, Cluster, run
from tests.unit.broker.requests.contexts import versions

OFFSETS = TopicId(Uuid(b"O" * 16))
UNKNOWN = TopicId(Uuid(b"?" * 16))
NAMES_LAST_VERSION = 9


async def start(cluster: Cluster, partitions: int = 4, *, delay_ms: int = 0) -> None:
    """Starts broker 1 with topic t of one partition, and as the coordinator of all groups."""
    cluster.new_shard = lambda: GroupShard(GroupSettings(group_initial_rebalance_delay_ms=delay_ms))
    await cluster.start(1)
    cluster.controller.create_topic([1])
    await cluster.started()
    cluster.controller.create_topic(*([[1]] * partitions), name="__consumer_offsets", topic_id=OFFSETS)
    await cluster.coordinates_groups(partitions)


def commit_request(group: str, *topics: tuple[str, TopicId, list[int]], offset: int = 5) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[OffsetCommitRequestPartition(partition_index=each, committed_offset=offset) for each in indexes],
            )
            for name, topic_id, indexes in topics
        ],
    )


async def join(cluster: Cluster, group: str, version: int = 9) -> JoinGroupResponse:
    """Joins a group as its first member, in two rounds where the version has two."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"what the member wants")],
    )
    joined: JoinGroupResponse = await cluster.request(1, request, version=version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = joined.member_id
        joined = await cluster.request(1, request, version=version)
    assert joined.error_code == ErrorCode.NONE
    return joined


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_a_commit_is_answered_for_each_partition(version: int) -> None:
    """What exists is committed; a partition and a topic that do not exist have their own error."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        asked = commit_request("g", ("t", TOPIC, [0, 7]), ("u", UNKNOWN, [0]))
        response = await cluster.request(1, asked, version=version)
        by_id = version > NAMES_LAST_VERSION
        found = {
            (topic.topic_id if by_id else topic.name, part.partition_index): part.error_code
            for topic in response.topics
            for part in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known, missing = (TOPIC, UNKNOWN) if by_id else ("t", "u")
        missing_error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown
        assert found == {(known, 0): ErrorCode.NONE, (known, 7): unknown, (missing, 0): missing_error}
        assert len(response.topics) == 2
        nothing = await cluster.request(1, commit_request("g", ("u", UNKNOWN, [0])), version=version)
        assert [part.error_code for part in nothing.topics[0].partitions] == [missing_error]

    run(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offsets_are_read_in_every_form(version: int) -> None:
    """One group or several, topics by name or by id, all topics or some."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.request(1, commit_request("g", ("t", TOPIC, [0])))
        if version < 8:
            asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
        else:
            wanted = [OffsetFetchRequestTopics(name="t", topic_id=TOPIC, partition_indexes=[0, 1])]
            groups = [OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in ("g", "h")]
            asked = OffsetFetchRequest(groups=groups)
        response = await cluster.request(1, asked, version=version)
        parts = response.topics if version < 8 else response.groups[0].topics
        assert [(part.partition_index, part.committed_offset) for part in parts[0].partitions] == [(0, 5), (1, -1)]
        assert parts[0].topic_id == TOPIC if version > NAMES_LAST_VERSION else parts[0].name == "t"
        if version >= 8:
            assert [each.group_id for each in response.groups] == ["g", "h"]
            assert [part.committed_offset for part in response.groups[1].topics[0].partitions] == [-1, -1]
        if version >= 2:
            everything: Any = OffsetFetchRequest(group_id="g", topics=None)
            if version >= 8:
                everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            response = await cluster.request(1, everything, version=version)
            parts = response.topics if version < 8 else response.groups[0].topics
            assert [[part.committed_offset for part in topic.partitions] for topic in parts] == [[5]]

    run(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_an_error_of_the_coordinator_is_where_the_version_has_room_for_it(version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.start(2)
        asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        if version >= 8:
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[])])
        response = await cluster.request(2, asked, version=version)
        if version >= 8:
            assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        elif version >= 2:
            assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
        else:
            assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_a_topic_id_that_nobody_has_is_an_error_of_that_topic() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        topics = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (UNKNOWN, TOPIC)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        response = await cluster.request(1, request)
        found = {topic.topic_id: topic.partitions[0].error_code for topic in response.groups[0].topics}
        assert found == {UNKNOWN: ErrorCode.UNKNOWN_TOPIC_ID, TOPIC: ErrorCode.NONE}

    run(scenario)


def test_offsets_are_deleted_of_what_exists() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.request(1, commit_request("g", ("t", TOPIC, [0])))
        indexes = [OffsetDeleteRequestPartition(partition_index=each) for each in (0, 7)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=list(indexes)) for name in ("t", "u")]
        response = await cluster.request(1, OffsetDeleteRequest(group_id="g", topics=topics))
        found = {
            (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {("t", 0): ErrorCode.NONE, ("t", 7): unknown, ("u", 0): unknown, ("u", 7): unknown}

    run(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_joins_syncs_and_shows_itself_in_the_group(version: int) -> None:
    """From version 4 on a new member is given its id first. Its client and its host are those of the connection."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        joined = await join(cluster, "g", version)
        assert joined.member_id.startswith("test-")
        sync = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await cluster.request(1, sync, version=3)).error_code == ErrorCode.NONE
        response = await cluster.request(1, DescribeGroupsRequest(groups=["g"], include_authorized_operations=True))
        (group,) = response.groups
        assert (group.group_state, group.authorized_operations) == ("Stable", GROUP_OPERATIONS)
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/client")

    run(scenario)


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None)])
def test_a_sync_of_version_5_must_name_the_protocol(protocol_type: str | None, protocol_name: str | None) -> None:
    """Whatever else is wrong with it, as in Kafka. Before version 5 the names do not exist."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        named = SyncGroupRequest(group_id="g", member_id="nobody", protocol_type="consumer", protocol_name="range")
        unnamed = replace(named, protocol_type=protocol_type, protocol_name=protocol_name)
        assert (await cluster.request(1, named)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await cluster.request(1, unnamed)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await cluster.request(1, unnamed, version=4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_member_whose_client_has_gone_stays_until_its_session_ends() -> None:
    """The client closes its connection while it waits for the rebalance. The rebalance completes with that member all the
    same, as in Kafka; without heartbeats it is removed when its session is over."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster, delay_ms=2_000)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        async with asyncio.TaskGroup() as group:
            env = cluster.world.node("client")
            channel = NodeChannel(env, host="broker-1", port=cluster[1].port, client_id="gone", task_group=group)
            with pytest.raises(ChannelError):
                await channel.send(request, version=3, deadline_ns=cluster.world.now_ns() + NS_PER_S)
            channel.close()
        found = []
        for seconds in (0, 4, 8):
            await cluster.world.sleep(seconds)
            (described,) = (await cluster.request(1, DescribeGroupsRequest(groups=["g"]))).groups
            found.append((described.group_state, len(described.members)))
        assert found == [("PreparingRebalance", 1), ("CompletingRebalance", 1), ("Empty", 0)]

    run(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_a_member_leaves_in_every_form(version: int) -> None:
    """Older versions name one member, and have its error as that of the whole answer."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        joined = await join(cluster, "g")
        for error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
            if version >= 3:
                request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
            response = await cluster.request(1, request, version=version)
            found = [member.error_code for member in response.members] if version >= 3 else [response.error_code]
            assert found == [error]

    run(scenario)


@pytest.mark.parametrize(
    "request_class", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest, OffsetDeleteRequest]
)
def test_a_group_needs_an_id(request_class: Any) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        request = request_class()
        if isinstance(request, SyncGroupRequest):
            request = replace(request, protocol_type="consumer", protocol_name="range")
        assert (await cluster.request(1, request)).error_code == ErrorCode.INVALID_GROUP_ID

    run(scenario)


def test_groups_of_all_partitions_are_listed_described_and_deleted() -> None:
    """The groups lie in different partitions. A name that comes twice is answered once."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        names = [f"group-{number}" for number in range(8)]
        for name in names:
            await cluster.request(1, commit_request(name, ("t", TOPIC, [0])))
        assert len({group_partition(name, 4) for name in names}) > 1
        listed = await cluster.request(1, ListGroupsRequest())
        assert sorted(each.group_id for each in listed.groups) == names
        described = await cluster.request(1, DescribeGroupsRequest(groups=[*names, "no such group", names[0]]), version=5)
        assert [each.group_id for each in described.groups] == [*names, "no such group"]
        assert [each.group_state for each in described.groups] == ["Empty"] * 8 + ["Dead"]
        assert {each.authorized_operations for each in described.groups} == {NOT_ASKED}
        deleted = await cluster.request(1, DeleteGroupsRequest(groups_names=[*names[:5], "no such group"]))
        assert [each.error_code for each in deleted.results] == [ErrorCode.NONE] * 5 + [ErrorCode.GROUP_ID_NOT_FOUND]
        listed = await cluster.request(1, ListGroupsRequest())
        assert sorted(each.group_id for each in listed.groups) == names[5:]

    run(scenario)


def test_a_group_that_stays_is_answered_with_the_reason() -> None:
    """From version 3 of DeleteGroups on."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        joined = await join(cluster, "g", version=3)
        assert joined.error_code == ErrorCode.NONE
        request = DeleteGroupsRequest(groups_names=["g", "no such group"])
        answered = await cluster.request(1, request, version=3)
        assert [(each.error_code, each.error_message) for each in answered.results] == [
            (ErrorCode.NON_EMPTY_GROUP, "The group is not empty."),
            (ErrorCode.GROUP_ID_NOT_FOUND, "The group id does not exist."),
        ]

    run(scenario)


def test_no_part_of_the_groups_passes_for_all_of_them() -> None:
    """While one partition is being loaded, ListGroups says so instead of leaving its groups out."""

    async def scenario(cluster: Cluster) -> None:
        cluster.new_shard = lambda: GroupShard(GroupSettings())
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1])
        cluster.controller.create_topic([1], [1, 2], name="__consumer_offsets", topic_id=OFFSETS)
        await cluster.coordinates_groups(2)
        await cluster.started(0)
        cluster.world.network.cut("broker-2", "broker-1")
        group = next(name for number in range(9) if group_partition(name := f"group-{number}", 2) == 1)
        committing = asyncio.ensure_future(cluster.request(1, commit_request(group, ("t", TOPIC, [0]))))
        await cluster.until(lambda: cluster[1].partition(1, OFFSETS).log.written_offset == 1)
        # A new leader epoch of the same broker: the load waits until broker 2 has the commit.
        for leader in (2, 1):
            cluster.controller.change(1, topic_id=OFFSETS, leader=leader)
        await committing
        assert (await cluster.request(1, ListGroupsRequest())).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        cluster.world.network.mend()
        await cluster.coordinates_groups(2)
        listed = await cluster.request(1, ListGroupsRequest())
        assert [each.group_id for each in listed.groups] == [group]

    run(scenario, replica_lag_time_max_ms="30000")
