"""The part of a topic's configuration that the log itself uses (core).

A `TopicConfig` has the attributes of `LogSettings` and can be passed directly. The metadata log, which has no topic, uses a
`LogConfig`.
"""

from dataclasses import dataclass
from typing import Protocol

from common.time_units import MS_PER_HOUR

NEVER = 2**63 - 1
"""Kafka's default of flush.messages: no append waits for a sync."""


class LogSettings(Protocol):
    """Kafka's segment.bytes, segment.ms (`roll_ms`), segment.jitter.ms (`roll_jitter_ms`), segment.index.bytes,
    index.interval.bytes and flush.messages."""

    @property
    def segment_bytes(self) -> int: ...

    @property
    def roll_ms(self) -> int: ...

    @property
    def roll_jitter_ms(self) -> int: ...

    @property
    def segment_index_bytes(self) -> int: ...

    @property
    def index_interval_bytes(self) -> int: ...

    @property
    def flush_messages(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of a log that has no topic, with Kafka's defaults."""

    segment_bytes: int = 1024**3
    roll_ms: int = 7 * 24 * MS_PER_HOUR
    roll_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    flush_messages: int = NEVER
