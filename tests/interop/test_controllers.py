"""Tools that talk to the controller itself (KIP-919): Apache Kafka's print what ours print."""

import pytest

from common.metadata.metadata_version import LATEST_LEVEL, level_name
from tests.interop.apache_kafka_tools import Kafka
from tests.interop.our_tools import run_tool
from tests.interop.waiting import until_equal
from tools.lab.local_cluster import CONTROLLER_ID, LocalCluster

CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
CONFIG_TOOL = "kafka.admin.ConfigCommand"
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES_TOOL = "org.apache.kafka.tools.FeatureCommand"
REASSIGN_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture
def asked(cluster: LocalCluster) -> tuple[str, str]:
    """The flag and the address of the controller."""
    return "--bootstrap-controller", f"127.0.0.1:{cluster.controller.files.port}"


def test_kafka_cluster_finds_the_controllers(kafka: Kafka, cluster: LocalCluster, asked: tuple[str, str]) -> None:
    """The id of the cluster, and the addresses that the controllers have registered."""
    theirs, ours = kafka.run(CLUSTER_TOOL, "cluster-id", *asked), run_tool("cluster", "cluster-id", *asked)
    assert theirs == ours
    assert (ours.status, ours.lines) == (0, [f"Cluster ID: {cluster.cluster_id}"])
    theirs, ours = kafka.run(CLUSTER_TOOL, "list-endpoints", *asked), run_tool("cluster", "list-endpoints", "-C", asked[1])
    assert theirs == ours
    host, port = asked[1].split(":")
    assert [line.split() for line in ours.lines] == [
        ["ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE"],
        [str(CONTROLLER_ID), host, port, "null", "controller"],
    ]


def test_kafka_metadata_quorum_asks_the_controller(kafka: Kafka, asked: tuple[str, str]) -> None:
    """The voters and the observers. The offsets move on between the two."""
    theirs = kafka.run(QUORUM_TOOL, *asked, "describe", "--status")
    ours = run_tool("metadata_quorum", *asked, "describe", "--status")
    assert (theirs.status, ours.status, ours.errors) == (0, 0, [])
    same = ("ClusterId", "LeaderId", "LeaderEpoch", "CurrentVoters", "CurrentObservers")
    assert [line for line in theirs.lines if line.startswith(same)] == [line for line in ours.lines if line.startswith(same)]
    assert len(ours.lines) == len(theirs.lines) > len(same)


def test_kafka_configs_changes_and_describes_a_controller(kafka: Kafka, asked: tuple[str, str]) -> None:
    """The controller is the only node there is. What one tool sets, the other one shows, and deletes."""
    entity = ("--entity-type", "brokers", "--entity-name", str(CONTROLLER_ID))
    described = (*asked, "--describe", *entity)
    everything = (*asked, "--describe", "--entity-type", "brokers")
    altered = (*asked, "--alter", *entity, "--add-config", "log.cleaner.threads=2")
    deleted = (*asked, "--alter", *entity, "--delete-config", "log.cleaner.threads")
    assert kafka.run(CONFIG_TOOL, *altered) == run_tool("configs", *altered)
    for arguments in (described, everything, (*described, "--all")):
        theirs, ours = kafka.run(CONFIG_TOOL, *arguments), run_tool("configs", *arguments)
        assert theirs == ours
        assert any("log.cleaner.threads=2" in line for line in ours.lines), ours
    assert kafka.run(CONFIG_TOOL, *deleted).status == 0
    assert run_tool("configs", *described).lines == [f"Dynamic configs for broker {CONTROLLER_ID} are:"]


def test_kafka_reassign_partitions_lists_what_the_controller_says(kafka: Kafka, asked: tuple[str, str]) -> None:
    """Of the actions, --list and --cancel work without a broker."""
    theirs, ours = kafka.run(REASSIGN_TOOL, *asked, "--list"), run_tool("reassign_partitions", *asked, "--list")
    assert theirs == ours
    assert ours.status == 0


def test_kafka_features_asks_the_controller(kafka: Kafka, asked: tuple[str, str]) -> None:
    """A refused change has the same output and status. The epoch moves on between two descriptions, and Kafka 4 has
    forgotten the names of the oldest levels, and this release does not know those of newer ones."""
    theirs, ours = kafka.run(FEATURES_TOOL, *asked, "describe"), run_tool("features", *asked, "describe")
    assert (theirs.status, ours.status, ours.errors) == (0, 0, [])

    def compared(lines: list[str]) -> list[list[str]]:
        return [
            [
                column.replace(f"UNKNOWN {LATEST_LEVEL}", level_name(LATEST_LEVEL))
                for column in line.split("\t")
                if not column.startswith(("Epoch", "SupportedMinVersion"))
            ]
            for line in lines
        ]

    assert compared(theirs.lines) == compared(ours.lines)
    names = [line.split("\t")[0].removeprefix("Feature: ") for line in ours.lines]
    assert names == [
        "diskraft.directory.numbering",
        "group.version",
        "kraft.version",
        "metadata.version",
        "transaction.version",
    ]
    refused = (*asked, "upgrade", "--feature", "metadata.version=1")
    theirs, ours = kafka.run(FEATURES_TOOL, *refused), run_tool("features", *refused)
    assert theirs.status == ours.status == 1
    assert theirs.lines == ours.lines


def test_the_wrong_kind_of_node_is_one_line(kafka: Kafka, bootstrap: str, asked: tuple[str, str]) -> None:
    """A broker that is asked as a controller, a controller that is asked as a broker, and what only brokers can do."""
    broker = bootstrap.split(",", maxsplit=1)[0]
    wrong = ("cluster-id", "--bootstrap-controller", broker)
    theirs, ours = kafka.run(CLUSTER_TOOL, *wrong), run_tool("cluster", *wrong)
    assert theirs.status == ours.status == 1
    assert any("MismatchedEndpointTypeException" in line for line in theirs.errors), theirs.errors
    assert ours.errors == [
        f"{broker} does not name the controllers: this is the listener of a broker, which describes brokers"
    ]
    wrong = ("cluster-id", "--bootstrap-server", asked[1])
    theirs, ours = kafka.run(CLUSTER_TOOL, *wrong), run_tool("cluster", *wrong)
    assert theirs.status == ours.status == 1
    assert any("UnsupportedVersionException" in line for line in theirs.errors), theirs.errors
    assert ours.errors == [f"{asked[1]} does not serve METADATA; is it a broker?"]
    topics = (*asked, "--describe", "--entity-type", "topics")
    theirs, ours = kafka.run(CONFIG_TOOL, *topics), run_tool("configs", *topics)
    assert theirs.status == ours.status == 1
    assert any("UnsupportedEndpointTypeException" in line for line in theirs.errors), theirs.errors
    assert ours.errors == [
        "Error while executing config command: controllers do not take this call; ask brokers (Call: listTopics)"
    ]


def test_the_controller_takes_changes_of_a_broker(bootstrap: str, asked: tuple[str, str]) -> None:
    """The way out if the limits of a broker refuse every connection. The broker itself shows the change."""
    key = "num.replica.alter.log.dirs.threads"

    def described() -> list[str]:
        shown = run_tool("configs", "--bootstrap-server", bootstrap, "--describe", "--broker", "1").lines
        return [line.partition(" sensitive=")[0].strip() for line in shown[1:]]

    altered = (*asked, "--alter", "--broker", "1")
    assert run_tool("configs", *altered, "--add-config", f"{key}=3").status == 0
    until_equal(described, [f"{key}=3"])
    assert run_tool("configs", *altered, "--delete-config", key).status == 0
    until_equal(described, [])
