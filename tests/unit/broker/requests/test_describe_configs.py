"""DescribeConfigs: the values, and above all where each value was set."""

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest

from broker.requests.describe_configs import DescribeConfigsRequests
from common.configuration.description import UNKNOWN_TYPE
from common.configuration.documentation import GROUP_DOCUMENTATION, SERVER_DOCUMENTATION, TOPIC_DOCUMENTATION
from common.configuration.group import WITHOUT_EFFECT, GroupConfig
from common.configuration.resolver import ConfigResolver
from common.configuration.server import DYNAMIC_KEYS, ServerConfig
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigType, key_of, settings_of
from common.configuration.topic import BROKER_KEYS, SERVED_ANYWAY, TopicConfig, default_topic_config
from common.ids import Offset
from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from common.records.metadata_records import ConfigRecord, ConfigResourceType
from common.slices import ITEMS_PER_SLICE
from tests.unit.broker.requests.contexts import NoMemory, context, over_the_wire, versions
from tests.unit.common.metadata.builders import replay, topic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPIC_SOURCE, BROKER_SOURCE, CLUSTER_SOURCE, STATIC_BROKER_SOURCE, DEFAULT_SOURCE, GROUP_SOURCE = 1, 2, 3, 4, 5, 8
THROTTLES = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "intra.broker.throttled.rate",
}
PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "100@controller:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,OTHER://[::1]:9192",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/d1,/d2",
}


class Broker:
    """Broker 1 with these properties in its server.properties, and topic-1 with these overrides. `own` is the dynamic
    configuration of broker 1, `everywhere` that of all brokers, `group` that of the group g."""

    def __init__(
        self,
        properties: dict[str, str] | None = None,
        overrides: dict[str, str] | None = None,
        *,
        own: dict[str, str] | None = None,
        everywhere: dict[str, str] | None = None,
        group: dict[str, str] | None = None,
    ) -> None:
        given = PROPERTIES | (properties or {})
        state = replay(
            topic(1),
            *(
                ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
                for resource_type, name, configs in (
                    (ConfigResourceType.TOPIC, "topic-1", overrides),
                    (ConfigResourceType.BROKER, "1", own),
                    (ConfigResourceType.BROKER, "", everywhere),
                    (ConfigResourceType.GROUP, "g", group),
                )
                for key, value in (configs or {}).items()
            ),
        )
        resolver = ConfigResolver(load_server_config(given, host_name="here"), given)
        self.state = state
        self.requests = DescribeConfigsRequests(state, resolver)

    def describe(
        self,
        resource_type: int,
        name: str,
        *keys: str,
        synonyms: bool = False,
        documentation: bool = False,
        version: int = 4,
    ) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=synonyms, include_documentation=documentation
        )
        response = asyncio.run(self.requests.handle(context(ApiKey.DESCRIBE_CONFIGS, version), request))
        assert over_the_wire(response, version) is not None
        (result,) = response.results
        assert (result.resource_type, result.resource_name) == (resource_type, name)
        return result

    def topic_entry(self, key: str, *, synonyms: bool = False) -> DescribeConfigsResourceResult:
        (entry,) = self.describe(TOPIC, "topic-1", key, synonyms=synonyms).configs
        return entry

    def broker_entry(self, key: str, *, name: str = "1", synonyms: bool = False) -> DescribeConfigsResourceResult:
        (entry,) = self.describe(BROKER, name, key, synonyms=synonyms).configs
        return entry


def test_every_topic_key_has_its_broker_keys() -> None:
    """Each topic key also has the same built-in default as its broker keys. Otherwise the source of a value could not be
    determined."""
    assert sorted(BROKER_KEYS) == sorted(settings_of(TopicConfig))
    assert {key for keys in BROKER_KEYS.values() for key in keys} <= set(settings_of(ServerConfig))
    assert default_topic_config(load_server_config(PROPERTIES)) == TopicConfig()


def test_a_topic_without_overrides_shows_defaults() -> None:
    """All keys are shown, none as set on the topic. Keys with only one supported value are read-only."""
    entries = Broker().describe(TOPIC, "topic-1").configs
    settable = [key_of(field.name) for field in dataclasses.fields(TopicConfig)]
    assert [entry.name for entry in entries] == settable + sorted(SERVED_ANYWAY)
    assert {entry.config_source for entry in entries} == {DEFAULT_SOURCE}
    assert [entry.name for entry in entries if entry.read_only] == sorted(SERVED_ANYWAY)
    assert not any(entry.is_sensitive for entry in entries)
    assert all(entry.synonyms == [] for entry in entries)


def test_many_resources_are_described_in_slices_as_they_were() -> None:
    """Counts how many resources are described between two turns of the event loop. A change between two slices is not in the
    answer: neither in the results that are already there nor in those that follow."""
    broker = Broker(overrides={"retention.ms": "1"})
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name="topic-1", configuration_keys=["retention.ms", f"k{each}"]
        )
        for each in range(3 * ITEMS_PER_SLICE)
    ]

    async def scenario() -> tuple[DescribeConfigsResponse, int]:
        request = DescribeConfigsRequest(resources=resources)
        describing = asyncio.ensure_future(broker.requests.handle(context(ApiKey.DESCRIBE_CONFIGS, 4), request))
        turns = 0
        while not describing.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 1:
                changed = ConfigRecord(resource_type=TOPIC, resource_name="topic-1", name="retention.ms", value="2")
                broker.state.replay(changed, offset=Offset(broker.state.last_offset + 1))
        return await describing, turns

    response, turns = asyncio.run(scenario())
    assert turns >= 3
    assert [[entry.value for entry in result.configs] for result in response.results] == [["1"]] * len(resources)


def test_only_the_configuration_is_copied_before_the_first_slice() -> None:
    """What follows is done in slices: to look for resources that are named twice took longer than the copy."""
    looks: list[str] = []

    class Keys(list[str]):
        def __iter__(self) -> Iterator[str]:
            looks.append("a look")
            return super().__iter__()

    keys = Keys(["retention.ms"])
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="topic-1", configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource] * 2)
    description = Broker().requests.handle(context(ApiKey.DESCRIBE_CONFIGS, 4), request)
    assert not looks
    assert len(asyncio.run(description).results) == 1
    assert len(looks) == 2


def test_the_size_of_the_answer_is_expected() -> None:
    """A client that reads no answers must not get many of them into the queue."""
    broker, memory = Broker(), NoMemory()
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name="topic-1")]

    async def scenario() -> DescribeConfigsResponse:
        asked = context(ApiKey.DESCRIBE_CONFIGS, 4, memory=memory)
        return await broker.requests.handle(asked, DescribeConfigsRequest(resources=resources))

    size = len(encode(asyncio.run(scenario()), 4))
    assert size / 2 < memory.expected_bytes < 2 * size


@pytest.mark.parametrize(
    ("properties", "overrides", "value", "source"),
    [
        ({}, {}, "604800000", DEFAULT_SOURCE),
        ({"log.retention.hours": "2"}, {}, "7200000", STATIC_BROKER_SOURCE),
        ({"log.retention.minutes": "5"}, {}, "300000", STATIC_BROKER_SOURCE),
        ({"log.retention.hours": "168"}, {}, "604800000", STATIC_BROKER_SOURCE),
        ({"log.retention.ms": "1000"}, {"retention.ms": "1000"}, "1000", TOPIC_SOURCE),
        ({}, {"retention.ms": "604800000"}, "604800000", TOPIC_SOURCE),
    ],
)
def test_a_source_is_where_the_value_was_set(
    properties: dict[str, str], overrides: dict[str, str], value: str, source: int
) -> None:
    """The source of a value set in the topic is the topic, and the source of a value set in the broker's file is the broker,
    even if the value equals the default. Any of the setting's keys may be in the file, such as log.retention.hours."""
    entry = Broker(properties, overrides).topic_entry("retention.ms")
    assert (entry.value, entry.config_source) == (value, source)


def test_synonyms_in_the_order_in_which_they_count() -> None:
    """The topic's override comes first, then the lines of the broker's file with the finest unit first, then the default.
    The file's lines and the default have the broker's key names."""
    broker = Broker({"log.retention.ms": "1000", "log.retention.hours": "2"}, {"retention.ms": "5"})
    entry = broker.topic_entry("retention.ms", synonyms=True)
    assert _synonyms(entry) == [
        ("retention.ms", "5", TOPIC_SOURCE),
        ("log.retention.ms", "1000", STATIC_BROKER_SOURCE),
        ("log.retention.hours", "2", STATIC_BROKER_SOURCE),
        ("log.retention.hours", "168", DEFAULT_SOURCE),
    ]
    assert broker.topic_entry("retention.ms").synonyms == []


def test_an_override_that_has_no_effect_is_shown_all_the_same() -> None:
    """preallocate=false is accepted at creation, so a client that lists the topic's overrides must see this one."""
    entry = Broker(overrides={"preallocate": "false"}).topic_entry("preallocate", synonyms=True)
    assert (entry.value, entry.config_source, entry.config_type) == ("false", TOPIC_SOURCE, ConfigType.BOOLEAN)
    assert [(each.name, each.value) for each in entry.synonyms] == [("preallocate", "false")]


def test_what_clients_look_up_is_there() -> None:
    """Clients expect these keys in every topic."""
    broker = Broker()
    keys = ("cleanup.policy", "compression.type", "message.timestamp.type")
    assert [broker.topic_entry(key).value for key in keys] == ["delete", "producer", "CreateTime"]


# LogConfig of Apache Kafka 4.1.
KAFKAS_TOPIC_KEYS = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level delete.retention.ms
    file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas index.interval.bytes
    leader.replication.throttled.replicas local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio
    min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable
    remote.storage.enable retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
""".split()


def test_every_topic_key_of_kafka_is_described() -> None:
    """With a value that is true here, the type that Kafka gives it, and documentation."""
    entries = {entry.name: entry for entry in Broker().describe(TOPIC, "topic-1").configs}
    assert sorted(entries) == sorted(KAFKAS_TOPIC_KEYS)
    assert [key for key in entries if TOPIC_DOCUMENTATION.get(key) is None] == []
    booleans = {key for key, entry in entries.items() if entry.config_type == ConfigType.BOOLEAN}
    assert booleans == {
        *("preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable"),
        "unclean.leader.election.enable",
    }
    assert entries["flush.ms"].config_type == entries["segment.jitter.ms"].config_type == ConfigType.LONG
    assert entries["local.retention.ms"].config_type == entries["local.retention.bytes"].config_type == ConfigType.LONG
    assert entries["compression.zstd.level"].config_type == ConfigType.INT


def test_types_of_values_are_kafkas() -> None:
    """From version 3 on, the response has the type of each value, as a number of Kafka's ConfigType, even if no value is
    set."""
    broker = Broker()
    assert broker.topic_entry("unclean.leader.election.enable").config_type == ConfigType.BOOLEAN
    assert broker.topic_entry("unclean.leader.election.enable").value == "false"
    assert broker.topic_entry("segment.bytes").config_type == ConfigType.INT
    assert broker.topic_entry("retention.ms").config_type == ConfigType.LONG
    assert broker.topic_entry("leader.replication.throttled.replicas").config_type == ConfigType.LIST
    assert broker.broker_entry("log.retention.ms").config_type == ConfigType.LONG
    assert broker.broker_entry("log.dirs").config_type == ConfigType.LIST
    assert broker.broker_entry("offsets.topic.replication.factor").config_type == ConfigType.SHORT
    assert broker.broker_entry("metadata.log.dir").config_type == ConfigType.STRING


def test_only_the_keys_that_are_asked_for() -> None:
    """Unknown keys are left out without an error, as in Kafka. An empty list asks for all keys."""
    broker = Broker()
    result = broker.describe(TOPIC, "topic-1", "segment.bytes", "no.such.key")
    assert [entry.name for entry in result.configs] == ["segment.bytes"]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="topic-1", configuration_keys=[])
    response = asyncio.run(
        broker.requests.handle(context(ApiKey.DESCRIBE_CONFIGS, 4), DescribeConfigsRequest(resources=[resource]))
    )
    assert len(response.results[0].configs) == len(BROKER_KEYS) + len(SERVED_ANYWAY)


def test_a_resource_that_is_asked_for_many_times_is_described_once() -> None:
    """If a resource were described at each mention, a request of a few kilobytes could get a response of many megabytes. The
    same resource with other keys is described again."""
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name="topic-1", configuration_keys=keys)
        for keys in (None, [], ["segment.bytes"], ["segment.bytes", "segment.bytes"], ["segment.ms"])
    ]
    request = DescribeConfigsRequest(resources=resources * 1000)
    response = asyncio.run(Broker().requests.handle(context(ApiKey.DESCRIBE_CONFIGS, 4), request))
    assert [len(result.configs) for result in response.results] == [len(BROKER_KEYS) + len(SERVED_ANYWAY), 1, 1]


@pytest.mark.parametrize(
    ("name", "code"),
    [("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("", 17), ("a/b", 17), ("x" * 32_767, 17)],
)
def test_topics_that_are_none(name: str, code: int) -> None:
    """A name that is unknown or invalid gets an error, even if it is as long as the protocol allows."""
    result = Broker().describe(TOPIC, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


def test_the_brokers_own_configuration() -> None:
    """The answer has every key, whether the broker's file sets it or not, except throttles that are not set. Values are
    written as in a properties file."""
    broker = Broker({"num.partitions": "1", "controlled.shutdown.enable": "FALSE"})
    result = broker.describe(BROKER, "1")
    assert result.error_code == ErrorCode.NONE
    assert [entry.name for entry in result.configs] == [key for key in settings_of(ServerConfig) if key not in THROTTLES]
    assert {entry.name for entry in result.configs if not entry.read_only} == DYNAMIC_KEYS - THROTTLES
    entries = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert entries["log.dirs"] == ("/d1,/d2", STATIC_BROKER_SOURCE)
    assert entries["num.partitions"] == ("1", STATIC_BROKER_SOURCE)
    assert entries["controlled.shutdown.enable"] == ("false", STATIC_BROKER_SOURCE)
    assert entries["default.replication.factor"] == ("1", DEFAULT_SOURCE)
    assert entries["listeners"] == ("PLAINTEXT://:9092,OTHER://[::1]:9192", STATIC_BROKER_SOURCE)
    assert entries["advertised.listeners"] == ("PLAINTEXT://here:9092,OTHER://[::1]:9192", DEFAULT_SOURCE)
    assert entries["controller.quorum.voters"] == ("100@controller:9093", STATIC_BROKER_SOURCE)
    assert entries["process.roles"] == ("broker", STATIC_BROKER_SOURCE)
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    assert entries["listener.security.protocol.map"] == (protocols, STATIC_BROKER_SOURCE)
    assert entries["diskraft.prometheus.listener"] == (None, DEFAULT_SOURCE)
    assert entries["broker.rack"] == (None, DEFAULT_SOURCE)


@pytest.mark.parametrize("throttle", sorted(THROTTLES))
def test_a_throttle_is_listed_only_where_it_is_set(throttle: str) -> None:
    """Set in each of the three places, alone. As in Kafka, a throttle that is set nowhere is not listed."""
    assert Broker().describe(BROKER, "1", throttle).configs == []
    for broker, source in (
        (Broker({throttle: "5"}), STATIC_BROKER_SOURCE),
        (Broker(own={throttle: "5"}), BROKER_SOURCE),
        (Broker(everywhere={throttle: "5"}), CLUSTER_SOURCE),
    ):
        entries = [entry for entry in broker.describe(BROKER, "1").configs if entry.name in THROTTLES]
        assert [(entry.name, entry.value, entry.config_source) for entry in entries] == [(throttle, "5", source)]


def test_synonyms_of_the_brokers_own_configuration() -> None:
    """If the file sets the key, that value comes before the built-in default. A key may lack either or both."""
    result = Broker({"num.partitions": "3"}).describe(BROKER, "1", synonyms=True)
    synonyms = {entry.name: _synonyms(entry) for entry in result.configs}
    assert synonyms["num.partitions"] == [
        ("num.partitions", "3", STATIC_BROKER_SOURCE),
        ("num.partitions", "1", DEFAULT_SOURCE),
    ]
    assert synonyms["default.replication.factor"] == [("default.replication.factor", "1", DEFAULT_SOURCE)]
    assert synonyms["process.roles"] == [("process.roles", "broker", STATIC_BROKER_SOURCE)]
    assert synonyms["broker.rack"] == []
    assert all(entry.synonyms == [] for entry in Broker().describe(BROKER, "1").configs)


def test_the_default_listener_is_shown_as_a_listener() -> None:
    """If the broker's file sets no listener, the default listener is shown in the form of a configured one."""
    given = {key: value for key, value in PROPERTIES.items() if not key.startswith(("listener", "inter"))}
    resolver = ConfigResolver(load_server_config(given), given)
    requests = DescribeConfigsRequests(replay(), resolver)
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=["listeners"])
    response = asyncio.run(
        requests.handle(context(ApiKey.DESCRIBE_CONFIGS, 4), DescribeConfigsRequest(resources=[resource]))
    )
    (entry,) = response.results[0].configs
    assert (entry.value, entry.config_source) == ("PLAINTEXT://127.0.0.1:9092", DEFAULT_SOURCE)


def test_the_cluster_wide_defaults_are_what_is_set_there() -> None:
    """The empty name stands for the dynamic defaults of all brokers, not for this broker. Only values that are set there are
    listed."""
    result = Broker().describe(BROKER, "")
    assert (result.error_code, result.configs) == (ErrorCode.NONE, [])
    broker = Broker({"log.retention.ms": "1"}, own={"log.retention.ms": "2"}, everywhere={"log.retention.ms": "3"})
    (entry,) = broker.describe(BROKER, "", synonyms=True).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "3", CLUSTER_SOURCE)
    assert _synonyms(entry) == [("log.retention.ms", "3", CLUSTER_SOURCE)]
    assert (entry.read_only, entry.is_sensitive) == (False, False)


def test_every_place_that_sets_a_value_is_a_synonym() -> None:
    """The synonyms are in order of precedence: topic, this broker, all brokers, the broker's file, default."""
    broker = Broker(
        {"log.retention.hours": "2"},
        {"retention.ms": "5"},
        own={"log.retention.ms": "4"},
        everywhere={"log.retention.ms": "3"},
    )
    entry = broker.topic_entry("retention.ms", synonyms=True)
    assert (entry.value, entry.config_source) == ("5", TOPIC_SOURCE)
    assert _synonyms(entry) == [
        ("retention.ms", "5", TOPIC_SOURCE),
        ("log.retention.ms", "4", BROKER_SOURCE),
        ("log.retention.ms", "3", CLUSTER_SOURCE),
        ("log.retention.hours", "2", STATIC_BROKER_SOURCE),
        ("log.retention.hours", "168", DEFAULT_SOURCE),
    ]
    entry = broker.broker_entry("log.retention.ms", synonyms=True)
    assert (entry.value, entry.config_source, entry.read_only) == ("4", BROKER_SOURCE, False)
    assert [each.source for each in entry.synonyms] == [BROKER_SOURCE, CLUSTER_SOURCE]


def test_both_names_of_the_move_rate_show_the_rate_that_counts() -> None:
    """The rate in effect depends first on the place where it is set and only then on the name. Both names show that rate.
    But each name's source is the place where that name itself is set: an older kafka-configs writes back every value whose
    source is the broker."""
    broker = Broker({"replica.alter.log.dirs.io.max.bytes.per.second": "1"}, everywhere={"intra.broker.throttled.rate": "2"})
    for key, source in (
        ("replica.alter.log.dirs.io.max.bytes.per.second", STATIC_BROKER_SOURCE),
        ("intra.broker.throttled.rate", CLUSTER_SOURCE),
    ):
        entry = broker.broker_entry(key, synonyms=True)
        assert (entry.value, entry.config_source) == ("2", source)
        assert [(each.name, each.value) for each in entry.synonyms] == [
            ("intra.broker.throttled.rate", "2"),
            ("replica.alter.log.dirs.io.max.bytes.per.second", "1"),
            ("replica.alter.log.dirs.io.max.bytes.per.second", str(2**63 - 1)),
            ("intra.broker.throttled.rate", str(2**63 - 1)),
        ]


def test_a_key_that_the_broker_does_not_know_may_be_a_secret() -> None:
    """The key may hold a secret, so it is listed without its value, and as read-only, as in Kafka. If both this broker and
    all brokers set the key, the broker's description shows only the broker's own entry."""
    broker = Broker(own={"a.secret": "x"}, everywhere={"a.secret": "y", "another": "z"})
    for name, key, source in (
        ("1", "a.secret", BROKER_SOURCE),
        ("1", "another", CLUSTER_SOURCE),
        ("", "a.secret", CLUSTER_SOURCE),
    ):
        entry = broker.broker_entry(key, name=name, synonyms=True)
        assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_source) == (None, True, True, source)
        assert (entry.config_type, [each.value for each in entry.synonyms]) == (UNKNOWN_TYPE, [None])


@pytest.mark.parametrize("name", ["2", "one", "1" * 32_767])
def test_another_brokers_configuration_is_asked_elsewhere(name: str) -> None:
    """A request for another broker's configuration gets INVALID_REQUEST. The error message fits into a protocol string,
    however long the requested name is."""
    result = Broker().describe(BROKER, name)
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])
    assert "this is node 1" in (result.error_message or "")


def _synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def test_every_key_is_documented_if_the_client_asks() -> None:
    """Each key has a sentence, for a topic another one than for a server if need be. A key that the broker does not know has
    none."""
    broker = Broker(own={"a.secret": "x"}, everywhere={"log.retention.ms": "3"})
    for resource_type, name, documented in (
        (TOPIC, "topic-1", TOPIC_DOCUMENTATION),
        (BROKER, "1", SERVER_DOCUMENTATION),
        (BROKER, "", SERVER_DOCUMENTATION),
        (GROUP, "g", GROUP_DOCUMENTATION),
    ):
        entries = broker.describe(resource_type, name, documentation=True).configs
        assert entries
        for entry in entries:
            if entry.name != "a.secret":
                assert entry.documentation == documented[entry.name]
                assert entry.documentation.endswith(".")
        assert all(entry.documentation is None for entry in broker.describe(resource_type, name).configs)
    assert broker.describe(BROKER, "1", "a.secret", documentation=True).configs[0].documentation is None


def test_other_resources_are_not_served() -> None:
    """Kafka has loggers and client metrics to describe. Here the error says that there are none."""
    expected = {
        BROKER_LOGGER: "Diskraft has no loggers with levels of their own",
        CLIENT_METRICS: "Diskraft has no client metrics",
        64: "Unknown resource type 64",
    }
    for resource_type, message in expected.items():
        described = Broker().describe(resource_type, "1")
        assert (described.error_code, described.error_message) == (ErrorCode.INVALID_REQUEST, message)


HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


@pytest.mark.parametrize("name", ["g", "another", "x" * 32_767])
def test_a_group_inherits_from_the_broker(name: str) -> None:
    """Whether the group exists or not. As in Kafka since 4.3, the synonyms are those of the server's key."""
    broker = Broker({"group.consumer.session.timeout.ms": "50000"})
    entries = {entry.name: entry for entry in broker.describe(GROUP, name, synonyms=True).configs}
    assert {key: (entry.value, entry.config_source) for key, entry in entries.items()} == {
        ASSIGNMENT: ("0", DEFAULT_SOURCE),
        HEARTBEAT: ("5000", DEFAULT_SOURCE),
        SESSION: ("50000", STATIC_BROKER_SOURCE),
    }
    for entry in entries.values():
        assert (entry.config_type, entry.read_only, entry.is_sensitive) == (3, False, False)
    assert _synonyms(entries[HEARTBEAT]) == [(f"group.{HEARTBEAT}", "5000", DEFAULT_SOURCE)]
    assert _synonyms(entries[SESSION]) == [
        (f"group.{SESSION}", "50000", STATIC_BROKER_SOURCE),
        (f"group.{SESSION}", "45000", DEFAULT_SOURCE),
    ]


def test_what_is_set_for_a_group() -> None:
    """A value that cannot be read does not count. A key without effect, which another controller has accepted, is shown as
    it was set, and one that Kafka 4.1 does not know either without its value, as there."""
    group = {HEARTBEAT: "6000", SESSION: "soon", "share.session.timeout.ms": "50000", "plug.in.password": "secret"}
    broker = Broker(group=group)
    entries = {entry.name: entry for entry in broker.describe(GROUP, "g", synonyms=True).configs}
    assert {key: (entry.value, entry.config_source) for key, entry in entries.items()} == {
        ASSIGNMENT: ("0", DEFAULT_SOURCE),
        HEARTBEAT: ("6000", GROUP_SOURCE),
        SESSION: ("45000", DEFAULT_SOURCE),
        "share.session.timeout.ms": ("50000", GROUP_SOURCE),
        "plug.in.password": (None, GROUP_SOURCE),
    }
    assert [key for key, entry in entries.items() if entry.is_sensitive] == ["plug.in.password"]
    assert not any(entry.read_only for entry in entries.values())
    inherited = (f"group.{HEARTBEAT}", "5000", DEFAULT_SOURCE)
    assert _synonyms(entries[HEARTBEAT]) == [(HEARTBEAT, "6000", GROUP_SOURCE), inherited]
    assert [entry.value for entry in broker.describe(GROUP, "g", SESSION).configs] == ["45000"]
    assert broker.describe(GROUP, "h", HEARTBEAT).configs[0].value == "5000"


def test_the_default_of_all_groups_is_not_described() -> None:
    """There is none: the server's keys are."""
    result = Broker().describe(GROUP, "")
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    assert result.configs == []


# GroupConfig of Apache Kafka 4.1, and one key of 4.3.
KAFKAS_GROUP_KEYS = """
    consumer.assignment.interval.ms consumer.heartbeat.interval.ms consumer.session.timeout.ms
    share.auto.offset.reset share.heartbeat.interval.ms
    share.isolation.level share.record.lock.duration.ms share.session.timeout.ms streams.heartbeat.interval.ms
    streams.num.standby.replicas streams.session.timeout.ms
""".split()


def test_every_group_key_of_kafka_is_known() -> None:
    """Either it has an effect and is documented, or it is refused as one that has none."""
    assert sorted(settings_of(GroupConfig)) == sorted(GROUP_DOCUMENTATION)
    assert sorted({*settings_of(GroupConfig), *WITHOUT_EFFECT}) == KAFKAS_GROUP_KEYS


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_every_answer_can_be_sent_in_every_version(version: int) -> None:
    """The answers include synonyms, null values and the longest names."""
    broker = Broker({"log.retention.ms": "1000"}, {"retention.ms": "5", "cleanup.policy": "delete"})
    for resource_type, name in (
        (TOPIC, "topic-1"),
        (BROKER, "1"),
        (BROKER, "9" * 32_767),
        (TOPIC, "y" * 32_767),
        (GROUP, "z" * 32_767),
    ):
        assert (
            broker.describe(resource_type, name, synonyms=True, documentation=version >= 3, version=version).configs
            is not None
        )
