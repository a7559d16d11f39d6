"""Targets for the configuration that people write: server.properties and topic overrides."""

import os

from common.configuration.endpoints import Endpoint
from common.configuration.group import GroupConfig, default_group_config, group_config, validate_group_overrides
from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError, settings_of
from common.configuration.topic import TopicConfig, default_topic_config, topic_config, validate_topic_overrides
from tests.fuzz.target import Target
from tools.errors import ToolError
from tools.node.configuration_file import parse_properties

INT32_MAX = 2**31 - 1
_BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093",
    "log.dirs": "/disks/1,/disks/2",
}


def _check_server_properties(data: bytes) -> None:
    """Any file loads as a configuration that a node can start with, or is rejected with a one-line error.

    The first byte of the input says how many of the keys in `_BASE` are given in addition to the file.
    """
    given = dict(list(_BASE.items())[: data[0] % (len(_BASE) + 1)]) if data else {}
    try:
        config = load_server_config(given | parse_properties(data[1:], "server.properties"))
    except (ConfigError, ToolError) as error:
        _check_one_line(str(error))
        return
    for warning in config.warnings:
        _check_one_line(warning)
    for path in config.all_log_dirs:
        assert path.startswith("/")
        assert b"\0" not in os.fsencode(path)
    assert 0 <= config.node_id <= INT32_MAX
    assert all(0 <= voter.node_id <= INT32_MAX for voter in config.controller_quorum_voters)
    for endpoint in (*config.listeners, *config.advertised_listeners):
        _check_endpoint(endpoint)
    (config.broker_rack or "").encode()
    assert default_topic_config(config).segment_bytes <= INT32_MAX


def _check_endpoint(endpoint: Endpoint) -> None:
    assert 0 <= endpoint.port <= 65535
    assert len(endpoint.host.encode()) <= 2**15 - 1
    assert endpoint.name


def _check_one_line(text: str) -> None:
    assert text
    assert text.isprintable()


def _server_seeds() -> list[bytes]:
    lines = [f"{key}={value}" for key, value in _BASE.items()]
    numbers = [f"{key}=17" for key in settings_of(ServerConfig)]
    whole = "\n".join(lines).encode()
    return [
        b"\0" + whole,
        b"\x06",
        b"\x06" + "\n".join(numbers[:30]).encode(),
        *(b"\x06" + line.encode() for line in numbers),
        b"\x06advertised.listeners=PLAINTEXT://[::1]:9092\nbroker.rack = r\\u00e4ck\\\n  1\n",
        b"\x06log.dirs=/a\\u0000b\n",
        b"\x06broker.rack=\\ud800\n",
        b"\x06no.such.key\\n=1\nnum.partitions=1_0\n",
        b"\x06node.id=" + b"9" * 5000,
    ]


def _check_topic_overrides(data: bytes) -> None:
    """Any overrides give a configuration that a log can use, or are rejected with a one-line error."""
    try:
        overrides = parse_properties(data, "topic")
    except ToolError as error:
        _check_one_line(str(error))
        return
    try:
        validate_topic_overrides(overrides)
    except ConfigError as error:
        _check_one_line(str(error))
        return
    config = topic_config(TopicConfig(), {key: value for key, value in overrides.items() if key in settings_of(TopicConfig)})
    assert 0 < config.segment_bytes <= INT32_MAX


def _topic_seeds() -> list[bytes]:
    lines = [f"{key}={value}" for key in settings_of(TopicConfig) for value in ("1", "-1", "2147483648", "true", "")]
    return [*(line.encode() for line in lines), b"cleanup.policy=delete\nsegment.bytes=1000\n", b"no.such=1", b"\\ud800=1"]


def _check_group_overrides(data: bytes) -> None:
    """Any overrides give a configuration that a coordinator can use, or are rejected with a one-line error."""
    try:
        overrides = parse_properties(data, "group")
    except ToolError as error:
        _check_one_line(str(error))
        return
    server = load_server_config(_BASE)
    try:
        validate_group_overrides(server, overrides)
    except ConfigError as error:
        _check_one_line(str(error))
        return
    config = group_config(default_group_config(server), overrides)
    assert 0 < config.consumer_heartbeat_interval_ms < config.consumer_session_timeout_ms <= INT32_MAX


def _group_seeds() -> list[bytes]:
    lines = [
        f"{key}={value}" for key in settings_of(GroupConfig) for value in ("6000", "50000", "-1", "2147483648", "true", "")
    ]
    return [*(line.encode() for line in lines), b"share.session.timeout.ms=1", b"no.such=1", b"\\ud800=1"]


TARGETS = (
    Target(name="server_properties", check=_check_server_properties, seeds=_server_seeds),
    Target(name="topic_overrides", check=_check_topic_overrides, seeds=_topic_seeds),
    Target(name="group_overrides", check=_check_group_overrides, seeds=_group_seeds),
)
