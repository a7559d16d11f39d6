"""`diskraft metadata export`: copies the records of a metadata directory into a folder of Parquet files (shell).

An export continues where the folder ends and stops at the current end of the log. If the log is damaged, the records before
the damage are exported first and then the damage is reported. Records after the damage are never exported: the next export
would continue after them and never fill the gap.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from analytics.errors import AnalyticsError
from analytics.metadata_files import LogBatch, MetadataFiles, Snapshot
from analytics.parquet_output import ParquetFolder, Progress, open_folder
from analytics.record_rows import RecordRows, Row, UnknownNumbering
from common.protocol.numbering import Numbering
from common.records.batch import BatchError

ROWS_PER_FILE = 1_000_000


@dataclass(slots=True)
class Summary:
    """The result of one export. `first_offset` is inclusive, `next_offset` exclusive."""

    first_offset: int
    next_offset: int
    records: int = 0
    files: int = 0
    numbering: Numbering = Numbering.APACHE
    """The cluster's numbering of reserved directory ids, as of `next_offset`."""


def export_metadata(
    metadata_log_dir: Path,
    out: Path,
    *,
    rows_per_file: int = ROWS_PER_FILE,
    on_progress: Callable[[int], None] = lambda _records: None,
) -> Summary:
    """Exports the records that the folder lacks. Calls `on_progress` with the record count so far. Raises AnalyticsError."""
    files = MetadataFiles(metadata_log_dir)
    with open_folder(out) as folder, _without_collector():
        cluster_id = _checked_cluster(folder, files, out)
        summary = Summary(folder.progress.next_offset, folder.progress.next_offset)
        export = _Export(files, replace(folder.progress, cluster_id=cluster_id))
        while export.has_more:
            with folder.new_file() as writer:
                for rows, progress in export.one_file(rows_per_file):
                    writer.write(rows, progress)
                    on_progress(summary.records + writer.row_count)
            summary.records += writer.row_count
            summary.files += bool(writer.row_count)
            summary.next_offset = folder.progress.next_offset
        summary.numbering = folder.progress.numbering
        if export.damage is not None:
            raise export.damage
        return summary


@contextmanager
def _without_collector() -> Iterator[None]:
    """Turns Python's garbage collector off during the block. Rows form no reference cycles, and searching for cycles would
    take a fifth of an export's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _checked_cluster(folder: ParquetFolder, files: MetadataFiles, out: Path) -> str | None:
    known, found = folder.progress.cluster_id, files.cluster_id
    if known is not None and found is not None and known != found:
        raise AnalyticsError(f"{out} holds the metadata of cluster {known}, but this directory belongs to {found}")
    return found or known


class _Export:
    """One pass over the log. A snapshot gets its own file, because its rows together stand for one range of offsets and
    cannot be split."""

    def __init__(self, files: MetadataFiles, progress: Progress) -> None:
        self._progress = progress
        self._rows = RecordRows(progress.numbering, progress.transaction_offset)
        self._entries = files.read(progress.next_offset, progress.last_epoch)
        self._held: LogBatch | Snapshot | None = None
        self.has_more = True
        self.damage: AnalyticsError | None = None

    def one_file(self, rows_max: int) -> Iterator[tuple[list[Row], Progress]]:
        """Yields the rows of one file in portions: one log batch or snapshot each, with the progress after it."""
        count = 0
        while (entry := self._next()) is not None:
            if isinstance(entry, Snapshot) and count:
                self._held = entry
                return
            try:
                rows = self._snapshot_rows(entry) if isinstance(entry, Snapshot) else self._batch_rows(entry)
            except AnalyticsError as error:
                self._stop(error)
                return
            count += len(rows)
            yield rows, self._progress
            if count >= rows_max or isinstance(entry, Snapshot):
                return

    def _next(self) -> LogBatch | Snapshot | None:
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            entry = next(self._entries, None)
        except AnalyticsError as error:
            self._stop(error)
            return None
        self.has_more = entry is not None
        return entry

    def _stop(self, damage: AnalyticsError) -> None:
        self.has_more = False
        self.damage = damage

    def _batch_rows(self, batch: LogBatch) -> list[Row]:
        header = batch.header
        try:
            rows = list(self._rows.of_log_batch(header, batch.view))
        except (BatchError, UnknownNumbering) as error:
            raise AnalyticsError(f"the batch at offset {header.base_offset} cannot be exported: {error}") from error
        self._advance(header.next_offset, header.partition_leader_epoch)
        return rows

    def _snapshot_rows(self, snapshot: Snapshot) -> list[Row]:
        end, epoch = snapshot.snapshot_id
        try:
            rows = list(
                self._rows.of_snapshot(
                    snapshot.batches, end_offset=end, epoch=epoch, time_ms=snapshot.last_contained_timestamp
                )
            )
        except (BatchError, UnknownNumbering) as error:
            raise AnalyticsError(f"the snapshot at offset {end} cannot be exported: {error}") from error
        self._advance(end, epoch)
        return rows

    def _advance(self, next_offset: int, epoch: int) -> None:
        self._progress = replace(
            self._progress,
            next_offset=next_offset,
            last_epoch=epoch,
            numbering=self._rows.numbering,
            transaction_offset=self._rows.transaction_offset,
        )
