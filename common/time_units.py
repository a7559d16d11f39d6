"""How many nanoseconds or milliseconds a longer unit has (core).

Inside the process, durations and deadlines are integer nanoseconds (their names end in `_ns`). Configuration and the wire
use milliseconds (`_ms`).
"""

from typing import Final

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000
