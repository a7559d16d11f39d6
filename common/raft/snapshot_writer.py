"""Writes snapshots of the committed metadata, in slices (shell).

Counterpart of Kafka's SnapshotGenerator. The writer rebuilds the state from the last snapshot and the log after it. It never
takes a listener's state: the active controller's state runs ahead of the commits, and no listener can stop applying records
while a large snapshot is being written. The price is one replay of the log per snapshot (by default, every twenty
megabytes); each replay also proves that the log can be replayed. A snapshot must not end inside a metadata transaction: the
log would then continue with the second half of a transaction that never began.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from common.environment.interface import Environment, LogDirError
from common.ids import Offset
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.metadata.transactions import RecordAndOffset, TransactionBuffer
from common.protocol.numbering import Numbering
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum_records import QuorumRecords
from common.raft.core.record_batches import UnreadableBatch, decode_values
from common.raft.core.snapshot_content import SnapshotContent, SnapshotEncoder
from common.raft.errors import QuorumFailure
from common.raft.metadata_log import MetadataLog, SnapshotFile
from common.records.batch import BatchHeader
from common.records.metadata_records import KnownRecord
from common.storage.errors import OffsetOutOfRange
from common.time_units import NS_PER_MS

# A slice of this many records blocks the event loop for a few milliseconds. The pause after each slice leaves most of the
# time to other tasks.
RECORDS_PER_SLICE = 200
PAUSE_NS = 4 * NS_PER_MS
READ_BYTES = 128 * 1024


class _Committed:
    """The committed state during a replay, without the records of an open transaction."""

    def __init__(self, quorum_records: QuorumRecords) -> None:
        """`quorum_records` are those with which the log begins."""
        self.state = MetadataState()
        # The end offset of the last batch that left no transaction open. A snapshot could end there. Changes in `end_batch`.
        self.boundary = Offset(0)
        # The append time of the batch that ends at `boundary`.
        self.timestamp_ms = 0
        # The quorum records in effect at `boundary`, and those at the end of the last batch.
        self.quorum_records = self._newest_quorum_records = quorum_records
        # Holds back the records of an open transaction, so that `state` never contains part of one.
        self._transactions = TransactionBuffer()

    def feed(self, record: KnownRecord, offset: Offset) -> Sequence[RecordAndOffset]:
        """Takes the next record. Returns the records that the caller has to replay on `state` before the next call."""
        return self._transactions.feed(record, offset)

    def end_batch(self, header: BatchHeader, view: memoryview) -> None:
        """Notes the end of a batch, whose records were fed before if it holds data. Raises UnreadableBatch."""
        self._newest_quorum_records = self._newest_quorum_records.after_batch(header, view)
        if not self._transactions.is_open:
            self.boundary = Offset(header.next_offset)
            self.timestamp_ms = header.max_timestamp
            self.quorum_records = self._newest_quorum_records

    def start_at_snapshot(self, snapshot_id: OffsetAndEpoch, content: SnapshotContent) -> None:
        """Continues where a snapshot ends. The caller has replayed its records on `state`."""
        self.boundary = snapshot_id.offset
        self.timestamp_ms = content.last_contained_timestamp
        self.quorum_records = self._newest_quorum_records = content.quorum_records

    @property
    def is_at_boundary(self) -> bool:
        """Whether `state` ends exactly at `boundary`.

        False if a transaction is open and other records precede its begin record in the same batch. `state` contains those
        records, but they lie past `boundary`.
        """
        return not self._transactions.is_open or self._transactions.stable_offset + 1 == self.boundary


class SnapshotWriter:
    """Writes snapshots on request. The caller must not start a `write` while another one runs."""

    def __init__(self, env: Environment, log: MetadataLog) -> None:
        self._env = env
        self._log = log
        self._records_in_slice = 0

    async def write(self, committed_offset: Offset) -> OffsetAndEpoch | None:
        """Writes a snapshot of everything before `committed_offset`, or of less if a transaction is open there.

        Returns None if there is nothing new to write, if no boundary is usable, or if another snapshot replaced the log in
        the meantime. Raises QuorumFailure, LogDirError, and ReplayError if the log contradicts itself.
        """
        reader = MetadataRecordReader()
        committed = await self._replay(committed_offset, reader)
        newest = self._log.latest_snapshot
        if committed is None or not committed.is_at_boundary:
            return None
        if committed.boundary <= (0 if newest is None else newest.offset):
            return None
        snapshot_id = OffsetAndEpoch(committed.boundary, self._log.epoch_before(committed.boundary))
        return snapshot_id if await self._write(snapshot_id, committed, reader.numbering) else None

    # --- the state -----------------------------------------------------------------------------------------------
    async def _replay(self, committed_offset: Offset, reader: MetadataRecordReader) -> _Committed | None:
        committed = _Committed(await self._log.load_first_quorum_records())
        newest = self._log.latest_snapshot
        next_offset = Offset(0)
        if newest is not None:
            await self._replay_snapshot(newest, committed, reader)
            next_offset = newest.offset
        try:
            while next_offset < committed_offset:
                batches = await self._log.read_batches(next_offset, upper_offset=committed_offset, max_bytes=READ_BYTES)
                if not batches:
                    break
                for header, view in batches:
                    if not header.is_control:
                        await self._replay_batch(header, view, committed, reader)
                    committed.end_batch(header, view)
                    next_offset = Offset(header.next_offset)
        except OffsetOutOfRange:
            # A snapshot from the leader has replaced the log. It makes this one superfluous.
            return None
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error
        return committed

    async def _replay_batch(
        self, header: BatchHeader, view: memoryview, committed: _Committed, reader: MetadataRecordReader
    ) -> None:
        for offset, record in enumerate(decode_values(header, view, reader), start=header.base_offset):
            effective = committed.feed(record, Offset(offset))
            if not effective:
                await self._pace()
            for each, its_offset in effective:
                cost = committed.state.replay_cost(each)
                committed.state.replay(each, offset=its_offset)
                await self._pace(cost)

    async def _replay_snapshot(
        self, snapshot_id: OffsetAndEpoch, committed: _Committed, reader: MetadataRecordReader
    ) -> None:
        content = await self._log.read_snapshot(snapshot_id)
        last_offset = Offset(snapshot_id.offset - 1)
        for record in content.records(reader):
            committed.state.replay(record, offset=last_offset)
            await self._pace()
        committed.start_at_snapshot(snapshot_id, content)

    # --- the file ------------------------------------------------------------------------------------------------
    async def _write(self, snapshot_id: OffsetAndEpoch, committed: _Committed, numbering: Numbering) -> bool:
        file = await self._log.begin_snapshot(snapshot_id)
        encoder = SnapshotEncoder(epoch=snapshot_id.epoch, numbering=numbering, written_ms=self._env.wall_ms())
        is_whole = False
        try:
            await self._fill(file, encoder, committed)
            is_whole = True
        finally:
            if not is_whole:
                with suppress(LogDirError):
                    await file.discard()
        if not await self._log.publish_snapshot(file):
            return False
        self._env.log.info(
            "metadata_snapshot_written", end_offset=snapshot_id.offset, epoch=snapshot_id.epoch, bytes=file.size
        )
        return True

    async def _fill(self, file: SnapshotFile, encoder: SnapshotEncoder, committed: _Committed) -> None:
        await file.append([encoder.header(committed.timestamp_ms, committed.quorum_records.messages)])
        records = generate_snapshot_records(committed.state)
        while chunk := list(islice(records, RECORDS_PER_SLICE)):
            await file.append(encoder.records(chunk))
            await self._pause()
        await file.append([encoder.footer()])

    async def _pace(self, cost: int = 1) -> None:
        """Called after each record. Pauses after every slice so that other tasks can run. `cost` is counted in records of
        usual size."""
        self._records_in_slice += cost
        if self._records_in_slice >= RECORDS_PER_SLICE:
            await self._pause()

    async def _pause(self) -> None:
        self._records_in_slice = 0
        await self._env.sleep_until(self._env.now_ns() + PAUSE_NS)
