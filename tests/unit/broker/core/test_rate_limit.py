"""The rate limit spreads chunks evenly over time. A change of the rate takes effect at once."""

from broker.core.rate_limit import RateLimit
from common.time_units import NS_PER_S

START_NS = 100 * NS_PER_S


def taken(limit: RateLimit, size: int, bytes_per_s: int, now_ns: int) -> None:
    """Takes a chunk, and checks that it need not wait."""
    assert limit.delay_ns(bytes_per_s, now_ns) == 0
    limit.take(size)


def test_ten_seconds_at_a_rate_carry_as_many_bytes_as_the_rate_says() -> None:
    limit, now_ns, carried = RateLimit(), START_NS, 0
    while now_ns < START_NS + 10 * NS_PER_S:
        taken(limit, 65_536, 1_000_000, now_ns)
        carried += 65_536
        delay_ns = limit.delay_ns(1_000_000, now_ns)
        assert delay_ns is not None
        now_ns += delay_ns + 1
    assert 9_900_000 <= carried <= 10_300_000


def test_an_idle_time_is_not_saved_up() -> None:
    """After an idle time of any length, the flow may get ahead of the rate by at most a tenth of a second."""
    limit = RateLimit()
    taken(limit, 1000, 1000, START_NS)
    later_ns = START_NS + 1000 * NS_PER_S
    taken(limit, 1000, 1000, later_ns)
    assert limit.delay_ns(1000, later_ns) == NS_PER_S - NS_PER_S // 10


def test_a_higher_rate_shortens_a_wait_that_has_begun() -> None:
    limit = RateLimit()
    taken(limit, 1_000_000, 1, START_NS)
    delay_ns = limit.delay_ns(1, START_NS)
    assert delay_ns is not None and delay_ns > 10**6 * NS_PER_S - NS_PER_S
    assert limit.delay_ns(1_000_000, START_NS + NS_PER_S) == 0


def test_bytes_that_do_not_wait_delay_the_next_chunk_by_a_second_at_most() -> None:
    """The other traffic carries ten times the rate for a minute. The flow stands still meanwhile, and for a second more."""
    limit = RateLimit()
    for second in range(60):
        now_ns = START_NS + second * NS_PER_S
        limit.count(10_000, 1000, now_ns)
        assert limit.delay_ns(1000, now_ns) == NS_PER_S
    assert limit.delay_ns(1000, START_NS + 60 * NS_PER_S) == 0


def test_bytes_that_do_not_wait_forgive_no_debt() -> None:
    """The flow owes ten seconds' worth, more than the others may add."""
    limit = RateLimit()
    taken(limit, 10_000, 1000, START_NS)
    before_ns = limit.delay_ns(1000, START_NS)
    limit.count(1000, 1000, START_NS)
    assert limit.delay_ns(1000, START_NS) == before_ns


def test_a_rate_of_zero_stops_the_flow_and_the_next_rate_starts_it() -> None:
    limit = RateLimit()
    assert limit.delay_ns(0, START_NS) is None
    assert limit.delay_ns(0, START_NS + NS_PER_S) is None
    assert limit.delay_ns(1000, START_NS + NS_PER_S) == 0
