"""The gauges of the log cleaner: Kafka's names, and values before and after the first compaction."""

from broker.hosting.cleaner_metrics import CleanerCounts, cleaner_samples
from common.ids import DirectoryId
from common.time_units import NS_PER_MS, NS_PER_S
from tests.unit.common.metadata.builders import directory

D1, D2 = directory(1), directory(2)
ONLINE = {D1: "/d1", D2: "/d2"}


def values(counts: CleanerCounts, uncleanable: dict[DirectoryId, int], now_ns: int) -> dict[str, float]:
    """Returns the values by name, those of a directory with its path."""
    found = cleaner_samples(counts, uncleanable, ONLINE, now_ns)
    return {
        " ".join(
            [each.name.removeprefix("kafka_log_"), *(value for name, value in each.labels if name == "logDirectory")]
        ): each.value
        for each in found
    }


def test_before_the_first_look_everything_is_zero() -> None:
    assert set(values(CleanerCounts(), {}, 7 * NS_PER_S).values()) == {0}


def test_the_last_look_and_the_last_compactions_count() -> None:
    """Two threads compact: the longer of their last compactions counts, and the ratio is that of the very last."""
    counts = CleanerCounts()
    counts.looked(5 * NS_PER_S, [0.25, 0.5])
    for seconds, written in ((9, 100), (4, 50), (3, 25)):
        counts.compacted(bytes_read=100, bytes_written=written, duration_ns=seconds * NS_PER_S, threads=2)
    assert values(counts, {D2: 3}, 5 * NS_PER_S + 20 * NS_PER_MS) == {
        "logcleaner_cleaner_recopy_percent": 25,
        "logcleaner_max_clean_time_secs": 4,
        "logcleanermanager_max_dirty_percent": 50,
        "logcleanermanager_time_since_last_run_ms": 20,
        "logcleanermanager_uncleanable_partitions_count /d1": 0,
        "logcleanermanager_uncleanable_partitions_count /d2": 3,
    }


def test_without_a_log_to_compact_nothing_is_dirty() -> None:
    counts = CleanerCounts()
    counts.looked(1, [])
    counts.compacted(bytes_read=0, bytes_written=0, duration_ns=0, threads=1)
    assert (counts.max_dirty_percent, counts.recopy_percent) == (0, 0)
