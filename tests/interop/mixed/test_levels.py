"""Levels of metadata.version in mixed clusters: that of directory assignment comes and goes, the latest one works, and so do
the cordons that it brings.

Apache Kafka's tool asks for it and our controller decides. A writer writes during all of it with acks=all.
"""

from functools import partial
from pathlib import Path

import pytest

from common.metadata.metadata_version import LATEST_LEVEL, level_name
from tests.integration.cluster import directory_id, until
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.metadata_files import copy_metadata, records
from tests.interop.mixed.cluster import READY_SECONDS, TERMINATED, MixedCluster, Node, mixed_cluster
from tests.interop.mixed.releases import Release
from tests.interop.our_tools import Done
from tests.interop.topics import create_topic

CONFIGS = "org.apache.kafka.tools.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPIC, PARTITIONS, BOTH = "t", 4, {1, 3}
STORY_SECONDS = 300
# Kinds of groups that only Apache Kafka has.
_GROUPS = ("share.version", "streams.version")
OVERRIDES = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "9000",
    "diskraft.log.dir.free.bytes.floor": "0",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + STORY_SECONDS)]


def test_an_apache_broker_learns_of_directories_under_our_controller(
    newest: Release, older: Release, tmp_path: Path
) -> None:
    """Both brokers register again with their directory and assign what was MIGRATING. A safe downgrade is refused in the
    words of Apache Kafka, an unsafe one forgets the directories, and the next rise brings them back."""
    nodes = [Node(101, "controller", disks=0), Node(1, "broker"), Node(3, "broker", older)]
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES, level="3.7-IV1") as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=2)
        directories = {number: directory_id(cluster.nodes[number].files.data_dirs[0]) for number in BOTH}
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            ask(newest, cluster, "upgrade", "--feature", "metadata.version=17")
            assert finalized(newest, cluster) == "3.7-IV2"
            until_assigned(cluster, tmp_path / "risen", directories)
            refused = features(newest, cluster, "downgrade", "--feature", "metadata.version=16")
            assert refused.status == 1, refused
            assert "it might delete metadata information" in "\n".join([*refused.lines, *refused.errors]), refused
            ask(newest, cluster, "downgrade", "--unsafe", "--feature", "metadata.version=16")
            writer.wait_for_acks()
            ask(newest, cluster, "upgrade", "--feature", "metadata.version=17")
            until_assigned(cluster, tmp_path / "risen-again", directories)
            writer.wait_for_acks()
        assert cluster.until_isr(TOPIC, dict.fromkeys(range(PARTITIONS), BOTH))
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert cluster.stop() == {1: 0, 3: TERMINATED, 101: 0}


@pytest.mark.parametrize("controller", ["Diskraft", "Apache Kafka"])
def test_either_controller_places_nothing_on_a_cordoned_broker_of_either_side(
    newest: Release, controller: str, tmp_path: Path
) -> None:
    """The operator cordons all disks of a broker with Apache Kafka's tool, and takes that back (KIP-1066)."""
    nodes = [controller_of(controller, newest), Node(1, "broker"), Node(2, "broker", newest)]
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES, level=level_name(LATEST_LEVEL)) as cluster:
        names = (f"cordon-{number}" for number in range(1_000))

        def are_placed_on(*brokers: int) -> bool:
            """Creates a topic."""
            name = create_topic(cluster.bootstrap, next(names), partitions=PARTITIONS, replication_factor=1)
            return {node for part in cluster.partitions(name).values() for node in part.replica_nodes} == {*brokers}

        assert are_placed_on(1, 2)
        for cordoned, other in ((1, 2), (2, 1)):
            configure(newest, cluster, cordoned, "--add-config", "cordoned.log.dirs=*")
            until(partial(are_placed_on, other), f"{cordoned} gets nothing", seconds=READY_SECONDS)
            configure(newest, cluster, cordoned, "--delete-config", "cordoned.log.dirs")
            until(partial(are_placed_on, 1, 2), f"{cordoned} gets replicas", seconds=READY_SECONDS)
        assert cluster.stop() == {1: 0, 2: TERMINATED, 101: 0 if controller == "Diskraft" else TERMINATED}


def controller_of(side: str, newest: Release) -> Node:
    """Returns the controller. Apache Kafka's features that are unknown here are absent."""
    absent = [f"{feature}=0" for feature in ("eligible.leader.replicas.version", "group.version", *_GROUPS)]
    options = tuple(word for each in absent for word in ("--feature", each))
    if side == "Diskraft":
        return Node(101, "controller", disks=0)
    return Node(101, "controller", newest, disks=0, format_options=options)


def configure(release: Release, cluster: MixedCluster, broker_id: int, *change: str) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", str(broker_id))
    done = release.run(CONFIGS, "--bootstrap-server", cluster.bootstrap, *broker, "--alter", *change)
    assert done.status == 0, done


def features(release: Release, cluster: MixedCluster, *arguments: str) -> Done:
    return release.run(FEATURES, "--bootstrap-server", cluster.bootstrap, *arguments)


def ask(release: Release, cluster: MixedCluster, *arguments: str) -> None:
    done = features(release, cluster, *arguments)
    assert done.status == 0, done


def finalized(release: Release, cluster: MixedCluster) -> str:
    """Returns the level of metadata.version as the tool describes it."""
    described = features(release, cluster, "describe")
    (line,) = (line for line in described.lines if "metadata.version" in line)
    return line.partition("FinalizedVersionLevel: ")[2].split()[0]


def until_assigned(cluster: MixedCluster, folder: Path, directories: dict[int, str]) -> None:
    """Waits until the last record about each partition names these directories of its replicas."""
    folder.mkdir()
    numbers = iter(range(1_000))
    metadata = Path(cluster.nodes[101].files.metadata_dir)

    def are_assigned() -> bool:
        files = copy_metadata(metadata, folder / str(next(numbers)))
        replicas: dict[int, list[int]] = {}
        assigned: dict[int, list[str]] = {}
        for record in records(files):
            data = record["data"]
            if record["type"] == "PARTITION_RECORD":
                replicas[data["partitionId"]] = data["replicas"]
            if record["type"] in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD") and data.get("directories"):
                assigned[data["partitionId"]] = data["directories"]
        wanted = {index: [directories[broker_id] for broker_id in ids] for index, ids in replicas.items()}
        return len(wanted) == PARTITIONS and assigned == wanted

    until(are_assigned, f"every replica is assigned to one of {directories}", seconds=READY_SECONDS)


@pytest.mark.parametrize("controller", ["Diskraft", "Apache Kafka"])
def test_the_latest_level_that_is_known_here(newest: Release, controller: str, tmp_path: Path) -> None:
    """Leaders on either side, followers with the requests of that level (Fetch 18, ListOffsets 11), and a kill of each
    broker, under either controller."""
    nodes = [controller_of(controller, newest), Node(1, "broker"), Node(2, "broker", newest)]
    partitions, both = range(PARTITIONS), {1, 2}
    with mixed_cluster(tmp_path, nodes, overrides=OVERRIDES, level=level_name(LATEST_LEVEL)) as cluster:
        assert finalized(newest, cluster) == level_name(LATEST_LEVEL)
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=2)
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            for victim in sorted(both):
                cluster.kill(victim)
                assert cluster.until_isr(TOPIC, dict.fromkeys(partitions, both - {victim}))
                writer.wait_for_acks()
                cluster.start(victim)
                assert cluster.until_isr(TOPIC, dict.fromkeys(partitions, both))
                writer.wait_for_acks()
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=partitions)
        assert cluster.stop() == {1: 0, 2: TERMINATED, 101: 0 if controller == "Diskraft" else TERMINATED}
