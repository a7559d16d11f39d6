"""Reads the batches of a metadata directory in order, possibly while its node is running (shell).

Reading writes nothing and takes no lock, so the files may change meanwhile: the last segment grows, new segments appear, old
segments and snapshots are deleted. After each file the folder is therefore listed again, and the next offset alone
determines where to continue. If the log no longer holds that offset, a snapshot bridges the gap.

An incomplete batch at the end is normal for a growing log and silently ends the read. A complete batch with a wrong checksum
is damage, unless a second read finds it intact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from analytics.errors import AnalyticsError
from common.raft.core.offsets import METADATA_LOG_FOLDER, OffsetAndEpoch, parse_snapshot_name
from common.raft.core.record_batches import UnreadableBatch
from common.raft.core.snapshot_content import InvalidSnapshot, parse_snapshot
from common.records.batch import BATCH_OVERHEAD, BatchError, BatchHeader, read_header, split_batches, validate_batch
from common.storage.meta_properties import MalformedMetaProperties, parse_meta_properties
from common.storage.names import LOG_SUFFIX, META_PROPERTIES_FILE, parse_segment_file

_PIECE: Final = 4 * 1024 * 1024
# Far larger than any batch a controller writes. A damaged length must not make us read a whole disk into memory.
_BATCH_MAX: Final = 64 * 1024 * 1024
# Retention may delete a listed file before it is opened, but not this many times in a row.
_VANISHED_MAX: Final = 100


class DamagedLog(AnalyticsError):
    """The bytes are not valid batches, or offsets are missing. Everything returned before the error is good."""


class DivergedLog(AnalyticsError):
    """The log does not continue from the last record that was read."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A complete batch of a segment, checksum verified."""

    header: BatchHeader
    view: memoryview


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete snapshot, checksums verified. It replaces everything below `snapshot_id.offset`."""

    snapshot_id: OffsetAndEpoch
    last_contained_timestamp: int
    batches: list[tuple[BatchHeader, memoryview]]


@dataclass(frozen=True, slots=True)
class _Listing:
    """Base offsets of the segments, and the ids of the snapshots, both in ascending order."""

    segments: list[int]
    snapshots: list[OffsetAndEpoch]

    def segment_with(self, offset: int) -> int | None:
        """Returns the base offset of the segment that holds this offset, or that would hold it if it were appended next.
        None if all segments begin at higher offsets."""
        return max((each for each in self.segments if each <= offset), default=None)


class MetadataFiles:
    """The files of one metadata directory. Raises AnalyticsError if the folder is not a metadata directory."""

    def __init__(self, metadata_log_dir: Path) -> None:
        if metadata_log_dir.name == METADATA_LOG_FOLDER:
            metadata_log_dir = metadata_log_dir.parent
        self._dir = metadata_log_dir
        self._folder = metadata_log_dir / METADATA_LOG_FOLDER
        if not self._folder.is_dir():
            raise AnalyticsError(f"{metadata_log_dir} is not a metadata directory: it has no folder {METADATA_LOG_FOLDER}")

    @property
    def cluster_id(self) -> str | None:
        """The cluster id in meta.properties. None without that file, for example in a copy of the log folder alone."""
        path = self._dir / META_PROPERTIES_FILE
        try:
            return parse_meta_properties(path.read_bytes()).cluster_id
        except FileNotFoundError:
            return None
        except MalformedMetaProperties as error:
            raise AnalyticsError(f"{path} cannot be read: {error}") from error

    def read(self, next_offset: int, last_epoch: int | None = None) -> Iterator[LogBatch | Snapshot]:
        """Reads from `next_offset` to the current end of the log, each offset once.

        `last_epoch` is the epoch of the record before `next_offset` and must match the log. Raises DamagedLog and
        DivergedLog; everything returned before the error is good.
        """
        vanished = 0
        is_stalled = False
        is_checked = last_epoch is None
        while True:
            listing = self._list()
            # Start with the segment of the last record read, if it still exists, to check that record's epoch.
            base = None if is_checked else listing.segment_with(next_offset - 1)
            base = listing.segment_with(next_offset) if base is None else base
            start = next_offset
            try:
                if base is None:
                    snapshot = self._read_snapshot(listing, next_offset)
                    if snapshot is None:
                        return
                    yield snapshot
                    next_offset, last_epoch = snapshot.snapshot_id.offset, snapshot.snapshot_id.epoch
                else:
                    for batch in self._read_segment(base, next_offset, last_epoch):
                        yield batch
                        next_offset = batch.header.next_offset
                        last_epoch = batch.header.partition_leader_epoch
            except FileNotFoundError as error:
                vanished = vanished + 1 if next_offset == start else 0
                if vanished > _VANISHED_MAX:
                    raise DamagedLog(f"{error.filename} is listed and cannot be opened") from error
                continue
            except _Unreadable as error:
                # Retry once: the read may have run into a truncation followed by an append.
                if is_stalled and next_offset == start:
                    raise DamagedLog(str(error)) from error
                is_stalled = next_offset == start
                continue
            is_checked = True
            # List again, because a new segment may have been added after the last one.
            following = min((each for each in self._list().segments if base is None or each > base), default=None)
            if following is None:
                return
            if next_offset == start and following > next_offset:
                if is_stalled:
                    raise DamagedLog(f"{self._folder}: the offsets from {next_offset} to {following - 1} are missing")
                is_stalled = True
            else:
                is_stalled = False

    def _list(self) -> _Listing:
        names = [path.name for path in self._folder.iterdir()]
        segments = [parse_segment_file(name) for name in names if name.endswith(LOG_SUFFIX)]
        snapshots = [parse_snapshot_name(name) for name in names]
        return _Listing(
            segments=sorted(segment[0] for segment in segments if segment is not None),
            snapshots=sorted(snapshot for snapshot in snapshots if snapshot is not None),
        )

    def _segment_path(self, base: int) -> Path:
        return self._folder / f"{base:020d}{LOG_SUFFIX}"

    def _read_segment(self, base: int, next_offset: int, last_epoch: int | None) -> Iterator[LogBatch]:
        path = self._segment_path(base)
        with path.open("rb") as file:
            for position, header, view in _batches(file, path):
                if header.last_offset < next_offset:
                    # These offsets were read before.
                    if last_epoch is not None and _is_other(header, next_offset - 1, last_epoch):
                        raise DivergedLog(
                            f"{path}: offset {header.last_offset} has epoch {header.partition_leader_epoch}, and what was "
                            f"read before ends with offset {next_offset - 1} of epoch {last_epoch}: the log has been "
                            "truncated since; export into a new folder"
                        )
                    continue
                if header.base_offset < next_offset:
                    raise DivergedLog(
                        f"{path}: a batch holds the offsets {header.base_offset} to {header.last_offset}, and what was read "
                        f"before ends with {next_offset - 1}: the log has been truncated since; export into a new folder"
                    )
                if header.base_offset != next_offset:
                    raise _Unreadable(
                        f"{path}: the batch at position {position} begins with offset {header.base_offset}, "
                        f"expected {next_offset}"
                    )
                try:
                    validate_batch(header, view)
                except BatchError as error:
                    raise _Unreadable(f"{path} is damaged at position {position}: {error}") from error
                yield LogBatch(header, view)
                next_offset = header.next_offset

    def _read_snapshot(self, listing: _Listing, next_offset: int) -> Snapshot | None:
        """Returns the oldest usable snapshot, so that as many records as possible after it are read one by one.

        Returns None for a folder without any records. Raises _Unreadable if snapshots are needed and none is usable.
        """
        first = listing.segments[0] if listing.segments else None
        least = max(next_offset + 1, first or 0)
        candidates = [each for each in listing.snapshots if each.offset >= least]
        if not candidates and first is None:
            return None
        reasons = []
        for snapshot_id in candidates:
            path = self._folder / f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"
            content = path.read_bytes()
            try:
                parsed = parse_snapshot(content)
            except (InvalidSnapshot, UnreadableBatch) as error:
                reasons.append(f"{path.name}: {error}")
                continue
            return Snapshot(snapshot_id, parsed.last_contained_timestamp, split_batches(content))
        begins = "there are no segments" if first is None else f"the log begins at offset {first}"
        raise _Unreadable(
            f"{self._folder}: {begins}, and no snapshot covers the offsets from {next_offset} on "
            f"({'; '.join(reasons) or 'there is none'})"
        )


class _Unreadable(Exception):
    """The files look damaged. The caller reads them again before it reports damage."""


def _is_other(header: BatchHeader, last_offset: int, last_epoch: int) -> bool:
    """Whether this batch, which does not lie after the record with this offset and epoch, belongs to a log without that
    record. Epochs never decrease within a log, so a newer one shows that the log was truncated, even if it is still shorter
    than before."""
    epoch = header.partition_leader_epoch
    return epoch > last_epoch or (header.last_offset == last_offset and epoch != last_epoch)


def _batches(file: BinaryIO, path: Path) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields position, header and bytes of each complete batch. The contents are not verified."""
    position = 0
    rest = b""
    while piece := file.read(_PIECE):
        content = memoryview(rest + piece)
        start = 0
        while len(content) - start >= BATCH_OVERHEAD:
            try:
                header = read_header(content, start)
            except BatchError as error:
                raise _Unreadable(f"{path}: the bytes at position {position + start} form no batch: {error}") from error
            if header.size > _BATCH_MAX:
                raise _Unreadable(f"{path}: a batch at position {position + start} claims {header.size} bytes")
            end = start + header.size
            if end > len(content):
                break
            yield position + start, header, content[start:end]
            start = end
        position += start
        rest = bytes(content[start:])
