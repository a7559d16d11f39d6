"""Consumers that read from followers (KIP-392), on brokers in a simulated world. Broker N is in rack-N.

The leader sends a consumer to the in-sync replica in its rack; the follower serves it up to the high watermark that it
knows, and with errors that lead the consumer back to the leader.
"""

import asyncio
import errno
from typing import Any

import pytest

from common.configuration.server import RACK_AWARE_SELECTOR
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from common.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from common.time_units import NS_PER_MS
from tests.unit.broker.cluster import TOPIC, Cluster, path, run, values

RACK_AWARE: dict[str, Any] = {"replica_selector_class": RACK_AWARE_SELECTOR}


async def start(cluster: Cluster) -> None:
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    cluster.controller.create_topic([1, 2])
    await cluster.started()


async def fetch(
    cluster: Cluster, broker_id: int, offset: int = 0, *, rack: str = "rack-2", version: int = 17, **fields: Any
) -> PartitionData:
    """Fetches as a consumer in a rack."""
    epoch = fields.pop("current_leader_epoch", -1)
    wanted = FetchPartition(partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", topic_id=TOPIC, partitions=[wanted])
    request = FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "rack_id": rack, "topics": [topic], **fields})
    response = await cluster.request(broker_id, request, version=version)
    data: PartitionData = response.responses[0].partitions[0]
    return data


# --- the leader --------------------------------------------------------------------------------------------------


def test_the_leader_names_the_follower_in_the_rack_and_sends_no_records() -> None:
    """Only a consumer in the follower's rack is sent away, with an answer at once and without records."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.produce(1, "a")
        begun_ns = cluster.world.now_ns()
        data = await fetch(cluster, 1, max_wait_ms=10_000, min_bytes=1 << 20)
        assert cluster.world.now_ns() - begun_ns < 10 * NS_PER_MS
        assert (data.error_code, data.preferred_read_replica, values(data.records)) == (ErrorCode.NONE, 2, [])
        assert (data.high_watermark, data.log_start_offset) == (1, 0)
        for rack in ("rack-1", "elsewhere", ""):
            data = await fetch(cluster, 1, rack=rack)
            assert (data.preferred_read_replica, values(data.records)) == (-1, ["a"])

    run(scenario, **RACK_AWARE)


def test_without_a_selector_the_leader_serves_every_rack() -> None:
    """replica.selector.class is not set, as by default."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.produce(1, "a")
        data = await fetch(cluster, 1)
        assert (data.preferred_read_replica, values(data.records)) == (-1, ["a"])

    run(scenario)


def test_a_version_without_racks_is_served_by_the_leader() -> None:
    """Fetch 10 has no rack and no preferred replica."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.produce(1, "a")
        assert values((await fetch(cluster, 1, version=10)).records) == ["a"]

    run(scenario, **RACK_AWARE)


def test_a_waiting_consumer_is_sent_to_the_follower_once_there_is_one() -> None:
    """The follower is started while the consumer waits at the leader. The consumer's next fetch is sent there."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.register(2, "a", fenced=True)
        cluster.controller.create_topic([1, 2])
        cluster.controller.change(isr=[1])
        await cluster.started()
        await cluster.produce(1, "a")
        assert (await fetch(cluster, 1)).preferred_read_replica == -1
        await cluster.start(2)
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        assert (await fetch(cluster, 1, 1)).preferred_read_replica == 2

    run(scenario, **RACK_AWARE)


# --- the follower ------------------------------------------------------------------------------------------------


def test_a_follower_serves_up_to_the_high_watermark_that_it_knows() -> None:
    """The follower has a record that it does not know to be committed: it is not served, neither at once nor after the wait,
    and its offset is not out of range."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.produce(1, "a", "b")
        await cluster.until(lambda: cluster[2].partition().high_watermark == 2)
        data = await fetch(cluster, 2)
        assert (data.error_code, data.high_watermark, values(data.records)) == (ErrorCode.NONE, 2, ["a", "b"])
        # Without the leader's answers the follower does not learn the high watermark again.
        cluster.world.network.cut("broker-1", "broker-2")
        cluster[2].partition().replica.high_watermark = Offset(1)
        for offset in (1, 2):
            data = await fetch(cluster, 2, offset, max_wait_ms=300)
            assert (data.error_code, data.high_watermark, values(data.records)) == (ErrorCode.NONE, 1, [])
        assert (await fetch(cluster, 2, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await fetch(cluster, 2, -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario, **RACK_AWARE)


def test_a_follower_refuses_old_versions_and_other_leader_epochs() -> None:
    """Consumers before Fetch 11 read from the leader only, and a consumer with another leader epoch is fenced here as on the
    leader."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        cluster.controller.change(leader=1)
        assert (await fetch(cluster, 2, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetch(cluster, 2, version=11)).error_code == ErrorCode.NONE
        assert (await fetch(cluster, 2, current_leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await fetch(cluster, 2, current_leader_epoch=1)).error_code == ErrorCode.NONE
        assert (await fetch(cluster, 2, current_leader_epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario, **RACK_AWARE)


def test_a_follower_outside_the_isr_sends_its_consumers_back() -> None:
    """The consumer waits at the follower while the follower is removed from the ISR: the wait ends at once."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        waiting = asyncio.ensure_future(fetch(cluster, 2, max_wait_ms=10_000))
        await cluster.world.sleep(0.1)
        begun_ns = cluster.world.now_ns()
        cluster.world.network.cut("broker-1", "broker-2")
        cluster.controller.change(isr=[1])
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.world.now_ns() - begun_ns < 10 * NS_PER_MS
        assert (await fetch(cluster, 2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetch(cluster, 1)).preferred_read_replica == -1

    run(scenario, **RACK_AWARE)


def test_a_follower_that_truncates_asks_for_patience() -> None:
    """While the log is restructured its end is unknown."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        cluster[2].partition().begin_restructuring()
        assert (await fetch(cluster, 2)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await fetch(cluster, 2, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster[2].partition().end_restructuring()
        assert (await fetch(cluster, 2)).error_code == ErrorCode.NONE

    run(scenario, **RACK_AWARE)


def test_offsets_are_listed_by_the_leader_only() -> None:
    """A follower's end could be lower than one that the consumer has already seen."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        response = await cluster.request(2, request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario, **RACK_AWARE)


@pytest.mark.parametrize("is_rack_aware", [True, False])
def test_a_long_poll_on_a_follower_ends_when_the_record_is_committed(is_rack_aware: bool) -> None:
    """The follower learns the high watermark at once if consumers are sent to it, and otherwise when its own poll at the
    leader ends, after replica.fetch.wait.max.ms=500."""

    async def scenario(cluster: Cluster) -> None:
        await start(cluster)
        await cluster.produce(1, "a")
        await cluster.world.sleep(1)
        waiting = asyncio.ensure_future(fetch(cluster, 2, 1, max_wait_ms=10_000))
        await cluster.world.sleep(0.3)
        begun_ns = cluster.world.now_ns()
        await cluster.produce(1, "b")
        assert values((await waiting).records) == ["b"]
        is_soon = cluster.world.now_ns() - begun_ns < 50 * NS_PER_MS
        assert is_soon is is_rack_aware

    properties: dict[str, Any] = RACK_AWARE if is_rack_aware else {}
    run(scenario, **properties)


def test_every_follower_learns_the_high_watermark_at_once() -> None:
    """With two followers, the fetch of the one moves the high watermark while the other already waits at the leader. An idle
    partition causes no more fetches than its polls."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2, 3])
        await cluster.started()
        for number in range(1, 6):
            begun_ns = cluster.world.now_ns()
            await cluster.produce(1, str(number))
            await cluster.until(lambda: all(cluster[each].partition().high_watermark == number for each in (2, 3)))  # noqa: B023
            assert cluster.world.now_ns() - begun_ns < 50 * NS_PER_MS
        counts = cluster[1].replicas.traffic.all
        await cluster.world.sleep(1)
        before = counts.total_fetch_requests
        await cluster.world.sleep(10)
        assert counts.total_fetch_requests - before <= 2 * 21

    run(scenario, **RACK_AWARE)


def test_the_disk_of_the_preferred_follower_dies() -> None:
    """It sends its consumer back to the leader. The leader names the follower as long as it cannot know, and not any more
    once the metadata has the failure, although the follower is still in the ISR and its broker unfenced."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id, "ab")
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        await cluster.produce(1, "a")
        held = cluster[2].partition().directory_id
        letter = next(each for each in "ab" if each.encode() == held[-1:])
        cluster.controller.change(directories=[cluster[1].partition().directory_id, held])
        assert (await fetch(cluster, 1)).preferred_read_replica == 2
        waiting = asyncio.ensure_future(fetch(cluster, 2, 1, max_wait_ms=20_000))
        await cluster.world.sleep(0.1)
        cluster.world.disk(path(2, letter)).fail_with(errno.EIO)
        await cluster.produce(1, "b", acks=1)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetch(cluster, 2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.controller.fence(2, still="b" if letter == "a" else "a")
        assert cluster.controller.partition().isr == (1, 2)
        data = await fetch(cluster, 1)
        assert (data.preferred_read_replica, values(data.records)[:1]) == (-1, ["a"])

    run(scenario, **RACK_AWARE)


def test_the_disk_of_the_preferred_follower_hangs() -> None:
    """It sends its consumers back once the directory is suspected, also one that waits, and the leader serves them. When the
    disk goes on, they read there again."""

    async def scenario(cluster: Cluster) -> None:
        world = cluster.world
        await start(cluster)
        await cluster.produce(1, "a")
        assert (await fetch(cluster, 1)).preferred_read_replica == 2
        waiting = asyncio.ensure_future(fetch(cluster, 2, 1, max_wait_ms=20_000))
        await world.sleep(0.1)
        disk = world.disk(path(2, "a"))
        disk.hang()
        begun_ns = world.now_ns()
        await cluster.produce(1, "b", acks=1)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.now_ns() - begun_ns < 1500 * NS_PER_MS
        assert (await fetch(cluster, 2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.until(lambda: cluster[1].partition().replica.is_held_up, within_seconds=1)
        data = await fetch(cluster, 1)
        assert (data.preferred_read_replica, values(data.records)[:1]) == (-1, ["a"])
        disk.thaw()
        await cluster.until(lambda: cluster[2].partition().high_watermark == 2)
        assert (await fetch(cluster, 1)).preferred_read_replica == 2
        assert values((await fetch(cluster, 2)).records) == ["a", "b"]

    run(scenario, **RACK_AWARE, diskraft_log_dir_operation_timeout_ms="10000")
