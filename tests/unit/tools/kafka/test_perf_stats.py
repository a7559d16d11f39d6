"""The lines of the performance tools, with Kafka's figures."""

import pytest

from tools.kafka.perf_stats import (
    WINDOW_MS,
    Consumed,
    ProducerStats,
    Throttle,
    consumer_line,
    java_float,
    percentiles,
    progress_line,
    ratio,
)

MIB = 1024 * 1024


def test_a_producer_reports_each_window_and_the_total() -> None:
    """The window ends with the first record after five seconds."""
    stats = ProducerStats(4, 1_000)
    assert stats.note(10, MIB, 1_010) is None
    assert stats.note(30, MIB, 1_000 + WINDOW_MS - 1) is None
    assert stats.note(20, MIB, 1_000 + WINDOW_MS) == (
        "3 records sent, 0.6 records/sec (0.60 MB/sec), 20.0 ms avg latency, 30.0 ms max latency."
    )
    assert stats.note(40, MIB, 1_000 + 2 * WINDOW_MS) == (
        "1 records sent, 0.2 records/sec (0.20 MB/sec), 40.0 ms avg latency, 40.0 ms max latency."
    )
    assert stats.total_line(11_000) == (
        "4 records sent, 0.4 records/sec (0.40 MB/sec), 25.00 ms avg latency, 40.00 ms max latency, "
        "30 ms 50th, 40 ms 95th, 40 ms 99th, 40 ms 99.9th."
    )


def test_a_producer_that_sent_nothing() -> None:
    """As in Java, 0 by 0 is not a number."""
    assert ProducerStats(4, 1_000).total_line(2_000) == (
        "0 records sent, 0.0 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, "
        "0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
    )


def test_records_of_the_warmup_do_not_count() -> None:
    stats = ProducerStats(1, 0)
    stats.restart(1_000)
    stats.note(5, MIB, 1_500)
    assert stats.total_line(2_000).startswith("1 records sent, 1.0 records/sec (1.00 MB/sec), 5.00 ms avg latency")


def test_percentiles() -> None:
    assert percentiles(range(100, 0, -1), (0.5, 0.95, 0.99, 0.999)) == [51, 96, 100, 100]
    assert percentiles([], (0.5,)) == [0]


@pytest.mark.parametrize(
    ("rate", "sent", "now_ms", "delay_ms"),
    [(-1, 10**9, 0, 0), (1000, 10, 105, 5), (1000, 10, 110, 0), (1000, 10, 200, 0), (0.5, 1, 100, 2000), (0, 1, 100, 5000)],
)
def test_the_throttle(rate: float, sent: int, now_ms: int, delay_ms: int) -> None:
    """The test began at 100."""
    assert Throttle(rate, 100).delay_ms(sent, now_ms) == delay_ms


def test_the_line_of_a_consumer() -> None:
    """It waited half a second for its partitions. The rates of fetching are without that."""
    begin, end = Consumed(1_000), Consumed(2_500, 3_000, 3 * MIB, 500)
    assert consumer_line(begin, end, "B", "E") == "B, E, 3.0000, 2.0000, 3000, 2000.0000, 500, 1000, 3.0000, 3000.0000"
    waited = Consumed(1_500, 0, 0, 500)
    assert consumer_line(begin, waited, "B", "E") == "B, E, 0.0000, 0.0000, 0, 0.0000, 500, 0, NaN, NaN"


def test_a_line_of_progress() -> None:
    """The totals, and the rates since the line before. Without any time for fetching, these are 0."""
    last, now = Consumed(1_000, 1_000, MIB), Consumed(2_000, 3_000, 3 * MIB)
    assert progress_line(last, now, "N") == "N, 0, 3.0000, 2.0000, 3000, 2000.0000, 0, 1000, 2.0000, 2000.0000"
    assert progress_line(last, Consumed(1_500, 1_000, MIB, 600), "N").endswith("600, -100, 0.0000, 0.0000")


def test_numbers_as_java_prints_them() -> None:
    assert [java_float(ratio(number, 0), 1) for number in (1, -1, 0)] == ["Infinity", "-Infinity", "NaN"]
    assert java_float(2.25, 2) == "2.25"
