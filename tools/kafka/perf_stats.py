"""The figures and lines of kafka-producer-perf-test and kafka-consumer-perf-test (core).

Counterpart of the statistics in Kafka's ProducerPerformance and ConsumerPerformance. Times are passed in, in milliseconds;
a rate over no time at all is infinite or not a number, as Java prints it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1024 * 1024
WINDOW_MS: Final = 5_000
# Of more records, only every so-manieth latency is kept.
SAMPLES_MAX: Final = 500_000
PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)
PRODUCER_TITLES: Final = ("50th", "95th", "99th", "99.9th")
CONSUMER_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, "
    "fetch.MB.sec, fetch.nMsg.sec"
)
CONSUMER_DETAILED_HEADER: Final = CONSUMER_HEADER.replace("start.time, end.time", "time, threadId")


@dataclass(slots=True)
class _Sums:
    """What was sent since `start_ms`."""

    start_ms: int
    count: int = 0
    bytes: int = 0
    latency_ms: int = 0
    latency_max_ms: int = 0

    def add(self, latency_ms: int, size: int) -> None:
        self.count += 1
        self.bytes += size
        self.latency_ms += latency_ms
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)

    def rates(self, now_ms: int) -> str:
        elapsed_ms = now_ms - self.start_ms
        rate, mb_rate = ratio(1000.0 * self.count, elapsed_ms), ratio(1000.0 * self.bytes / MIB, elapsed_ms)
        return f"{self.count} records sent, {java_float(rate, 1)} records/sec ({java_float(mb_rate, 2)} MB/sec)"

    def latencies(self, digits: int) -> str:
        average = java_float(ratio(self.latency_ms, self.count), digits)
        return f"{average} ms avg latency, {self.latency_max_ms:.{digits}f} ms max latency"


@dataclass(slots=True)
class ProducerStats:
    """The latencies of a producer. `total` and `window` begin when the test begins."""

    record_count: int
    start_ms: int
    _total: _Sums = field(init=False)
    _window: _Sums = field(init=False)
    _samples: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._total, self._window = _Sums(self.start_ms), _Sums(self.start_ms)

    def note(self, latency_ms: int, size: int, now_ms: int) -> str | None:
        """Notes a record that was acknowledged. Returns the line of a window that is over."""
        sampling = self.record_count // min(self.record_count, SAMPLES_MAX)
        if self._total.count % sampling == 0:
            self._samples.append(latency_ms)
        self._total.add(latency_ms, size)
        self._window.add(latency_ms, size)
        if now_ms - self._window.start_ms < WINDOW_MS:
            return None
        line = f"{self._window.rates(now_ms)}, {self._window.latencies(1)}."
        self._window = _Sums(now_ms)
        return line

    def restart(self, now_ms: int) -> None:
        """Begins to count now, after records that were to warm up the cluster."""
        self._total, self._window = _Sums(now_ms), _Sums(now_ms)

    def total_line(self, now_ms: int) -> str:
        found = percentiles(self._samples, PERCENTILES)
        texts = [f"{value} ms {title}" for value, title in zip(found, PRODUCER_TITLES, strict=True)]
        return f"{self._total.rates(now_ms)}, {self._total.latencies(2)}, {', '.join(texts)}."


def percentiles(samples: Sequence[int], wanted: Sequence[float]) -> list[int]:
    """Returns these percentiles, 0 if there are no samples."""
    ordered = sorted(samples)
    return [ordered[min(int(each * len(ordered)), len(ordered) - 1)] if ordered else 0 for each in wanted]


@dataclass(slots=True)
class Throttle:
    """Keeps a producer at so many records per second; a negative rate means no limit."""

    rate: float
    start_ms: int

    def delay_ms(self, sent: int, now_ms: int) -> int:
        """Returns how long to wait, when so many records were sent."""
        if self.rate < 0:
            return 0
        if self.rate == 0:
            return WINDOW_MS
        due_ms = self.start_ms + sent * 1000.0 / self.rate
        return max(0, math.ceil(due_ms - now_ms))


# --- consumer --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a consumer had read at a moment, and how long it had waited for its partitions."""

    time_ms: int
    count: int = 0
    bytes: int = 0
    rebalance_ms: int = 0


def consumer_line(begin: Consumed, end: Consumed, begin_text: str, end_text: str) -> str:
    """Returns the line of the whole test. The texts are its begin and end in the user's date format."""
    return f"{begin_text}, {end_text}, {_figures(begin, end)}"


def progress_line(last: Consumed, now: Consumed, now_text: str) -> str:
    """Returns a line of --show-detailed-stats: the totals, and the rates since the last one."""
    return f"{now_text}, 0, {_figures(last, now, detailed=True)}"


def _figures(begin: Consumed, end: Consumed, *, detailed: bool = False) -> str:
    elapsed_ms = end.time_ms - begin.time_ms
    waited_ms = end.rebalance_ms - begin.rebalance_ms
    fetch_ms = elapsed_ms - waited_ms
    count, mb = end.count - begin.count, (end.bytes - begin.bytes) / MIB
    fetch_rates = [ratio(1000.0 * mb, fetch_ms), ratio(1000.0 * count, fetch_ms)]
    if detailed and fetch_ms <= 0:
        fetch_rates = [0.0, 0.0]
    figures = [
        java_float(end.bytes / MIB, 4),
        java_float(ratio(1000.0 * mb, elapsed_ms), 4),
        str(end.count),
        java_float(ratio(1000.0 * count, elapsed_ms), 4),
        str(waited_ms),
        str(fetch_ms),
        *(java_float(rate, 4) for rate in fetch_rates),
    ]
    return ", ".join(figures)


# --- numbers ---------------------------------------------------------------------------------------------------------


def ratio(amount: float, by: float) -> float:
    """Divides as Java does: something by 0 is infinite, and 0 by 0 not a number."""
    if by == 0:
        return math.nan if amount == 0 else math.copysign(math.inf, amount)
    return amount / by


def java_float(number: float, digits: int) -> str:
    if math.isfinite(number):
        return f"{number:.{digits}f}"
    return "NaN" if math.isnan(number) else "-Infinity" if number < 0 else "Infinity"
