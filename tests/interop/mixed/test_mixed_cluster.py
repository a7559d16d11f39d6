"""One cluster of Diskraft's brokers and Apache Kafka's, under the controllers of either.

Each test is a story on one cluster, because a node of Apache Kafka takes seconds to start. A writer writes during all of it
with acks=all, and every record that was acknowledged must be there at the end, at its offset.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from tests.hanging_disks import frozen
from tests.integration.cluster import until
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.mixed.cluster import READY_SECONDS, TERMINATED, MixedCluster, Node, make_empty_disk, mixed_cluster
from tests.interop.mixed.copier import copying, transactional_id_at
from tests.interop.mixed.releases import Release
from tests.interop.our_tools import run_tool
from tests.interop.topics import create_topic, delete_topic
from tools.lab.disk_lab import kill_disk

TOPIC, UNASSIGNED = "t", "unassigned"
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
# answers the requests of a connection one after the other). So only a few may be in flight: hundreds that wait there on a
# busy machine would time out and be sent again, and again.
CLIENT = {"request.timeout.ms": 3000, "max.in.flight": 5}
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
    """There are three, one of which is also the broker of Apache Kafka. The active one is killed in between. All nodes know
    transaction.version 2, so a transactional producer of Java copies records while its coordinator is killed."""
    nodes = [Node(number, "controller", newest, disks=0) for number in (101, 102)]
    nodes += brokers(newest, apache_role="broker,controller")
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES) as cluster:
        raised = ("upgrade", "--feature", "transaction.version=2")
        assert run_tool("features", "--bootstrap-server", cluster.bootstrap, *raised).status == 0
        play(cluster, lambda: restart_active_controller(cluster), copier=newest)
        assert cluster.stop() == {1: 0, 2: 0, 3: TERMINATED, 101: TERMINATED, 102: TERMINATED}


def brokers(release: Release, *, apache_role: str = "broker") -> list[Node]:
    """Two of ours and one of Apache Kafka, with two disks each."""
    return [
        Node(1, "broker", disks=2, loop=True, is_relayed=True),
        Node(2, "broker", disks=2),
        # What may be the active controller itself cannot be kept from reaching it.
        Node(3, apache_role, release, disks=2, loop=True, is_relayed=apache_role == "broker"),
    ]


def play(cluster: MixedCluster, restart_controllers: Callable[[], None], *, copier: Release | None = None) -> None:
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
            lambda: hang_a_disk(cluster, writer),
            lambda: lose_a_disk(cluster, writer, THEIRS),
            lambda: lose_a_disk(cluster, writer, OURS),
            restart_controllers,
            lambda: shut_down_in_order(cluster, writer, THEIRS),
            lambda: shut_down_in_order(cluster, writer, OURS),
            lambda: kill_a_broker(cluster, writer, THEIRS, copier),
            lambda: kill_a_broker(cluster, writer, OURS, copier),
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


def hang_a_disk(cluster: MixedCluster, writer: Writer) -> None:
    """A disk of our broker hangs for less than its deadline, under followers of leaders of both kinds. Those of Apache Kafka
    do not understand what the followers tell them, and take no harm from it. Our other broker goes on with a partition that
    has no replica on this disk."""
    node = cluster.nodes[OURS]
    healthy = next(index for index, leader in preferred_leaders().items() if leader not in (OURS, THEIRS))
    [hung] = {*node.files.data_dirs} - {cluster.places(TOPIC, OURS)[healthy]}
    with frozen(Path(hung)):
        node.wait_for("log_dir_suspected")
        writer.wait_for_acks({healthy})
    node.wait_for("log_dir_trusted")


def lose_a_disk(cluster: MixedCluster, writer: Writer, broker_id: int) -> None:
    """What this broker has on one disk leaves the ISRs and is led by others; its other replicas stay as they are. Then the
    broker is shut down cleanly and gets an empty disk, on which its replicas are copied again."""
    places = cluster.places(TOPIC, broker_id)
    led = [index for index, leader in preferred_leaders().items() if leader == broker_id]
    # With a leader in it.
    lost_dir = places[led[0]]
    with leading_unassigned(cluster, broker_id, lost_dir):
        kill_disk(Path(lost_dir))
        leaders = cluster.until_isr(TOPIC, isrs_without(broker_id, lost_dir, places))
        kept = {
            index: leader
            for index, leader in preferred_leaders().items()
            if places[index] != lost_dir or leader != broker_id
        }
        assert {index: leaders[index] for index in kept} == kept
    writer.wait_for_acks()
    cluster.shut_down(broker_id)
    make_empty_disk(Path(lost_dir))
    cluster.format(broker_id)
    cluster.start(broker_id)


@contextmanager
def leading_unassigned(cluster: MixedCluster, broker_id: int, lost_dir: str) -> Iterator[None]:
    """While the broker loses the directory it also leads a new topic, and the controller does not know where the replicas
    are. As soon as it does, those in the directory leave the ISRs and are led by others. Does nothing unless the broker is
    relayed."""
    if not cluster.is_relayed(broker_id):
        yield
        return
    assignments = {index: [broker_id, *sorted(EVERYWHERE - {broker_id})] for index in range(4)}
    with cluster.assignments_held():
        create_topic(cluster.bootstrap, UNASSIGNED, partitions=4, replication_factor=3, assignments=assignments)
        places = cluster.places(UNASSIGNED, broker_id)
        assert set(places.values()) == set(cluster.nodes[broker_id].files.data_dirs)
        yield
        assert {part.leader_id for part in cluster.partitions(UNASSIGNED).values()} == {broker_id}
    leaders = cluster.until_isr(UNASSIGNED, isrs_without(broker_id, lost_dir, places))
    assert {index for index, leader in leaders.items() if leader == broker_id} == {
        index for index, place in places.items() if place != lost_dir
    }
    delete_topic(cluster.bootstrap, UNASSIGNED)


def isrs_without(broker_id: int, lost_dir: str, places: Mapping[int, str]) -> dict[int, set[int]]:
    """Returns the ISRs once the broker has lost the directory: all other replicas are in sync."""
    return {index: EVERYWHERE - {broker_id} if place == lost_dir else EVERYWHERE for index, place in places.items()}


def shut_down_in_order(cluster: MixedCluster, writer: Writer, broker_id: int) -> None:
    """The controllers move the broker's leaders before it ends."""
    cluster.shut_down(broker_id)
    leaders = cluster.until_isr(TOPIC, dict.fromkeys(ASSIGNMENTS, EVERYWHERE - {broker_id}))
    assert broker_id not in leaders.values()
    writer.wait_for_acks()
    cluster.start(broker_id)


def kill_a_broker(cluster: MixedCluster, writer: Writer, broker_id: int, copier: Release | None) -> None:
    """Its session ends, or it is back before that. It finds its logs as the kill left them."""
    with nullcontext() if copier is None else in_transactions(cluster, copier, broker_id):
        cluster.kill(broker_id)
        cluster.until_isr(TOPIC, dict.fromkeys(ASSIGNMENTS, EVERYWHERE - {broker_id}))
        writer.wait_for_acks()
        cluster.start(broker_id)


def in_transactions(cluster: MixedCluster, copier: Release, coordinator: int) -> AbstractContextManager[None]:
    """Records are copied in transactions that this broker coordinates. The partitions are led by the other software, which
    asks the coordinator about each transaction and gets its markers from there."""
    leader = OURS if coordinator == THEIRS else THEIRS
    assignments = {0: [leader, *sorted(EVERYWHERE - {leader})]}
    source, target = (
        create_topic(
            cluster.bootstrap,
            f"{name}-{leader}",
            partitions=1,
            replication_factor=3,
            configs=TOPIC_CONFIG,
            assignments=assignments,
        )
        for name in ("source", "target")
    )
    return copying(cluster, copier, transactional_id_at(cluster, coordinator), source, target)


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
