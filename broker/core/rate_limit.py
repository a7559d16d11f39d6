"""Limits a flow of bytes to a rate that may change at any time (core).

Counterpart of Kafka's ReplicationQuotaManager, which lets a flow burst and then stops it until the average over the last
eleven seconds is below the limit. Here the flow is even: after each chunk it waits for as long as the chunk takes at the
limited rate. The debt is counted in bytes instead of time, so raising the rate shortens a wait that has already begun.
"""

from common.time_units import NS_PER_MS, NS_PER_S

BURST_NS = 100 * NS_PER_MS
DEBT_MAX_NS = NS_PER_S


class RateLimit:
    """One limit, shared by all flows that take from it. After an idle time, as many bytes as the rate allows in BURST_NS may
    flow without a wait."""

    def __init__(self) -> None:
        # The debt, as of `_as_of_ns`: the bytes taken that exceed what the rate has allowed. Negative after an idle time.
        self._owed_bytes = 0.0
        self._as_of_ns = 0

    def take(self, size: int) -> None:
        """Adds a chunk to the debt. Call it when `delay_ns` returns 0."""
        self._owed_bytes += size

    def count(self, size: int, bytes_per_s: int, now_ns: int) -> None:
        """Adds bytes that share the budget but do not wait for it. They delay the next chunk by at most DEBT_MAX_NS:
        otherwise, if they exceeded the rate for an hour, the flow would stand still for hours afterwards."""
        self._pay(bytes_per_s, now_ns)
        debt_max_bytes = bytes_per_s * DEBT_MAX_NS / NS_PER_S
        self._owed_bytes = max(self._owed_bytes, min(self._owed_bytes + size, debt_max_bytes))

    def delay_ns(self, bytes_per_s: int, now_ns: int) -> int | None:
        """Returns how long the next chunk has to wait if the rate stays as it is; None if nothing may flow at all."""
        self._pay(bytes_per_s, now_ns)
        if bytes_per_s == 0:
            return None
        return max(int(self._owed_bytes * NS_PER_S / bytes_per_s), 0)

    def _pay(self, bytes_per_s: int, now_ns: int) -> None:
        elapsed_ns, self._as_of_ns = now_ns - self._as_of_ns, now_ns
        burst_bytes = bytes_per_s * BURST_NS / NS_PER_S
        self._owed_bytes = max(self._owed_bytes - bytes_per_s * elapsed_ns / NS_PER_S, -burst_bytes)
