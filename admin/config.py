"""The settings of an AdminClient, with Kafka's keys and defaults (core).

A program passes an AdminConfig. The tools read one from the properties file given with --command-config. Keys that have no
effect here are ignored, so that the same file can serve these tools and Kafka's. A security.protocol that would need TLS or
SASL is refused: its user relies on it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from admin.errors import InvalidSetting
from common.configuration.endpoints import HostPort, parse_address

INT_MAX = 2**31 - 1
PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The settings of an AdminClient. Times are in milliseconds."""

    client_id: str = "adminclient"
    default_api_timeout_ms: int = 60_000
    """How long a call may take, all attempts included, unless the call has a timeout of its own."""
    request_timeout_ms: int = 30_000
    """How long one attempt may take."""
    retry_backoff_ms: int = 100
    """The pause before the second attempt. It doubles with each attempt, up to `retry_backoff_max_ms`."""
    retry_backoff_max_ms: int = 1_000

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "AdminConfig":
        """Returns the settings in a properties file. Raises InvalidSetting."""
        protocol = properties.get("security.protocol", PLAINTEXT)
        if protocol.upper() != PLAINTEXT:
            raise InvalidSetting(f"security.protocol={protocol} is not supported; it takes {PLAINTEXT} in this version")
        given = {name: parse(key, properties[key]) for key, (name, parse) in _KEYS.items() if key in properties}
        return cls(**given)


def _milliseconds(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= INT_MAX):
        raise InvalidSetting(f"{key}={text} is not a number of milliseconds from 0 to {INT_MAX}")
    return int(text)


def _text(_key: str, text: str) -> str:
    return text


_KEYS: Mapping[str, tuple[str, Callable[[str, str], Any]]] = MappingProxyType(
    {
        "client.id": ("client_id", _text),
        "default.api.timeout.ms": ("default_api_timeout_ms", _milliseconds),
        "request.timeout.ms": ("request_timeout_ms", _milliseconds),
        "retry.backoff.ms": ("retry_backoff_ms", _milliseconds),
        "retry.backoff.max.ms": ("retry_backoff_max_ms", _milliseconds),
    }
)


def parse_bootstrap_servers(servers: str | Sequence[str]) -> list[HostPort]:
    """Parses the addresses in `host:port,…` or in a list of `host:port`. As in Kafka, each may follow `PLAINTEXT://`. Raises
    InvalidSetting."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    try:
        addresses = [parse_address(_without_protocol(text)) for text in texts if text.strip()]
    except ValueError as error:
        raise InvalidSetting(f"bootstrap server {error}; it takes host:port, several separated by commas") from error
    if not addresses:
        raise InvalidSetting("no bootstrap server is given; it takes host:port, several separated by commas")
    return list(dict.fromkeys(addresses))


def _without_protocol(text: str) -> str:
    protocol, separator, address = text.strip().partition("://")
    if not separator:
        return text
    if protocol.upper() != PLAINTEXT:
        raise InvalidSetting(f"bootstrap server '{text}': {protocol} is not supported; it takes {PLAINTEXT} in this version")
    return address
