"""Coordinators whose log is compacted: a new one loads from what is left all that the old one knew."""

from broker.coordinator.core.group_partition import OFFSETS_TOPIC
from common.ids import NO_LEADER, BrokerId
from common.protocol.errors import ErrorCode
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.history import History

# Most of them commit once, the others over and over.
GROUPS = [f"g{number}" for number in range(9)]
BUSY = GROUPS[:3]


async def commit(cluster: SimulatedCluster, client: SimulatedClient, leader: BrokerId, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", topic_id=cluster.topic_id("t"), partitions=[partition])
    response = await client.ask(leader, OffsetCommitRequest(group_id=group, topics=[topic]))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


async def committed(cluster: SimulatedCluster, client: SimulatedClient, leader: BrokerId) -> dict[str, int]:
    """Returns the offset of each group. Asks again while the coordinator loads its log."""
    wanted = [OffsetFetchRequestTopics(name="t", topic_id=cluster.topic_id("t"), partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted) for group in GROUPS])
    while True:
        response = await client.ask(leader, request)
        if all(group.error_code == ErrorCode.NONE for group in response.groups):
            return {group.group_id: group.topics[0].partitions[0].committed_offset for group in response.groups}
        await cluster.world.sleep(0.1)


def test_a_new_coordinator_loads_all_commits_from_a_compacted_log() -> None:
    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        checkers = Checkers(cluster, History())
        checkers.install()
        await client.create_topic("t", partitions=1)
        await client.ask(1, FindCoordinatorRequest(coordinator_keys=["any"]))
        await cluster.until_in_sync(OFFSETS_TOPIC)
        old = cluster.partition(OFFSETS_TOPIC, 0).leader
        # It has loaded its log when it answers.
        assert set((await committed(cluster, client, old)).values()) == {-1}
        expected = dict.fromkeys(GROUPS, 0)
        for group in GROUPS:
            await commit(cluster, client, old, group, 0)
        # Each replica is compacted on its own.
        while {event.node for event in world.events_named("log_compacted")} != {*map(cluster.name, cluster.broker_ids)}:
            for group in BUSY:
                expected[group] += 1
                await commit(cluster, client, old, group, expected[group])
        cluster.crash(old)
        await world.until(lambda: cluster.partition(OFFSETS_TOPIC, 0).leader not in (old, NO_LEADER))
        assert await committed(cluster, client, cluster.partition(OFFSETS_TOPIC, 0).leader) == expected
        cluster.start_node(old)
        await cluster.until_in_sync(OFFSETS_TOPIC)
        checkers.at_end()

    run(
        scenario,
        offsets_topic_num_partitions="1",
        offsets_topic_segment_bytes="2000",
        log_cleaner_backoff_ms="100",
    )
