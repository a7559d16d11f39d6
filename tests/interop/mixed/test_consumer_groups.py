"""Groups of the consumer protocol change hands with the broker that coordinates them (KIP-848).

group.version is lowered before Diskraft takes over, as it had to be before Diskraft's brokers knew the feature. Its former
level stays in the metadata log.
"""

from pathlib import Path

import pytest

from common.metadata.metadata_version import LATEST_LEVEL, level_name
from tests.integration.cluster import until
from tests.integration.traffic import write_some
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.mixed.cluster import READY_SECONDS, MixedCluster, Node, mixed_cluster
from tests.interop.mixed.releases import Release
from tests.interop.our_tools import run_tool
from tests.interop.topics import create_topic

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FEATURES, GROUPS = "org.apache.kafka.tools.FeatureCommand", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPIC, GROUP, INSTANCE = "t", "g", "one"
COUNT, READ_AT_ONCE = 60, 20
STORY_SECONDS = 300
ALONE = {
    "offsets.topic.replication.factor": "1",
    "broker.session.timeout.ms": "6000",
    "diskraft.log.dir.free.bytes.floor": "0",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + STORY_SECONDS)]


def test_a_group_of_the_consumer_protocol_changes_hands(newest: Release, tmp_path: Path) -> None:
    """A static consumer reads from a broker of Apache Kafka, goes on at Diskraft's, and then at Apache Kafka's again.
    Between two of its lives it is a member whose place is kept: each side finds it in the records of the other."""
    absent = ("eligible.leader.replicas.version=0", "share.version=0", "streams.version=0", "group.version=1")
    options = tuple(word for each in absent for word in ("--feature", each))
    nodes = [Node(101, "controller", newest, disks=0, format_options=options), Node(1, "broker", newest)]
    with mixed_cluster(tmp_path, nodes, overrides=ALONE, level=level_name(LATEST_LEVEL)) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=1, replication_factor=1)
        write_some(cluster.bootstrap, TOPIC, partitions=1, count=COUNT)
        values = read(newest, cluster)
        set_group_version(newest, cluster, "downgrade", 0)
        change_software(cluster, None)
        members = ("--describe", "--members", "--group", GROUP)
        ours = run_tool("consumer_groups", "--bootstrap-server", cluster.bootstrap, *members)
        assert any(INSTANCE in line.split() for line in ours.lines), ours
        values += read(newest, cluster)
        change_software(cluster, newest)
        set_group_version(newest, cluster, "upgrade", 1)
        theirs = newest.run(GROUPS, "--bootstrap-server", cluster.bootstrap, *members)
        assert any(INSTANCE in line.split() for line in theirs.lines), theirs
        values += read(newest, cluster)
        assert len(set(values)) == len(values) == COUNT


def read(release: Release, cluster: MixedCluster) -> list[str]:
    """Reads the next values as the static member. It commits what it has read, and leaves for a while."""
    settings = ("group.protocol=consumer", f"group.instance.id={INSTANCE}", "auto.offset.reset=earliest")
    done = release.run(
        CONSUMER,
        *("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--group", GROUP),
        *("--max-messages", str(READ_AT_ONCE), "--timeout-ms", "60000"),
        *(word for each in settings for word in ("--command-property", each)),
    )
    assert (done.status, len(done.lines)) == (0, READ_AT_ONCE), done
    return done.lines


def set_group_version(release: Release, cluster: MixedCluster, direction: str, level: int) -> None:
    done = release.run(FEATURES, "--bootstrap-server", cluster.bootstrap, direction, "--feature", f"group.version={level}")
    assert done.status == 0, done


def change_software(cluster: MixedCluster, release: Release | None) -> None:
    """Shuts the broker down and starts the other software on its files. Waits until it serves the group."""
    cluster.shut_down(1)
    cluster.use(cluster.nodes[1].files, release)
    cluster.start(1)

    def is_listed() -> bool:
        listed = run_tool("consumer_groups", "--bootstrap-server", cluster.bootstrap, "--list")
        return listed.status == 0 and GROUP in listed.lines

    until(is_listed, f"{GROUP} is listed", seconds=READY_SECONDS)
