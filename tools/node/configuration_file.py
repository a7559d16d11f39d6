"""Loads server.properties for the tools and daemons: the file, overlaid with the environment, then validated (shell)."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import javaproperties

from common.configuration.server import ServerConfig, load_server_config, properties_from_environment
from common.configuration.settings import ConfigError, printable
from tools.errors import ToolError


def read_properties(path: str) -> dict[str, str]:
    """Reads the file's properties, overlaid with KAFKA_* variables. Raises ToolError."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read the configuration {path}: {error.strerror}") from error
    return parse_properties(content, path) | properties_from_environment(os.environ)


def parse_properties(content: bytes, path: str) -> dict[str, str]:
    """Parses the contents of a properties file. Raises ToolError."""
    try:
        # Some editors begin a file with a byte order mark, which is not part of the first key.
        properties: dict[str, str] = javaproperties.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ToolError(f"{path} is not a properties file: {printable(str(error))}") from error
    return properties


def overrides(lines: Sequence[str], option: str) -> dict[str, str]:
    """Parses the KEY=VALUE arguments of an option that overrides properties of the file. Raises ToolError."""
    properties: dict[str, str] = {}
    for line in lines:
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise ToolError(f"{option} {line} is not KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def load_config(properties: Mapping[str, str], path: str) -> ServerConfig:
    """Returns the validated configuration. Raises a ToolError that gives the file, the key and what is allowed."""
    try:
        return load_server_config(properties, host_name=socket.gethostname())
    except ConfigError as error:
        raise ToolError(f"{path}: {error}") from error
