"""What one server allows its peers (core).

They bound what a hostile or broken peer can cost. Kafka has settings for some of them: `max.connections`,
`max.connections.per.ip`, `queued.max.request.bytes`, `connections.max.idle.ms`.
"""

from dataclasses import dataclass

from common.time_units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of one RequestServer."""

    in_flight_per_connection_max: int = 64
    # Responses that a peer has not taken yet, and those to come whose size is known; beyond it no further request of that
    # peer is started.
    queued_response_bytes_max: int = 1024 * 1024
    request_memory_bytes: int = 256 * 1024 * 1024
    connections_max: int = 2000
    connections_per_host_max: int = 200
    # Negative: for ever.
    idle_ns: int = 600 * NS_PER_S
    # A frame has this long, and longer in proportion to its size.
    frame_ns: int = 30 * NS_PER_S
    frame_bytes_per_second_min: int = 16 * 1024
    # How long a peer may take none of what is queued for it.
    stalled_ns: int = 30 * NS_PER_S
