"""The limits that one server sets its peers (core).

The limits bound the damage that a hostile or broken peer can do. Kafka has settings for some of them: `max.connections`,
`max.connections.per.ip`, `queued.max.request.bytes`, `connections.max.idle.ms`.
"""

from dataclasses import dataclass

from common.time_units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of one RequestServer."""

    in_flight_per_connection_max: int = 64
    # Counts the responses that the peer has not taken yet, and pending responses whose size is known. Above this limit, no
    # further request of that peer is started.
    queued_response_bytes_max: int = 1024 * 1024
    request_memory_bytes: int = 256 * 1024 * 1024
    connections_max: int = 2000
    connections_per_host_max: int = 200
    # Idle connections are closed after this time. Negative: never.
    idle_ns: int = 600 * NS_PER_S
    # The rest of a frame must arrive within this time, plus its size at the minimum rate.
    frame_ns: int = 30 * NS_PER_S
    frame_bytes_per_second_min: int = 16 * 1024
    # A peer with queued responses must take some bytes within this time.
    stalled_ns: int = 30 * NS_PER_S
