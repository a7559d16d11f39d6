"""The configuration of groups: for any bounds, defaults and changes, what is accepted keeps Kafka's rules."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from common.configuration.group import default_group_config, group_config, validate_group_overrides
from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError, field_of
from common.protocol.errors import ErrorCode
from tests.property.profiles import examples
from tests.unit.common.configuration.node_properties import BROKER
from tests.unit.controller.core.context import ControllerContext

HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
GROUP, SET, DELETE = 32, 0, 1
_TIMES = st.integers(1, 12)


@st.composite
def servers(draw: st.DrawFn) -> ServerConfig:
    """Draws bounds and defaults that a server can have."""
    heartbeats = sorted(draw(st.lists(_TIMES, min_size=3, max_size=3)))
    above = st.lists(st.integers(heartbeats[1] + 1, 14), min_size=2, max_size=2)
    session, session_max = sorted(draw(above))
    values = {
        "min.heartbeat.interval.ms": heartbeats[0],
        "heartbeat.interval.ms": heartbeats[1],
        "max.heartbeat.interval.ms": heartbeats[2],
        "min.session.timeout.ms": draw(st.integers(1, session)),
        "session.timeout.ms": session,
        "max.session.timeout.ms": session_max,
    }
    return load_server_config(BROKER | {f"group.consumer.{key}": str(value) for key, value in values.items()})


def is_allowed(server: ServerConfig, overrides: Mapping[str, str]) -> bool:
    """Kafka's GroupConfig.validateValues, for the keys that have an effect here."""
    heartbeat = int(overrides.get(HEARTBEAT, server.group_consumer_heartbeat_interval_ms))
    session = int(overrides.get(SESSION, server.group_consumer_session_timeout_ms))
    return (
        server.group_consumer_min_heartbeat_interval_ms <= heartbeat <= server.group_consumer_max_heartbeat_interval_ms
        and server.group_consumer_min_session_timeout_ms <= session <= server.group_consumer_max_session_timeout_ms
        and heartbeat < session
    )


OVERRIDES = st.dictionaries(st.sampled_from([HEARTBEAT, SESSION]), st.integers(0, 15).map(str))


@examples(300)
@given(servers(), OVERRIDES)
def test_exactly_what_kafka_allows_is_allowed(server: ServerConfig, overrides: dict[str, str]) -> None:
    """Values of 0 are below every bound. What is allowed has effect as it stands, over the server's defaults."""
    try:
        validate_group_overrides(server, overrides)
    except ConfigError:
        assert not is_allowed(server, overrides)
        return
    assert is_allowed(server, overrides)
    defaults = default_group_config(server)
    effective = group_config(defaults, overrides)
    for key in (HEARTBEAT, SESSION):
        inherited = getattr(defaults, field_of(key))
        assert getattr(effective, field_of(key)) == int(overrides.get(key, inherited))


# Changes of the keys, near the bounds of Kafka's defaults; None deletes the key.
CHANGES = st.dictionaries(
    st.sampled_from([HEARTBEAT, SESSION]),
    st.none() | st.sampled_from(["4999", "5000", "15000", "15001", "44999", "45000", "60000", "60001", "x"]),
    min_size=1,
)


@examples(100)
@given(st.lists(CHANGES, max_size=8))
def test_changes_are_made_as_a_whole_or_not_at_all(requests: list[dict[str, str | None]]) -> None:
    """The controller judges what the group would have after the change. A refused change leaves it as it was."""
    controller = ControllerContext()
    server = controller.settings.resolver.server_config(controller.state)
    expected: dict[str, str] = {}
    for changes in requests:
        after = {key: value for key, value in (expected | changes).items() if value is not None}
        is_valid = "x" not in after.values() and is_allowed(server, after)
        operations = [(key, DELETE if value is None else SET, value) for key, value in changes.items()]
        error, _ = controller.alter_configs(*operations, resource_type=GROUP, name="g")
        assert error == (ErrorCode.NONE if is_valid else ErrorCode.INVALID_CONFIG)
        expected = after if is_valid else expected
        assert controller.state.config(GROUP, "g") == expected
