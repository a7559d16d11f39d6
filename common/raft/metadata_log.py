"""The metadata log on disk: `__cluster_metadata-0`, its snapshots and its `quorum-state` (shell).

Answers to KafkaMetadataLog and FileQuorumStateStore; the files are Apache Kafka's, byte for byte. A snapshot is written to
a `.part` file, fsynced, renamed, and the folder fsynced, so that a file with a snapshot's name is whole. Easy to get wrong:
the log has to begin at 0 or at the end of a snapshot that is there, and to reach at least the end of the newest one.
After a crash either can be broken, by a cut that was half done or by an unsynced tail that was lost.
"""

from collections.abc import Sequence
from typing import Protocol

from common.environment.interface import Environment, LogDir, LogFile
from common.ids import METADATA_TOPIC_ID, BrokerId, LeaderEpoch, Offset
from common.metadata.metadata_version import numbering_of
from common.metadata.record_reader import MetadataRecordReader
from common.parts import Part
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
from common.raft.core.record_batches import UnreadableBatch, decode_values
from common.raft.core.snapshot_content import InvalidSnapshot, SnapshotContent, parse_snapshot
from common.raft.core.snapshot_policy import Retention, StoredSnapshot
from common.raft.errors import QuorumFailure
from common.records.batch import BatchHeader, read_header, split_batches
from common.records.metadata_frame import ApiMessageAndVersion
from common.storage.log import Appended, Log
from common.storage.log_config import LogConfig
from common.storage.partition_metadata import MalformedPartitionMetadata

_PIECE = 1024 * 1024


class MetadataLogConfig(Protocol):
    """The keys of server.properties that the metadata log follows."""

    @property
    def metadata_log_segment_bytes(self) -> int: ...

    @property
    def metadata_log_segment_ms(self) -> int: ...

    @property
    def metadata_max_retention_bytes(self) -> int: ...

    @property
    def metadata_max_retention_ms(self) -> int: ...


class MetadataLog:
    """Made by `load`. The log itself, the ids of the snapshots beside it, and the election state."""

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
        # Ascending. Invariant: the log begins at 0, or at the end of the first one.
        self.snapshots = snapshots
        self.election = election

    # --- start ---------------------------------------------------------------------------------------------------
    @classmethod
    async def load(cls, env: Environment, log_dir: LogDir, config: MetadataLogConfig) -> "MetadataLog":
        """Opens what is there, repaired where a crash left it half done, or creates an empty log. Raises QuorumFailure."""
        settings = LogConfig(segment_bytes=config.metadata_log_segment_bytes, segment_ms=config.metadata_log_segment_ms)
        if await log_dir.stat(METADATA_LOG_FOLDER) is None:
            log = await Log.create(log_dir, METADATA_LOG_FOLDER, settings, METADATA_TOPIC_ID)
            return cls(env, config, log=log, snapshots=[], election=ElectionState())
        snapshots = await _valid_snapshots(env, log_dir, await _scan_snapshots(log_dir))
        log = await _open_log(log_dir, settings, snapshots)
        if log.recovery.lost_anything:
            env.log.warning("metadata_log_recovered", log_dir=log_dir.path, recovery=str(log.recovery))
        election = await _load_election(log_dir)
        return cls(env, config, log=log, snapshots=snapshots, election=election)

    async def load_bootstrap_records(self) -> list[ApiMessageAndVersion] | None:
        """The records for an empty log, from `bootstrap.checkpoint`; None without one. Raises QuorumFailure if damaged.

        Newer Apache Kafka formats the directory with a snapshot at offset 0 in its place.
        """
        for name in (BOOTSTRAP_CHECKPOINT, snapshot_path(ORIGIN)):
            content = await self.log_dir.read_file(name)
            if content is not None:
                try:
                    return read_bootstrap_checkpoint(content)
                except (InvalidSnapshot, UnreadableBatch) as error:
                    raise QuorumFailure(f"{self.log_dir.path}/{name} cannot be read: {error}") from error
        return None

    async def find_numbering(self) -> Numbering | None:
        """The numbering that the newest snapshot or the start of the log chose; None for a log without records.

        Raises QuorumFailure for records that cannot be read.
        """
        reader = MetadataRecordReader()
        try:
            if self.snapshots:
                content = await self.read_snapshot(self.snapshots[-1].snapshot_id)
                return numbering_of(content.records(reader))
            batches = await self.read_batches(self.log.log_start_offset, upper_offset=self.end.offset)
            first = [batch for batch in batches if not batch[0].is_control]
            if not first:
                return None
            return numbering_of(record for header, view in first for record in decode_values(header, view, reader))
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error

    async def close(self) -> None:
        """For an orderly end: everything synced, index files written."""
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
        """The log's end and the epoch of the record before it, which the newest snapshot may hold."""
        epoch = self.log.leader_epochs.latest_epoch
        if epoch < 0:
            epoch = self.snapshots[-1].snapshot_id.epoch if self.snapshots else ORIGIN.epoch
        return OffsetAndEpoch(self.log.log_end_offset, epoch)

    def view(self) -> LogView:
        """The log as the decisions of the quorum see it."""
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
        """The largest epoch <= `epoch` in the log, or in the snapshot that it begins with, and where that epoch ends."""
        found = self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)
        if found.end_offset < 0:
            return self.end
        earliest = self.earliest_snapshot
        if earliest is not None and found.end_offset == earliest.offset and found.epoch == epoch:
            return earliest
        return OffsetAndEpoch(found.end_offset, found.epoch)

    # --- the election state --------------------------------------------------------------------------------------
    async def store_election(self, election: ElectionState, voters: Sequence[BrokerId]) -> None:
        """Durable when this returns."""
        await self.log_dir.replace_file(QUORUM_STATE_FILE, encode_quorum_state(election, voters))
        self.election = election

    # --- batches -------------------------------------------------------------------------------------------------
    def append_as_leader(self, buffers: Sequence[bytearray], epoch: LeaderEpoch) -> Appended:
        """Batches of one record group each, already at their offsets."""
        return self.log.append_as_leader(
            [(read_header(buffer), memoryview(buffer)) for buffer in buffers], leader_epoch=epoch
        )

    async def read_parts(self, offset: Offset, *, max_bytes: int) -> list[Part]:
        """Whole batches from `offset` on for another node: everything that is written, committed or not."""
        return list((await self.log.read(offset, max_bytes=max_bytes)).parts)

    async def read_batches(
        self, offset: Offset, *, upper_offset: Offset, max_bytes: int = _PIECE
    ) -> list[tuple[BatchHeader, memoryview]]:
        """Whole batches from `offset` on, all below `upper_offset`. Raises OffsetOutOfRange."""
        return split_batches(await self.log.read_bytes(offset, max_bytes=max_bytes, upper_offset=upper_offset))

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the record before `offset`."""
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
        """A whole snapshot, checked. Raises QuorumFailure when it is damaged."""
        path = snapshot_path(snapshot_id)
        try:
            return parse_snapshot(await _read_whole(self.log_dir, path))
        except (InvalidSnapshot, UnreadableBatch) as error:
            raise QuorumFailure(f"{self.log_dir.path}/{path} cannot be read: {error}") from error

    async def read_snapshot_piece(self, snapshot_id: OffsetAndEpoch, *, position: int, size: int) -> bytes:
        """Bytes of a snapshot, for another node."""
        file = await self.log_dir.open(snapshot_path(snapshot_id))
        try:
            return await self.log_dir.read(file, position, size)
        finally:
            self.log_dir.close_file(file)

    async def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> "SnapshotFile":
        """A new file for the snapshot; what an earlier attempt left is removed."""
        await self.log_dir.remove(partial_snapshot_path(snapshot_id))
        return SnapshotFile(
            self.log_dir, snapshot_id, await self.log_dir.open(partial_snapshot_path(snapshot_id), create=True)
        )

    async def publish_snapshot(self, file: "SnapshotFile") -> bool:
        """Makes a finished file a snapshot, durably. False when the log begins behind it by now, and it is dropped."""
        await file.publish()
        if file.snapshot_id.offset < self.log.log_start_offset:
            await self.log_dir.remove(snapshot_path(file.snapshot_id))
            return False
        stored = StoredSnapshot(file.snapshot_id, file.size, self._env.wall_ms())
        self.snapshots = sorted([*self.snapshots, stored], key=lambda snapshot: snapshot.snapshot_id)
        return True

    async def start_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drops the whole log: it goes on behind this snapshot, which another node's log made necessary."""
        await self.log.truncate_fully_and_start_at(snapshot_id.offset)
        # A crash before this leaves snapshots that the next start removes, because the log begins behind them.
        await self._delete_snapshots([old for old in self.snapshots if old.snapshot_id != snapshot_id])

    async def delete_surplus(self) -> None:
        """Deletes old snapshots and the log before the next one, as far as retention allows."""
        while self._retention.oldest_is_surplus(self.snapshots, log_bytes=self.log.size_bytes, wall_ms=self._env.wall_ms()):
            oldest, following = self.snapshots[0], self.snapshots[1]
            # The snapshot first: a log that still reaches back behind its first snapshot is cut at the next start.
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
    """A snapshot on its way to the disk. Only `publish` gives it its name."""

    def __init__(self, log_dir: LogDir, snapshot_id: OffsetAndEpoch, file: LogFile) -> None:
        self.snapshot_id = snapshot_id
        self.size = 0
        self._log_dir = log_dir
        self._file = file

    async def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Writes at the end. Returns when the kernel has the bytes."""
        position = self.size
        self.size += sum(len(buffer) for buffer in buffers)
        await self._log_dir.append(self._file, position, buffers)

    async def read_whole(self) -> bytes:
        """What has been written so far."""
        return await _read_pieces(self._log_dir, self._file)

    async def publish(self) -> None:
        await self._log_dir.fsync(self._file)
        self._log_dir.close_file(self._file)
        await self._log_dir.rename(partial_snapshot_path(self.snapshot_id), snapshot_path(self.snapshot_id))
        await self._log_dir.fsync_dir(METADATA_LOG_FOLDER)

    async def discard(self) -> None:
        """Gives up the attempt."""
        self._log_dir.close_file(self._file)
        await self._log_dir.remove(partial_snapshot_path(self.snapshot_id))


async def _scan_snapshots(log_dir: LogDir) -> list[StoredSnapshot]:
    """The snapshots, ascending. Removes those that were left half written or half deleted."""
    snapshots = []
    for entry in await log_dir.list(METADATA_LOG_FOLDER):
        path = f"{METADATA_LOG_FOLDER}/{entry.name}"
        if is_leftover(entry.name):
            await log_dir.remove(path)
            continue
        snapshot_id = parse_snapshot_name(entry.name)
        # A snapshot at offset 0 stands for the bootstrap file of newer Apache Kafka.
        if snapshot_id is not None and snapshot_id.offset > 0:
            stat = await log_dir.stat(path)
            if stat is not None:
                snapshots.append(StoredSnapshot(snapshot_id, stat.size, stat.modified_ms))
    return sorted(snapshots, key=lambda snapshot: snapshot.snapshot_id)


async def _valid_snapshots(env: Environment, log_dir: LogDir, snapshots: list[StoredSnapshot]) -> list[StoredSnapshot]:
    """Without the newest ones as far as they are damaged. The older ones are read only when they are needed."""
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


async def _open_log(log_dir: LogDir, settings: LogConfig, snapshots: list[StoredSnapshot]) -> Log:
    """The log, made to fit its snapshots. Removes from `snapshots` those that the log no longer continues.

    Everything is scanned: the log is small, and nothing else tells which of its bytes a power cut has taken.
    """
    try:
        log = await Log.load(log_dir, METADATA_LOG_FOLDER, settings)
    except MalformedPartitionMetadata as error:
        raise QuorumFailure(str(error)) from error
    newest = snapshots[-1].snapshot_id if snapshots else None
    if newest is not None and newest.offset > log.log_end_offset:
        # Records that a snapshot holds were not synced in the log, or the crash came between download and cut.
        await log.truncate_fully_and_start_at(newest.offset)
    first = log.segment_base_offsets[0]
    while snapshots and snapshots[0].snapshot_id.offset < first:
        # A cut that was half done: the log begins later already.
        await log_dir.remove(snapshot_path(snapshots.pop(0).snapshot_id))
    if snapshots and first > 0:
        # A log that still has its first record needs no cut: it is whole without any snapshot.
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
    """A snapshot may have a hundred megabytes; reading it in pieces keeps each operation within its deadline."""
    pieces = []
    position = 0
    while piece := await log_dir.read(file, position, _PIECE):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)
