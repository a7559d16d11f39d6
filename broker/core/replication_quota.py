"""Which replication between brokers is throttled, and what it may carry now (core, KIP-73).

Counterpart of Kafka's ReplicationQuotaManager. A broker has two quotas: one for what it sends as leader, one for what it
receives as follower. Each is shared by all partitions that are throttled on this broker.

1. Only replicas that lag wait for the quota (`PartitionReplica.is_paced_to` and `is_paced`). If in-sync replicas waited, a
   throttle would take them out of the ISR and slow down acks=all.
2. All records of throttled partitions count, those of in-sync replicas too: the rate limits the sum, and catching up gets
   what the writes leave. As in Kafka, a replica never catches up if the writes alone exceed the rate.
3. A chunk is about a tenth of a second's worth, so that the flow is even and a changed rate has an effect soon.
"""

from collections.abc import Callable
from functools import lru_cache

from broker.core.rate_limit import RateLimit
from common.ids import BrokerId
from common.time_units import NS_PER_S

CHUNK_BYTES_MIN = 1 << 16
_CHUNKS_PER_S = 10
# A wait for the quota takes steps of this length, so that a change of the configuration is noticed soon.
_RECHECK_NS = NS_PER_S


def is_throttled(throttled_replicas: tuple[str, ...], index: int, broker_id: BrokerId) -> bool:
    """Whether a topic's leader. or follower.replication.throttled.replicas names this broker's replica of a partition."""
    return throttled_replicas == ("*",) or index in _throttled_partitions(throttled_replicas, broker_id)


# Cached because every partition of a topic looks itself up in the same list, and the list may be as long as the topic.
@lru_cache(maxsize=8)
def _throttled_partitions(throttled_replicas: tuple[str, ...], broker_id: BrokerId) -> frozenset[int]:
    pairs = (each.split(":") for each in throttled_replicas)
    return frozenset(int(index) for index, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    """The quota of one direction. `bytes_per_s` returns the configured rate, which may change at any time."""

    def __init__(self, bytes_per_s: Callable[[], int]) -> None:
        self._bytes_per_s = bytes_per_s
        self._limit = RateLimit()
        # The bytes of all throttled partitions since the broker started.
        self.throttled_bytes = 0

    def allowed_bytes(self, now_ns: int) -> int:
        """Returns the size of the chunk that may flow now to replicas that lag; 0 while the quota is exceeded."""
        bytes_per_s = self._bytes_per_s()
        if self._limit.delay_ns(bytes_per_s, now_ns) != 0:
            return 0
        return max(bytes_per_s // _CHUNKS_PER_S, CHUNK_BYTES_MIN)

    def resume_ns(self, now_ns: int) -> int:
        """Returns when to ask `allowed_bytes` again."""
        delay_ns = self._limit.delay_ns(self._bytes_per_s(), now_ns)
        return now_ns + (_RECHECK_NS if delay_ns is None else min(delay_ns, _RECHECK_NS))

    def count(self, size: int, now_ns: int, *, is_paced: bool) -> None:
        """Counts records of a throttled partition. `is_paced` says whether they had to wait for the quota."""
        self.throttled_bytes += size
        if is_paced:
            self._limit.take(size)
        else:
            self._limit.count(size, self._bytes_per_s(), now_ns)
