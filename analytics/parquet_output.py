"""The folder of Parquet files that an export writes: its current end, and how files are added (shell).

A file is named `records-<first offset>-<last offset>.parquet`. It is written under a name that readers skip, synced and then
renamed, so a file with such a name is complete. The footer of the last file holds what the next export needs: next offset,
epoch, numbering and open transaction. Two exports into one folder would write the same offsets, so the folder is locked. The
metadata directory belongs to the node and is never locked.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.errors import AnalyticsError
from analytics.record_rows import COLUMNS, Kind, Row
from common.protocol.numbering import Numbering

ROWS_PER_GROUP: Final = 131_072
ROWS_PER_CHUNK: Final = 32_768

_NAME: Final = re.compile(r"records-([0-9]{20})-([0-9]{20})\.parquet")
_LOCK_FILE: Final = ".export.lock"
# Spark and pyarrow skip names that start with a dot.
_TEMPORARY: Final = ".writing.parquet"
_KEY: Final = "diskraft."

_TYPES: Final = {
    Kind.LONG: pa.int64(),
    Kind.INT: pa.int32(),
    Kind.BOOL: pa.bool_(),
    Kind.TIME: pa.timestamp("ms", tz="UTC"),
    Kind.NAME: pa.string(),
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.INTS: pa.list_(pa.int32()),
    Kind.TEXTS: pa.list_(pa.string()),
}
SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export has got. The numbering and the transaction are as of `next_offset`."""

    next_offset: int = 0
    last_epoch: int | None = None
    numbering: Numbering = Numbering.APACHE
    transaction_offset: int | None = None
    cluster_id: str | None = None

    def as_metadata(self) -> dict[str, str]:
        """Returns the values for a file's footer, without those that are None."""
        values = {
            "next_offset": self.next_offset,
            "last_epoch": self.last_epoch,
            "numbering": self.numbering.value,
            "transaction_offset": self.transaction_offset,
            "cluster_id": self.cluster_id,
        }
        return {_KEY + name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def of_metadata(cls, metadata: dict[str, str]) -> "Progress":
        """Reads the values of a footer. Raises KeyError or ValueError if no export wrote the footer."""
        epoch, transaction = metadata.get(_KEY + "last_epoch"), metadata.get(_KEY + "transaction_offset")
        return cls(
            next_offset=int(metadata[_KEY + "next_offset"]),
            last_epoch=None if epoch is None else int(epoch),
            numbering=Numbering(metadata[_KEY + "numbering"]),
            transaction_offset=None if transaction is None else int(transaction),
            cluster_id=metadata.get(_KEY + "cluster_id"),
        )


class ParquetFolder:
    """The output folder. Open it with `open_folder`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.progress = self._load_progress()

    def _load_progress(self) -> Progress:
        names = sorted(path.name for path in self._path.iterdir() if _NAME.fullmatch(path.name))
        if not names:
            return Progress()
        last = self._path / names[-1]
        try:
            found = pq.read_metadata(last).metadata or {}
            return Progress.of_metadata({key.decode(): value.decode() for key, value in found.items()})
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise AnalyticsError(f"{last} is not a file of an export ({error}); export into another folder") from error

    @contextmanager
    def new_file(self) -> Iterator["FileWriter"]:
        """Opens a file that gets its final name when the block ends without an error, if anything was written to it."""
        temporary = self._path / _TEMPORARY
        writer = FileWriter(temporary)
        try:
            yield writer
            progress = writer.finish()
            if progress is not None:
                name = f"records-{self.progress.next_offset:020d}-{progress.next_offset - 1:020d}.parquet"
                temporary.rename(self._path / name)
                _sync(self._path)
                self.progress = progress
        finally:
            writer.clean_up()


class FileWriter:
    """A file being written. Rows are collected by column and written in row groups."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._rows: list[Row] = []
        self._chunks: list[Any] = []
        self._progress: Progress | None = None
        self.row_count = 0

    def write(self, rows: list[Row], progress: Progress) -> None:
        """Adds the rows of one log batch or snapshot. `progress` is the progress after these rows."""
        self._rows += rows
        self.row_count += len(rows)
        self._progress = progress
        if len(self._rows) >= ROWS_PER_CHUNK:
            self._collect()
        if sum(chunk.num_rows for chunk in self._chunks) >= ROWS_PER_GROUP:
            self._write_group()

    def finish(self) -> Progress | None:
        """Finishes the file; it is durable on return. Returns None, and writes no file, if there are no rows."""
        if self._progress is None:
            return None
        self._collect()
        self._write_group()
        self._writer.add_key_value_metadata(self._progress.as_metadata())
        self._writer.close()
        self._writer = None
        _sync(self._path)
        return self._progress

    def clean_up(self) -> None:
        """Removes the temporary file if it still has its temporary name."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._path.unlink(missing_ok=True)

    def _collect(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            self._chunks.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
            self._rows = []

    def _write_group(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        if self._chunks:
            table = pa.Table.from_batches(self._chunks, schema=SCHEMA)
            self._writer.write_table(table, row_group_size=len(table))
            self._chunks = []


@contextmanager
def open_folder(path: Path) -> Iterator[ParquetFolder]:
    """Opens the folder, creating it if needed, and locks out other exports. Raises AnalyticsError."""
    path.mkdir(parents=True, exist_ok=True)
    with (path / _LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AnalyticsError(f"another export is writing into {path}") from error
        # Remove what a killed export has left. The lock guarantees that no export is writing this file now.
        (path / _TEMPORARY).unlink(missing_ok=True)
        yield ParquetFolder(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
