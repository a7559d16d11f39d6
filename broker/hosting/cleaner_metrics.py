"""What the log cleaner does, for Prometheus (shell without I/O).

The gauges of Kafka's LogCleaner and LogCleanerManager under the names that the stock jmx_exporter rules give them. Kafka's
max-compaction-delay-secs, max-buffer-utilization-percent and DeadThreadCount are left out: a compaction here is a task that
cannot die alone, and takes the keys in several rounds if its map is full.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from common.ids import DirectoryId, uuid_text
from common.metrics_exposition import Sample, gauge
from common.time_units import NS_PER_MS, NS_PER_S


@dataclass(slots=True)
class CleanerCounts:
    """The values of one broker's cleaner. All but the first change when a compaction ends successfully."""

    # When the cleaner last looked for a log to compact, None if never, and the largest cleanable part that it found then.
    last_run_ns: int | None = None
    max_dirty_percent: int = 0
    # What the last compaction wrote of what it read.
    recopy_percent: int = 0
    # How long the last compaction of each of the last `log.cleaner.threads` took.
    last_durations_ns: list[int] = field(default_factory=list)

    def looked(self, now_ns: int, ratios: list[float]) -> None:
        """Notes a look for a log to compact, with the dirty ratio of each log that may be compacted."""
        self.last_run_ns = now_ns
        self.max_dirty_percent = int(100 * max(ratios, default=0.0))

    def compacted(self, *, bytes_read: int, bytes_written: int, duration_ns: int, threads: int) -> None:
        """Notes a compaction."""
        self.recopy_percent = 100 * bytes_written // bytes_read if bytes_read else 0
        self.last_durations_ns = [*self.last_durations_ns, duration_ns][-threads:]


def cleaner_samples(
    counts: CleanerCounts, uncleanable: Mapping[DirectoryId, int], online: Mapping[DirectoryId, str], now_ns: int
) -> Iterator[Sample]:
    """Yields the current values. `uncleanable` counts the partitions that are left alone because their log is damaged;
    `online` maps the id of each online directory to its path."""
    longest_ns = max(counts.last_durations_ns, default=0)
    since_ns = 0 if counts.last_run_ns is None else now_ns - counts.last_run_ns
    for name, about, value in (
        ("logcleaner_cleaner_recopy_percent", "What the last compaction wrote of what it read.", counts.recopy_percent),
        ("logcleaner_max_clean_time_secs", "How long the last compactions took at most.", longest_ns // NS_PER_S),
        ("logcleanermanager_max_dirty_percent", "The dirtiest log at the last look.", counts.max_dirty_percent),
        ("logcleanermanager_time_since_last_run_ms", "Time since the last look for a dirty log.", since_ns // NS_PER_MS),
    ):
        yield gauge(f"kafka_log_{name}", about, value)
    for directory_id, path in online.items():
        yield gauge(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "Partitions that are not compacted because their log is damaged.",
            uncleanable.get(directory_id, 0),
            logDirectory=path,
            directoryId=uuid_text(directory_id),
        )
