"""Followers whose directory hangs at a bad moment notify their leaders all the same, so no client waits for the disk."""

import pytest

from broker.core.fetch_session_cache import FINAL_EPOCH
from broker.core.fetcher_session import SessionRequest
from broker.hosting.leader_connection import LeaderConnection
from broker.hosting.partition import Partition
from common.ids import BrokerId
from common.net.node_channel import OnAnswer
from common.time_units import NS_PER_S
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster, run
from tests.simulation.disk import SimulatedDisk

# The directory is suspected after 0.5 s.
PATIENCE_SECONDS = 1.0


@pytest.mark.slow
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_producer_does_not_wait_for_a_follower_whose_disk_hangs_before_its_log_is_cut(is_cut: bool) -> None:
    """The follower has a record that its new leader lacks. Its disk hangs when it is about to cut that, or before it knows
    of it."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=1)
        await client.produce("t", 0, b"before")
        former, leader, follower = cluster.partition("t", 0).replicas
        disk = disk_of(cluster, follower)
        world.network.cut(cluster.name(former), cluster.name(leader))
        lost = await client.produce_once("t", 0, b"lost", acks=1)
        client.acknowledged["t", 0].pop(lost)
        replica = hosted(cluster, follower)
        await world.until(lambda: replica.log.written_offset == lost + 1)
        if is_cut:
            disk.hang({"truncate"})
        else:
            disk.hang()
        cluster.fail_disk(former, cluster.partition("t", 0).directory(former))
        await world.until(lambda: cluster.partition("t", 0).leader == leader)
        if is_cut:
            await world.until(lambda: replica.is_restructuring)
            disk.hang()
        began_ns = world.now_ns()
        assert await refusal(client) == "REQUEST_TIMED_OUT"
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        assert await refusal(client) == "NOT_ENOUGH_REPLICAS"
        assert cluster.partition("t", 0).isr == (leader, follower)
        disk.thaw()
        world.network.mend()
        await client.produce("t", 0, b"after", within_seconds=3)
        assert replica.log.written_offset == hosted(cluster, leader).log.written_offset

    # The disk is still online when it goes on.
    run(scenario, diskraft_log_dir_operation_timeout_ms="8000")


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
def test_a_producer_does_not_wait_for_a_follower_with_the_hung_target_of_a_move(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target hangs when the copy is about to get the partition's name. With `is_late` the notice reaches the leader only
    after the swap has ended, but before the new directory's fetcher asks for the partition."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=1, replication_factor=2)
        await client.produce("t", 0, b"before")
        leader, follower = cluster.partition("t", 0).replicas
        replica, target = hosted(cluster, follower), cluster.other_disk(follower, "t")
        target.hang({"rename"})
        await client.move(follower, "t", 0, target)
        await world.until(lambda: replica.is_swapping)
        if is_late:
            delivered = hold_notices(monkeypatch)
            await world.until(lambda: bool(replica.unanswered_notices))
            target.thaw()
            await world.until(lambda: not replica.is_swapping)
            await world.until(lambda: bool(delivered))
            await world.until(lambda: hosted(cluster, leader).replica.is_held_up)
        else:
            began_ns = world.now_ns()
            assert await refusal(client) == "REQUEST_TIMED_OUT"
            assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
            assert await refusal(client) == "NOT_ENOUGH_REPLICAS"
            assert replica.is_swapping
            target.thaw()
        await world.until(lambda: not hosted(cluster, leader).replica.is_held_up)
        await client.produce("t", 0, b"after", within_seconds=3)
        assert cluster.partition("t", 0).isr == (leader, follower)

    run(scenario, brokers=2, disks=2, diskraft_log_dir_operation_timeout_ms="8000")


def hold_notices(monkeypatch: pytest.MonkeyPatch) -> list[SessionRequest]:
    """Delays each notice by 2 s, as the network might. Returns those that were let go."""
    post_fetch = LeaderConnection.post_fetch
    delivered: list[SessionRequest] = []

    def post_later(self: LeaderConnection, request: SessionRequest, *, max_wait_ms: int, on_answer: OnAnswer) -> None:
        def post() -> None:
            delivered.append(request)
            post_fetch(self, request, max_wait_ms=max_wait_ms, on_answer=on_answer)

        if request.session_epoch == FINAL_EPOCH:
            self._env.call_at(self._env.now_ns() + 2 * NS_PER_S, post)
        else:
            post_fetch(self, request, max_wait_ms=max_wait_ms, on_answer=on_answer)

    monkeypatch.setattr(LeaderConnection, "post_fetch", post_later)
    return delivered


def hosted(cluster: SimulatedCluster, broker_id: BrokerId) -> Partition:
    broker = cluster.nodes[broker_id].broker
    assert broker is not None
    partition = broker.replicas.find_named("t", 0)
    assert isinstance(partition, Partition)
    return partition


def disk_of(cluster: SimulatedCluster, broker_id: BrokerId) -> SimulatedDisk:
    return cluster.disk_of(broker_id, cluster.partition("t", 0).directory(broker_id))


async def refusal(client: SimulatedClient) -> str:
    """Writes a record. Returns why it is not acknowledged, or an empty string if it is."""
    try:
        await client.produce_once("t", 0, b"held")
    except NotAcknowledged as refused:
        return str(refused)
    return ""
