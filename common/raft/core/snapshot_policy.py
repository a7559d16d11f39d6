"""Decides when a metadata snapshot is due and when the oldest snapshot can be deleted (core).

Counterpart of Kafka's SnapshotGenerator and KafkaMetadataLog.maybeClean. The log may only be cut at the end offset of a
snapshot that is kept, because a starting node loads the snapshot and then reads the log from exactly that offset. So each
deletion step removes the oldest snapshot and the log up to the end offset of the next one. The newest snapshot is never
deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.raft.core.offsets import OffsetAndEpoch
from common.time_units import NS_PER_MS


@dataclass(frozen=True, slots=True)
class SnapshotTriggers:
    """The limits after which a snapshot is due: bytes of committed records, and an interval (0 disables the interval)."""

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
    """A snapshot on disk. `modified_ms` is wall-clock time."""

    snapshot_id: OffsetAndEpoch
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention limits. A negative value means no limit, as in Kafka."""

    bytes_max: int
    ms_max: int

    def oldest_is_surplus(self, snapshots: Sequence[StoredSnapshot], *, log_bytes: int, wall_ms: int) -> bool:
        """Whether to delete the oldest snapshot and the log up to the next one. `snapshots` must be sorted by id.

        Call this again after each deletion with the new size of the log, because a deletion may free a lot or nothing.
        """
        if len(snapshots) < 2:
            return False
        total = log_bytes + sum(snapshot.size for snapshot in snapshots)
        too_big = 0 <= self.bytes_max < total
        too_old = 0 <= self.ms_max < wall_ms - snapshots[0].modified_ms
        return too_big or too_old
