"""Targets for the contents of logs and snapshots: batches, control records, metadata records, whole snapshots, replay.

Random bytes never pass a checksum. Therefore, if the first byte of the input is odd, lengths and checksums are repaired
before decoding, so that the code after the checks is tested too.
"""

import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from common.ids import LeaderEpoch, Offset, Uuid
from common.metadata.metadata_version import numbering_of
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.state import MetadataState, ReplayError
from common.metadata.transactions import TransactionBuffer, TransactionError
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.protocol.schema import message_schema
from common.raft.bootstrap import bootstrap_records, make_bootstrap_checkpoint, read_bootstrap_checkpoint
from common.raft.core.record_batches import UnreadableBatch
from common.raft.core.snapshot_content import InvalidSnapshot, SnapshotEncoder, parse_snapshot
from common.records.batch import BATCH_OVERHEAD, BatchError, split_batches, validate_produced_batch
from common.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    encode_control_batch,
    iterate_control_records,
)
from common.records.end_transaction import EndTransactionMarker, decode_end_transaction, encode_marker_batch
from common.records.metadata_frame import ApiMessageAndVersion, UnknownRecord, decode_any_record, encode_record
from common.records.metadata_records import RECORD_CLASSES, KnownRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from common.records.record import Record, encode_batch, encode_values_batch, iterate_records, iterate_values
from tests.fuzz.messages import Vocabulary, filled
from tests.fuzz.target import Target

_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_CRC_POSITION: Final = 17
_CHECKED_FROM: Final = 21
_NUMBERINGS: Final = tuple(Numbering)


def put_right(data: bytes) -> bytes:
    """Returns the same batches with correct magics and checksums. A batch with an invalid length is extended or cut to the
    end of the bytes."""
    batches = bytearray(data)
    position = 0
    while len(batches) - position >= BATCH_OVERHEAD:
        (length,) = struct.unpack_from(">i", batches, position + _LENGTH_POSITION)
        end = position + 12 + length
        if length < BATCH_OVERHEAD - 12 or end > len(batches):
            end = len(batches)
            struct.pack_into(">i", batches, position + _LENGTH_POSITION, end - position - 12)
        batches[position + _MAGIC_POSITION] = 2
        struct.pack_into(">I", batches, position + _CRC_POSITION, crc32c(bytes(batches[position + _CHECKED_FROM : end])))
        position = end
    return bytes(batches)


def _repaired(data: bytes) -> bytes:
    return put_right(data[1:]) if data[:1] and data[0] & 1 else data[1:]


def _both_ways(contents: Sequence[bytes]) -> list[bytes]:
    return [first + content for content in contents for first in (b"\0", b"\1")]


# --- batches -----------------------------------------------------------------------------------------------------
def _check_batches(data: bytes) -> None:
    """Any bytes split into batches without a gap, or raise BatchError. `iterate_records` and `iterate_values` agree."""
    content = _repaired(data)
    try:
        batches = split_batches(content)
    except BatchError:
        whole = split_batches_leniently(content)
        assert sum(len(view) for view in whole) <= len(content)
        return
    assert b"".join(bytes(view) for _, view in batches) == content
    for header, view in batches:
        _check_records(view)
        try:
            validate_produced_batch(header, view)
        except BatchError:
            continue
        assert header.record_count == header.last_offset_delta + 1


def split_batches_leniently(content: bytes) -> list[memoryview]:
    """Returns the complete batches at the start, as a follower does. Returns none if the first has an unknown format."""
    try:
        return [view for _, view in split_batches(content, allow_partial_tail=True)]
    except BatchError:
        return []


def _check_records(view: memoryview) -> None:
    def general() -> Iterator[tuple[int, bytes]]:
        for record in iterate_records(view):
            if record.value is None:
                raise BatchError
            yield record.offset, bytes(record.value)

    # Returns the values read before an error, and whether there was an error.
    def outcome(values: Iterator[tuple[int, bytes]]) -> tuple[list[tuple[int, bytes]], bool]:
        given = []
        try:
            for offset, value in values:
                given.append((offset, value))
        except BatchError:
            return given, True
        return given, False

    quick = ((offset, bytes(value)) for offset, value in iterate_values(view))
    assert outcome(general()) == outcome(quick)


def _batch_seeds() -> list[bytes]:
    plain = encode_values_batch([b"first", b"second", b""], base_offset=7, leader_epoch=1, timestamp_ms=1000)
    records = [
        Record(b"key", b"value", 1000, (("header", b"1"), ("other", None))),
        Record(None, None, -1),
        Record(b"", b"x" * 200, 2**40),
    ]
    rich = encode_batch(records, base_offset=2**40, leader_epoch=3, producer_id=5, producer_epoch=1, base_sequence=0)
    stamped = encode_batch(records[:1], attributes=0x08)
    compressed = encode_batch(records, attributes=1, compress=bytes)
    return _both_ways([bytes(each) for each in (plain, rich, stamped, compressed, plain + rich, plain[:-3], rich[:40], b"")])


# --- control records ---------------------------------------------------------------------------------------------
def _check_control(data: bytes) -> None:
    """Reading any bytes as control batches yields control records or raises BatchError. The same holds for a marker."""
    with suppress(BatchError):
        decode_end_transaction(_repaired(data))
    try:
        for record in iterate_control_records(_repaired(data)):
            assert isinstance(record.offset, int)
    except BatchError:
        pass


def _control_seeds() -> list[bytes]:
    voters = [LeaderChangeVoter(voter_id=1), LeaderChangeVoter(voter_id=2)]
    batches = [
        encode_control_batch([LeaderChangeMessage(version=version, leader_id=1, voters=voters)], timestamp_ms=5)
        for version in (0, 1)
    ]
    batches.append(
        encode_control_batch(
            [SnapshotHeaderRecord(last_contained_log_timestamp=9), KRaftVersionRecord(k_raft_version=1)], timestamp_ms=5
        )
    )
    batches.append(encode_control_batch([VotersRecord(), SnapshotFooterRecord()], timestamp_ms=5))
    batches.append(encode_marker_batch(EndTransactionMarker(5, 1, 7, is_commit=True), timestamp_ms=5))
    return _both_ways([bytes(batch) for batch in batches])


# --- metadata records --------------------------------------------------------------------------------------------
def _check_metadata_record(data: bytes) -> None:
    """Decoding a frame returns a known or unknown record or raises ProtocolError. MetadataRecordReader agrees. Encoding and
    decoding a known record again changes nothing. Records are compared by their repr, because a quota may be NaN, which is
    not equal to itself."""
    if not data:
        return
    numbering, frame = _NUMBERINGS[data[0] % len(_NUMBERINGS)], data[1:]
    try:
        record = decode_any_record(frame, numbering)
    except ProtocolError:
        record = None
    known = record if record is not None and not isinstance(record, UnknownRecord) else None
    reader = MetadataRecordReader(numbering)
    try:
        read: KnownRecord | None = reader.decode(frame)
    except (ProtocolError, ValueError):
        # ValueError means an unknown level of the numbering, which only the reader checks.
        read = None
        if known is not None:
            assert "FeatureLevelRecord" in type(known).__name__
            return
    assert repr(read) == repr(known)
    if known is not None:
        # Compare records and not bytes: varints in the input may be longer than necessary.
        version = _version_of(frame)
        written = encode_record(known, version, numbering)
        assert repr(decode_any_record(written, numbering)) == repr(known)


def _version_of(frame: bytes) -> int:
    """Returns the record's version, which is the third varint of the frame."""
    position, value = 0, 0
    for _ in range(3):
        value, shift = 0, 0
        while True:
            byte = frame[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
    return value


def known_records() -> list[tuple[KnownRecord, int]]:
    """Returns some records of every type and version, with the version."""
    rng = random.Random(858)
    vocabulary = Vocabulary()
    found = []
    for record_class in RECORD_CLASSES.values():
        for version in message_schema(record_class).versions:
            found += [(record_class(), version), (filled(record_class, version, rng, vocabulary), version)]
    return found


def _record_seeds() -> list[bytes]:
    return [
        bytes((number,)) + encode_record(record, version, numbering)
        for record, version in known_records()
        for number, numbering in enumerate(_NUMBERINGS)
    ]


# --- snapshots and replay ----------------------------------------------------------------------------------------
def _check_snapshot(data: bytes) -> None:
    """Reading a snapshot returns its records, or raises InvalidSnapshot or UnreadableBatch. Replay accepts the records or
    raises ReplayError or TransactionError."""
    content = _repaired(data)
    try:
        snapshot = parse_snapshot(content)
        records = list(snapshot.records(MetadataRecordReader()))
    except (InvalidSnapshot, UnreadableBatch):
        return
    _replay(records)
    assert numbering_of(records) in (None, *_NUMBERINGS)


def _replay(records: Sequence[KnownRecord]) -> None:
    state, buffer = MetadataState(), TransactionBuffer()
    try:
        for number, record in enumerate(records):
            for applied, offset in buffer.feed(record, Offset(number)):
                state.replay(applied, offset=offset)
    except (ReplayError, TransactionError):
        return
    assert state.partition_count == sum(len(topic.partitions) for topic in state.topics.values())


def _check_bootstrap(data: bytes) -> None:
    """Reading a bootstrap file returns its records, or raises InvalidSnapshot or UnreadableBatch."""
    try:
        records = read_bootstrap_checkpoint(_repaired(data))
    except (InvalidSnapshot, UnreadableBatch):
        return
    for each in records:
        assert each.version in message_schema(type(each.record)).versions


def _snapshot(records: Sequence[ApiMessageAndVersion]) -> bytes:
    encoder = SnapshotEncoder(epoch=LeaderEpoch(3), numbering=Numbering.KIP858, written_ms=1000)
    return b"".join([encoder.header(900), *encoder.records(records), encoder.footer()])


def _snapshot_seeds() -> list[bytes]:
    topic_id, directory = Uuid(bytes(range(16))), Uuid(bytes(15) + b"\x99")
    cluster = [
        *bootstrap_records(),
        ApiMessageAndVersion(RegisterBrokerRecord(broker_id=1, broker_epoch=4, log_dirs=[directory]), 3),
        ApiMessageAndVersion(TopicRecord(name="t", topic_id=topic_id), 0),
        ApiMessageAndVersion(
            PartitionRecord(
                topic_id=topic_id, replicas=[1], isr=[1], leader=1, directories=[directory], removing_replicas=[]
            ),
            1,
        ),
    ]
    everything = [ApiMessageAndVersion(record, version) for record, version in known_records()]
    return _both_ways([_snapshot(cluster), _snapshot(everything[:6]), _snapshot([]), _snapshot(everything)])


def _bootstrap_seeds() -> list[bytes]:
    return _both_ways(
        [make_bootstrap_checkpoint(bootstrap_records(numbering=numbering), written_ms=5) for numbering in _NUMBERINGS]
    )


TARGETS = (
    Target(name="record_batches", check=_check_batches, seeds=_batch_seeds, bytes_per_byte=400),
    Target(name="control_records", check=_check_control, seeds=_control_seeds),
    Target(name="metadata_records", check=_check_metadata_record, seeds=_record_seeds),
    Target(name="snapshot", check=_check_snapshot, seeds=_snapshot_seeds, bytes_per_byte=400),
    Target(name="bootstrap_checkpoint", check=_check_bootstrap, seeds=_bootstrap_seeds, bytes_per_byte=400),
)
