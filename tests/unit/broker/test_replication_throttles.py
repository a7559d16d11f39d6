"""Replication between brokers is throttled (KIP-73): a follower that is far behind catches up at the rate of the quota.

Each test runs with the leader's quota and with the follower's. Broker 2 joins late and lacks everything in t-0. All times
are those of the simulated world.
"""

import asyncio

import pytest

from broker.core.replication_quota import CHUNK_BYTES_MIN
from common.ids import BrokerId
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from common.time_units import NS_PER_MS, NS_PER_S
from tests.unit.broker.cluster import TOPIC, Cluster, directory, run, values

RATE = 200_000
BATCH_BYTES = 20_000
# As many bytes as the rate carries in eight seconds.
BATCHES = 8 * RATE // BATCH_BYTES
# The name of a quota, and the throttled replica of t-0: the leader is on broker 1, the follower on broker 2.
SIDES = [("leader", "0:1"), ("follower", "0:2")]

both_sides = pytest.mark.parametrize(("side", "replica"), SIDES)


def limit(cluster: Cluster, side: str, bytes_per_s: int) -> None:
    """Sets the rate of all brokers."""
    cluster.controller.configure_broker("", f"{side}.replication.throttled.rate", str(bytes_per_s))


async def far_behind(cluster: Cluster, *, configs: dict[str, str], lagging: int = 1, letters: str = "a") -> None:
    """Starts broker 1 as the only ISR member of t-0 and t-1, fills as many of them as are to lag, and starts the follower,
    broker 2. Returns when the follower hosts both, and is in sync where nothing was missing."""
    await cluster.start(1)
    cluster.controller.create_topic([1, 2], [1, 2], configs=configs)
    for index in range(2):
        cluster.controller.change(index, isr=[1])
        await cluster.started(index)
    for index in range(lagging):
        for _ in range(BATCHES):
            assert (await cluster.produce(1, "x" * BATCH_BYTES, index=index)).error_code == ErrorCode.NONE
    await cluster.start(2, letters)
    for index in range(2):
        await cluster.started(index)
    if lagging == 1:
        await in_sync(cluster, 1)


async def in_sync(cluster: Cluster, index: int = 0) -> None:
    await cluster.until(lambda: cluster.controller.partition(index).isr == (1, 2))


def since_s(cluster: Cluster, begun_ns: int) -> float:
    return (cluster.world.now_ns() - begun_ns) / NS_PER_S


@pytest.mark.slow
@both_sides
def test_a_follower_catches_up_at_the_rate(side: str, replica: str) -> None:
    """The partition's bytes take eight seconds at this rate. Halfway, half of them are there. Each chunk takes few fetches:
    neither side spins while it waits for the quota."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, side, RATE)
        await far_behind(cluster, configs={f"{side}.replication.throttled.replicas": replica})
        size = cluster[1].partition().log.size_bytes
        begun_ns, before = cluster.world.now_ns(), cluster[1].replicas.traffic.all.total_fetch_requests
        await cluster.world.sleep(4)
        assert cluster[2].partition().log.size_bytes == pytest.approx(size / 2, rel=0.1)
        await in_sync(cluster)
        assert since_s(cluster, begun_ns) == pytest.approx(size / RATE, rel=0.05)
        assert cluster.log_bytes(2) == cluster.log_bytes(1)
        throttled = (cluster[1].replicas.leader_quota.throttled_bytes, cluster[2].replicas.follower_quota.throttled_bytes)
        assert throttled == {"leader": (size, 0), "follower": (0, size)}[side]
        assert cluster[1].replicas.traffic.all.total_fetch_requests - before < 4 * size / CHUNK_BYTES_MIN

    run(scenario)


@both_sides
def test_the_rate_is_raised_while_a_follower_waits(side: str, replica: str) -> None:
    """At first next to nothing may flow. With the higher rate, the follower is in sync within a few seconds."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, side, 100)
        await far_behind(cluster, configs={f"{side}.replication.throttled.replicas": replica})
        await cluster.world.sleep(20)
        assert cluster.controller.partition().isr == (1,)
        assert cluster[2].partition().log.size_bytes < 3 * CHUNK_BYTES_MIN
        begun_ns = cluster.world.now_ns()
        limit(cluster, side, 10 * RATE)
        await in_sync(cluster)
        assert since_s(cluster, begun_ns) < 3

    run(scenario)


@both_sides
def test_nothing_flows_at_a_rate_of_zero_until_the_throttle_is_removed(side: str, replica: str) -> None:
    """The topic's list is deleted, as kafka-reassign-partitions --verify does."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, side, 0)
        await far_behind(cluster, configs={f"{side}.replication.throttled.replicas": replica})
        await cluster.world.sleep(5)
        assert cluster[2].partition().log.size_bytes == 0
        begun_ns = cluster.world.now_ns()
        cluster.controller.configure(f"{side}.replication.throttled.replicas", None)
        await in_sync(cluster)
        assert since_s(cluster, begun_ns) < 2

    run(scenario)


@both_sides
def test_another_replica_in_the_list_throttles_nothing(side: str, replica: str) -> None:
    """The list names both partitions on the other broker. The leader's quota is about the leader's replica, the follower's
    about the follower's."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, side, 0)
        other = {"0:1": "0:2,1:2", "0:2": "0:1,1:1"}[replica]
        await far_behind(cluster, configs={f"{side}.replication.throttled.replicas": other})
        begun_ns = cluster.world.now_ns()
        await in_sync(cluster)
        assert since_s(cluster, begun_ns) < 1

    run(scenario)


@pytest.mark.slow
@both_sides
def test_in_sync_partitions_beside_it_are_not_slowed(side: str, replica: str) -> None:
    """All partitions of the topic are throttled, and t-0 lags. Producing to t-1 with acks=all takes milliseconds, though its
    records come from the same leader by the same connection. So does reading t-0 as a consumer."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, side, RATE)
        await far_behind(cluster, configs={f"{side}.replication.throttled.replicas": "*"})
        for number in range(20):
            begun_ns = cluster.world.now_ns()
            assert (await cluster.produce(1, str(number), index=1)).error_code == ErrorCode.NONE
            assert values((await cluster.fetch(1, number)).records) != []
            assert cluster.world.now_ns() - begun_ns < 20 * NS_PER_MS
            await cluster.world.sleep(0.1)
        assert cluster.controller.partition().isr == (1,)
        assert cluster.controller.partition(1).isr == (1, 2)

    run(scenario)


@pytest.mark.slow
@both_sides
def test_all_throttled_partitions_of_a_broker_share_the_rate(side: str, replica: str) -> None:
    """t-0 and t-1 lag by as many bytes and are in two directories of the follower, so they are fetched by two fetchers. They
    advance together and take twice as long as one."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, side, RATE)
        configs = {f"{side}.replication.throttled.replicas": "*"}
        await far_behind(cluster, lagging=2, letters="ab", configs=configs)
        logs = [cluster[2].partition(index).log for index in range(2)]
        assert {cluster[2].partition(index).directory_id for index in range(2)} == {directory(2, "a"), directory(2, "b")}
        size = 2 * cluster[1].partition().log.size_bytes
        begun_ns = cluster.world.now_ns()
        # The fetcher that comes first gets more in the first second or two. From then on they share.
        await cluster.world.sleep(2)
        before = [log.size_bytes for log in logs]
        assert all(before)
        await cluster.world.sleep(8)
        grown = [log.size_bytes - was for log, was in zip(logs, before, strict=True)]
        # Records flow in chunks, and either may be two of them ahead when the time is up.
        assert grown == [pytest.approx(8 * RATE / 2, abs=2 * CHUNK_BYTES_MIN)] * 2
        for index in range(2):
            await in_sync(cluster, index)
        assert since_s(cluster, begun_ns) == pytest.approx(size / RATE, rel=0.05)

    run(scenario)


def test_a_fetch_that_the_leader_holds_back_has_everything_but_records() -> None:
    """Broker 2's fetch, sent by hand, waits until its deadline, and new records do not end the wait. The answer has no error
    and both offsets, and the leader has noted the offset that the follower confirmed."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, "leader", 0)
        await cluster.start(1)
        cluster.controller.create_topic([1, 2], configs={"leader.replication.throttled.replicas": "0:1"})
        cluster.controller.change(isr=[1])
        await cluster.started()
        for number in range(3):
            await cluster.produce(1, str(number))
        begun_ns = cluster.world.now_ns()
        fetching = asyncio.ensure_future(cluster.request(1, follower_request(1, max_wait_ms=400)))
        await cluster.world.sleep(0.2)
        await cluster.produce(1, "new")
        data: PartitionData = (await fetching).responses[0].partitions[0]
        assert since_s(cluster, begun_ns) == pytest.approx(0.4, abs=0.01)
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (ErrorCode.NONE, 4, 0)
        assert values(data.records) == []
        assert cluster[1].partition().replica.followers[BrokerId(2)].log_end_offset == 1
        assert len(cluster[1].partition().fetch_watchers) == 0

    run(scenario)


def test_a_fetch_that_the_leader_holds_back_is_answered_when_the_quota_allows() -> None:
    """A chunk worth a second has just been sent. The next fetch could wait much longer, and gets its records then."""

    async def scenario(cluster: Cluster) -> None:
        limit(cluster, "leader", CHUNK_BYTES_MIN)
        await cluster.start(1)
        cluster.controller.create_topic([1, 2], configs={"leader.replication.throttled.replicas": "0:1"})
        cluster.controller.change(isr=[1])
        await cluster.started()
        for _ in range(10):
            await cluster.produce(1, "x" * (CHUNK_BYTES_MIN // 2 - 100))
        begun_ns = cluster.world.now_ns()
        for offset in (0, 2, 4):
            response = await cluster.request(1, follower_request(offset, max_wait_ms=10_000))
            assert len(values(response.responses[0].partitions[0].records)) == 2
        # The first chunk is ahead of the rate by the burst of a tenth of a second.
        assert since_s(cluster, begun_ns) == pytest.approx(1.9, abs=0.02)

    run(scenario)


def follower_request(offset: int, *, max_wait_ms: int) -> FetchRequest:
    """Makes a fetch of t-0 as broker 2 sends it."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=2),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=TOPIC, partitions=[wanted])],
    )
