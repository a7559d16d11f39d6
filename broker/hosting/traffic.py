"""Counts what is produced and fetched, per topic and in total (shell without I/O).

Counterpart of Kafka's BrokerTopicStats, with the metric names of the stock jmx_exporter rules. As in Kafka, requests are
counted per partition. Errors that clients meet in normal operation, such as a moved leader, do not count as failures. The
series of a topic that has no replica here any more disappear, but the totals over all topics must never decrease. The
metrics are published once a second, and only the series of topics that have been used since then are built again.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice

from common.metrics_exposition import Sample, counter
from common.protocol.errors import ErrorCode

PREFIX = "kafka_server_brokertopicmetrics_"
HELP = {
    "messages_in": "Records produced.",
    "bytes_in": "Bytes of produced batches.",
    "bytes_out": "Bytes of batches sent to consumers.",
    "replication_bytes_in": "Bytes of batches fetched from leaders.",
    "replication_bytes_out": "Bytes of batches sent to followers.",
    "total_produce_requests": "Partitions in produce requests.",
    "total_fetch_requests": "Partitions in answered fetch requests.",
    "failed_produce_requests": "Partitions in produce requests that were refused for what they contained.",
}
# Building the series of so many topics takes a few milliseconds.
TOPICS_PER_CALL_MAX = 500
# After these errors clients look for the new leader and retry, so the errors do not count as failures.
_EXPECTED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@dataclass(slots=True)
class Counts:
    """Counters since the broker started."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    total_produce_requests: int = 0
    total_fetch_requests: int = 0
    failed_produce_requests: int = 0


class Traffic:
    """The counts of one broker. Only topics hosted here get counts of their own. Otherwise clients could fill up the memory
    by naming topics that do not exist."""

    def __init__(self) -> None:
        self.all = Counts()
        self._topics: dict[str, Counts] = {}
        # The series of each topic, as they were when they were last built.
        self._samples: dict[str, Sequence[Sample]] = {}
        # The topics whose counts have changed since, in the order of these changes. A dict used as an ordered set.
        self._changed: dict[str, None] = {}

    def produced(self, topic: str, *, messages: int, size: int) -> None:
        """Counts an appended batch."""
        for counts in (self.all, self._of(topic)):
            counts.total_produce_requests += 1
            counts.messages_in += messages
            counts.bytes_in += size

    def produce_refused(self, topic: str, error: ErrorCode) -> None:
        """Counts a batch that was not appended. The topic may be unknown."""
        for counts in (self.all, self._of(topic)) if topic in self._topics else (self.all,):
            counts.total_produce_requests += 1
            if error not in _EXPECTED:
                counts.failed_produce_requests += 1

    def fetched(self, topic: str, *, size: int, is_follower: bool) -> None:
        """Counts a partition of a fetch that was answered without error."""
        for counts in (self.all, self._of(topic)):
            counts.total_fetch_requests += 1
            if is_follower:
                counts.replication_bytes_out += size
            else:
                counts.bytes_out += size

    def replicated(self, topic: str, *, size: int) -> None:
        """Counts batches that a follower here appends."""
        for counts in (self.all, self._of(topic)):
            counts.replication_bytes_in += size

    @property
    def bytes_total(self) -> int:
        """The bytes of all batches, in and out. Changes only if data flows, unlike the requests of idle consumers."""
        counts = self.all
        return counts.bytes_in + counts.bytes_out + counts.replication_bytes_in + counts.replication_bytes_out

    def samples(self, topics: Container[str]) -> Iterator[Sample]:
        """Yields all samples, and drops the counts of topics that are not in `topics`. If very many topics have changed, the
        series of some follow with the next calls."""
        for gone in [topic for topic in self._topics if topic not in topics]:
            del self._topics[gone]
            self._samples.pop(gone, None)
            self._changed.pop(gone, None)
        for topic in [*islice(self._changed, TOPICS_PER_CALL_MAX)]:
            del self._changed[topic]
            self._samples[topic] = _series(topic, self._topics[topic])
        # The total over all topics. Prometheus treats the empty label as no label.
        yield from _series("", self.all)
        yield from chain.from_iterable(self._samples.values())

    def _of(self, topic: str) -> Counts:
        """Returns the counts of a topic, which are about to change."""
        self._changed[topic] = None
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = Counts()
        return counts


def _series(topic: str, counts: Counts) -> list[Sample]:
    return [
        counter(PREFIX + field.name.replace("_", ""), HELP[field.name], getattr(counts, field.name), topic=topic)
        for field in fields(Counts)
    ]
