"""Appending to a log, as the partition's leader and as a follower (shell).

Counterpart of Kafka's UnifiedLog.append. An append is a plain call: it assigns the offsets and moves `log_end_offset` at
once, so pipelined requests get consecutive offsets. The bytes follow through the AppendPipeline, which moves
`written_offset` in order.
"""

from collections.abc import Sequence
from typing import NamedTuple

from common.ids import LeaderEpoch, Offset
from common.records.batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    BatchHeader,
    set_base_offset_and_epoch,
)
from common.records.end_transaction import EndTransactionMarker, decode_end_transaction
from common.storage.append_pipeline import OnFailed, OnWritten
from common.storage.errors import UnexpectedOffset
from common.storage.leader_epochs import UNDEFINED_EPOCH
from common.storage.log_syncs import LogSyncs
from common.storage.producers.state import ProducedBatch
from common.storage.segment import RELATIVE_OFFSET_MAX, Segment


class Appended(NamedTuple):
    """The first and the last offset of the appended batches."""

    first_offset: Offset
    last_offset: Offset


class LogAppends(LogSyncs):
    """See the module docstring."""

    def append_as_leader(
        self,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        *,
        leader_epoch: LeaderEpoch,
        on_written: OnWritten,
        on_failed: OnFailed,
    ) -> Appended:
        """Stamps offsets and epoch into validated batches, in place, and sends them to the disk.

        Calls `on_written` once the kernel has these batches and all earlier ones, or `on_failed` if the append fails. If the
        batches complete flush.messages, the kernel must also have synced all of that. The call comes in a later turn of the
        event loop. The views must be writable, and the caller leaves them unchanged until the call. Raises LogClosed, and
        LogDirError if the log has failed.
        """
        self._check_appendable()
        first_offset = offset = self.log_end_offset
        size, buffers = 0, []
        for header, view in batches:
            set_base_offset_and_epoch(view, offset, leader_epoch)
            offset = Offset(offset + header.last_offset_delta + 1)
            size += header.batch_length + LOG_OVERHEAD
            buffers.append(view)
        segment = self._segment_for(batches, size=size, last_offset=offset - 1)
        self._epochs_changed |= self.leader_epochs.assign(leader_epoch, first_offset)
        position = segment.size
        next_offset = first_offset
        index_interval = self.config.index_interval_bytes
        for header, view in batches:
            last_offset = next_offset + header.last_offset_delta
            if header.producer_id > NO_PRODUCER_ID:
                self._note_producer(header, next_offset, decode_end_transaction(view) if header.is_control else None)
            segment.note_batch(
                first_offset=next_offset,
                last_offset=last_offset,
                size=header.batch_length + LOG_OVERHEAD,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
            next_offset = Offset(last_offset + 1)
        self.log_end_offset = offset
        must_be_synced = offset - self._flush_offset >= self.config.flush_messages and self._is_sync_due()
        self._appends.send(
            segment,
            position,
            buffers,
            offset,
            must_be_synced=must_be_synced,
            on_written=on_written,
            on_failed=on_failed,
        )
        return Appended(first_offset, Offset(offset - 1))

    def append_as_follower(
        self,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        view: memoryview,
        *,
        is_copy: bool = False,
        on_written: OnWritten,
        on_failed: OnFailed,
    ) -> Appended:
        """Appends whole, validated batches that already have their offsets and epochs. `view` is the memory that holds them
        one after the other.

        Calls `on_written` or `on_failed` like `append_as_leader`; the caller leaves `view` unchanged until the call. The
        owner of a copy, on which nothing relies before `take_over` has synced it, sets `is_copy`; flush.messages does not
        count for it. Raises UnexpectedOffset, BatchError if a marker cannot be read, LogClosed, and LogDirError if the log
        has failed.
        """
        self._check_appendable()
        if not batches:
            raise UnexpectedOffset(f"{self.name}: there is no batch to append")
        markers = self._check_offsets(batches)
        first_offset, last_offset = batches[0][0].base_offset, batches[-1][0].last_offset
        segment = self._segment_for(batches, size=len(view), last_offset=last_offset)
        position = segment.size
        index_interval = self.config.index_interval_bytes
        epoch = UNDEFINED_EPOCH
        for header, _ in batches:
            base_offset = header.base_offset
            if header.partition_leader_epoch != epoch:
                epoch = LeaderEpoch(header.partition_leader_epoch)
                self._epochs_changed |= self.leader_epochs.assign(epoch, Offset(base_offset))
            if header.producer_id > NO_PRODUCER_ID:
                self._note_producer(header, base_offset, markers.get(base_offset))
            segment.note_batch(
                first_offset=base_offset,
                last_offset=base_offset + header.last_offset_delta,
                size=header.batch_length + LOG_OVERHEAD,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
        assert segment.size == position + len(view), "the view holds the batches and nothing else"
        self.log_end_offset = end_offset = Offset(last_offset + 1)
        must_be_synced = (
            end_offset - self._flush_offset >= self.config.flush_messages and not is_copy and self._is_sync_due()
        )
        self._appends.send(
            segment,
            position,
            [view],
            end_offset,
            must_be_synced=must_be_synced,
            on_written=on_written,
            on_failed=on_failed,
        )
        return Appended(Offset(first_offset), Offset(last_offset))

    def _check_offsets(self, batches: Sequence[tuple[BatchHeader, memoryview]]) -> dict[int, EndTransactionMarker | None]:
        """Raises UnexpectedOffset unless the batches continue the log. Returns the markers among them, by their offsets."""
        expected: int = self.log_end_offset
        markers: dict[int, EndTransactionMarker | None] = {}
        for header, batch in batches:
            base_offset, delta = header.base_offset, header.last_offset_delta
            if base_offset < expected or delta < 0:
                raise UnexpectedOffset(
                    f"{self.name}: a batch of offsets {base_offset} to {header.last_offset} cannot follow {expected}"
                )
            expected = base_offset + delta + 1
            if header.attributes & CONTROL_BIT and header.producer_id > NO_PRODUCER_ID:
                markers[base_offset] = decode_end_transaction(batch)
        return markers

    def _check_appendable(self) -> None:
        if self.failure is not None or self.is_closed:
            self._check_usable()
        if self._is_changing:
            raise RuntimeError(f"{self.name}: append while the log's files change")

    def _segment_for(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, size: int, last_offset: int) -> Segment:
        """Returns the newest segment, after rolling if it has no room for these batches."""
        segment = self._segments.newest
        max_timestamp = batches[0][0].max_timestamp
        if len(batches) > 1:
            max_timestamp = max([header.max_timestamp for header, _ in batches])
        if segment.is_full_for(size=size, max_timestamp=max_timestamp, last_offset=last_offset, config=self.config):
            # Only a gap too wide for the indexes is left between the segments.
            return self._roll(max(segment.next_offset, last_offset - RELATIVE_OFFSET_MAX))
        return segment

    def _note_producer(self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker | None) -> None:
        completed = self.producers.state.note(header, base_offset, marker)
        if completed is not None and not completed.is_commit:
            self._segments.note_aborted(completed)

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """Returns the earlier one of a client's batch with a producer id, None if it is new.

        The leader calls this before it appends the batch; `when_written` then acknowledges a duplicate. Raises
        ProducerRefused, LogClosed, and LogDirError if the log has failed.
        """
        self._check_appendable()
        return self.producers.state.find_duplicate(header)

    def when_written(self, *, on_written: OnWritten, on_failed: OnFailed) -> None:
        """Calls `on_written` once the kernel has everything that was appended so far, or `on_failed` if it will not."""
        self._appends.when_written(on_written=on_written, on_failed=on_failed)

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Adds an entry to `leader_epochs`: the epoch of a new leader starts at the log end, before it has any batch.

        With this entry the leader can answer followers that ask where an earlier epoch ended.
        """
        self._epochs_changed |= self.leader_epochs.assign(leader_epoch, self.log_end_offset)
