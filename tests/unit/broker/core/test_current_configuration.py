"""The configuration in effect on a broker, and when subscribers are notified of changes."""

from broker.core.current_configuration import CurrentConfiguration
from common.configuration.group import GroupConfig
from common.configuration.resolver import ConfigResolver
from common.configuration.server_loading import load_server_config
from common.ids import Offset
from common.metadata.delta import MetadataDelta
from common.metadata.state import MetadataState
from common.records.metadata_records import ConfigRecord
from tests.unit.common.configuration.node_properties import BROKER as PROPERTIES

TOPIC, BROKER, GROUP = 2, 4, 32


class Node:
    """The metadata image and the configuration of a broker. `notified` lists the rate that a subscriber saw at each
    notification."""

    def __init__(self) -> None:
        self.state = MetadataState()
        resolver = ConfigResolver(load_server_config(PROPERTIES), PROPERTIES)
        self.configuration = CurrentConfiguration(resolver, self.state)
        self.notified: list[int] = []
        self.configuration.subscribe(
            lambda: self.notified.append(self.configuration.server.leader_replication_throttled_rate)
        )

    def replay(self, resource_type: int, name: str, key: str, value: str | None) -> list[str]:
        """Replays one ConfigRecord and returns the keys whose values changed."""
        delta = MetadataDelta()
        record = ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        self.state.replay(record, offset=Offset(self.state.last_offset + 1), delta=delta)
        return self.configuration.metadata_changed(delta)


def test_subscribers_are_notified_when_a_value_changes() -> None:
    """When a subscriber is notified, the new value is already in effect. A record that changes no value of this broker
    notifies no subscriber."""
    node = Node()
    rate = "leader.replication.throttled.rate"
    assert node.replay(BROKER, "", rate, "5") == [rate]
    assert node.replay(BROKER, "", rate, "5") == []
    assert node.replay(BROKER, "77", rate, "6") == []
    assert node.replay(BROKER, PROPERTIES["node.id"], rate, "7") == [rate]
    assert node.replay(BROKER, "", rate, "8") == []
    assert node.replay(BROKER, PROPERTIES["node.id"], rate, None) == [rate]
    assert node.notified == [5, 7, 8]


def test_topics_are_resolved_over_the_dynamic_defaults() -> None:
    """A topic's own override takes effect at once and needs no refresh."""
    node = Node()
    node.replay(BROKER, "", "log.retention.ms", "5")
    assert node.configuration.topic("t").retention_ms == 5
    node.replay(TOPIC, "t", "retention.ms", "6")
    assert (node.configuration.topic("t").retention_ms, node.configuration.topic("u").retention_ms) == (6, 5)
    assert len(node.notified) == 1


def test_groups_are_resolved_over_the_brokers_defaults() -> None:
    """A group's override takes effect at once. Only this group has it, and no subscriber is notified."""
    node = Node()
    defaults = node.configuration.group("g")
    assert defaults == GroupConfig()
    assert node.replay(GROUP, "g", "consumer.heartbeat.interval.ms", "6000") == []
    node.replay(TOPIC, "h", "consumer.heartbeat.interval.ms", "7000")
    assert node.configuration.group("g") == GroupConfig(consumer_heartbeat_interval_ms=6_000)
    assert node.configuration.group("h") == defaults
    node.replay(GROUP, "g", "consumer.heartbeat.interval.ms", None)
    assert (node.configuration.group("g"), node.notified) == (defaults, [])


def test_groups_are_resolved_over_the_dynamic_defaults() -> None:
    """As in Kafka, a value for all brokers that is outside the bounds of this one counts as the nearest inside."""
    node = Node()
    for value, effective in (("1000", 1_000), ("15001", 15_000)):
        assert node.replay(BROKER, "", "group.consumer.assignment.interval.ms", value)
        assert node.configuration.group("g").consumer_assignment_interval_ms == effective


def test_what_the_image_held_before_is_applied_by_a_refresh() -> None:
    """If the image already contains dynamic configuration when a broker starts, the broker calls `refresh` before it loads
    its logs."""
    node = Node()
    record = ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2")
    node.state.replay(record, offset=Offset(0))
    assert node.configuration.topic("t").min_insync_replicas == 1
    assert node.configuration.refresh() == ["min.insync.replicas"]
    assert node.configuration.topic("t").min_insync_replicas == 2
