"""When a snapshot of the metadata is due, and which old snapshots may go with the log before them (core).

Answers to Kafka's SnapshotGenerator and KafkaMetadataLog.maybeClean. Easy to get wrong: the log may only be cut at the end
of a snapshot that is kept, because whoever starts reads the snapshot and then the log from exactly there. So one deletion
step always is "the oldest snapshot, and the log up to the next one", and the newest snapshot never goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.raft.core.offsets import OffsetAndEpoch
from common.time_units import NS_PER_MS


@dataclass(frozen=True, slots=True)
class SnapshotTriggers:
    """A snapshot is due after this many bytes of committed records, or after this time (0: never for time alone)."""

    record_bytes_max: int
    interval_ms: int

    def is_due(self, *, record_bytes: int, since_last_ns: int) -> bool:
        if record_bytes <= 0:
            return False
        return record_bytes >= self.record_bytes_max or self._interval_passed(since_last_ns)

    def _interval_passed(self, since_last_ns: int) -> bool:
        return self.interval_ms > 0 and since_last_ns >= self.interval_ms * NS_PER_MS


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot on the disk. `modified_ms` is wall-clock time."""

    snapshot_id: OffsetAndEpoch
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Retention:
    """Negative means without limit, as in Kafka."""

    bytes_max: int
    ms_max: int

    def oldest_is_surplus(self, snapshots: Sequence[StoredSnapshot], *, log_bytes: int, wall_ms: int) -> bool:
        """Whether the oldest snapshot, and the log up to the next one, may go. `snapshots` are sorted by id.

        Ask again after each deletion, with the size that the log then has: cutting it may free much or nothing.
        """
        if len(snapshots) < 2:
            return False
        total = log_bytes + sum(snapshot.size for snapshot in snapshots)
        too_big = 0 <= self.bytes_max < total
        too_old = 0 <= self.ms_max < wall_ms - snapshots[0].modified_ms
        return too_big or too_old
