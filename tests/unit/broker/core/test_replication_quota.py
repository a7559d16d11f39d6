"""Which replicas are throttled, and how much may flow to those that lag (KIP-73)."""

import pytest

from broker.core.replication_quota import CHUNK_BYTES_MIN, ReplicationQuota, is_throttled
from common.ids import BrokerId
from common.time_units import NS_PER_S

START_NS = 100 * NS_PER_S
RATE = 10_000_000


@pytest.mark.parametrize(
    ("throttled_replicas", "expected"),
    [
        ((), False),
        (("*",), True),
        (("3:1",), True),
        (("03:01",), True),
        (("3:2",), False),
        (("1:1", "13:1", "3:11"), False),
        (("0:2", "3:1"), True),
    ],
)
def test_a_replica_is_throttled_if_the_topic_names_its_partition_and_its_broker(
    throttled_replicas: tuple[str, ...], expected: bool
) -> None:
    """Partition 3 on broker 1."""
    assert is_throttled(throttled_replicas, 3, BrokerId(1)) is expected


class Quota:
    """A quota whose rate the test changes."""

    def __init__(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self.quota = ReplicationQuota(lambda: self.bytes_per_s)


def test_a_chunk_is_a_tenth_of_a_second_and_is_paid_for_before_the_next() -> None:
    quota = Quota(RATE).quota
    assert quota.allowed_bytes(START_NS) == RATE // 10
    # A burst of a tenth of a second is free, so the second chunk has to wait.
    quota.count(RATE // 10, START_NS, is_paced=True)
    assert quota.allowed_bytes(START_NS) == RATE // 10
    quota.count(RATE // 10, START_NS, is_paced=True)
    assert quota.allowed_bytes(START_NS) == 0
    due_ns = quota.resume_ns(START_NS)
    assert due_ns == START_NS + NS_PER_S // 10
    assert quota.allowed_bytes(due_ns - 1) == 0
    assert quota.allowed_bytes(due_ns) == RATE // 10


def test_at_a_low_rate_a_chunk_can_still_hold_a_batch() -> None:
    assert Quota(1000).quota.allowed_bytes(START_NS) == CHUNK_BYTES_MIN


def test_without_a_limit_nothing_ever_waits() -> None:
    """The default rate is the largest 64-bit integer."""
    quota = Quota(2**63 - 1).quota
    for _ in range(1000):
        quota.count(1 << 30, START_NS, is_paced=True)
    assert quota.allowed_bytes(START_NS) > 1 << 30
    assert quota.resume_ns(START_NS) == START_NS


def test_a_wait_is_checked_again_within_a_second() -> None:
    """A chunk worth hours is owed, then nothing may flow at all. Meanwhile a higher rate is noticed at the next check."""
    changing = Quota(1000)
    assert changing.quota.allowed_bytes(START_NS) > 0
    changing.quota.count(10_000_000, START_NS, is_paced=True)
    assert changing.quota.resume_ns(START_NS) == START_NS + NS_PER_S
    changing.bytes_per_s = 0
    assert changing.quota.allowed_bytes(START_NS) == 0
    assert changing.quota.resume_ns(START_NS) == START_NS + NS_PER_S
    changing.bytes_per_s = RATE
    assert changing.quota.allowed_bytes(START_NS + NS_PER_S) > 0


def test_in_sync_traffic_uses_up_the_quota_but_piles_up_no_debt() -> None:
    """Ten seconds' worth of in-sync traffic at once: those that lag wait for one second."""
    quota = Quota(RATE).quota
    assert quota.allowed_bytes(START_NS) > 0
    quota.count(10 * RATE, START_NS, is_paced=False)
    assert quota.allowed_bytes(START_NS) == 0
    assert quota.allowed_bytes(START_NS + NS_PER_S) > 0
    quota.count(7, START_NS + NS_PER_S, is_paced=True)
    assert quota.throttled_bytes == 10 * RATE + 7
