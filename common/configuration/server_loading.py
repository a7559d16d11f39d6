"""Turns the properties of server.properties into a ServerConfig, or refuses them (core).

A ConfigError is a single line that gives the key, its value and what is allowed. Unknown keys, and Kafka's keys that have
no effect yet, become warnings. An unknown key that resembles one of KEYS_TO_GET_RIGHT is an error.
"""

from collections.abc import Mapping
from dataclasses import replace

from common.configuration.group import validate_assignment_interval, validate_consumer_times
from common.configuration.kafka_keys import KAFKA_KEYS, nearest_key
from common.configuration.node_addresses import advertised_controllers, with_listeners, with_quorum
from common.configuration.server import (
    ALL_LOG_DIRS,
    CLASSIC_PROTOCOL,
    DEFAULT_LOG_DIR,
    KNOWN_WITHOUT_EFFECT,
    MOVE_RATE_NAMES,
    NODE_ID_NAMES,
    SERVER_SETTINGS,
    ServerConfig,
    with_both_move_rates,
)
from common.configuration.settings import ConfigError, load_settings, parse_setting, printable

# The keys that say who the node is, where it keeps its data and how others reach it. Kafka ignores every unknown key. But if
# one of these were mistyped, the node would come up as something else: log.dirz=/disk-1 would leave the data in
# /tmp/kafka-logs.
KEYS_TO_GET_RIGHT = frozenset(
    """
    advertised.listeners controller.listener.names controller.quorum.bootstrap.servers controller.quorum.voters
    inter.broker.listener.name listener.security.protocol.map listeners log.dir log.dirs metadata.log.dir node.id
    process.roles
    """.split()
)
_KEYS = frozenset(SERVER_SETTINGS)
_KEYS_WITHOUT_EFFECT = (KAFKA_KEYS | KNOWN_WITHOUT_EFFECT) - _KEYS


def load_server_config(properties: Mapping[str, str], *, host_name: str = "localhost") -> ServerConfig:
    """Loads and validates the whole configuration. Listeners without a host are advertised with `host_name`.

    Raises ConfigError.
    """
    near = _nearest_keys(properties)
    _refuse_misspelt_keys(properties, near)
    _refuse_bad_synonyms(properties)
    config = ServerConfig(**load_settings(ServerConfig, with_both_move_rates(_with_node_id(properties))))
    doubts = _doubts(properties, near)
    without_effect = sorted(_KEYS_WITHOUT_EFFECT & properties.keys())
    # One line for all of them: Kafka's stock file alone has ten.
    lines = [f"no effect in this version: {', '.join(without_effect)}"] if without_effect else []
    config = replace(config, broker_id=config.node_id, doubts=doubts, warnings=(*doubts, *lines))
    config = _with_directories(config)
    _check_roles(config)
    advertised = config.advertised_listeners
    config = with_listeners(config, host_name)
    config = with_quorum(config, advertised)
    config = replace(config, advertised_controller_listeners=advertised_controllers(config, advertised, host_name))
    if config.broker_heartbeat_interval_ms >= config.broker_session_timeout_ms:
        raise ConfigError(
            f"broker.heartbeat.interval.ms={config.broker_heartbeat_interval_ms} is not valid; "
            f"it takes less than broker.session.timeout.ms={config.broker_session_timeout_ms}"
        )
    _check_consumer_groups(config)
    return config


def _with_node_id(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the properties with the node's id under its current name."""
    current, former = NODE_ID_NAMES
    if former not in properties:
        return properties
    if properties.get(current, properties[former]).strip() != properties[former].strip():
        raise ConfigError(f"{former}={properties[former]} is not valid; it takes the value of {current}")
    return {current: properties[former], **properties}


def _nearest_keys(properties: Mapping[str, str]) -> dict[str, str | None]:
    """Maps each unknown key to the known one that it resembles."""
    known = _KEYS | _KEYS_WITHOUT_EFFECT
    return {key: nearest_key(key, known) for key in sorted(properties) if key not in known}


def _refuse_misspelt_keys(properties: Mapping[str, str], near: Mapping[str, str | None]) -> None:
    for key, meant in near.items():
        if meant in KEYS_TO_GET_RIGHT and meant not in properties:
            raise ConfigError(f"{key} is not a known key, and {meant} is not set; is {meant} meant?")


def _refuse_bad_synonyms(properties: Mapping[str, str]) -> None:
    """Checks the keys that have another name before they are read under that one, so that an error gives the name that is
    set."""
    for key in (*NODE_ID_NAMES, *MOVE_RATE_NAMES):
        if key in properties:
            parse_setting(key, SERVER_SETTINGS[key], properties[key])


def _doubts(properties: Mapping[str, str], near: Mapping[str, str | None]) -> tuple[str, ...]:
    lines = [
        f"{printable(key)} is not a known key; it is ignored" + (f" (is {meant} meant?)" if meant is not None else "")
        for key, meant in near.items()
    ]
    if "log.dirs" not in properties and "log.dir" not in properties:
        lines.append(f"log.dirs is not set; its default is {DEFAULT_LOG_DIR}")
    return tuple(lines)


def _with_directories(config: ServerConfig) -> ServerConfig:
    log_dirs = config.log_dirs or (config.log_dir,)
    unknown = [each for each in config.cordoned_log_dirs if each not in (*log_dirs, ALL_LOG_DIRS)]
    if unknown and config.is_broker:
        raise ConfigError(
            f"cordoned.log.dirs={','.join(config.cordoned_log_dirs)} is not valid; {unknown[0]} is not in log.dirs"
        )
    return replace(config, log_dirs=log_dirs, metadata_log_dir=config.metadata_log_dir or log_dirs[0])


def _check_roles(config: ServerConfig) -> None:
    if not config.process_roles:
        raise ConfigError("process.roles= is not valid; it takes a comma-separated list of broker, controller")
    if len({*config.process_roles}) < len(config.process_roles):
        raise ConfigError(f"process.roles={','.join(config.process_roles)} is not valid; it names a role twice")


def _check_consumer_groups(config: ServerConfig) -> None:
    if CLASSIC_PROTOCOL not in config.group_coordinator_rebalance_protocols:
        given = ",".join(config.group_coordinator_rebalance_protocols)
        raise ConfigError(f"group.coordinator.rebalance.protocols={given} is not valid; classic cannot be left out")
    validate_consumer_times(
        config,
        prefix="group.consumer",
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        session_timeout_ms=config.group_consumer_session_timeout_ms,
    )
    validate_assignment_interval(
        config, prefix="group.consumer", assignment_interval_ms=config.group_consumer_assignment_interval_ms
    )
