"""The metadata log on disk: `__cluster_metadata-0`, its snapshots and its `quorum-state` (shell).

Counterpart of KafkaMetadataLog and FileQuorumStateStore. The files match Apache Kafka's byte for byte. A snapshot is written
to a `.part` file, fsynced and renamed, and then the folder is fsynced. So a file with a snapshot's name is complete.

The log must satisfy two rules. A crash can break either rule, and then `load` repairs the log.

1. The log starts at 0 or at the end offset of an existing snapshot. An interrupted deletion of old segments breaks this.
2. The log reaches at least the end offset of the newest snapshot. The loss of an unsynced tail breaks this.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from common.environment.interface import Environment, LogDir, LogFile
from common.ids import METADATA_TOPIC_ID, BrokerId, LeaderEpoch, Offset
from common.metadata.metadata_version import numbering_of
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.transactions import TransactionBuffer, TransactionError
from common.parts import Buffer, Part
from common.protocol.numbering import Numbering
from common.raft.bootstrap import read_bootstrap_checkpoint
from common.raft.core.election_state import ElectionState, InvalidQuorumState, decode_quorum_state, encode_quorum_state
from common.raft.core.fetch_validation import LogView
from common.raft.core.offsets import (
    BOOTSTRAP_CHECKPOINT,
    METADATA_LOG_FOLDER,
    ORIGIN,
    QUORUM_STATE_FILE,
    OffsetAndEpoch,
    is_leftover,
    parse_snapshot_name,
    partial_snapshot_path,
    snapshot_path,
)
from common.raft.core.quorum_records import QuorumRecords
from common.raft.core.record_batches import UnreadableBatch, decode_values
from common.raft.core.snapshot_content import InvalidSnapshot, SnapshotContent, parse_snapshot
from common.raft.core.snapshot_policy import Retention, StoredSnapshot
from common.raft.errors import QuorumFailure
from common.records.batch import BatchError, BatchHeader, read_header, split_batches
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import KnownRecord
from common.storage.append_pipeline import AwaitedAppend
from common.storage.empty_log import remove_empty_log
from common.storage.log import Log
from common.storage.log_appends import Appended
from common.storage.log_config import LogConfig
from common.storage.new_log import make_durable
from common.storage.partition_metadata import MalformedPartitionMetadata, load_partition_metadata
from common.storage.read_limits import ReadLimits

Batches = Sequence[tuple[BatchHeader, memoryview]]

_PIECE = 1024 * 1024


class MetadataLogConfig(Protocol):
    """The keys of server.properties that the metadata log uses."""

    @property
    def metadata_log_segment_bytes(self) -> int: ...

    @property
    def metadata_log_segment_ms(self) -> int: ...

    @property
    def metadata_max_retention_bytes(self) -> int: ...

    @property
    def metadata_max_retention_ms(self) -> int: ...


class MetadataLog:
    """The log, its list of snapshots, and the election state. Created by `load`."""

    def __init__(
        self,
        env: Environment,
        config: MetadataLogConfig,
        *,
        log: Log,
        snapshots: list[StoredSnapshot],
        election: ElectionState,
    ) -> None:
        self._env = env
        self._retention = Retention(bytes_max=config.metadata_max_retention_bytes, ms_max=config.metadata_max_retention_ms)
        self.log = log
        self.log_dir = log.log_dir
        # The snapshots on disk, ascending by id. Invariant: the log starts at 0 or at the end offset of the first snapshot.
        # The list is replaced, never changed in place, when a snapshot is published or deleted.
        self.snapshots = snapshots
        # The content of the quorum-state file. Changes in `store_election`, after the file is durable.
        self.election = election
        # A follower's appends that are not known to be written, each with its batches. In the order of the offsets.
        self._unwritten: deque[tuple[AwaitedAppend, Batches]] = deque()
        # Numbers the partial files of snapshots.
        self._attempts = itertools.count()

    # --- start ---------------------------------------------------------------------------------------------------
    @classmethod
    async def load(cls, env: Environment, log_dir: LogDir, config: MetadataLogConfig) -> "MetadataLog":
        """Opens the log and repairs what a crash left inconsistent, or creates an empty log. Raises QuorumFailure."""
        settings = LogConfig(segment_bytes=config.metadata_log_segment_bytes, roll_ms=config.metadata_log_segment_ms)
        if await log_dir.stat(METADATA_LOG_FOLDER) is None or await _remove_half_created(log_dir):
            log = await Log.create(log_dir, METADATA_LOG_FOLDER, settings, METADATA_TOPIC_ID)
            return cls(env, config, log=log, snapshots=[], election=ElectionState())
        snapshots = await _valid_snapshots(env, log_dir, await _scan_snapshots(log_dir))
        log = await _open_log(log_dir, settings, snapshots)
        if log.recovery.lost_anything:
            env.log.warning("metadata_log_recovered", log_dir=log_dir.path, recovery=str(log.recovery))
        if not log.size_bytes:
            # An earlier run may have been killed after it created the log and before it synced its name.
            await make_durable(log_dir, [METADATA_LOG_FOLDER])
        election = await _load_election(log_dir)
        return cls(env, config, log=log, snapshots=snapshots, election=election)

    async def load_bootstrap_records(self) -> list[ApiMessageAndVersion] | None:
        """Loads the records for an empty log from `bootstrap.checkpoint`, or from a snapshot at offset 0.

        Newer versions of Apache Kafka write such a snapshot instead of the file. Returns None if neither exists. Raises
        QuorumFailure if the file is damaged.
        """
        for name in (BOOTSTRAP_CHECKPOINT, snapshot_path(ORIGIN)):
            content = await self.log_dir.read_file(name)
            if content is not None:
                try:
                    return read_bootstrap_checkpoint(content)
                except (InvalidSnapshot, UnreadableBatch) as error:
                    raise QuorumFailure(f"{self.log_dir.path}/{name} cannot be read: {error}") from error
        return None

    async def load_first_quorum_records(self) -> QuorumRecords:
        """Loads the quorum records with which the log begins: those that Apache Kafka's `kafka-storage format` stored in a
        snapshot at offset 0. Raises QuorumFailure if it is damaged."""
        if await self.log_dir.stat(snapshot_path(ORIGIN)) is None:
            return QuorumRecords()
        return (await self.read_snapshot(ORIGIN)).quorum_records

    async def find_quorum_records(self) -> QuorumRecords:
        """Returns the quorum records in effect at the end of the log, where they count although they may be uncommitted.

        Raises QuorumFailure for unreadable records.
        """
        newest = self.latest_snapshot
        if newest is None:
            found, next_offset = await self.load_first_quorum_records(), Offset(self.log.log_start_offset)
        else:
            found, next_offset = (await self.read_snapshot(newest)).quorum_records, newest.offset
        try:
            while next_offset < self.end.offset:
                batches = await self.read_batches(next_offset, upper_offset=self.end.offset)
                if not batches:
                    break
                for header, view in batches:
                    found = found.after_batch(header, view)
                    next_offset = Offset(header.next_offset)
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error
        return found

    async def find_numbering(self) -> Numbering | None:
        """Returns the numbering selected by the newest snapshot or, if there is no snapshot, by the start of the log.

        Returns None if no snapshot exists and no feature record of the log has taken effect: the log is empty, or its
        first transaction is unfinished or was aborted. The bootstrap records, which the leader then writes, will select it.

        Raises QuorumFailure for unreadable records.
        """
        reader = MetadataRecordReader()
        transactions = TransactionBuffer()
        next_offset = Offset(self.log.log_start_offset)
        numbering = None
        try:
            if self.snapshots:
                content = await self.read_snapshot(self.snapshots[-1].snapshot_id)
                return numbering_of(content.records(reader)) or Numbering.APACHE
            while numbering is None and next_offset < self.end.offset:
                batches = await self.read_batches(next_offset, upper_offset=self.end.offset)
                if not batches:
                    break
                numbering = numbering_of(_effective_records(batches, reader, transactions))
                next_offset = Offset(batches[-1][0].next_offset)
            return numbering
        except (UnreadableBatch, TransactionError) as error:
            raise QuorumFailure(str(error)) from error

    async def close(self) -> None:
        """Closes the log cleanly: syncs everything and writes the index files."""
        await self.log.close()

    # --- positions -----------------------------------------------------------------------------------------------
    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[0].snapshot_id if self.snapshots else None

    @property
    def end(self) -> OffsetAndEpoch:
        """The log end offset and the epoch of the last record. If the log is empty, the epoch of the newest snapshot."""
        epoch = self.log.leader_epochs.latest_epoch
        if epoch < 0:
            epoch = self.snapshots[-1].snapshot_id.epoch if self.snapshots else ORIGIN.epoch
        return OffsetAndEpoch(self.log.log_end_offset, epoch)

    def view(self) -> LogView:
        """Returns the view of the log that `fetch_validation` needs."""
        end = self.end
        return LogView(
            start_offset=self.log.log_start_offset,
            end_offset=end.offset,
            last_epoch=end.epoch,
            earliest_snapshot=self.earliest_snapshot,
            latest_snapshot=self.latest_snapshot,
            end_offset_for_epoch=self.end_offset_for_epoch,
        )

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """Finds the largest epoch <= `epoch` in the log, or in the snapshot from which the log starts.

        Returns that epoch and its end offset, or the end of the log if `epoch` is newer than the log.
        """
        found = self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)
        if found.end_offset < 0:
            return self.end
        earliest = self.earliest_snapshot
        if earliest is not None and found.end_offset == earliest.offset and found.epoch == epoch:
            return earliest
        return OffsetAndEpoch(found.end_offset, found.epoch)

    # --- the election state --------------------------------------------------------------------------------------
    async def store_election(self, election: ElectionState, voters: Sequence[BrokerId]) -> None:
        """Writes the quorum-state file. The state is durable when this returns."""
        await self.log_dir.replace_file(QUORUM_STATE_FILE, encode_quorum_state(election, voters))
        self.election = election

    # --- batches -------------------------------------------------------------------------------------------------
    def append_as_leader(self, buffers: Sequence[bytearray], epoch: LeaderEpoch, append: AwaitedAppend) -> Appended:
        """Appends encoded batches that already carry their offsets. Completes `append.ended` once the kernel has them."""
        batches = [(read_header(buffer), memoryview(buffer)) for buffer in buffers]
        return self.log.append_as_leader(batches, leader_epoch=epoch, on_written=append.written, on_failed=append.failed)

    def append_as_follower(self, batches: Batches, view: memoryview) -> None:
        """Appends whole batches fetched from the leader, which `view` holds one after the other. They are part of the log at
        once."""
        append = AwaitedAppend()
        self.log.append_as_follower(batches, view, on_written=append.written, on_failed=append.failed)
        self._unwritten.append((append, batches))

    async def limit_unwritten(self, bytes_max: int) -> None:
        """Waits until at most this much of what `append_as_follower` has taken is unwritten. Raises the LogDirError of an
        append that has failed."""
        while self._unwritten:
            append, _ = self._unwritten[0]
            size = sum(header.size for _, batches in self._unwritten for header, _ in batches)
            if not append.ended.done() and size <= bytes_max:
                return
            # Not awaited directly: if the log is closed meanwhile, the append is cancelled, but not the task that waits.
            await asyncio.wait([append.ended])
            if not append.ended.cancelled():
                append.ended.result()
            if self._unwritten and self._unwritten[0][0] is append:
                self._unwritten.popleft()

    async def read_parts(self, offset: Offset, *, max_bytes: int) -> list[Part]:
        """Returns whole batches from `offset` on, to be sent to another node. They may include uncommitted records."""
        return list((await self.log.read(offset, ReadLimits(max_bytes=max_bytes))).parts)

    async def read_batches(self, offset: Offset, *, upper_offset: Offset, max_bytes: int = _PIECE) -> Batches:
        """Reads whole batches from `offset` on, all before `upper_offset`. Those that are not written yet need no disk.
        Raises OffsetOutOfRange, and QuorumFailure if the log is damaged."""
        written_offset = self.log.written_offset
        if written_offset <= offset < upper_offset:
            return self._unwritten_batches(offset, upper_offset)
        upper_offset = min(upper_offset, written_offset)
        try:
            return split_batches(
                await self.log.read_bytes(offset, ReadLimits(max_bytes=max_bytes, upper_offset=upper_offset))
            )
        except BatchError as error:
            raise QuorumFailure(f"{self.log_dir.path}/{self.log.name} is damaged at offset {offset}: {error}") from error

    def _unwritten_batches(self, offset: Offset, upper_offset: Offset) -> Batches:
        return [
            (header, view)
            for _, batches in self._unwritten
            for header, view in batches
            if offset <= header.base_offset and header.last_offset < upper_offset
        ]

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Returns the epoch of the record before `offset`."""
        for snapshot in self.snapshots:
            if snapshot.snapshot_id.offset == offset:
                return snapshot.snapshot_id.epoch
        epoch = self.log.leader_epochs.epoch_at(Offset(offset - 1))
        return epoch if epoch >= 0 else ORIGIN.epoch

    # --- snapshots -----------------------------------------------------------------------------------------------
    def stored_snapshot(self, snapshot_id: OffsetAndEpoch) -> StoredSnapshot | None:
        for snapshot in self.snapshots:
            if snapshot.snapshot_id == snapshot_id:
                return snapshot
        return None

    async def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Reads and checks a whole snapshot. Raises QuorumFailure if it is damaged."""
        path = snapshot_path(snapshot_id)
        try:
            return parse_snapshot(await _read_whole(self.log_dir, path))
        except (InvalidSnapshot, UnreadableBatch) as error:
            raise QuorumFailure(f"{self.log_dir.path}/{path} cannot be read: {error}") from error

    async def read_snapshot_piece(self, snapshot_id: OffsetAndEpoch, *, position: int, size: int) -> bytes:
        """Reads a piece of a snapshot for another node."""
        file = await self.log_dir.open(snapshot_path(snapshot_id))
        try:
            return await self.log_dir.read(file, position, size)
        finally:
            self.log_dir.close_file(file)

    async def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> "SnapshotFile":
        """Creates the partial file of a snapshot. The caller publishes or discards it."""
        path = partial_snapshot_path(snapshot_id, next(self._attempts))
        return SnapshotFile(self.log_dir, snapshot_id, path, await self.log_dir.open(path, create=True))

    async def publish_snapshot(self, file: "SnapshotFile") -> bool:
        """Durably turns a finished file into a snapshot. If the log now starts past its end, deletes it and returns
        False."""
        await file.publish()
        if file.snapshot_id.offset < self.log.log_start_offset:
            await self.log_dir.remove(snapshot_path(file.snapshot_id))
            return False
        stored = StoredSnapshot(file.snapshot_id, file.size, self._env.wall_ms())
        # The same snapshot may have been downloaded while it was written here.
        others = [each for each in self.snapshots if each.snapshot_id != file.snapshot_id]
        self.snapshots = sorted([*others, stored], key=lambda snapshot: snapshot.snapshot_id)
        return True

    async def start_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drops the whole log and restarts it at the end offset of a snapshot, which must already be on disk."""
        await self.log.truncate_fully_and_start_at(snapshot_id.offset)
        # After a crash at this point, the next start removes the older snapshots, because the log starts past their ends.
        await self._delete_snapshots([old for old in self.snapshots if old.snapshot_id != snapshot_id])

    async def delete_surplus(self) -> None:
        """Deletes old snapshots, and the log up to the oldest snapshot kept, until retention is satisfied."""
        while self._retention.oldest_is_surplus(self.snapshots, log_bytes=self.log.size_bytes, wall_ms=self._env.wall_ms()):
            oldest, following = self.snapshots[0], self.snapshots[1]
            # Delete the snapshot before the segments. After a crash in between, the next start deletes the segments up to
            # the oldest snapshot left.
            await self._delete_snapshots([oldest])
            await self.log.delete_segments_before(following.snapshot_id.offset)
            self._env.log.info(
                "metadata_log_cut",
                log_dir=self.log_dir.path,
                snapshot_offset=oldest.snapshot_id.offset,
                log_start_offset=self.log.log_start_offset,
            )

    async def _delete_snapshots(self, snapshots: Sequence[StoredSnapshot]) -> None:
        for snapshot in snapshots:
            self.snapshots = [kept for kept in self.snapshots if kept != snapshot]
            await self.log_dir.remove(snapshot_path(snapshot.snapshot_id))
        if snapshots:
            await self.log_dir.fsync_dir(METADATA_LOG_FOLDER)


class SnapshotFile:
    """The partial file of a snapshot that is being written. `publish` gives it its final name."""

    def __init__(self, log_dir: LogDir, snapshot_id: OffsetAndEpoch, path: str, file: LogFile) -> None:
        self.snapshot_id = snapshot_id
        self.size = 0
        self._log_dir = log_dir
        self._path = path
        self._file = file

    async def append(self, buffers: Sequence[Buffer]) -> None:
        """Appends the buffers. Returns when the kernel has the bytes; only `publish` makes them durable."""
        position = self.size
        self.size += sum(len(buffer) for buffer in buffers)
        await self._log_dir.append(self._file, position, buffers)

    async def read_whole(self) -> bytes:
        """Reads back what has been written so far."""
        return await _read_pieces(self._log_dir, self._file)

    async def publish(self) -> None:
        await self._log_dir.fsync(self._file)
        self._log_dir.close_file(self._file)
        await self._log_dir.rename(self._path, snapshot_path(self.snapshot_id))
        await self._log_dir.fsync_dir(METADATA_LOG_FOLDER)

    async def discard(self) -> None:
        """Closes and deletes the partial file."""
        self._log_dir.close_file(self._file)
        await self._log_dir.remove(self._path)


def _effective_records(
    batches: Batches, reader: MetadataRecordReader, transactions: TransactionBuffer
) -> Iterator[KnownRecord]:
    """Yields the records that have taken effect, lazily. Raises UnreadableBatch and TransactionError."""
    for header, view in batches:
        if not header.is_control:
            for offset, record in enumerate(decode_values(header, view, reader), start=header.base_offset):
                for effective, _ in transactions.feed(record, Offset(offset)):
                    yield effective


async def _scan_snapshots(log_dir: LogDir) -> list[StoredSnapshot]:
    """Lists the snapshots in ascending order. Removes half-written and half-deleted ones."""
    snapshots = []
    for entry in await log_dir.list(METADATA_LOG_FOLDER):
        path = f"{METADATA_LOG_FOLDER}/{entry.name}"
        if is_leftover(entry.name):
            await log_dir.remove(path)
            continue
        snapshot_id = parse_snapshot_name(entry.name)
        # Leave out a snapshot at offset 0: newer versions of Apache Kafka write it in place of the bootstrap file.
        if snapshot_id is not None and snapshot_id.offset > 0:
            stat = await log_dir.stat(path)
            if stat is not None:
                snapshots.append(StoredSnapshot(snapshot_id, stat.size, stat.modified_ms))
    return sorted(snapshots, key=lambda snapshot: snapshot.snapshot_id)


async def _valid_snapshots(env: Environment, log_dir: LogDir, snapshots: list[StoredSnapshot]) -> list[StoredSnapshot]:
    """Checks the snapshots, newest first, until it finds an undamaged one. Returns that one and all older ones.

    The older ones are not read until they are needed.
    """
    while snapshots:
        path = snapshot_path(snapshots[-1].snapshot_id)
        try:
            parse_snapshot(await _read_whole(log_dir, path))
        except (InvalidSnapshot, UnreadableBatch) as error:
            env.log.error("metadata_snapshot_damaged", log_dir=log_dir.path, name=path, error=str(error))
            snapshots = snapshots[:-1]
        else:
            break
    return snapshots


async def _remove_half_created(log_dir: LogDir) -> bool:
    """Removes the folder of a log whose creation was interrupted, so that it has no topic id and no records."""
    try:
        if await load_partition_metadata(log_dir, METADATA_LOG_FOLDER) is not None:
            return False
    except MalformedPartitionMetadata:
        # A power cut may leave the file without its content.
        pass
    return await remove_empty_log(log_dir, METADATA_LOG_FOLDER)


async def _open_log(log_dir: LogDir, settings: LogConfig, snapshots: list[StoredSnapshot]) -> Log:
    """Opens the log and makes it consistent with its snapshots. Removes snapshots that end before the log starts.

    Scans the whole log. It is small, and there is no other way to find out which bytes a power cut destroyed.
    """
    try:
        log = await Log.load(log_dir, METADATA_LOG_FOLDER, settings)
    except MalformedPartitionMetadata as error:
        raise QuorumFailure(str(error)) from error
    newest = snapshots[-1].snapshot_id if snapshots else None
    if newest is not None and newest.offset > log.log_end_offset:
        # The log lost unsynced records that the snapshot covers, or the node crashed between the download and the restart of
        # the log at the snapshot.
        await log.truncate_fully_and_start_at(newest.offset)
    first = log.segment_base_offsets[0]
    while snapshots and snapshots[0].snapshot_id.offset < first:
        # A crash interrupted `start_at_snapshot`, which had restarted the log at a later snapshot than this one.
        await log_dir.remove(snapshot_path(snapshots.pop(0).snapshot_id))
    if snapshots and first > 0:
        # Finish a deletion of segments that a crash may have interrupted. A log that still starts at 0 is complete anyway.
        await log.delete_segments_before(snapshots[0].snapshot_id.offset)
    elif first > 0:
        raise QuorumFailure(
            f"{log_dir.path}/{METADATA_LOG_FOLDER} begins at offset {first}, and no whole snapshot ends there or later"
        )
    return log


async def _load_election(log_dir: LogDir) -> ElectionState:
    content = await log_dir.read_file(QUORUM_STATE_FILE)
    if content is None:
        return ElectionState()
    try:
        return decode_quorum_state(content)
    except InvalidQuorumState as error:
        raise QuorumFailure(f"{log_dir.path}/{QUORUM_STATE_FILE} cannot be read: {error}") from error


async def _read_whole(log_dir: LogDir, path: str) -> bytes:
    file = await log_dir.open(path)
    try:
        return await _read_pieces(log_dir, file)
    finally:
        log_dir.close_file(file)


async def _read_pieces(log_dir: LogDir, file: LogFile) -> bytes:
    """Reads a file in pieces. A snapshot can be a hundred megabytes, and each read must finish within its deadline."""
    pieces = []
    position = 0
    while piece := await log_dir.read(file, position, _PIECE):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)
