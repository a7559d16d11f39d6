"""Writes snapshots of the committed metadata, in slices (shell).

Answers to Kafka's SnapshotGenerator. The state is built anew from the last snapshot and the log behind it, never taken from
a listener: the active controller's state runs ahead of the commits, and no state may stand still while a large snapshot is
written. It costs a replay every twenty megabytes of log, and proves each time that the log replays. Easy to get wrong: a
snapshot may not end within a metadata transaction, or its second half would begin without a beginning.
"""

from itertools import islice

from common.environment.interface import Environment
from common.ids import Offset
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.metadata.transactions import TransactionBuffer
from common.protocol.numbering import Numbering
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.record_batches import UnreadableBatch, decode_values
from common.raft.core.snapshot_content import SnapshotEncoder
from common.raft.errors import QuorumFailure
from common.raft.metadata_log import MetadataLog
from common.records.batch import BatchHeader
from common.records.metadata_records import KnownRecord
from common.storage.errors import OffsetOutOfRange

# A slice takes a few milliseconds of the loop; the pause after it leaves most of the time to others.
RECORDS_PER_SLICE = 200
PAUSE_NS = 4_000_000
READ_BYTES = 128 * 1024


class _Committed:
    """The state at the last batch boundary that lies outside every transaction."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self.boundary = Offset(0)
        self.timestamp_ms = 0
        self._transactions = TransactionBuffer()

    def replay(self, record: KnownRecord, offset: Offset) -> None:
        for ready, ready_offset in self._transactions.feed(record, offset):
            self.state.replay(ready, offset=ready_offset)

    def end_batch(self, header: BatchHeader) -> None:
        if not self._transactions.is_open:
            self.boundary = Offset(header.next_offset)
            self.timestamp_ms = header.max_timestamp

    @property
    def is_at_boundary(self) -> bool:
        """False when the open transaction shares its first batch with records before it, which are replayed already."""
        return not self._transactions.is_open or self._transactions.stable_offset + 1 == self.boundary


class SnapshotWriter:
    """Makes a snapshot when it is asked to; one at a time."""

    def __init__(self, env: Environment, log: MetadataLog) -> None:
        self._env = env
        self._log = log
        self._records_in_slice = 0

    async def write(self, committed_offset: Offset) -> OffsetAndEpoch | None:
        """A snapshot of everything before `committed_offset`, or as near to it as may be.

        None when the newest snapshot is as good, or another one replaced the log meanwhile. Raises QuorumFailure,
        LogDirError, and ReplayError when the log contradicts itself.
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
        committed = _Committed()
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
                    committed.end_batch(header)
                    next_offset = Offset(header.next_offset)
        except OffsetOutOfRange:
            # A snapshot from the leader replaced the log.
            return None
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error
        return committed

    async def _replay_batch(
        self, header: BatchHeader, view: memoryview, committed: _Committed, reader: MetadataRecordReader
    ) -> None:
        for offset, record in enumerate(decode_values(header, view, reader), start=header.base_offset):
            committed.replay(record, Offset(offset))
            await self._pace()

    async def _replay_snapshot(
        self, snapshot_id: OffsetAndEpoch, committed: _Committed, reader: MetadataRecordReader
    ) -> None:
        content = await self._log.read_snapshot(snapshot_id)
        last_offset = Offset(snapshot_id.offset - 1)
        for record in content.records(reader):
            committed.state.replay(record, offset=last_offset)
            await self._pace()
        committed.boundary = snapshot_id.offset
        committed.timestamp_ms = content.last_contained_timestamp

    # --- the file ------------------------------------------------------------------------------------------------
    async def _write(self, snapshot_id: OffsetAndEpoch, committed: _Committed, numbering: Numbering) -> bool:
        file = await self._log.begin_snapshot(snapshot_id)
        encoder = SnapshotEncoder(epoch=snapshot_id.epoch, numbering=numbering, written_ms=self._env.wall_ms())
        await file.append([encoder.header(committed.timestamp_ms)])
        records = generate_snapshot_records(committed.state)
        while chunk := list(islice(records, RECORDS_PER_SLICE)):
            await file.append(encoder.records(chunk))
            await self._pause()
        await file.append([encoder.footer()])
        if not await self._log.publish_snapshot(file):
            return False
        self._env.log.info(
            "metadata_snapshot_written", end_offset=snapshot_id.offset, epoch=snapshot_id.epoch, bytes=file.size
        )
        return True

    async def _pace(self) -> None:
        """After each record: lets others run after every slice."""
        self._records_in_slice += 1
        if self._records_in_slice >= RECORDS_PER_SLICE:
            await self._pause()

    async def _pause(self) -> None:
        self._records_in_slice = 0
        await self._env.sleep_until(self._env.now_ns() + PAUSE_NS)
