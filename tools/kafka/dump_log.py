"""kafka-dump-log: prints the contents of segments, snapshots and indexes, with Kafka's flags and output (shell).

Counterpart of Kafka's DumpLogSegments. Reads plain files, including those of a running node and of Apache Kafka. The files
may be damaged. A batch with a wrong checksum is printed with `isvalid: false`. A last batch that is cut off ends the dump of
that file, with a line that says how many bytes are left. Bytes that are not a batch are an error (status 1), as is a file
that cannot be read.
"""

import argparse
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from common.parts import Buffer
from common.raft.core.offsets import BOOTSTRAP_CHECKPOINT
from common.records.batch import BATCH_OVERHEAD, DELETE_HORIZON_BIT, BatchError, BatchHeader, read_header, validate_integrity
from common.records.control import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UnknownControlRecord,
    VotersRecord,
    decode_control_message,
)
from common.records.decompression import compression_name, decompress
from common.records.record import Record, iterate_records
from common.storage.index_entries import CorruptIndex
from common.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot_file,
)
from common.storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from common.storage.offset_index import OffsetIndex
from common.storage.producers.snapshot import CorruptProducerSnapshot, decode_producer_snapshot_entries
from common.storage.producers.state import NO_OFFSET
from common.storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from common.storage.time_index import TimeIndex
from common.storage.transaction_index import VERSION as ABORTED_VERSION
from tools.arguments import ToolParser
from tools.errors import ToolError, is_unwritten_output, run_tool
from tools.kafka import record_decoders
from tools.kafka.record_decoders import Decoder, json_text
from tools.kafka.record_json import to_json

MESSAGE_SIZE_MAX = 5 * 1024 * 1024
OPENED_BYTES_MAX = 256 * 1024 * 1024
NO_LIMIT = 2**31 - 1
# An entry of a transaction index, see Kafka's AbortedTxn: version, producer, first and last offset, last stable offset.
_ABORTED = struct.Struct(">hqqqq")
_TRANSACTION_MARKERS = {0: "ABORT", 1: "COMMIT"}
# Used as the size and as the number of offsets of the segment that an index belongs to. The index file does not contain
# these.
_OFFSETS_MAX = 2**31


@dataclass(slots=True)
class Findings:
    """The problems found. They are grouped under titles, which name the file, and printed on stderr at the end."""

    mismatches: dict[str, list[str]] = field(default_factory=dict)

    def note(self, title: str, line: str) -> None:
        """Adds a line under a title."""
        self.mismatches.setdefault(title, []).append(line)

    def print(self) -> None:
        for title, lines in self.mismatches.items():
            print(title, file=sys.stderr)
            for line in lines:
                print(f"  {line}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _dump_all(arguments))


def entry() -> None:
    """The console script's entry point."""
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-dump-log", "Print the contents of log segments, snapshots and indexes.")
    parser.add_argument("--files", required=True, metavar="F1,F2", help="the files, separated by commas")
    parser.add_argument("--print-data-log", action="store_true", help="print the records' keys and values")
    parser.add_argument("--deep-iteration", action="store_true", help="iterate over the records of each batch")
    parser.add_argument(
        "--skip-record-metadata", action="store_true", help="do not print offsets, sizes and headers of records"
    )
    decoders = parser.add_mutually_exclusive_group()
    decoders.add_argument("--cluster-metadata-decoder", action="store_true", help="print metadata records as JSON")
    decoders.add_argument("--offsets-decoder", action="store_true", help="print records of __consumer_offsets as JSON")
    decoders.add_argument(
        "--transaction-log-decoder", action="store_true", help="print records of __transaction_state as JSON"
    )
    parser.add_argument(
        "--verify-index-only", action="store_true", help="only check indexes against their segment, do not print them"
    )
    parser.add_argument("--index-sanity-check", action="store_true", help="run the index checks of a server start")
    parser.add_argument(
        "--max-message-size", type=int, default=MESSAGE_SIZE_MAX, metavar="SIZE", help="largest batch to read"
    )
    parser.add_argument(
        "--max-bytes", type=int, default=NO_LIMIT, metavar="SIZE", help="read only this much of each segment"
    )
    return parser


def _dump_all(arguments: argparse.Namespace) -> int:
    findings = Findings()
    for name in arguments.files.split(","):
        path = Path(name)
        print(f"Dumping {path}")
        try:
            _dump(path, arguments, findings)
        except OSError as error:
            if is_unwritten_output(error):
                raise
            raise ToolError(f"cannot read {error.filename or path}: {error.strerror}") from error
        except CorruptIndex as error:
            raise ToolError(f"{path} is corrupt: {error}. Delete it, and the server rebuilds it on startup.") from error
    findings.print()
    return 0


def _dump(path: Path, arguments: argparse.Namespace, findings: Findings) -> None:
    if path.suffix in (LOG_SUFFIX, SNAPSHOT_SUFFIX):
        _dump_log(path, arguments, findings)
    elif path.suffix == INDEX_SUFFIX:
        _dump_index(path, arguments, findings)
    elif path.suffix == TIME_INDEX_SUFFIX:
        _dump_time_index(path, arguments, findings)
    elif path.suffix == PRODUCER_SNAPSHOT_SUFFIX:
        _dump_producers(path)
    elif path.suffix == TRANSACTION_INDEX_SUFFIX:
        _dump_aborted_transactions(path)
    else:
        print(f"Ignoring unknown file {path}", file=sys.stderr)


# --- segments and snapshots ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Batch:
    header: BatchHeader
    content: bytes
    position: int


class Batches:
    """Reads batches one at a time, holding only one in memory. Stops at bytes that are not a batch; `error` then says why,
    unless they are the beginning of a batch that is cut off."""

    def __init__(self, file: BinaryIO, *, end: int, position: int = 0) -> None:
        self._file = file
        self._end = end
        self.position = position
        self.error: BatchError | None = None

    def __iter__(self) -> Iterator[Batch]:
        while self.position + BATCH_OVERHEAD <= self._end:
            self._file.seek(self.position)
            head = self._file.read(BATCH_OVERHEAD)
            try:
                header = read_header(head)
            except BatchError as error:
                self.error = error
                return
            # The size is only a claim until we know that the file has that many bytes.
            if self.position + header.size > self._end:
                return
            batch = Batch(header, head + self._file.read(header.size - BATCH_OVERHEAD), self.position)
            self.position += header.size
            yield batch


def _dump_log(path: Path, arguments: argparse.Namespace, findings: Findings) -> None:
    _print_title(path)
    printer = _RecordPrinter(path, arguments, findings)
    size = path.stat().st_size
    with path.open("rb") as file:
        batches = Batches(file, end=min(size, arguments.max_bytes))
        for batch in batches:
            _print_batch(batch)
            if printer.is_wanted:
                printer.print_records(batch)
    trailing = size - batches.position
    if trailing > 0 and arguments.max_bytes == NO_LIMIT:
        print(f"Found {trailing} invalid bytes at the end of {path.name}")
    if batches.error is not None:
        raise ToolError(f"{path} is corrupt at position {batches.position}: {batches.error}")


def _print_title(path: Path) -> None:
    if path.suffix == LOG_SUFFIX:
        print(f"Log starting offset: {_base_offset(path)}")
    elif path.name == BOOTSTRAP_CHECKPOINT:
        print("KRaft bootstrap snapshot")
    else:
        snapshot = parse_snapshot_file(path.name)
        if snapshot is None:
            raise ToolError(f"{path} is not named like a snapshot, <end offset>-<epoch>{SNAPSHOT_SUFFIX}")
        print(f"Snapshot end offset: {snapshot[0]}, epoch: {snapshot[1]}")


def _base_offset(path: Path) -> int:
    parsed = parse_segment_file(path.name)
    if parsed is None:
        raise ToolError(f"{path} is not named like a segment file, twenty digits and {path.suffix}")
    return parsed[0]


def _print_batch(batch: Batch) -> None:
    header = batch.header
    last_sequence = header.base_sequence
    if last_sequence >= 0:
        # Sequences wrap around after the largest 32-bit number.
        last_sequence = (last_sequence + header.last_offset_delta) % 2**31
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.attributes & DELETE_HORIZON_BIT else "OptionalLong.empty"
    identity = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)} deleteHorizonMs: {horizon}"
    )
    storage = (
        f"position: {batch.position} {_time_type(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {compression_name(header.compression)} crc: {header.crc} isvalid: {_java(_is_valid(batch))}"
    )
    print(identity, storage)


def _is_valid(batch: Batch) -> bool:
    try:
        validate_integrity(batch.header, batch.content)
    except BatchError:
        return False
    return True


def _java(truth: bool) -> str:
    return "true" if truth else "false"


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.has_log_append_time else "CreateTime"


def _decoder(arguments: argparse.Namespace) -> Decoder:
    if arguments.cluster_metadata_decoder:
        return record_decoders.metadata
    if arguments.offsets_decoder:
        return record_decoders.offsets
    return record_decoders.transactions if arguments.transaction_log_decoder else record_decoders.plain


class _RecordPrinter:
    """Prints the records of one file's batches and notes gaps in the offsets."""

    def __init__(self, path: Path, arguments: argparse.Namespace, findings: Findings) -> None:
        self._path = path
        self._decode = _decoder(arguments)
        self._prints_content: bool = arguments.print_data_log or self._decode is not record_decoders.plain
        self._prints_metadata: bool = not arguments.skip_record_metadata
        self.is_wanted: bool = arguments.deep_iteration or self._prints_content
        self._findings = findings
        self._last_offset = -1

    def print_records(self, batch: Batch) -> None:
        try:
            for record in iterate_records(batch.content, decompress=partial(decompress, size_max=OPENED_BYTES_MAX)):
                self._note_offset(record.offset)
                print(self._line(batch.header, record))
        except BatchError as error:
            self._findings.note(f"Unreadable records in {self._path}", f"batch at {batch.position}: {error}")

    def _note_offset(self, offset: int) -> None:
        if self._last_offset not in (-1, offset - 1):
            self._findings.note(
                f"Non-consecutive offsets in {self._path.absolute()}", f"{self._last_offset} is followed by {offset}"
            )
        self._last_offset = offset

    def _line(self, header: BatchHeader, record: Record) -> str:
        parts = []
        if self._prints_metadata:
            sequence = header.base_sequence
            if sequence >= 0:
                # Not by counting: compaction leaves gaps.
                sequence = (sequence + record.offset - header.base_offset) % 2**31
            names = ",".join(name for name, _ in record.headers)
            parts.append(
                f"offset: {record.offset} {_time_type(header)}: {record.timestamp_ms} keySize: {_size(record.key)} "
                f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{names}]"
            )
            if header.is_control:
                parts.append(_control_text(record))
        if self._prints_content and not header.is_control:
            parts += self._content(record)
        return " ".join(("|", *parts)) if parts else ""

    def _content(self, record: Record) -> list[str]:
        key, payload = self._decode(record)
        found = [] if key is None else [f"key: {key}"]
        return found if payload is None else [*found, f"payload: {payload}"]


def _size(content: Buffer | None) -> int:
    return -1 if content is None else len(content)


def _control_text(record: Record) -> str:
    message = decode_control_message(record)
    if isinstance(message, UnknownControlRecord):
        marker = _TRANSACTION_MARKERS.get(message.record_type)
        if marker is not None and len(message.value) >= 6:
            # The value of a marker is an int16 version and an int32 coordinator epoch.
            return f"endTxnMarker: {marker} coordinatorEpoch: {int.from_bytes(message.value[2:6], 'big', signed=True)}"
        return f"controlType: UNKNOWN({message.record_type})"
    text = json_text(to_json(message, message.version))
    if isinstance(message, LeaderChangeMessage):
        return f"LeaderChange: {text}"
    if isinstance(message, SnapshotHeaderRecord):
        return f"SnapshotHeader {text}"
    if isinstance(message, SnapshotFooterRecord):
        return f"SnapshotFooter {text}"
    if isinstance(message, VotersRecord):
        return f"KRaftVoters {text}"
    return f"KRaftVersion {text}"


# --- producer snapshots -------------------------------------------------------------------------------------------
def _dump_producers(path: Path) -> None:
    try:
        entries = decode_producer_snapshot_entries(path.read_bytes())
    except CorruptProducerSnapshot as error:
        # Not an error of the tool, as in Kafka: the broker removes such a file and uses an older one.
        print(error, file=sys.stderr)
        return
    for producer_id, entry in entries:
        first = entry.transaction_first_offset
        transaction = "OptionalLong.empty" if first == NO_OFFSET else f"OptionalLong[{first}]"
        line = (
            f"producerId: {producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {transaction} lastTimestamp: {entry.last_timestamp} "
        )
        for batch in entry.batches:
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} lastOffset: {batch.last_offset} "
                f"offsetDelta: {batch.last_offset - batch.first_offset} timestamp: {batch.timestamp}"
            )
        print(line)


# --- aborted transactions -----------------------------------------------------------------------------------------
def _dump_aborted_transactions(path: Path) -> None:
    """Prints the entries as they are: the file may be damaged, and entries that contradict each other are of interest. As in
    Kafka, neither they nor bytes at the end that are no entry are an error, but an entry of a later version is."""
    content = path.read_bytes()
    trailing = len(content) % _ABORTED.size
    for version, producer_id, first, last, last_stable in _ABORTED.iter_unpack(content[: len(content) - trailing]):
        if version > ABORTED_VERSION:
            raise ToolError(f"{path} has an entry of version {version}, only {ABORTED_VERSION} is known")
        print(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {last_stable}"
        )
    if trailing:
        print(f"{path} ends with {trailing} bytes that are no entry", file=sys.stderr)


# --- indexes ------------------------------------------------------------------------------------------------------
def _dump_index(path: Path, arguments: argparse.Namespace, findings: Findings) -> None:
    log_path = path.with_suffix(LOG_SUFFIX)
    index = _load_index(path)
    if not len(index):
        print(f"{path} is empty.")
        return
    if arguments.index_sanity_check:
        print(f"{path} passed sanity check.")
        return
    with log_path.open("rb") as log:
        size = log_path.stat().st_size
        for offset, position in index.entries:
            batch = next(iter(Batches(log, end=min(size, position + arguments.max_message_size), position=position)), None)
            if batch is None or batch.header.last_offset != offset:
                found = "none" if batch is None else batch.header.last_offset
                findings.note(f"Mismatches in :{path.absolute()}", f"Index offset: {offset}, log offset: {found}")
            if not arguments.verify_index_only:
                print(f"offset: {offset} position: {position}")


def _dump_time_index(path: Path, arguments: argparse.Namespace, findings: Findings) -> None:
    log_path = path.with_suffix(LOG_SUFFIX)
    base_offset = _base_offset(path)
    content = _without_preallocated(path.read_bytes(), TIME_ENTRY_SIZE)
    times = TimeIndex.from_bytes(content, base_offset=base_offset, end_offset=base_offset + _OFFSETS_MAX)
    times.check_order()
    if arguments.index_sanity_check:
        print(f"{path} passed sanity check.")
        return
    index_path = path.with_suffix(INDEX_SUFFIX)
    index = _load_index(index_path) if index_path.exists() else OffsetIndex(base_offset)
    with log_path.open("rb") as log:
        size = log_path.stat().st_size
        for timestamp, offset in times.entries:
            indexed = index.batch_for(offset)
            batches = Batches(log, end=size, position=0 if indexed is None else indexed.position)
            batch = next((each for each in batches if each.header.last_offset >= offset), None)
            if batch is None or batch.header.last_offset != offset:
                found = -1 if batch is None else batch.header.last_offset
                findings.note(
                    f"The following indexed offsets are not found in the log of {path.absolute()}.",
                    f"Indexed offset: {offset}, found log offset: {found}",
                )
            elif batch.header.max_timestamp != timestamp:
                findings.note(
                    f"Found timestamp mismatch in :{path.absolute()}",
                    f"Index timestamp: {timestamp}, log timestamp: {batch.header.max_timestamp}",
                )
            if not arguments.verify_index_only:
                print(f"timestamp: {timestamp} offset: {offset}")


def _load_index(path: Path) -> OffsetIndex:
    base_offset = _base_offset(path)
    content = _without_preallocated(path.read_bytes(), INDEX_ENTRY_SIZE)
    index = OffsetIndex.from_bytes(
        content, base_offset=base_offset, end_offset=base_offset + _OFFSETS_MAX, segment_size=_OFFSETS_MAX
    )
    index.check_order()
    return index


def _without_preallocated(content: bytes, entry_size: int) -> bytes:
    """Returns the content without the zeros after the last entry. Apache Kafka preallocates the index of its newest
    segment."""
    return content[: -(-len(content.rstrip(b"\0")) // entry_size) * entry_size]


if __name__ == "__main__":
    entry()
