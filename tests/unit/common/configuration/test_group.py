"""Group configuration: overrides of the server's defaults, and what is refused."""

import pytest

from common.configuration.group import GroupConfig, default_group_config, group_config, validate_group_overrides
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError
from tests.unit.common.configuration.node_properties import BROKER

HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def test_overrides_beat_the_servers_defaults() -> None:
    """An override that cannot be read is skipped, because it may come from another version of the software."""
    defaults = default_group_config(load_server_config(BROKER | {"group.consumer.heartbeat.interval.ms": "6000"}))
    assert defaults == GroupConfig(consumer_heartbeat_interval_ms=6_000)
    assert group_config(defaults, {}) is defaults
    overrides = {SESSION: " 50000 ", HEARTBEAT: "often", "share.session.timeout.ms": "1"}
    assert group_config(defaults, overrides) == GroupConfig(
        consumer_heartbeat_interval_ms=6_000, consumer_session_timeout_ms=50_000
    )


def test_the_class_defaults_are_kafkas() -> None:
    """If server.properties sets no defaults of groups, every setting has the default that GroupConfig declares."""
    assert default_group_config(load_server_config(BROKER)) == GroupConfig()


def test_values_must_agree_with_the_servers_defaults() -> None:
    """What is not set for the group counts too: its heartbeat interval must be shorter than its session timeout."""
    bounds = {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "100"}
    server = load_server_config(BROKER | bounds)
    validate_group_overrides(server, {SESSION: "5001"})
    with pytest.raises(ConfigError, match=r"interval\.ms=5000 is not valid; it takes less than consumer\.session"):
        validate_group_overrides(server, {SESSION: "5000"})
    validate_group_overrides(server, {SESSION: "5000", HEARTBEAT: "4999"})
    validate_group_overrides(server, {})


def test_an_assignment_interval_is_within_the_servers_bounds() -> None:
    """0 is one: every change of a group is assigned at once."""
    server = load_server_config(BROKER | {"group.consumer.max.assignment.interval.ms": "2000"})
    for value in ("0", "2000"):
        validate_group_overrides(server, {ASSIGNMENT: value})
    with pytest.raises(ConfigError, match=r"^consumer\.assignment\.interval\.ms=2001 is not valid; it takes from group\."):
        validate_group_overrides(server, {ASSIGNMENT: "2001"})
    properties = {f"group.{ASSIGNMENT}": "5", "group.consumer.min.assignment.interval.ms": "6"}
    with pytest.raises(
        ConfigError, match=r"^group\.consumer\.assignment\.interval\.ms=5 is not valid; it takes from group\."
    ):
        load_server_config(BROKER | properties)


@pytest.mark.parametrize("length", [32_767, 100_000])
def test_refusals_are_short_enough_for_a_response(length: int) -> None:
    """The message of a key that has no effect leaves out its value, which may be as long as a string of the protocol."""
    with pytest.raises(ConfigError) as refused:
        validate_group_overrides(load_server_config(BROKER), {"share.isolation.level": "x" * length})
    assert len(str(refused.value)) < 100
