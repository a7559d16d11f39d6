"""Nanoseconds in the units that configuration, the wire and the tests use (core).

Inside the process durations and deadlines are integers of nanoseconds (names end in `_ns`); configuration and the wire have
milliseconds (`_ms`).
"""

from typing import Final

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
