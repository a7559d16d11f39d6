"""Our brokers in clusters of Apache Kafka as they are formatted by default: with the consumer protocol (group.version),
eligible leader replicas (KIP-966) and voters that change at run time (KIP-853).

Share groups and Streams groups, which only Apache Kafka has, are left out.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from admin.quorum import describe_request
from common.ids import Uuid, uuid_text
from common.protocol.messages.describe_quorum import DescribeQuorumResponse
from common.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.mixed.cluster import READY_SECONDS, TERMINATED, MixedCluster, Node, mixed_cluster
from tests.interop.mixed.releases import Release
from tests.interop.topics import create_topic

CONFIGS = "org.apache.kafka.tools.ConfigCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
TOPIC, PARTITIONS = "t", 2
OURS, THEIRS = 1, (2, 3)
STORY_SECONDS = 300
# Kinds of groups that only Apache Kafka has.
WITHOUT_FURTHER_GROUPS = ("--feature", "share.version=0", "--feature", "streams.version=0")
OVERRIDES = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "9000",
    "diskraft.log.dir.free.bytes.floor": "0",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + STORY_SECONDS)]


def test_an_eligible_replica_of_ours_leads_after_an_orderly_stop(newest: Release, tmp_path: Path) -> None:
    """The brokers of Apache Kafka are killed, so the ISR is ours alone, too few for acks=all. Our broker stops cleanly and
    leaves an empty ISR. When it is back, it may lead, because it can prove that it has lost nothing."""
    controller = Node(101, "controller", newest, disks=0, format_options=WITHOUT_FURTHER_GROUPS)
    nodes = [controller, Node(OURS, "broker"), *(Node(number, "broker", newest) for number in THEIRS)]
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES, level="4.4") as cluster:
        configs = {"min.insync.replicas": "2"}
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=3, configs=configs)
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            writer.wait_for_acks()
        for victim, left in ((2, {OURS, 3}), (3, {OURS})):
            cluster.kill(victim)
            assert cluster.until_isr(TOPIC, dict.fromkeys(range(PARTITIONS), left))
        until_described(cluster, OURS, {OURS}, {3})
        assert cluster.shut_down(OURS) == 0
        cluster.start(2)
        # Broker 3 is still listed. Its next registration will show that it did not stop in order.
        until_described(cluster, 2, set(), {OURS, 3})
        cluster.start(OURS)
        cluster.start(3)
        until_described(cluster, OURS, {OURS, *THEIRS}, set())
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert cluster.stop() == {OURS: 0, 2: TERMINATED, 3: TERMINATED, 101: TERMINATED}


def test_our_leader_takes_replicas_back_when_none_are_eligible_any_more(newest: Release, tmp_path: Path) -> None:
    """A new min.insync.replicas ends the eligible leader replicas, which counts as a change of their partitions. The
    controller refuses the leader's next ISR change if the leader has not counted it."""
    controller = Node(101, "controller", newest, disks=0, format_options=WITHOUT_FURTHER_GROUPS)
    nodes = [controller, Node(OURS, "broker"), *(Node(number, "broker", newest) for number in THEIRS)]
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES, level="4.4") as cluster:
        configs = {"min.insync.replicas": "2"}
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=3, configs=configs)
        for victim, left in ((2, {OURS, 3}), (3, {OURS})):
            cluster.kill(victim)
            assert cluster.until_isr(TOPIC, dict.fromkeys(range(PARTITIONS), left))
        until_described(cluster, OURS, {OURS}, {3})
        change = ("--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", "min.insync.replicas=1")
        done = newest.run(CONFIGS, "--bootstrap-server", cluster.bootstrap, *change)
        assert done.status == 0, done
        until_described(cluster, OURS, {OURS}, set())
        for victim in THEIRS:
            cluster.start(victim)
        assert cluster.until_isr(TOPIC, {index: {OURS, *THEIRS} for index in range(PARTITIONS)})
        assert cluster.stop() == {OURS: 0, 2: TERMINATED, 3: TERMINATED, 101: TERMINATED}


def test_our_broker_follows_voters_that_come_and_go(newest: Release, tmp_path: Path) -> None:
    """A second controller joins the quorum, and the first one is removed from it, stopped and unregistered (KIP-853). Nor
    can our controller lead the cluster from the files of the first one."""
    alone = ("--standalone", *WITHOUT_FURTHER_GROUPS)
    nodes = [
        Node(101, "controller", newest, disks=0, format_options=alone),
        Node(102, "controller", newest, disks=0, format_options=("--no-initial-controllers",), starts=False),
        Node(OURS, "broker"),
        Node(2, "broker", newest),
    ]
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES, level="4.4", has_fixed_voters=False) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=2)
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            cluster.start(102)
            ours = ("--bootstrap-server", cluster.nodes[OURS].files.address)
            added = cluster.nodes[102].files.config

            def is_added() -> bool:
                # Refused until the controller has caught up.
                newest.run(QUORUM, *ours, "--command-config", added, "add-controller")
                return set(voters(cluster)) == {101, 102}

            until(is_added, "both controllers vote", seconds=READY_SECONDS)
            former = voters(cluster)[101]
            removal = ("remove-controller", "--controller-id", "101", "--controller-directory-id", uuid_text(former))
            done = newest.run(QUORUM, *ours, *removal)
            assert done.status == 0, done
            until(lambda: set(voters(cluster)) == {102}, "only the second controller votes", seconds=READY_SECONDS)
            cluster.shut_down(101)
            done = newest.run(CLUSTER, "unregister-controller", *ours, "--id", "101")
            assert done.status == 0, done
            writer.wait_for_acks()
            cluster.kill(2)
            assert cluster.until_isr(TOPIC, {index: {OURS} for index in range(PARTITIONS)})
            writer.wait_for_acks()
            cluster.start(2)
            assert cluster.until_isr(TOPIC, {index: {OURS, 2} for index in range(PARTITIONS)})
        # Our broker finds the quorum again from its snapshot and the addresses in its configuration.
        assert cluster.shut_down(OURS) == 0
        cluster.start(OURS)
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert cluster.stop() == {OURS: 0, 2: TERMINATED, 101: TERMINATED, 102: TERMINATED}
        assert_refuses_to_lead(cluster, 101)


def assert_refuses_to_lead(cluster: MixedCluster, removed: int) -> None:
    """Starts our controller on the files of one that is no voter any more. It would be a second leader."""
    node = cluster.use(cluster.nodes[removed].files, None)
    cluster.expected_ends.add(removed)
    cluster.set_property(removed, "controller.quorum.bootstrap.servers", node.files.address)
    node.start()
    assert node.wait_until_ended(seconds=READY_SECONDS) == 1
    assert "/__cluster_metadata-0 names the voters 102, and a quorum of one is served" in node.last_line()


def voters(cluster: MixedCluster) -> dict[int, Uuid]:
    """Returns the directory of each voter by the controller's id."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        response: DescribeQuorumResponse = admin.send(describe_request())
    return {each.replica_id: each.replica_directory_id for each in response.topics[0].partitions[0].current_voters}


def describe(cluster: MixedCluster, broker_id: int) -> Mapping[int, tuple[set[int], set[int]]]:
    """Returns the ISR and the eligible leader replicas of each partition, as the broker describes them."""
    with BlockingAdmin(cluster.nodes[broker_id].files.address) as admin:
        response = admin.send(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]))
    (topic,) = response.topics
    return {part.partition_index: (set(part.isr_nodes), set(part.eligible_leader_replicas)) for part in topic.partitions}


def until_described(cluster: MixedCluster, broker_id: int, isr: set[int], eligible: set[int]) -> None:
    wanted = dict.fromkeys(range(PARTITIONS), (isr, eligible))
    until(lambda: describe(cluster, broker_id) == wanted, f"{wanted}", seconds=READY_SECONDS)
