"""Dynamic configuration on the controller: which records it writes, and which error it returns for each refused change."""

from collections.abc import Mapping

import pytest

from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.protocol.messages import alter_configs as legacy
from common.protocol.messages import incremental_alter_configs as incremental
from common.records.metadata_records import ConfigRecord, KnownRecord
from common.slices import at_once
from controller.core.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX
from tests.unit.controller.core.context import ControllerContext

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
THROTTLED = "leader.replication.throttled.replicas"
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


def cluster(configs: Mapping[str, str | None] | None = None) -> ControllerContext:
    """Returns a controller with broker 1 and topic t."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.topic("t", [[1]], configs=configs)
    return controller


def record(key: str, value: str | None, *, resource_type: int = TOPIC, name: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


def replace(controller: ControllerContext, *resources: legacy.AlterConfigsResource) -> list[tuple[int, str | None]]:
    """Sends the older AlterConfigs. Returns the error code and the message of each resource's result."""
    request = legacy.AlterConfigsRequest(resources=list(resources))
    response = controller.apply(handle_alter_configs(controller.turn(), request))
    return [(each.error_code, each.error_message) for each in response.responses]


def whole(configs: Mapping[str, str | None], *, resource_type: int = TOPIC, name: str = "t") -> legacy.AlterConfigsResource:
    return legacy.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )


# --- what is written --------------------------------------------------------------------------------------------


def test_set_and_delete() -> None:
    """Each key whose value changes gets one record. A key gets no record if it keeps its value, or if it is deleted but had
    no value."""
    controller = cluster({"retention.ms": "5", "segment.bytes": "1024"})
    changes = (
        ("retention.ms", SET, "6"),
        ("segment.bytes", DELETE, None),
        ("segment.ms", DELETE, None),
        ("min.insync.replicas", SET, "2"),
    )
    assert controller.alter_configs(*changes) == (ErrorCode.NONE, None)
    assert controller.records == [
        record("min.insync.replicas", "2"),
        record("retention.ms", "6"),
        record("segment.bytes", None),
    ]
    assert controller.state.config(TOPIC, "t") == {"min.insync.replicas": "2", "retention.ms": "6"}
    (event,) = controller.last_events
    assert (event.name, event.fields["resource_name"]) == ("config_altered", "t")
    assert event.fields["keys"] == ["min.insync.replicas", "retention.ms", "segment.bytes"]
    assert controller.alter_configs(("retention.ms", SET, "6")) == (ErrorCode.NONE, None)
    assert (controller.records, controller.last_events) == ([], [])


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "0:1", "0:1"),
        ("0:1", APPEND, "0:1,1:1,0:2", "0:1,1:1,0:2"),
        ("0:1,1:1,0:2", SUBTRACT, "1:1,7:7", "0:1,0:2"),
        ("0:1", SUBTRACT, "0:1", ""),
        ("0:1", APPEND, "", "0:1,"),
        ("0:1,", APPEND, "1:1,", "0:1,1:1"),
        (None, APPEND, ",", ""),
        ("0:1,1:1,0:1", SUBTRACT, ",0:1", "1:1,0:1"),
    ],
)
def test_elements_of_a_list(before: str | None, operation: int, value: str, after: str) -> None:
    """Appending an element that is already in the list does nothing. Subtracting an element that is not in the list does
    nothing either."""
    controller = cluster({} if before is None else {THROTTLED: before})
    assert controller.alter_configs((THROTTLED, operation, value)) == (ErrorCode.NONE, None)
    assert controller.state.config(TOPIC, "t") == {THROTTLED: after}


@pytest.mark.parametrize(
    ("resource_type", "name", "key"),
    [(TOPIC, "t", "cleanup.policy"), (BROKER, "", "log.cleanup.policy"), (BROKER, "1", "log.cleanup.policy")],
)
def test_appending_to_a_list_begins_with_its_default(resource_type: int, name: str, key: str) -> None:
    """The policy is a list with the default "delete", for topics and for brokers. If the default were replaced instead, no
    topic that relies on it would delete old records any more."""
    controller = cluster()
    change = (key, APPEND, "compact")
    assert controller.alter_configs(change, resource_type=resource_type, name=name) == (ErrorCode.NONE, None)
    assert controller.records == [record(key, "delete,compact", resource_type=resource_type, name=name)]


@pytest.mark.parametrize("value", ["delete,delete", "compact, delete ,compact", "delete,", ","])
def test_a_policy_that_is_empty_or_occurs_twice_is_refused(value: str) -> None:
    """Brokers of Apache Kafka, which may join, cannot read such a list."""
    controller = cluster()
    code, message = controller.alter_configs(("cleanup.policy", SET, value))
    assert (code, controller.records) == (ErrorCode.INVALID_CONFIG, [])
    assert message is not None
    assert "no policy may" in message
    result = controller.create("u", [[1]], configs={"cleanup.policy": value}).topics[0]
    assert (result.error_code, controller.records) == (ErrorCode.INVALID_CONFIG, [])
    code, _ = controller.alter_configs(("log.cleanup.policy", SET, value), resource_type=BROKER, name="")
    assert (code, controller.records) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("value", ["", ",compact"])
def test_an_empty_element_is_appended_as_well_and_refused_where_it_is_not_valid(value: str) -> None:
    controller = cluster()
    code, message = controller.alter_configs(("cleanup.policy", APPEND, value))
    assert (code, controller.records) == (ErrorCode.INVALID_CONFIG, [])
    assert message is not None


@pytest.mark.parametrize("name", ["1", ""])
def test_a_broker_and_all_brokers(name: str) -> None:
    """An empty name stands for the defaults of all brokers. An unknown key is stored, as in Kafka."""
    controller = cluster()
    changes = (("log.retention.ms", SET, "5"), ("plug.in.key", SET, "x"))
    assert controller.alter_configs(*changes, resource_type=BROKER, name=name) == (ErrorCode.NONE, None)
    assert controller.records == [
        record("log.retention.ms", "5", resource_type=BROKER, name=name),
        record("plug.in.key", "x", resource_type=BROKER, name=name),
    ]


def test_the_older_request_replaces_everything() -> None:
    """AlterConfigs deletes every key that the request leaves out."""
    controller = cluster({"retention.ms": "5", "segment.bytes": "1024"})
    assert replace(controller, whole({"retention.ms": "6"})) == [(ErrorCode.NONE, None)]
    assert controller.records == [record("retention.ms", "6"), record("segment.bytes", None)]
    assert replace(controller, whole({})) == [(ErrorCode.NONE, None)]
    assert controller.state.config(TOPIC, "t") == {}


def test_validate_only_writes_nothing() -> None:
    """Each resource gets the same result as if the change were made."""
    controller = cluster()
    assert controller.alter_configs(("retention.ms", SET, "6"), validate_only=True) == (ErrorCode.NONE, None)
    code, _ = controller.alter_configs(("retention.ms", SET, "soon"), validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert (controller.records, controller.last_events) == ([], [])


def test_resources_of_one_request_stand_for_themselves() -> None:
    """A resource that is named twice is refused both times. An invalid resource gets its own error. The valid resource is
    written."""
    controller = cluster()
    controller.topic("u", [[1]])

    def setting(name: str, key: str = "retention.ms") -> incremental.AlterConfigsResource:
        configs = [incremental.AlterableConfig(name=key, config_operation=SET, value="1")]
        return incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)

    resources = [setting("t"), setting("u"), setting("gone"), setting("t", "segment.ms")]
    request = incremental.IncrementalAlterConfigsRequest(resources=resources)
    response = controller.apply(handle_incremental_alter_configs(controller.turn(), request))
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert [(each.error_code, each.error_message) for each in response.responses] == [
        twice,
        (ErrorCode.NONE, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'gone' does not exist."),
        twice,
    ]
    assert controller.records == [record("retention.ms", "1", name="u")]


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "code", "message"),
    [
        ("t", [("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, "retention.ms=soon is not valid"),
        ("t", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        ("t", [("cleanup.policy", SET, "shrink")], ErrorCode.INVALID_CONFIG, "compact, delete"),
        ("t", [(THROTTLED, SET, "all")], ErrorCode.INVALID_CONFIG, "PARTITION:BROKER"),
        ("t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ("t", [("retention.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        ("t", [("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 7"),
        (
            "t",
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ("", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ("a/b", [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
        ("none", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        ("x" * 249, [("k" * 32_767, SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: kkk"),
    ],
)
def test_bad_changes_of_a_topic(
    name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    """The error code is Kafka's, and so is the message where Kafka has one. Nothing is written."""
    controller = cluster()
    error_code, error_message = controller.alter_configs(*changes, name=name)
    assert error_code == code
    assert message in (error_message or "")
    assert controller.records == []


@pytest.mark.parametrize(
    ("name", "changes", "code", "message"),
    [
        (
            "1",
            [("node.id", SET, "2"), ("log.dirs", SET, "/x"), ("log.retention.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(log.dirs, node.id)",
        ),
        ("", [("num.io.threads", SET, "1")], ErrorCode.INVALID_REQUEST, "Set(num.io.threads)"),
        (
            "1",
            [("security.inter.broker.protocol", SET, "PLAINTEXT"), ("ssl.truststore.type", SET, "PKCS12")],
            ErrorCode.INVALID_REQUEST,
            "Set(security.inter.broker.protocol, ssl.truststore.type)",
        ),
        ("1", [("log.retention.ms", SET, "soon")], ErrorCode.INVALID_REQUEST, "log.retention.ms=soon is not valid"),
        ("1", [("num.replica.alter.log.dirs.threads", SET, "0")], ErrorCode.INVALID_REQUEST, "at least 1"),
        ("1", [("plug.in", SET, "x" * 32_768)], ErrorCode.INVALID_REQUEST, "too many"),
        ("1", [("k" * 32_768, SET, "x")], ErrorCode.INVALID_REQUEST, "too many"),
        (
            "1",
            [("log.retention.ms", SUBTRACT, "1")],
            ErrorCode.INVALID_CONFIG,
            "Config value subtract is not allowed for config key: log.retention.ms",
        ),
        ("one", [], ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        ("01", [], ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        ("9" * 5_000, [], ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        ("-1", [], ErrorCode.INVALID_REQUEST, "Invalid negative broker ID."),
        ("7", [], ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 7 found."),
    ],
)
def test_bad_changes_of_a_broker(
    name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    """As in Kafka, the error for an invalid value is INVALID_REQUEST, not INVALID_CONFIG. Nothing is written."""
    controller = cluster()
    error_code, error_message = controller.alter_configs(*changes, resource_type=BROKER, name=name)
    assert error_code == code
    assert message in (error_message or "")
    assert controller.records == []


# --- groups -----------------------------------------------------------------------------------------------------


def test_a_group_need_not_exist() -> None:
    """A group may be configured before its first member joins. With its last key its configuration is gone."""
    controller = cluster()
    changes = ((HEARTBEAT, SET, "6000"), (SESSION, SET, "50000"))
    assert controller.alter_configs(*changes, resource_type=GROUP, name="a group!") == (ErrorCode.NONE, None)
    assert controller.records == [
        record(HEARTBEAT, "6000", resource_type=GROUP, name="a group!"),
        record(SESSION, "50000", resource_type=GROUP, name="a group!"),
    ]
    assert replace(controller, whole({SESSION: "60000"}, resource_type=GROUP, name="a group!")) == [(ErrorCode.NONE, None)]
    assert controller.records == [
        record(HEARTBEAT, None, resource_type=GROUP, name="a group!"),
        record(SESSION, "60000", resource_type=GROUP, name="a group!"),
    ]
    (event,) = controller.last_events
    assert event.fields["resource_type"] == "group"
    assert controller.alter_configs((SESSION, DELETE, None), resource_type=GROUP, name="a group!")[0] == ErrorCode.NONE
    assert controller.state.configs == {}


@pytest.mark.parametrize(
    ("name", "changes", "code", "message"),
    [
        ("", [(SESSION, SET, "50000")], ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        ("g" * 32_768, [(SESSION, SET, "50000")], ErrorCode.INVALID_REQUEST, "more than 32767 bytes"),
        ("g", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown group config name: no.such"),
        ("g", [("retention.ms", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown group config name: retention.ms"),
        ("g", [("share.session.timeout.ms", SET, "50000")], ErrorCode.INVALID_CONFIG, "has no effect in this version"),
        ("g", [("streams.num.standby.replicas", SET, "1")], ErrorCode.INVALID_CONFIG, "has no effect in this version"),
        ("g", [(SESSION, SET, "soon")], ErrorCode.INVALID_CONFIG, f"{SESSION}=soon is not valid"),
        ("g", [(SESSION, SET, "")], ErrorCode.INVALID_CONFIG, f"{SESSION}= is not valid"),
        (
            "g",
            [(SESSION, SET, "44999")],
            ErrorCode.INVALID_CONFIG,
            f"{SESSION}=44999 is not valid; it takes from group.consumer.min.session.timeout.ms=45000 to "
            "group.consumer.max.session.timeout.ms=60000",
        ),
        ("g", [(SESSION, SET, "60001")], ErrorCode.INVALID_CONFIG, "group.consumer.max.session.timeout.ms=60000"),
        ("g", [(HEARTBEAT, SET, "4999")], ErrorCode.INVALID_CONFIG, "group.consumer.min.heartbeat.interval.ms=5000"),
        ("g", [(HEARTBEAT, SET, "15001")], ErrorCode.INVALID_CONFIG, "group.consumer.max.heartbeat.interval.ms=15000"),
        ("g", [(SESSION, SET, None)], ErrorCode.INVALID_REQUEST, f"Null value not supported for : {SESSION}"),
        (
            "g",
            [(SESSION, APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            f"Can't APPEND to key {SESSION} because its type is not LIST.",
        ),
    ],
)
def test_bad_changes_of_a_group(
    name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    """The error code is Kafka's, and so is the message where it names no value. Nothing is written."""
    controller = cluster()
    error_code, error_message = controller.alter_configs(*changes, resource_type=GROUP, name=name)
    assert error_code == code
    assert message in (error_message or "")
    assert controller.records == []


def test_deleting_a_key_that_only_a_restart_can_change_is_no_change() -> None:
    """The key has no dynamic value, so the request changes nothing and is not refused."""
    controller = cluster()
    assert controller.alter_configs(("node.id", DELETE, None), resource_type=BROKER, name="1") == (ErrorCode.NONE, None)
    assert controller.records == []


def test_other_resources_are_refused() -> None:
    """Loggers are refused too: in Kafka the brokers themselves handle them. Client metrics have no configuration here."""
    expected = {
        BROKER_LOGGER: "Diskraft has no loggers with levels of their own",
        CLIENT_METRICS: "Diskraft has no client metrics",
        64: "Unknown resource type 64",
    }
    for resource_type, message in expected.items():
        assert cluster().alter_configs(resource_type=resource_type, name="1") == (ErrorCode.INVALID_REQUEST, message)


def test_the_older_request_is_judged_in_the_same_way() -> None:
    """AlterConfigs refuses invalid values, keys that only a restart can change, and missing values."""
    controller = cluster()
    assert replace(controller, whole({"retention.ms": "soon"}))[0][0] == ErrorCode.INVALID_CONFIG
    assert replace(controller, whole({"node.id": "2"}, resource_type=BROKER, name="1")) == [
        (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: Set(node.id)")
    ]
    assert replace(controller, whole({"retention.ms": None})) == [
        (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms")
    ]
    assert controller.records == []


def test_an_existing_value_is_judged_again() -> None:
    """A controller of another version wrote a key that this controller does not know. Until that key is deleted, other
    changes of the resource are refused."""
    controller = cluster()
    controller.state.replay(record("from.another.version", "1"), offset=controller.next_write_offset)
    assert controller.alter_configs(("retention.ms", SET, "1"))[0] == ErrorCode.INVALID_CONFIG
    changes = (("retention.ms", SET, "1"), ("from.another.version", DELETE, None))
    assert controller.alter_configs(*changes) == (ErrorCode.NONE, None)


def test_the_limit_of_records_holds_for_the_whole_request() -> None:
    """A resource whose records exceed the remaining limit is refused. A smaller resource after it may still fit."""
    controller = cluster()
    sizes = {"": RECORDS_PER_REQUEST_MAX - 1, "1": 2}
    resources = [
        incremental.AlterConfigsResource(
            resource_type=BROKER,
            resource_name=name,
            configs=[incremental.AlterableConfig(name=f"key-{number}", value="x") for number in range(size)],
        )
        for name, size in sizes.items()
    ]
    resources.append(
        incremental.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[incremental.AlterableConfig(name="retention.ms", value="1")],
        )
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=resources)
    result = at_once(handle_incremental_alter_configs(controller.turn(), request))
    assert [each.error_code for each in result.response.responses] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert len(result.records) == RECORDS_PER_REQUEST_MAX


# --- effects of the configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "everywhere", "topic", "is_elected"),
    [
        (None, None, None, False),
        (None, "true", None, True),
        (None, "true", "false", False),
        ("false", "true", None, False),
        ("true", "false", None, True),
        (None, None, "true", True),
    ],
)
def test_unclean_elections_follow_the_configuration_in_effect(
    own: str | None, everywhere: str | None, topic: str | None, is_elected: bool
) -> None:
    """The topic's value takes precedence over the controller's own dynamic configuration. The latter takes precedence over
    the configuration of all brokers."""
    controller = ControllerContext()
    for broker_id in (1, 2):
        controller.start(broker_id, [f"{broker_id}-a"])
    topic_id = controller.topic("t", [[1, 2]])
    controller.fence(2)
    controller.fence(1)
    controller.heartbeat(2)
    assert controller.leader_and_isr(topic_id) == (-1, [1])
    key = "unclean.leader.election.enable"
    records: list[KnownRecord] = [
        record(key, value, resource_type=resource_type, name=name)
        for resource_type, name, value in ((BROKER, "100", own), (BROKER, "", everywhere), (TOPIC, "t", topic))
        if value is not None
    ]
    for each in records:
        controller.state.replay(each, offset=controller.next_write_offset)
        controller.log.append(each)
    controller.sweep()
    assert controller.leader_and_isr(topic_id) == ((2, [2]) if is_elected else (-1, [1]))


# --- keys that another controller has accepted -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource_type", "name", "stored", "changed"),
    [
        (TOPIC, "t", {"preallocate": "true"}, ("retention.ms", "6")),
        (BROKER, "1", {"num.io.threads": "16", "log.cleaner.threads": "2"}, ("log.retention.ms", "6")),
        (BROKER, "", {"num.network.threads": "16"}, ("log.retention.ms", "6")),
        (GROUP, "g", {"share.session.timeout.ms": "50000"}, (SESSION, "50000")),
    ],
)
def test_a_key_that_apache_kafka_has_stored_does_not_block_other_changes(
    resource_type: int, name: str, stored: Mapping[str, str], changed: tuple[str, str]
) -> None:
    """The log may come from Apache Kafka's controllers, which accept keys that have no effect here. Such a key may stay or
    go, but not get another value."""
    controller = cluster()
    for key, value in stored.items():
        controller.state.replay(record(key, value, resource_type=resource_type, name=name), offset=Offset(1000))
    key, value = changed
    assert controller.alter_configs((key, SET, value), resource_type=resource_type, name=name) == (ErrorCode.NONE, None)
    assert controller.records == [record(key, value, resource_type=resource_type, name=name)]
    again = whole({**stored, key: value}, resource_type=resource_type, name=name)
    assert replace(controller, again) == [(ErrorCode.NONE, None)]
    first = next(iter(stored))
    code, _ = controller.alter_configs((first, SET, "7"), resource_type=resource_type, name=name)
    assert (code != ErrorCode.NONE, controller.records) == (True, [])
    deleted = (first, DELETE, None)
    assert controller.alter_configs(deleted, resource_type=resource_type, name=name) == (ErrorCode.NONE, None)
    assert controller.records == [record(first, None, resource_type=resource_type, name=name)]
