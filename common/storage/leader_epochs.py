"""The start offset of each leader epoch in one log (core).

Counterpart of Kafka's LeaderEpochFileCache (KIP-101, KIP-279). A follower asks the leader where the epoch of its last batch
ended and truncates its log to that offset. The answer may name a *lower* epoch than the one asked for, with the offset where
that lower epoch ended. Truncating from the start keeps the epoch of the first remaining record and moves its start offset up
to the new log start.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from common.ids import LeaderEpoch, Offset
from common.storage.text_checkpoint import format_epoch_checkpoint, parse_epoch_checkpoint

UNDEFINED_EPOCH = LeaderEpoch(-1)
UNDEFINED_OFFSET = Offset(-1)


class EpochEnd(NamedTuple):
    """The largest known epoch at or below the one asked for, and the offset after its last record."""

    epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    """The entries of one log. Invariant: epochs and start offsets both ascend strictly."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(LeaderEpoch(epoch), Offset(start_offset))

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All entries as (epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The epoch of the last entry, UNDEFINED_EPOCH if there is none."""
        return LeaderEpoch(self._epochs[-1]) if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Notes that a batch at `start_offset` carries `epoch`. Returns whether anything changed.

        Drops entries that contradict the new one because their epoch or start offset is not lower. Such entries come
        from records that were truncated or never written.
        """
        if epoch < 0:
            return False
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """Returns where `epoch` ended. Both fields are UNDEFINED if the epoch is -1 or higher than every known one."""
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(self._epochs, epoch)
        end_offset = Offset(self._starts[higher])
        if higher == 0:
            # The epoch is older than all known ones, so it ended where the first known epoch starts.
            return EpochEnd(epoch, end_offset)
        return EpochEnd(LeaderEpoch(self._epochs[higher - 1]), end_offset)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """Returns the epoch of the record at `offset`, UNDEFINED_EPOCH if `offset` is before the first entry."""
        position = bisect_right(self._starts, offset)
        return LeaderEpoch(self._epochs[position - 1]) if position else UNDEFINED_EPOCH

    def start_at(self, offset: Offset) -> Offset:
        """Returns where the epoch of the record at `offset` starts, 0 if `offset` is before the first entry."""
        position = bisect_right(self._starts, offset)
        return Offset(self._starts[position - 1] if position else 0)

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drops epochs that start at or after the new log end. Returns whether anything changed."""
        changed = False
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            changed = True
        return changed

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Drops epochs that ended at or before the new log start. Returns whether anything changed."""
        position = bisect_right(self._starts, start_offset)
        if position == 0 or (position == 1 and self._starts[0] == start_offset):
            return False
        del self._starts[: position - 1], self._epochs[: position - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """Drops all entries, for a log that restarts at another offset. Returns whether anything changed."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return changed

    def format(self) -> bytes:
        """Returns the content of the leader-epoch-checkpoint file."""
        return format_epoch_checkpoint(self.entries)

    @classmethod
    def parse(cls, content: bytes) -> "LeaderEpochs":
        """Parses the content of a leader-epoch-checkpoint file. Raises MalformedCheckpoint."""
        return cls(parse_epoch_checkpoint(content))
