"""Runs whole clusters of production daemons on virtual time. Each scenario tests one guarantee."""

import errno
from collections.abc import Iterable, Sequence

import pytest

from broker import daemon
from broker.hosting.partition import Partition
from common.ids import NO_LEADER, BrokerId
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.parts import FileRegion, Part
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
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
from common.slices import ITEMS_PER_SLICE, in_slices
from common.time_units import NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster, run
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.network import SimulatedConnection


def test_records_are_written_replicated_and_read_back() -> None:
    """The normal case without faults: three brokers, a topic, and produce requests with acks=all. Every record can be read
    back."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=4, min_insync_replicas="2")
        for number in range(40):
            await client.produce("t", number % 4, b"%d" % number)
        for index in range(4):
            assert len(await client.read_all("t", index)) == 10
            # Every replica was placed, and its broker has reported the directory to the controller.
            assert UNASSIGNED not in cluster.partition("t", index).directories

    run(scenario)


def test_a_broker_that_says_that_it_runs_names_itself_to_clients() -> None:
    """The heartbeat that unfences a broker may be answered before the broker has the record. A client that gets metadata
    without any broker meanwhile may not ask again for a minute (librdkafka)."""
    named: list[bool] = []
    clusters: list[SimulatedCluster] = []

    def note(event: SimulatedEvent) -> None:
        if event.name == "broker_running":
            broker = clusters[-1].nodes[event.fields["broker_id"]].broker
            assert broker is not None
            named.append(not broker.state.brokers[event.fields["broker_id"]].fenced)

    async def scenario(world: SimulatedWorld) -> None:
        clusters.append(SimulatedCluster(world, brokers=3, disks=2))
        world.event_watchers.append(note)
        await clusters[-1].start()
        await world.until(lambda: len(world.events_named("broker_running")) == 3)

    for seed in range(1, 11):
        SimulatedWorld(seed).run(scenario)
    assert named == [True] * 30


def test_the_report_of_a_failure_leaves_before_the_replicas_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the replicas of a directory takes time that grows with their number, and new leaders wait for the report. So
    the heartbeat with the directory's id is handed to the connection first, and the work is done in slices, so that the
    broker answers other requests in between."""
    happened: list[str] = []
    leave, send = Partition.leave, SimulatedConnection.send

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3 * ITEMS_PER_SLICE, replication_factor=1)
        led = cluster.partition("t", 0)
        directory_id = led.directory(led.leader)

        def noted_leave(partition: Partition, error: ErrorCode) -> None:
            happened.append("closed")
            leave(partition, error)

        def noted_send(connection: SimulatedConnection, parts: Sequence[Part]) -> None:
            frame = b"".join(bytes(part) for part in parts if not isinstance(part, FileRegion))
            # The request's API key follows the size of the frame.
            if int.from_bytes(frame[4:6], "big") == ApiKey.BROKER_HEARTBEAT and bytes(directory_id) in frame:
                happened.append("reported")
            send(connection, parts)

        monkeypatch.setattr(Partition, "leave", noted_leave)
        monkeypatch.setattr(SimulatedConnection, "send", noted_send)
        cluster.fail_disk(led.leader, directory_id)
        await cluster.world.until(lambda: bool(cluster.world.events_named("log_dir_failure_acknowledged")))
        assert happened[0] == "reported"
        assert happened.count("closed") > ITEMS_PER_SLICE

    run(scenario, brokers=1, disks=2)


@pytest.mark.parametrize("is_busy", [False, True])
def test_offsets_of_a_new_topic_outlive_the_deletion_of_its_namesake(is_busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To bring thousands of replicas in line takes a while, for the deletion itself or for a change before it (`is_busy`).
    The new topic is visible meanwhile. Offsets that are committed and acknowledged for it must stay."""
    delay_s = 0.0

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        nonlocal delay_s

        async def apply_slowly(work: Iterable[None]) -> None:
            await in_slices(work)
            await cluster.world.sleep(delay_s)

        async def create(name: str) -> None:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            created = await client.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
            assert created.topics[0].error_code == ErrorCode.NONE

        async def commit(offset: int) -> int:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topic = OffsetCommitRequestTopic(name="t", topic_id=cluster.topic_id("t"), partitions=[partition])
            request = OffsetCommitRequest(group_id="g", topics=[topic])
            return int((await client.ask(1, request)).topics[0].partitions[0].error_code)

        monkeypatch.setattr(daemon, "in_slices", apply_slowly)
        await client.create_topic("t", partitions=1, replication_factor=1)
        await client.ask(1, FindCoordinatorRequest(coordinator_keys=["g"]))
        while await commit(7) != ErrorCode.NONE:
            await cluster.world.sleep(0.1)
        delay_s = 1
        if is_busy:
            await create("other")
        await client.delete_topic("t")
        await create("t")
        await cluster.world.sleep(0.1)
        assert await commit(3) == ErrorCode.NONE
        await cluster.world.sleep(5)
        wanted = OffsetFetchRequestTopics(name="t", topic_id=cluster.topic_id("t"), partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])])
        response = await client.ask(1, request)
        assert response.groups[0].topics[0].partitions[0].committed_offset == 3

    run(scenario, brokers=1, offsets_topic_num_partitions="1", offsets_topic_replication_factor="1")


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_disk_under_leaders_dies_and_leaders_move(seed: int) -> None:
    """One disk of a broker fails with EIO. The leaders on this disk move within a second, all other leaders stay, and no
    acknowledged record is lost."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=9, min_insync_replicas="2")
        for number in range(27):
            await client.produce("t", number % 9, b"%d" % number)
        victim = BrokerId(1)
        led = [index for index, part in cluster.partitions("t").items() if part.leader == victim]
        directory_id = cluster.partition("t", led[0]).directory(victim)
        before = dict(cluster.partitions("t"))
        in_it = [index for index in led if before[index].directory(victim) == directory_id]
        cluster.fail_disk(victim, directory_id)
        died_ns = cluster.world.now_ns()
        await client.produce("t", in_it[0], b"after")
        assert cluster.world.now_ns() - died_ns < NS_PER_S
        for index, was in before.items():
            now = cluster.partition("t", index)
            if index in in_it:
                assert now.leader != victim
                assert victim not in now.isr
            else:
                assert (now.leader, now.leader_epoch) == (was.leader, was.leader_epoch)
        assert cluster.env(victim).exit_code is None

    run(scenario, seed=seed)


def test_disks_dying_one_after_another_leave_every_partition_writable() -> None:
    """One disk of each broker dies, one after another. All partitions stay writable until the last of these failures, and at
    least half of them after it."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        for round_number, broker_id in enumerate(cluster.broker_ids):
            for index, part in cluster.partitions("t").items():
                assert cluster.is_writable(part)
                await client.produce("t", index, b"round %d" % round_number)
            cluster.disk(broker_id, 1).fail_with(errno.EIO)
            await cluster.world.until(lambda b=broker_id: len(cluster.state.brokers[BrokerId(b)].directories) == 2)  # type: ignore[misc]
        writable = [index for index, part in cluster.partitions("t").items() if cluster.is_writable(part)]
        assert len(writable) >= 3
        for index in writable:
            await client.produce("t", index, b"at the end")
        # A partition that is not writable has no leader, so its records cannot be read back either.
        for index in set(range(6)) - set(writable):
            assert cluster.partition("t", index).leader == NO_LEADER
            del client.acknowledged["t", index]

    run(scenario)


def test_a_hung_disk_goes_offline_at_its_deadline_and_disturbs_nobody() -> None:
    """While one disk hangs, writes to the other disks of its broker go on. After the deadline the leaders on the hung disk
    move."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=9, min_insync_replicas="2")
        victim = BrokerId(1)
        led = {index: part for index, part in cluster.partitions("t").items() if part.leader == victim}
        hung = next(iter(led.values())).directory(victim)
        healthy = [index for index, part in led.items() if part.directory(victim) != hung]
        stuck = [index for index, part in led.items() if part.directory(victim) == hung]
        cluster.disk_of(victim, hung).hang()
        hung_ns = cluster.world.now_ns()
        for index in healthy:
            started_ns = cluster.world.now_ns()
            await client.produce("t", index, b"meanwhile")
            assert cluster.world.now_ns() - started_ns < 1_500_000_000
        await client.produce("t", stuck[0], b"after the deadline")
        # The probe or the write fails at its deadline of 2 s, and then new leaders are elected.
        assert cluster.world.now_ns() - hung_ns < 5_000_000_000
        assert cluster.partition("t", stuck[0]).leader != victim

    run(scenario)


def test_the_last_disk_takes_the_broker_with_it() -> None:
    """All data directories of a broker die. The broker reports that to the controller before it exits with status 1, so new
    leaders are elected at once and not at the end of its session."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3)
        for number in (1, 2, 3):
            cluster.disk(1, number).fail_with(errno.EIO)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        assert cluster.env(1).exit_code == 1
        assert cluster.state.brokers[BrokerId(1)].fenced
        for index in range(3):
            assert cluster.partition("t", index).leader not in (1, NO_LEADER)
            await client.produce("t", index, b"x")

    run(scenario)


@pytest.mark.parametrize("hangs", [False, True])
def test_the_metadata_directory_takes_the_broker_with_it(hangs: bool) -> None:
    """Without its metadata log a broker learns nothing new, however healthy its data disks are: it is fenced, then it
    exits."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3)
        disk = cluster.world.disk("/b2/metadata")
        if hangs:
            disk.hang()
        else:
            disk.fail_with(errno.EIO)
        await cluster.world.until(lambda: cluster.env(2).is_dead)
        assert cluster.env(2).exit_code == 1
        assert cluster.state.brokers[BrokerId(2)].fenced
        for index in range(3):
            assert cluster.partition("t", index).leader not in (2, NO_LEADER)
            await client.produce("t", index, b"x")

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("node_id", [2, CONTROLLER_ID])
def test_a_metadata_directory_that_hangs_for_a_while_is_seen(node_id: int) -> None:
    """The metadata disk of a broker or of the controller hangs, but not until the deadline. The node suspects the directory,
    then trusts it again, and its metrics show that and the age of the oldest operation."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        path = f"{cluster.home(node_id)}/metadata"
        (collector,) = cluster.env(node_id).collectors.values()

        def value(name: str) -> float:
            (found,) = [
                sample.value
                for family in collector.collect()
                for sample in family.samples
                if sample.name == f"kafka_log_logdir_{name}" and sample.labels["logDirectory"] == path
            ]
            return found

        cluster.world.disk(path).hang()
        await cluster.world.until(lambda: bool(value("suspected")), within_seconds=3)
        assert value("oldest_operation_age_seconds") > 0.5
        cluster.world.disk(path).thaw()
        await cluster.world.until(lambda: not value("suspected"), within_seconds=3)
        assert value("oldest_operation_age_seconds") < 0.5
        for name in ("log_dir_suspected", "log_dir_trusted"):
            assert [event.fields["log_dir"] for event in cluster.world.events_named(name)] == [path]

    run(scenario, diskraft_prometheus_listener="0.0.0.0:9404")


def test_a_halt_waits_half_a_second_at_most_for_a_controller_that_does_not_answer() -> None:
    """The controller cannot be reached when the last disk dies. The broker exits soon all the same, and is fenced at the end
    of its session."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3)
        cluster.world.network.cut("broker-1", "controller")
        for number in (1, 2, 3):
            cluster.disk(1, number).fail_with(errno.EIO)
        await cluster.world.until(lambda: len(cluster.world.events_named("log_dir_failed", "broker-1")) == 3)
        failed_ns = cluster.world.now_ns()
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        assert cluster.world.now_ns() - failed_ns < 600_000_000
        for index in range(3):
            await client.produce("t", index, b"x")

    run(scenario)


def test_a_replaced_disk_is_filled_again_and_never_leads_empty() -> None:
    """The broker is stopped, its disk is replaced by an empty one and formatted, and the broker is started. Replication
    fills the replicas, and no ISR member starts empty."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="1")
        for number in range(30):
            await client.produce("t", number % 6, b"%d" % number)
        cluster.disk(1, 2).fail_with(errno.EIO)
        await cluster.world.until(lambda: len(cluster.state.brokers[BrokerId(1)].directories) == 2)
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.disk(1, 2).heal()
        cluster.disk(1, 2).wipe()
        await cluster.format(1, ignore_formatted=True)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        for index in range(6):
            assert LOST not in cluster.partition("t", index).directories
        # Only broker 1 is left running, so every acknowledged record must be on it.
        for broker_id in (2, 3):
            cluster.ask_to_stop(broker_id)
            await cluster.world.until(lambda b=broker_id: cluster.env(b).is_dead)  # type: ignore[misc]
        for index in range(6):
            assert cluster.partition("t", index).leader == 1
        await client.assert_nothing_lost()

    run(scenario)


def test_a_broker_with_one_of_two_disks_unreadable_leads_nothing_on_it() -> None:
    """The broker starts with the disk that works. Its replicas on the other disk stay out of the ISR and do not lead."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        for number in range(12):
            await client.produce("t", number % 6, b"%d" % number)
        dead = [
            index
            for index, part in cluster.partitions("t").items()
            if cluster.disk_of(BrokerId(1), part.directory(BrokerId(1))) is cluster.disk(1, 2)
        ]
        assert dead
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: cluster.env(1).is_dead)
        cluster.disk(1, 2).fail_with(errno.EIO)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.world.sleep(10)
        for index in range(6):
            part = cluster.partition("t", index)
            assert (1 in part.isr) is (index not in dead)
            if index in dead:
                assert part.leader != 1

    run(scenario, disks=2)


def test_a_killed_broker_comes_back_and_catches_up() -> None:
    """A broker is killed with kill -9 while clients write. It is fenced when its session expires. After a restart it
    registers a new incarnation and rejoins the ISR."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        for number in range(12):
            await client.produce("t", number % 6, b"%d" % number)
        cluster.crash(1)
        for number in range(12):
            await client.produce("t", number % 6, b"without %d" % number)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_a_restarted_controller_knows_everything_it_knew() -> None:
    """The controller is killed with kill -9. Its state after the restart equals the state before, and topics can be created
    again."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        cluster.disk(2, 1).fail_with(errno.EIO)
        await cluster.world.until(lambda: len(cluster.state.brokers[BrokerId(2)].directories) == 2)
        await cluster.world.sleep(2)
        before = cluster.state
        brokers, partitions = dict(before.brokers), dict(cluster.partitions("t"))
        cluster.crash(CONTROLLER_ID)
        await client.produce("t", 0, b"nobody is needed for this")
        cluster.start_node(CONTROLLER_ID)
        await cluster.world.until(lambda: cluster.state is not before and cluster.state.brokers)
        assert cluster.state.brokers == brokers
        assert cluster.partitions("t") == partitions
        await client.create_topic("u", partitions=2)

    run(scenario)


def test_controlled_shutdown_hands_leadership_over_first() -> None:
    """After SIGTERM, when the broker ends, it leads nothing and has a clean-shutdown marker in every directory. It starts
    again and rejoins the ISR."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        for number in range(12):
            await client.produce("t", number % 6, b"%d" % number)
        cluster.ask_to_stop(3)
        await cluster.world.until(lambda: cluster.env(3).is_dead)
        assert cluster.env(3).exit_code is None
        for part in cluster.partitions("t").values():
            assert part.leader != 3
            assert 3 not in part.isr
        for number in (1, 2, 3):
            assert ".kafka_cleanshutdown" in cluster.disk(3, number).files()
        cluster.start_node(3)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


@pytest.mark.slow
def test_a_busy_disk_stays_and_goes_on_appending() -> None:
    """A disk syncs nothing for longer than the deadline of an operation, because it writes something else. Full segments
    wait to be synced, but produce requests do not, and the directory stays online."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6, segment_bytes="1000")
        await client.produce("t", 0, b"first")
        for number in (1, 2, 3):
            cluster.disk(1, number).be_busy(6 * NS_PER_S)
        end_ns = cluster.world.now_ns() + 5 * NS_PER_S
        produced = 0
        while cluster.world.now_ns() < end_ns:
            before_ns = cluster.world.now_ns()
            await client.produce("t", produced % 6, bytes(300))
            assert cluster.world.now_ns() - before_ns < NS_PER_S
            produced += 1
            await cluster.world.sleep(0.05)
        await cluster.world.sleep(5)
        assert not cluster.world.events_named("log_dir_failed")
        assert not cluster.world.events_named("log_dir_suspected")

    run(scenario)


def test_a_broker_that_ends_while_it_loads_leaves_no_marker() -> None:
    """SIGTERM arrives while the broker loads its logs. The broker must leave no clean-shutdown marker, because the next
    start would then skip the recovery that these logs need."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        for number in range(12):
            await client.produce("t", number % 6, b"%d" % number)
        cluster.crash(1)
        cluster.disk(1, 1).hang(["open"])
        cluster.start_node(1)
        life = cluster.env(1)
        await cluster.until_registered_again(1)
        await cluster.world.sleep(0.2)
        cluster.ask_to_stop(1)
        await cluster.world.until(lambda: life.is_dead)
        assert not cluster.world.events_named("node_halted")
        for number in (1, 2, 3):
            assert ".kafka_cleanshutdown" not in cluster.disk(1, number).files()
        cluster.disk(1, 1).thaw()
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_an_unreachable_controller_ends_a_broker_that_leads_on_a_dead_disk() -> None:
    """The broker still leads in a failed directory. If it cannot report the failure within log.dir.failure.timeout.ms, it
    halts."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        led = [part for part in cluster.partitions("t").values() if part.leader == 1]
        directory_id = led[0].directory(BrokerId(1))
        cluster.world.network.cut("broker-1", "controller")
        cluster.world.network.cut("controller", "broker-1")
        cluster.fail_disk(BrokerId(1), directory_id)
        await cluster.world.until(lambda: cluster.env(1).is_dead, within_seconds=20)
        assert cluster.env(1).exit_code == 1
        assert "log.dir.failure.timeout.ms" in cluster.world.events_named("node_halted", "broker-1")[0].fields["reason"]
        cluster.world.network.mend()

    run(scenario, log_dir_failure_timeout_ms="8000", broker_session_timeout_ms="6000")


def test_retained_topics_are_deleted_everywhere() -> None:
    """Deleting a topic removes its folders after log.segment.delete.delay.ms, and its name can be used again."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3)
        await client.produce("t", 0, b"x")
        client.acknowledged.clear()
        await client.delete_topic("t")
        await cluster.world.sleep(3)
        for broker_id in cluster.broker_ids:
            for number in (1, 2, 3):
                assert not [name for name in cluster.disk(broker_id, number).folders() if name.startswith("t-")]
        await client.create_topic("t", partitions=3)
        await client.produce("t", 0, b"y")
        assert list((await client.read_all("t", 0)).values()) == [b"y"]

    run(scenario, log_segment_delete_delay_ms="1000")
