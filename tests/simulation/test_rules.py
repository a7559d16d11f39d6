"""Tests rules of the design that need a whole cluster, one scenario each. Some are known pitfalls of Apache Kafka."""

import asyncio
import errno
import inspect
import traceback
from typing import Any

import pytest

from broker.core.directory_assignments import DirectoryAssignments
from broker.core.lifecycle import BrokerLifecycle
from broker.hosting.replica_fetcher import ReplicaFetcher
from broker.hosting.replicas import Replicas
from broker.hosting.upkeep import Upkeep
from broker.requests.fetch import FetchHandler
from broker.requests.metadata import MetadataRequests
from common.configuration.server_loading import load_server_config
from common.environment.interface import LogDirError
from common.ids import NO_LEADER, BrokerId, DirectoryId, TopicIdPartition, uuid_text
from common.log_dirs.log_directories import LogDirectories
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_quorum import DescribeQuorumRequest
from common.protocol.messages.describe_quorum import RequestPartitionData as DescribeQuorumPartition
from common.protocol.messages.describe_quorum import RequestTopicData as DescribeQuorumTopic
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest
from common.records.batch import split_batches
from common.records.record import encode_values_batch
from common.storage.meta_properties import parse_meta_properties
from controller.event_log import EventLog
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster, run
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld, SimulationFailed
from tools.kafka.storage import format_directories
from tools.node.node import Node


def _directory_of(cluster: SimulatedCluster, broker_id: int, number: int) -> DirectoryId:
    found = parse_meta_properties(cluster.disk(broker_id, number).files()["meta.properties"]).directory_id
    assert found is not None
    return found


COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@node:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://node:9092,CONTROLLER://node:9093",
    "log.dirs": "/d1,/d2",
}


def test_a_node_is_ready_once_all_its_roles_are() -> None:
    """Both roles run in one process and share one metadata log. In production `on_ready` excludes all loaded objects from
    garbage collection, so it must be called once, after the controller is active and the broker runs."""

    async def scenario(world: SimulatedWorld) -> None:
        config = load_server_config(COMBINED)
        for path in config.log_dirs:
            world.disk(path)
        await format_directories(world.node("format"), config, cluster_id="combined", level=21, ignore_formatted=False)
        seen: list[int] = []
        stop = asyncio.get_running_loop().create_future()

        def ready() -> None:
            assert world.events_named("controller_active")
            assert world.events_named("broker_running")
            seen.append(world.now_ns())

        async def main(env: SimulatedEnvironment) -> None:
            await Node(env, config, COMBINED, on_ready=ready).run(lambda: asyncio.shield(stop))
            env.die()

        node = world.start("node", main)
        await world.until(lambda: seen)
        await world.sleep(5)
        stop.set_result(None)
        await world.until(lambda: node.is_dead)
        assert node.exit_code is None
        assert len(seen) == 1

    SimulatedWorld(seed=1).run(scenario)


# --- directories and assignments -------------------------------------------------------------------------------------


def test_a_directory_that_fails_before_its_replicas_were_assigned() -> None:
    """The metadata still says UNASSIGNED, which counts as online, so the failure report in the heartbeat moves no leader.
    Then the broker sends the pending assignment with the id of the dead directory, and the controller elects new leaders."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("first", partitions=1)
        creating = asyncio.ensure_future(client.create_topic("t", partitions=9, min_insync_replicas="2"))
        broker = cluster.nodes[1].broker
        assert broker is not None
        await cluster.world.until(lambda: len(broker.replicas.hosted_directories()) == 10)
        victims = {key.partition for key in broker.replicas.hosted_directories() if key.topic_id == cluster.topic_id("t")}
        unassigned = {i for i in victims if cluster.partition("t", i).directory(BrokerId(1)) == UNASSIGNED}
        assert unassigned == set(range(9))
        dead = broker.replicas.hosted_directories()[TopicIdPartition(cluster.topic_id("t"), 0)]
        inside = {
            i for i in range(9) if broker.replicas.hosted_directories()[TopicIdPartition(cluster.topic_id("t"), i)] == dead
        }
        disk = cluster.disk_of(BrokerId(1), dead)
        disk.fail_with(errno.EIO)
        # Report the error at once. Otherwise the broker would send the assignments before the next probe finds the error.
        log_dir = broker._directories.log_dirs[dead]
        assert log_dir.on_error is not None
        log_dir.on_error(LogDirError(disk.path, "append", errno.EIO))
        creating.cancel()
        await cluster.world.event("log_dir_failure_acknowledged", node="broker-1")
        assert all(cluster.partition("t", i).directory(BrokerId(1)) == UNASSIGNED for i in inside)
        assert all(1 in cluster.partition("t", i).isr for i in inside)
        await cluster.world.until(lambda: all(cluster.partition("t", i).directory(BrokerId(1)) == dead for i in inside))
        for index in range(9):
            part = cluster.partition("t", index)
            assert (1 in part.isr) is (index not in inside)
            await client.produce("t", index, b"x")
        assert cluster.env(1).exit_code is None

    run(scenario, log_dir_failure_timeout_ms="3000")


def test_a_directory_that_fails_before_the_registration_is_never_named() -> None:
    """A disk dies between the start-up scan and the registration. The registration leaves its directory out, and heartbeats
    never name it. A replica on it that is the last of its ISR stays offline and is not created elsewhere."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        await client.create_topic("alone", partitions=6, replication_factor=1)
        for index in range(6):
            await client.produce("t", index, b"x")
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.world.network.cut("broker-1", "controller")
        cluster.start_node(1)
        await cluster.world.sleep(1)
        directory_id = _directory_of(cluster, 1, 2)
        cluster.disk(1, 2).fail_with(errno.EIO)
        await cluster.world.event("log_dir_offline", node="broker-1")
        cluster.world.network.mend()
        await cluster.until_running()
        assert cluster.state.brokers[BrokerId(1)].lost_directories == ()
        assert directory_id not in cluster.state.brokers[BrokerId(1)].directories
        assert not cluster.world.events_named("unknown_log_dir_reported")
        for index, part in cluster.partitions("alone").items():
            if part.replicas == (1,) and part.leader == NO_LEADER:
                assert part.directories == (directory_id,), index
        await cluster.world.sleep(10)
        assert cluster.env(1).exit_code is None

    run(scenario)


def test_two_disks_fail_while_a_heartbeat_is_in_flight() -> None:
    """The next heartbeat reports the second failure, and only the response to that heartbeat acknowledges it."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=9, min_insync_replicas="2")
        cluster.disk(1, 1).fail_with(errno.EIO)
        await cluster.world.event("log_dir_offline", node="broker-1")
        cluster.disk(1, 2).fail_with(errno.EIO)
        await cluster.world.until(lambda: len(cluster.world.events_named("log_dir_failure_acknowledged", "broker-1")) == 2)
        assert len(cluster.state.brokers[BrokerId(1)].directories) == 1
        for index in range(9):
            await client.produce("t", index, b"x")

    run(scenario)


def test_a_failure_is_told_to_the_next_controller() -> None:
    """The controller dies just before a disk does. When the controller is back, the next heartbeat reports the failure to
    it."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=9, min_insync_replicas="2")
        for index in range(9):
            await client.produce("t", index, b"x")
        cluster.crash(CONTROLLER_ID)
        cluster.disk(2, 1).fail_with(errno.EIO)
        await cluster.world.sleep(5)
        assert not cluster.env(2).is_dead
        cluster.start_node(CONTROLLER_ID)
        await cluster.world.until(
            lambda: BrokerId(2) in cluster.state.brokers and len(cluster.state.brokers[BrokerId(2)].lost_directories) == 1
        )
        for index in range(9):
            await client.produce("t", index, b"y")

    run(scenario)


def test_the_last_of_the_isr_leads_again_when_its_disk_is_back() -> None:
    """All other replicas had left the ISR when the disk of the last ISR member died. The partition has no leader until that
    disk is back, and then all acknowledged records are there."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        for index in range(6):
            await client.produce("t", index, b"with all")
        for broker_id in (2, 3):
            cluster.crash(broker_id)
        await cluster.world.until(lambda: all(cluster.partition("t", index).isr == (1,) for index in range(6)))
        for index in range(6):
            await client.produce("t", index, b"with one")
        dead = cluster.partition("t", 0).directory(BrokerId(1))
        cluster.fail_disk(BrokerId(1), dead)
        await cluster.world.until(lambda: cluster.partition("t", 0).leader == NO_LEADER)
        for broker_id in (2, 3):
            cluster.start_node(broker_id)
        await cluster.until_running()
        await cluster.world.sleep(10)
        assert cluster.partition("t", 0).leader == NO_LEADER
        assert cluster.partition("t", 0).isr == (1,)
        cluster.disk_of(BrokerId(1), dead).heal()
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_a_lost_replica_starts_anew_only_by_an_unclean_election() -> None:
    """The only replica's disk is replaced by an empty one. Without unclean elections the partition never has a leader again.
    With unclean elections, one record makes the lost replica start empty and lead."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("clean", partitions=2, replication_factor=1)
        await client.create_topic("dirty", partitions=2, replication_factor=1, unclean_leader_election_enable="true")
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        for number in (1, 2):
            cluster.disk(1, number).wipe()
        await cluster.format(1, ignore_formatted=True)
        cluster.start_node(1)
        await cluster.world.until(lambda: all(cluster.partition("dirty", index).leader == 1 for index in (0, 1)))
        for index in (0, 1):
            await client.produce("dirty", index, b"anew")
            assert cluster.partition("clean", index).leader == NO_LEADER
            assert cluster.partition("clean", index).directories == (LOST,)
        await cluster.world.sleep(5)
        assert not cluster.state.brokers[BrokerId(1)].fenced

    run(scenario, brokers=1, disks=2)


@pytest.mark.slow
def test_after_two_unclean_elections_the_replicas_are_equal() -> None:
    """A leader that is deposed has fewer records than the next leader, which does not know its epoch. So it must not go by
    the lengths of the logs (KIP-279)."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=2, unclean_leader_election_enable="true")
        await client.produce("t", 0, b"on both")
        first = cluster.partition("t", 0).leader
        second = next(each for each in cluster.partition("t", 0).replicas if each != first)

        async def take_over(before: BrokerId, after: BrokerId) -> None:
            cluster.crash(before)
            await cluster.world.until(lambda: cluster.partition("t", 0).leader == NO_LEADER)
            cluster.start_node(after)
            await cluster.world.until(lambda: cluster.partition("t", 0).leader == after, within_seconds=60)

        cluster.crash(second)
        await cluster.world.until(lambda: cluster.partition("t", 0).isr == (first,))
        for _ in range(5):
            await client.produce("t", 0, b"on the first")
        await take_over(first, second)
        await client.produce("t", 0, b"on the second")
        await take_over(second, first)
        cluster.start_node(second)
        await cluster.until_in_sync("t")
        await client.produce("t", 0, b"on both again")
        directories = [(each, cluster.partition("t", 0).directory(each)) for each in (first, second)]
        logs = [cluster.disk_of(*each).files()[f"t-0/{0:020d}.log"] for each in directories]
        assert b"on the first" in logs[0] and logs[0] == logs[1]
        # What the second leader took alone is gone.
        client.acknowledged.clear()

    run(scenario)


def test_a_topic_created_anew_under_its_name_is_placed_although_a_disk_is_dead() -> None:
    """The replicas in the dead directory belong to the old topic id, so the new topic is placed on healthy disks
    (KAFKA-16157)."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        cluster.disk(1, 1).fail_with(errno.EIO)
        await cluster.world.event("log_dir_failure_acknowledged", node="broker-1")
        await client.delete_topic("t")
        await client.create_topic("t", partitions=6, min_insync_replicas="3")
        for index in range(6):
            await client.produce("t", index, b"x")

    run(scenario)


def test_a_full_disk_takes_its_directory_offline_as_full() -> None:
    """An append that does not fit is not acknowledged. The leaders move, and the event says that the disk is full."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        for index in range(6):
            await client.produce("t", index, b"x")
        led = next(part for part in cluster.partitions("t").values() if part.leader == 1)
        disk = cluster.disk_of(BrokerId(1), led.directory(BrokerId(1)))
        disk.capacity_bytes = disk.used_bytes()
        # The probe finds the disk full and leaves the directory online: it can still be read.
        await cluster.world.event("log_dir_warning", node="broker-1")
        assert not cluster.world.events_named("log_dir_failed")
        for index in range(6):
            await client.produce("t", index, bytes(100))
        event = cluster.world.events_named("log_dir_failed", "broker-1")[0]
        assert event.fields["is_full"] is True
        # After a restart the directory is online again with its data. The next append fails because the disk is full, and
        # the leadership moves away again.
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.until_running()
        for index in range(6):
            await client.produce("t", index, bytes(100))

    run(scenario)


def test_a_nearly_full_disk_gets_no_new_replicas() -> None:
    """A directory with less free space than the floor gets no new replicas, long before an append fails. The other
    directories get them all."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        for broker_id in cluster.broker_ids:
            disk = cluster.disk(broker_id, 1)
            disk.capacity_bytes = disk.used_bytes() + 500_000
        await cluster.world.sleep(3)
        await client.create_topic("t", partitions=9)
        for broker_id in cluster.broker_ids:
            full = _directory_of(cluster, broker_id, 1)
            assert all(part.directory(BrokerId(broker_id)) != full for part in cluster.partitions("t").values())

    run(scenario, diskraft_log_dir_free_bytes_floor="1000000")


def test_a_disk_that_dies_during_a_controlled_shutdown() -> None:
    """The broker hands its leaderships over anyway. The shutdown completes and leaves clean-shutdown markers in the healthy
    directories."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=9, min_insync_replicas="2")
        for index in range(9):
            await client.produce("t", index, b"x")
        cluster.ask_to_stop(1)
        cluster.disk(1, 2).fail_with(errno.EIO)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        assert cluster.env(1).exit_code is None
        assert ".kafka_cleanshutdown" in cluster.disk(1, 1).files()
        assert ".kafka_cleanshutdown" not in cluster.disk(1, 2).files()
        for index in range(9):
            assert cluster.partition("t", index).leader != 1
            await client.produce("t", index, b"y")

    run(scenario)


def test_one_query_by_directory_id_tells_the_story_of_a_failure() -> None:
    """The events with one directory id, from broker and controller, show the whole failure in order: from the first error to
    the acknowledgement."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=9, min_insync_replicas="2")
        directory_id = _directory_of(cluster, 1, 2)
        cluster.disk(1, 2).fail_with(errno.EIO)
        await cluster.world.event("log_dir_failure_acknowledged", node="broker-1")
        told = [
            (event.node, event.name)
            for event in cluster.world.events
            if event.fields.get("directory_id") in (directory_id, uuid_text(directory_id))
            and event.name not in ("log_created", "assignment_queued")
        ]
        assert told == [
            ("broker-1", "log_dir_failed"),
            ("broker-1", "log_dir_offline"),
            ("broker-1", "replicas_offline"),
            ("controller", "log_dir_reported_offline"),
            ("controller", "leaders_moved"),
            ("broker-1", "log_dir_failure_acknowledged"),
        ]

    run(scenario)


# --- brokers ---------------------------------------------------------------------------------------------------------


def test_a_broker_restarted_at_once_leaves_the_isr_before_it_may_lead() -> None:
    """kill -9 and an immediate start: the registration is refused as a duplicate until the dead broker's session ends. The
    new incarnation has no clean-shutdown marker, so it is removed from every ISR that has another member before it may
    lead."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        for index in range(6):
            await client.produce("t", index, b"x")
        epochs = {index: part.partition_epoch for index, part in cluster.partitions("t").items()}
        cluster.crash(1)
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        refused = cluster.world.events_named("registration_refused", "broker-1")
        assert {event.fields["error"] for event in refused} == {"DUPLICATE_BROKER_REGISTRATION"}
        for index, part in cluster.partitions("t").items():
            assert 1 not in part.isr
            assert part.leader != 1
            assert part.partition_epoch > epochs[index]
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_a_live_broker_that_is_unregistered_ends_and_may_come_back() -> None:
    """The next heartbeat of an unregistered broker is refused, so the broker halts with one log line instead of continuing
    to serve. Started again, it registers and catches up."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        for index in range(6):
            await client.produce("t", index, b"x")
        response = await client.ask(2, UnregisterBrokerRequest(broker_id=1))
        assert response.error_code == ErrorCode.NONE
        assert BrokerId(1) not in cluster.state.brokers
        await cluster.world.until(lambda: cluster.env(1).is_dead, within_seconds=5)
        assert cluster.env(1).exit_code == 1
        assert "unregistered" in cluster.world.events_named("node_halted", "broker-1")[0].fields["reason"]
        for index in range(6):
            assert cluster.partition("t", index).leader not in (1, NO_LEADER)
            await client.produce("t", index, b"y")
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_describe_quorum_goes_through_any_broker() -> None:
    """Admin clients connect to brokers only, so a broker forwards the request to the leader of the quorum. The response
    names the observers too."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        request = DescribeQuorumRequest(
            topics=[DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition()])]
        )
        response = await client.ask(3, request)
        (partition,) = response.topics[0].partitions
        assert (response.error_code, partition.error_code, partition.leader_id) == (0, 0, CONTROLLER_ID)
        assert [voter.replica_id for voter in partition.current_voters] == [CONTROLLER_ID]
        assert [observer.replica_id for observer in partition.observers] == [1, 2, 3]

    run(scenario)


def test_leaders_go_back_to_the_first_replicas() -> None:
    """auto.leader.rebalance.enable: when a broker is back, its leaderships return to it without a command."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        assert all(part.leader != 1 for part in cluster.partitions("t").values())
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.world.until(lambda: all(part.leader == part.replicas[0] for part in cluster.partitions("t").values()))
        for index in range(6):
            await client.produce("t", index, b"x")

    run(scenario, leader_imbalance_check_interval_seconds="5")


def test_a_broker_without_its_metadata_log_begins_with_a_snapshot() -> None:
    """A broker's metadata directory was replaced, and meanwhile a snapshot has replaced the beginning of the controller's
    log. The broker fetches the snapshot, catches up, and treats no replica as new or lost."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        for index in range(6):
            await client.produce("t", index, b"x")
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.world.disk("/b1/metadata").wipe()
        await cluster.format(1, ignore_formatted=True)
        await cluster.world.event("metadata_snapshot_written", node="controller", within_seconds=600)
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        assert cluster.world.events_named("metadata_snapshot_fetched", "broker-1")
        assert not cluster.world.events_named("stray_log_put_aside")

    run(scenario, metadata_log_max_snapshot_interval_ms="20000", metadata_log_max_record_bytes_between_snapshots="1000")


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (MetadataRequests, "handle_metadata"),
        (FetchHandler, "handle"),
        (Replicas, "apply"),
        (Upkeep, "_shrink_isrs"),
        (ReplicaFetcher, "_wanted"),
        (MetadataState, "replay"),
        (LogDirectories, "step"),
        (BrokerLifecycle, "step"),
        (DirectoryAssignments, "handle_answer"),
        (EventLog, "log"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_bug_anywhere_ends_the_daemon(where: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception in requests, metadata, timers, fetchers, disks or the controller ends the whole daemon, even
    while a disk hangs. In the simulation the run fails with it; in production entry.py exits with status 1."""
    right = getattr(where, name)
    is_wrong = False

    def wrong(*arguments: Any, **named: Any) -> Any:
        if is_wrong:
            raise RuntimeError("a bug")
        return right(*arguments, **named)

    async def wrong_later(*arguments: Any, **named: Any) -> Any:
        return await wrong(*arguments, **named)

    monkeypatch.setattr(where, name, wrong_later if inspect.iscoroutinefunction(right) else wrong)

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        nonlocal is_wrong
        await client.create_topic("t", partitions=3)
        cluster.disk(1, 1).hang()
        is_wrong = True
        # A disk under a leader, so that leaders move and followers ask the new ones.
        led = next(partition for partition in cluster.partitions("t").values() if partition.leader == 2)
        cluster.disk_of(BrokerId(2), led.directories[led.replicas.index(BrokerId(2))]).fail_with(errno.EIO)
        asking = asyncio.ensure_future(client.ask(2, MetadataRequest(topics=None)))
        nodes = (CONTROLLER_ID, *cluster.broker_ids)
        try:
            await cluster.world.until(lambda: any(cluster.env(node_id).is_dead for node_id in nodes), within_seconds=15)
        finally:
            asking.cancel()

    with pytest.raises((SimulationFailed, BaseExceptionGroup)) as caught:
        run(scenario)
    assert "a bug" in "".join(traceback.format_exception(caught.value))


def test_a_topic_that_a_client_asked_for_has_the_size_that_the_broker_says() -> None:
    """Auto-creation uses num.partitions and default.replication.factor of the broker that was asked, not of the
    controller."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.start_node(1, {"num.partitions": "4", "default.replication.factor": "2"})
        await cluster.until_running()
        await client.ask(1, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        await cluster.world.until(lambda: "t" in cluster.state.topic_ids)
        assert [len(part.replicas) for part in cluster.partitions("t").values()] == [2, 2, 2, 2]

    run(scenario)


def test_a_record_type_that_nobody_knows_ends_the_node() -> None:
    """Later records may depend on an unknown one, so skipping it would be a guess. The halt reason names the record type."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=1)
        await cluster.start()
        cluster.crash(1)
        cluster.crash(CONTROLLER_ID)
        disk = world.disk("/controller/metadata")
        name = f"__cluster_metadata-0/{0:020d}.log"
        # The crash may have torn the last append.
        content = disk.durable_files()[name]
        header = split_batches(memoryview(content))[-1][0]
        unknown = encode_values_batch(
            [bytes((1, 99, 0))], base_offset=header.next_offset, leader_epoch=header.partition_leader_epoch, timestamp_ms=0
        )
        disk.write(name, content + bytes(unknown))
        cluster.start_node(CONTROLLER_ID)
        await world.until(lambda: cluster.env(CONTROLLER_ID).is_dead)
        assert cluster.env(CONTROLLER_ID).exit_code == 1
        (event,) = world.events_named("node_halted", "controller")
        assert "record of type 99 version 0" in event.fields["reason"]

    SimulatedWorld(seed=1).run(scenario)


def test_a_topic_that_is_deleted_while_a_broker_loads_its_logs_is_not_hosted_there() -> None:
    """The broker learns of the creation and the deletion in one delta, which therefore does not name the topic. Before that
    the broker has found the logs of this topic on a disk, and it must not host them."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=6)
        await cluster.until_in_sync("t")
        cluster.crash(2)
        cluster.disk(2, 1).slow_down(200)
        loads = len(world.events_named("logs_loaded", "broker-2"))
        cluster.start_node(2)
        await world.until(lambda: len(world.events_named("logs_loaded", "broker-2")) == loads + 1)
        assert world.events_named("logs_loaded", "broker-2")[-1].fields == {"log_dir": "/b2/d2", "logs": 3}
        await client.delete_topic("t")
        await world.until(lambda: cluster.partitions("t") == {})
        assert len(world.events_named("logs_loaded", "broker-2")) == loads + 1
        cluster.disk(2, 1).heal()
        await cluster.until_running()
        broker = cluster.nodes[2].broker
        assert broker is not None
        await world.until(lambda: not broker.replicas.hosted_directories())

    run(scenario, disks=2)


def test_a_topic_that_is_deleted_and_created_anew_while_a_broker_loads_its_logs_has_new_logs_there() -> None:
    """The logs of the old topic are renamed before those of the new one are created. The other way round, the rename would
    take the folders of the new logs (seed 15794)."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=6)
        await cluster.until_in_sync("t")
        cluster.crash(2)
        cluster.disk(2, 1).slow_down(2_000)
        loads = len(world.events_named("logs_loaded", "broker-2"))
        cluster.start_node(2)
        await world.until(lambda: len(world.events_named("logs_loaded", "broker-2")) == loads + 1)
        await client.delete_topic("t")
        await client.create_topic("t", partitions=6)
        assert len(world.events_named("logs_loaded", "broker-2")) == loads + 1
        cluster.disk(2, 1).heal()
        await cluster.until_running()
        await cluster.until_in_sync("t")
        node = cluster.nodes[2]
        assert node.broker is not None
        logs = [each.log for each in node.broker.replicas._partitions.values()]
        assert len(logs) == 6
        for log in logs:
            folder = world.disk(log.log_dir.path).find(log.name)
            assert folder is not None, f"the folder of {log.name} is gone"
        assert not world.events_named("stray_log_put_aside", "broker-2")

    run(scenario, disks=2)
