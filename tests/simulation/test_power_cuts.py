"""Whole clusters lose power: acknowledged records and committed metadata survive, and every node comes back.

If one node at a time loses power, two of the three replicas keep their page cache, so no acknowledged record may be lost. If
all nodes lose power at once, records may be lost but metadata may not, and the replicas must become equal again. With
flush.messages=1, no acknowledged record may be lost then either.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from common.protocol.errors import ErrorCode
from common.records.batch import split_batches
from common.records.record import iterate_records
from common.storage.log_config import NEVER
from tests.simulation.cluster import CONTROLLER_ID, NotAcknowledged, SimulatedClient, SimulatedCluster, run
from tests.simulation.environment import SimulatedWorld
from tests.simulation.test_dynamic_configuration import BROKER, alter

pytestmark = pytest.mark.slow

TOPIC = "t"
PARTITIONS = 2
OVERRIDES = {
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "4000",
}

Trouble = Callable[[SimulatedCluster, random.Random], Awaitable[None]]


def run_under_load(seed: int, trouble: Trouble, *, keeps_records: bool, flush_messages: int = NEVER) -> None:
    """Two clients write while `trouble` happens; afterwards everything is in sync again and all replicas are equal."""

    async def scenario(world: SimulatedWorld) -> None:
        rng = random.Random(f"{seed}/power-cuts")
        cluster = SimulatedCluster(world, brokers=3, disks=2, overrides=OVERRIDES)
        await cluster.start()
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                min_insync_replicas="2",
                segment_bytes="16384",
                flush_messages=str(flush_messages),
            )
            writers = [group.create_task(write(cluster, client, rng, is_over)) for _ in range(2)]
            await trouble(cluster, rng)
            is_over.set()
            await asyncio.gather(*writers)
            if keeps_records:
                await client.assert_nothing_lost()
            client.close()
        await world.sleep(2)
        for index in range(PARTITIONS):
            one, *others = [records_of(cluster, broker_id, index) for broker_id in cluster.broker_ids]
            assert one
            assert others == [one, one], f"the replicas of {TOPIC}-{index} differ"

    SimulatedWorld(seed).run(scenario)


async def write(cluster: SimulatedCluster, client: SimulatedClient, rng: random.Random, is_over: asyncio.Event) -> None:
    number = 0
    while not is_over.is_set():
        number += 1
        try:
            await client.produce_once(TOPIC, rng.randrange(PARTITIONS), b"%d" % number + bytes(rng.choice((0, 700, 3000))))
        except NotAcknowledged:
            await cluster.world.sleep(0.05)
        await cluster.world.sleep(rng.uniform(0.001, 0.05))


async def come_back(cluster: SimulatedCluster, *node_ids: int) -> None:
    """Starts the nodes again, and waits until all brokers run and the topic is in sync."""
    # The controller's image may still show the old incarnations as registered, so wait for new registration events instead.
    registered = {id_: registrations(cluster, id_) for id_ in node_ids}
    for node_id in node_ids:
        cluster.start_node(node_id)
    await cluster.world.until(lambda: TOPIC in cluster.state.topic_ids)
    for node_id in node_ids:
        if node_id != CONTROLLER_ID:
            await cluster.world.until(lambda id_=node_id: registrations(cluster, id_) > registered[id_])  # type: ignore[misc]
    await cluster.until_running(60)
    await cluster.until_in_sync(TOPIC, 60)


def registrations(cluster: SimulatedCluster, node_id: int) -> int:
    return len(cluster.world.events_named("broker_registered", cluster.name(node_id)))


def records_of(cluster: SimulatedCluster, broker_id: int, index: int) -> list[tuple[int, int, bytes]]:
    """Returns (offset, leader epoch, value) of every record in the segment files of a replica."""
    found = []
    for number in cluster.disk_numbers(broker_id):
        for name, content in cluster.disk(broker_id, number).files().items():
            if name.startswith(f"{TOPIC}-{index}/") and name.endswith(".log"):
                for header, view in split_batches(memoryview(bytearray(content))):
                    epoch = header.partition_leader_epoch
                    found += [(record.offset, epoch, bytes(record.value or b"")) for record in iterate_records(view)]
    return found


@pytest.mark.parametrize("seed", [1])
def test_nodes_lose_power_one_after_the_other(seed: int) -> None:
    """Brokers and the controller lose power one at a time, each while all replicas are in sync. No record acknowledged with
    acks=all is lost, and a replica that lost the end of its log fetches it again."""

    async def trouble(cluster: SimulatedCluster, rng: random.Random) -> None:
        for node_id in rng.sample([*cluster.broker_ids, CONTROLLER_ID], 4):
            await cluster.world.sleep(rng.uniform(0.5, 2))
            cluster.power_cut(node_id)
            await cluster.world.sleep(rng.uniform(0, 4))
            await come_back(cluster, node_id)

    run_under_load(seed, trouble, keeps_records=True)


async def everything_goes_dark(cluster: SimulatedCluster, rng: random.Random) -> None:
    await cluster.world.sleep(rng.uniform(1, 3))
    nodes = [CONTROLLER_ID, *cluster.broker_ids]
    for node_id in nodes:
        cluster.power_cut(node_id)
    await come_back(cluster, *nodes)


@pytest.mark.parametrize("seed", [1])
def test_everything_goes_dark_at_once(seed: int) -> None:
    """No node keeps its page cache: unsynced records may be lost, but the topic remains, and every node comes back."""
    run_under_load(seed, everything_goes_dark, keeps_records=False)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_what_is_synced_first_survives_when_everything_goes_dark(seed: int) -> None:
    """Each replica syncs a record before it counts as written. So the platters of all replicas of the ISR have every
    acknowledged record, and every one that a consumer has read."""
    run_under_load(seed, everything_goes_dark, keeps_records=True, flush_messages=1)


def test_without_these_syncs_acknowledged_records_are_lost() -> None:
    """The counterpart of the test before it, with the default."""
    with pytest.raises(BaseExceptionGroup) as caught:
        run_under_load(3, everything_goes_dark, keeps_records=True)
    assert "lost what was acknowledged" in str(caught.value.exceptions[0])


@pytest.mark.parametrize("is_lowered", [True, False])
def test_the_first_record_after_a_lower_number_makes_all_before_it_durable(is_lowered: bool) -> None:
    """log.flush.interval.messages is set for all brokers while they run, and one more record is acknowledged. Without the
    change, the same power cut takes records."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic(TOPIC, partitions=1)
        for number in range(20):
            await client.produce(TOPIC, 0, b"%d" % number)
        if is_lowered:
            key = "log.flush.interval.messages"
            assert await alter(client, 1, (BROKER, "", key, "1")) == [("", ErrorCode.NONE, None)]
            await cluster.world.until(lambda: all(flush_interval(cluster, id_) == 1 for id_ in cluster.broker_ids))
        await client.produce(TOPIC, 0, b"last")
        for broker_id in cluster.broker_ids:
            cluster.power_cut(broker_id)
        await come_back(cluster, *cluster.broker_ids)

    if is_lowered:
        run(scenario)
    else:
        with pytest.raises(BaseExceptionGroup) as caught:
            run(scenario)
        assert "lost what was acknowledged" in str(caught.value.exceptions[0])


def flush_interval(cluster: SimulatedCluster, broker_id: int) -> int | None:
    """Returns the number in effect on the broker, or None while the broker is starting."""
    node = cluster.nodes[broker_id]
    return None if node.broker is None else node.broker.configuration.server.log_flush_interval_messages


@pytest.mark.parametrize("victim", [CONTROLLER_ID, 1])
def test_a_failed_fsync_then_a_restart_then_a_power_cut(victim: int) -> None:
    """The restarted node must not rely on data that only the page cache still has. Otherwise the power cut would leave zeros
    in committed metadata, brokers would stop because the controller asks them to truncate committed records, and a follower
    would have a hole below its recovery point."""

    async def trouble(cluster: SimulatedCluster, rng: random.Random) -> None:
        names = ["metadata"] if victim == CONTROLLER_ID else ["d1", "d2"]
        for name in names:
            cluster.world.disk(f"{cluster.home(victim)}/{name}").fail_fsync_once()
        await cluster.world.sleep(4)
        cluster.crash(victim)
        await come_back(cluster, victim)
        await cluster.world.sleep(3)
        cluster.power_cut(victim)
        await come_back(cluster, victim)
        assert not cluster.world.events_named("node_halted", "broker-2")

    run_under_load(4, trouble, keeps_records=True)
