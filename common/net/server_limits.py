"""The limits that one server sets its peers (core).

The limits bound the damage that a hostile or broken peer can do. Some of them can be configured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.configuration.server import ServerConfig
from common.time_units import NS_PER_MS, NS_PER_S

_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of one RequestServer. Those that can be configured default to the same values as in server.properties."""

    in_flight_per_connection_max: int = 64
    # Counts the responses that the peer has not taken yet, and pending responses whose size is known. Above this limit, no
    # further request of that peer is started.
    queued_response_bytes_max: int = 1024 * 1024
    request_memory_bytes: int = 256 * 1024 * 1024
    # A follower's connection reads on above `request_memory_bytes` while its own requests take less than this.
    follower_request_bytes_max: int = 16 * 1024 * 1024
    connections_max: int = 2000
    connections_per_host_max: int = 1000
    # Hosts with a limit of their own.
    connections_of_hosts_max: Mapping[str, int] = field(default_factory=dict)
    # Idle connections are closed after this time. Negative: never.
    idle_ns: int = 600 * NS_PER_S
    # The rest of a frame must arrive within this time, plus its size at the minimum rate.
    frame_ns: int = 30 * NS_PER_S
    frame_bytes_per_second_min: int = 16 * 1024
    # A peer with queued responses must take some bytes within this time.
    stalled_ns: int = 30 * NS_PER_S


def server_limits(config: ServerConfig) -> ServerLimits:
    """Returns the limits of the listeners of a node."""
    memory_bytes = config.queued_max_request_bytes
    return ServerLimits(
        request_memory_bytes=memory_bytes if memory_bytes >= 0 else _NO_LIMIT,
        connections_max=config.max_connections,
        connections_per_host_max=config.max_connections_per_ip,
        connections_of_hosts_max=dict(config.max_connections_per_ip_overrides),
        idle_ns=config.connections_max_idle_ms * NS_PER_MS,
    )
