"""Loads server.properties for the tools and daemons: the file, overlaid with the environment, then validated (shell)."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import javaproperties

from common.configuration.environment_variables import properties_from_environment
from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError, printable
from tools.errors import ToolError

_NO_ORIGINS: Final[Mapping[str, str]] = MappingProxyType({})
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a file, overlaid with KAFKA_* variables. `doubts` says which keys are set more than once, `origins`
    where each value comes from that is not the file's."""

    values: dict[str, str]
    doubts: tuple[str, ...]
    origins: dict[str, str]


def read_properties(path: str) -> Properties:
    """Reads a server.properties. Raises ToolError."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read the configuration {path}: {error.strerror}") from error
    variables = properties_from_environment(os.environ)
    values = parse_properties(content, path) | variables
    return Properties(values, _repetitions(_decoded(content)), dict.fromkeys(variables, "a KAFKA_* variable"))


def parse_properties(content: bytes, path: str) -> dict[str, str]:
    """Parses the contents of a properties file. Raises ToolError."""
    try:
        properties: dict[str, str] = javaproperties.loads(_decoded(content))
    except ValueError as error:
        raise ToolError(f"{path} is not a properties file: {printable(str(error))}") from error
    return properties


def _decoded(content: bytes) -> str:
    # Some editors begin a file with a byte order mark, which is not part of the first key.
    return content.decode("utf-8-sig")


def _repetitions(text: str) -> tuple[str, ...]:
    """Describes the keys that occur more than once. The last occurrence counts, as in Java."""
    lines: dict[str, list[int]] = {}
    line = 1
    for element in javaproperties.parse(text):
        if isinstance(element, javaproperties.KeyValue):
            lines.setdefault(element.key, []).append(line)
        # An element can be continued over several lines, each of which ends as on Unix, Windows or an old Mac.
        line += len(_LINE_END.findall(element.source))
    return tuple(
        f"{printable(key)} is set more than once (lines {', '.join(map(str, found))}); all but the last are ignored"
        for key, found in lines.items()
        if len(found) > 1
    )


def overrides(lines: Sequence[str], option: str) -> dict[str, str]:
    """Parses the KEY=VALUE arguments of an option that overrides properties of the file. Raises ToolError."""
    properties: dict[str, str] = {}
    for line in lines:
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise ToolError(f"{option} {line} is not KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def load_config(
    properties: Mapping[str, str], path: str, *, doubts: Sequence[str] = (), origins: Mapping[str, str] = _NO_ORIGINS
) -> ServerConfig:
    """Returns the validated configuration. `doubts` are added to its own ones, which the node logs when it starts. Raises a
    ToolError that gives the file, the key, what is allowed, and where the value comes from if not from the file."""
    try:
        config = load_server_config(properties, host_name=socket.gethostname())
    except ConfigError as error:
        raise ToolError(f"{path}: {error}{_named_origins(str(error), origins)}") from error
    return replace(config, doubts=(*doubts, *config.doubts), warnings=(*doubts, *config.warnings))


def _named_origins(message: str, origins: Mapping[str, str]) -> str:
    named = [key for key in origins if re.search(rf"(?<![\w.-]){re.escape(key)}(?![\w-]|\.\w)", message)]
    return "".join(f"; {key} comes from {origins[key]}" for key in named)


def read_config(path: str) -> ServerConfig:
    """Reads and validates a server.properties. Raises ToolError."""
    properties = read_properties(path)
    return load_config(properties.values, path, doubts=properties.doubts, origins=properties.origins)
