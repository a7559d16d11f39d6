"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on a broker of the simulated world: what the shell adds to the core."""

import pytest

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from common.ids import TopicId
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from common.protocol.schema import Uuid
from tests.unit.broker.cluster import TOPIC, Cluster, run
from tests.unit.broker.requests.contexts import versions

OFFSETS = TopicId(Uuid(b"O" * 16))
NEW = TopicId(Uuid(b"N" * 16))


async def start(cluster: Cluster) -> None:
    """Starts broker 1 with topic t of one partition, and as the coordinator of all groups."""
    cluster.new_shard = lambda: GroupShard(GroupSettings(), cluster[1].state)
    await cluster.start(1)
    cluster.controller.create_topic([1])
    await cluster.started()
    cluster.controller.create_topic([1], name="__consumer_offsets", topic_id=OFFSETS)
    await cluster.coordinates_groups(1)


def joining(*topics: str, member_id: str = "m", group: str = "g") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )


def given(response: ConsumerGroupHeartbeatResponse) -> dict[TopicId, list[int]]:
    assert response.error_code == ErrorCode.NONE, response.error_message
    assert response.assignment is not None
    return {TopicId(each.topic_id): each.partitions for each in response.assignment.topic_partitions}


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_member_joins_and_follows_the_topics(version: int) -> None:
    """It gets the partitions that exist, and those of a topic that is created later with its next heartbeat."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        joined = await cluster.request(1, joining("t", "new"), version=version)
        assert given(joined) == {TOPIC: [0]}
        cluster.controller.create_topic([1], [1], name="new", topic_id=NEW)
        await cluster.until(lambda: NEW in cluster[1].state.topics)
        beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=joined.member_epoch)
        told = await cluster.request(1, beat, version=version)
        assert given(told) == {TOPIC: [0], NEW: [0, 1]}
        assert told.member_epoch == joined.member_epoch + 1

    run(scenario)


def test_who_brings_no_id_is_given_one_in_version_0() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        joined = await cluster.request(1, joining("t", member_id=""), version=0)
        assert len(joined.member_id) == len("00000000-0000-0000-0000-000000000000")
        refused = await cluster.request(1, joining("t", member_id=""), version=1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "MemberId can't be empty."
        nameless = await cluster.request(1, joining("t", group=""), version=1)
        assert (nameless.error_code, nameless.error_message) == (ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")

    run(scenario)


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_DESCRIBE))
def test_groups_are_described_once_each(version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.request(1, joining("t"))
        request = ConsumerGroupDescribeRequest(group_ids=["g", "h", "g"], include_authorized_operations=True)
        response: ConsumerGroupDescribeResponse = await cluster.request(1, request, version=version)
        assert [(each.group_id, each.error_code) for each in response.groups] == [
            ("g", ErrorCode.NONE),
            ("h", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        (member,) = response.groups[0].members
        assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0])]
        assert member.client_host.startswith("/")
        assert [each.authorized_operations for each in response.groups] == [GROUP_OPERATIONS, NOT_ASKED]

    run(scenario)


def test_a_broker_that_does_not_lead_is_not_the_coordinator() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.new_shard = lambda: GroupShard(GroupSettings())
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        answer = await cluster.request(1, joining("t"))
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        described = await cluster.request(1, ConsumerGroupDescribeRequest(group_ids=["g"]))
        assert [each.error_code for each in described.groups] == [ErrorCode.NOT_COORDINATOR]

    run(scenario)
