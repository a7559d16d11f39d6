"""One cluster of Diskraft's brokers and Apache Kafka's, under the controllers of either.

Each test is a story on one cluster, because a node of Apache Kafka takes seconds to start. A writer writes during all of it
with acks=all, and every record that was acknowledged must be there at the end, at its offset.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from admin.elections import elect_request
from admin.known_nodes import Role
from admin.log_dirs import alter_errors, alter_request
from admin.partitions import TopicPartition, TopicPartitionReplica
from common.protocol.errors import ErrorCode
from common.protocol.messages.elect_leaders import ElectionType
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.mixed.cluster import READY_SECONDS, TERMINATED, MixedCluster, Node, make_empty_disk, mixed_cluster
from tests.interop.mixed.releases import Release
from tests.interop.topics import create_topic, delete_topic
from tools.lab.disk_lab import kill_disk

TOPIC = "t"
# Each broker is the preferred leader of two partitions.
ASSIGNMENTS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2], 3: [1, 3, 2], 4: [2, 1, 3], 5: [3, 2, 1]}
EVERYWHERE = {1, 2, 3}
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
OVERRIDES = {
    "broker.heartbeat.interval.ms": "500",
    # Long enough for a machine that stands still, short enough for a test that kills a broker.
    "broker.session.timeout.ms": "9000",
    # For this long after a follower's disk has died, the high watermark of a leader of Apache Kafka stands still: the broker
    # is alive and was caught up, so the leader waits for it to rejoin the ISR.
    "replica.lag.time.max.ms": "5000",
    "diskraft.log.dir.free.bytes.floor": "0",
}
# ... and it moves on only with the next append, which the same connection holds back until this has passed (Apache Kafka
# answers the requests of a connection one after the other).
CLIENT = {"request.timeout.ms": 3000}
OURS, THEIRS = 1, 3
STORY_SECONDS = 600

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + STORY_SECONDS),
    pytest.mark.usefixtures("loop_disks"),
]


def test_apache_brokers_under_our_controller(newest: Release, older: Release, tmp_path: Path) -> None:
    """There are two, of two releases, and one of ours. The controller is killed in between."""
    nodes = [Node(101, "controller", disks=0), *brokers(newest)]
    nodes[2] = replace(nodes[2], release=older)
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES) as cluster:
        play(cluster, lambda: restart_our_controller(cluster))
        assert cluster.stop() == {1: 0, 2: TERMINATED, 3: TERMINATED, 101: 0}


def test_our_brokers_under_apache_controllers(newest: Release, tmp_path: Path) -> None:
    """There are three, one of which is also the broker of Apache Kafka. The active one is killed in between."""
    nodes = [Node(number, "controller", newest, disks=0) for number in (101, 102)]
    nodes += brokers(newest, apache_role="broker,controller")
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES) as cluster:
        play(cluster, lambda: restart_active_controller(cluster))
        assert cluster.stop() == {1: 0, 2: 0, 3: TERMINATED, 101: TERMINATED, 102: TERMINATED}


def brokers(release: Release, *, apache_role: str = "broker") -> list[Node]:
    """Two of ours and one of Apache Kafka, with two disks each."""
    return [
        Node(1, "broker", disks=2, loop=True),
        Node(2, "broker", disks=2),
        Node(3, apache_role, release, disks=2, loop=True),
    ]


def play(cluster: MixedCluster, restart_controllers: Callable[[], None]) -> None:
    """Goes through all stages, each from a cluster whose replicas are in sync, under one writer."""
    create_topic(
        cluster.bootstrap,
        TOPIC,
        partitions=len(ASSIGNMENTS),
        replication_factor=3,
        configs=TOPIC_CONFIG,
        assignments=ASSIGNMENTS,
    )
    for broker_id in (1, 2, 3):
        assert len(set(cluster.places(TOPIC, broker_id).values())) == 2, "each hosts replicas in both of its directories"
    with Writer(cluster.bootstrap, TOPIC, partitions=len(ASSIGNMENTS), options=CLIENT) as writer:
        stages: list[Callable[[], None]] = [
            lambda: swap_directories(cluster, THEIRS),
            lambda: swap_directories(cluster, OURS),
            lambda: lose_a_disk(cluster, writer, THEIRS),
            lambda: lose_a_disk(cluster, writer, OURS),
            restart_controllers,
            lambda: shut_down_in_order(cluster, writer, THEIRS),
            lambda: shut_down_in_order(cluster, writer, OURS),
            lambda: kill_a_broker(cluster, writer, THEIRS),
            lambda: kill_a_broker(cluster, writer, OURS),
        ]
        for stage in stages:
            until_whole(cluster)
            writer.wait_for_acks()
            stage()
        until_whole(cluster)
        writer.wait_for_acks()
    assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(len(ASSIGNMENTS)))


def until_whole(cluster: MixedCluster) -> None:
    """Waits until every replica is in sync, then lets every preferred leader lead."""
    cluster.until_isr(TOPIC, dict.fromkeys(ASSIGNMENTS, EVERYWHERE))
    request = elect_request(
        ElectionType.PREFERRED, [TopicPartition(TOPIC, index) for index in ASSIGNMENTS], timeout_ms=30_000
    )

    def elect() -> bool:
        with BlockingAdmin(cluster.bootstrap) as admin:
            admin.send(request, Role.CONTROLLER)
        return {index: part.leader_id for index, part in cluster.partitions(TOPIC).items()} == preferred_leaders()

    until(elect, "every preferred leader leads", seconds=READY_SECONDS)


def preferred_leaders() -> dict[int, int]:
    return {index: replicas[0] for index, replicas in ASSIGNMENTS.items()}


def swap_directories(cluster: MixedCluster, broker_id: int) -> None:
    """Every replica of the broker moves to its other directory while records flow. Whether the controllers have recorded the
    new directories shows when one of them is lost."""
    first, second = cluster.nodes[broker_id].files.data_dirs
    wanted = {index: second if place == first else first for index, place in cluster.places(TOPIC, broker_id).items()}
    moves = {TopicPartitionReplica(TOPIC, index, broker_id): log_dir for index, log_dir in wanted.items()}
    with BlockingAdmin(cluster.bootstrap) as admin:
        errors = alter_errors(admin.send(alter_request(moves), broker_id), broker_id)
    assert set(errors.values()) == {ErrorCode.NONE}, errors
    until(lambda: cluster.places(TOPIC, broker_id) == wanted, f"broker {broker_id} has {wanted}", seconds=READY_SECONDS)


def lose_a_disk(cluster: MixedCluster, writer: Writer, broker_id: int) -> None:
    """What this broker has on one disk leaves the ISRs and is led by others; its other replicas stay as they are. Then the
    broker is shut down in order and gets an empty disk, on which its replicas are copied again."""
    places = cluster.places(TOPIC, broker_id)
    led = [index for index, leader in preferred_leaders().items() if leader == broker_id]
    # With a leader in it.
    lost_dir = places[led[0]]
    lost = {index for index, log_dir in places.items() if log_dir == lost_dir}
    kill_disk(Path(lost_dir))
    isrs = {index: EVERYWHERE - {broker_id} if index in lost else EVERYWHERE for index in ASSIGNMENTS}
    leaders = cluster.until_isr(TOPIC, isrs)
    kept = {index: leader for index, leader in preferred_leaders().items() if index not in lost or leader != broker_id}
    assert {index: leaders[index] for index in kept} == kept
    writer.wait_for_acks()
    cluster.shut_down(broker_id)
    make_empty_disk(Path(lost_dir))
    cluster.format(broker_id)
    cluster.start(broker_id)


def shut_down_in_order(cluster: MixedCluster, writer: Writer, broker_id: int) -> None:
    """The controllers move the broker's leaders before it ends."""
    cluster.shut_down(broker_id)
    leaders = cluster.until_isr(TOPIC, dict.fromkeys(ASSIGNMENTS, EVERYWHERE - {broker_id}))
    assert broker_id not in leaders.values()
    writer.wait_for_acks()
    cluster.start(broker_id)


def kill_a_broker(cluster: MixedCluster, writer: Writer, broker_id: int) -> None:
    """Its session ends, or it is back before that. It finds its logs as the kill left them."""
    cluster.kill(broker_id)
    cluster.until_isr(TOPIC, dict.fromkeys(ASSIGNMENTS, EVERYWHERE - {broker_id}))
    writer.wait_for_acks()
    cluster.start(broker_id)


def restart_our_controller(cluster: MixedCluster) -> None:
    """It is killed, and replays what it wrote about brokers of both kinds."""
    cluster.kill(101)
    cluster.start(101)
    prove_that_it_decides(cluster)


def restart_active_controller(cluster: MixedCluster) -> None:
    """Another one takes over while it is down. If it is the broker's too, the broker is down as well."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        killed = cluster.leader_of_quorum(admin)
    cluster.kill(killed)
    prove_that_it_decides(cluster)
    cluster.start(killed)


def prove_that_it_decides(cluster: MixedCluster) -> None:
    """A topic is created, and gets its replicas on brokers of both kinds as far as they run, and is deleted."""
    running = [number for number, node in cluster.brokers.items() if node.pid is not None]
    create_topic(cluster.bootstrap, "after", partitions=1, replication_factor=len(running), assignments={0: running})
    delete_topic(cluster.bootstrap, "after")
