"""Tests kafka-dump-log on generated files: it prints the lines of Apache Kafka's tool and reports damage."""

import struct
from collections.abc import Sequence
from pathlib import Path

import cramjam
import pytest

from common.ids import TopicId, Uuid
from common.metadata.directory_ids import UNASSIGNED
from common.protocol.numbering import Numbering
from common.records.batch import read_header
from common.records.control import (
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_batch,
)
from common.records.group_records import GroupMetadataKey, encode_key
from common.records.metadata_frame import encode_record
from common.records.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from common.records.record import Record, encode_batch, encode_values_batch
from common.records.transaction_records import encode_transaction_key
from common.slices import at_once
from common.storage.compaction.batch_filter import filter_batch
from common.storage.compaction.offset_map import OffsetMap
from common.storage.offset_index import OffsetIndex
from common.storage.producers.snapshot import encode_producer_snapshot
from common.storage.producers.state import ProducedBatch, ProducerEntry
from common.storage.time_index import TimeIndex
from tests.unit.common.records.log_append_time import set_log_append_time
from tools.kafka.dump_log import main

SEGMENT = f"{5:020d}.log"
TOPIC_ID = TopicId(Uuid(bytes(range(16))))


def dump(capsys: pytest.CaptureFixture[str], paths: Sequence[Path], *flags: str) -> tuple[int, list[str], list[str]]:
    """Returns the exit status and the lines of stdout and stderr, both without the folder."""
    status = main(["--files", ",".join(map(str, paths)), *flags])
    captured = capsys.readouterr()
    folder = f"{paths[0].parent}/"
    return status, captured.out.replace(folder, "").splitlines(), captured.err.replace(folder, "").splitlines()


def segment(folder: Path, *batches: bytes | bytearray, name: str = SEGMENT) -> Path:
    path = folder / name
    path.write_bytes(b"".join(batches))
    return path


def test_batches_and_records_are_printed_as_kafka_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [Record(b"k", b"v\xff", 1000, (("a", b"1"), ("b", None))), Record(None, None, 1001)]
    batch = encode_batch(records, base_offset=5, leader_epoch=3, producer_id=77, producer_epoch=2, base_sequence=2**31 - 1)
    second = encode_batch([Record(None, b"x", 5)], base_offset=7, leader_epoch=3)
    set_log_append_time(second, 2000)
    path = segment(tmp_path, batch, second)
    crc, second_crc = read_header(batch).crc, read_header(second).crc
    first_line = (
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 77 producerEpoch: 2 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
        f"CreateTime: 1001 size: {len(batch)} magic: 2 compresscodec: none crc: {crc} isvalid: true"
    )
    second_line = (
        "baseOffset: 7 lastOffset: 7 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: {len(batch)} LogAppendTime: 2000 size: {len(second)} magic: 2 compresscodec: none crc: {second_crc} "
        "isvalid: true"
    )
    head = [f"Dumping {SEGMENT}", "Log starting offset: 5"]
    assert dump(capsys, [path]) == (0, [*head, first_line, second_line], [])
    metadata = [
        "| offset: 5 CreateTime: 1000 keySize: 1 valueSize: 2 sequence: 2147483647 headerKeys: [a,b]",
        "| offset: 6 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: 0 headerKeys: []",
        "| offset: 7 LogAppendTime: 2000 keySize: -1 valueSize: 1 sequence: -1 headerKeys: []",
    ]
    assert dump(capsys, [path], "--deep-iteration")[1] == [*head, first_line, *metadata[:2], second_line, metadata[2]]
    assert dump(capsys, [path], "--print-data-log")[1] == [
        *head,
        first_line,
        metadata[0] + " key: k payload: v\N{REPLACEMENT CHARACTER}",
        metadata[1],
        second_line,
        metadata[2] + " payload: x",
    ]
    assert dump(capsys, [path], "--print-data-log", "--skip-record-metadata")[1] == [
        *head,
        first_line,
        "| key: k payload: v\N{REPLACEMENT CHARACTER}",
        "",
        second_line,
        "| payload: x",
    ]


def test_records_of_a_compacted_batch_keep_their_sequence_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [Record(key, b"v", 1000) for key in (b"a", b"b", b"a")]
    batch = encode_batch(records, base_offset=5, producer_id=77, producer_epoch=2, base_sequence=10)
    offsets = OffsetMap(0, 10)
    assert offsets.put(b"a", 7)
    offsets.end_offset = 8
    left = at_once(filter_batch(read_header(batch), batch, offsets, is_kept_empty=False, now_ms=0, delete_retention_ms=0))
    assert left is not None
    lines = dump(capsys, [segment(tmp_path, bytes(left))], "--deep-iteration")[1]
    assert [line.partition(" headerKeys")[0] for line in lines if line.startswith("|")] == [
        "| offset: 6 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 11",
        "| offset: 7 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 12",
    ]


def test_the_metadata_log_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leader = LeaderChangeMessage(leader_id=1, voters=[LeaderChangeVoter(voter_id=1)], granting_voters=[])
    values = [
        encode_record(TopicRecord(name="t", topic_id=TOPIC_ID), 0, Numbering.APACHE),
        encode_record(
            PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, directories=[UNASSIGNED]),
            1,
            Numbering.KIP858,
        ),
        encode_record(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1]), 1, Numbering.KIP858),
        b"\x01\x7e\x00",
        b"\x02",
    ]
    path = segment(
        tmp_path,
        encode_control_batch([leader], timestamp_ms=9, base_offset=5, leader_epoch=2),
        encode_values_batch(values, base_offset=6, leader_epoch=2, timestamp_ms=9),
    )
    _, out, err = dump(capsys, [path], "--cluster-metadata-decoder", "--skip-record-metadata")
    assert err == []
    assert out[3] == ""
    assert [line for line in out if line.startswith("|")] == [
        '| payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAECAwQFBgcICQoLDA0ODw"}}',
        '| payload: {"type":"PARTITION_RECORD","version":1,"data":{"partitionId":0,"topicId":"AAECAwQFBgcICQoLDA0ODw",'
        '"replicas":[1],"isr":[1],"removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":-1,"partitionEpoch":-1,'
        '"directories":["AAAAAAAAAAAAAAAAAAAAAA"]}}',
        '| payload: {"type":"PARTITION_CHANGE_RECORD","version":1,"data":{"partitionId":0,'
        '"topicId":"AAECAwQFBgcICQoLDA0ODw","isr":[1]}}',
        "| payload: Error at 9, skipping. Unknown metadata record type 126 version 0",
        "| payload: Error at 10, skipping. metadata record has frame version 2, only 1 exists",
    ]
    control = [line for line in dump(capsys, [path], "--deep-iteration")[1] if "LeaderChange" in line]
    assert control == [
        "| offset: 5 CreateTime: 9 keySize: 4 valueSize: 14 sequence: -1 headerKeys: [] "
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    ]


def test_snapshots_say_what_they_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = encode_control_batch([SnapshotHeaderRecord(last_contained_log_timestamp=7)], timestamp_ms=9)
    footer = encode_control_batch([SnapshotFooterRecord()], timestamp_ms=9, base_offset=1)
    path = segment(tmp_path, header, footer, name=f"{42:020d}-{3:010d}.checkpoint")
    _, out, _ = dump(capsys, [path], "--deep-iteration")
    assert out[1] == "Snapshot end offset: 42, epoch: 3"
    assert out[3].endswith(' SnapshotHeader {"version":0,"lastContainedLogTimestamp":7}')
    assert out[5].endswith(' SnapshotFooter {"version":0}')
    bootstrap = segment(tmp_path, header, footer, name="bootstrap.checkpoint")
    assert dump(capsys, [bootstrap])[1][1] == "KRaft bootstrap snapshot"
    wrong = segment(tmp_path, header, name="x.checkpoint")
    status, _, err = dump(capsys, [wrong])
    assert (status, err) == (1, ["x.checkpoint is not named like a snapshot, <end offset>-<epoch>.checkpoint"])


def test_transaction_markers_and_unknown_control_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        Record(b"\0\0\0\1", b"\0\0\0\0\0\7", 1),
        Record(b"\0\0\0\x63", b"", 1),
    ]
    path = segment(tmp_path, encode_batch(records, base_offset=5, attributes=0x30))
    out = dump(capsys, [path], "--print-data-log")[1]
    assert "isTransactional: true isControl: true" in out[2]
    assert out[3].endswith("headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 7")
    assert out[4].endswith("headerKeys: [] controlType: UNKNOWN(99)")


def java_snappy(plain: bytes) -> bytes:
    """Returns `plain` as two Snappy chunks in the framing of Java's producers."""
    chunks = [cramjam.snappy.compress_raw(half) for half in (plain[:5], plain[5:])]
    framed = b"".join(len(bytes(chunk)).to_bytes(4, "big") + bytes(chunk) for chunk in chunks)
    return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + framed


@pytest.mark.parametrize(
    ("code", "name", "compress"),
    [
        (1, "gzip", lambda plain: bytes(cramjam.gzip.compress(plain))),
        (2, "snappy", lambda plain: bytes(cramjam.snappy.compress_raw(plain))),
        (2, "snappy", java_snappy),
        (3, "lz4", lambda plain: bytes(cramjam.lz4.compress(plain))),
        (4, "zstd", lambda plain: bytes(cramjam.zstd.compress(plain))),
    ],
)
def test_compressed_records_are_opened(
    code: int, name: str, compress: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(compress)
    batch = encode_batch(
        [Record(b"k", b"hello", 1)], base_offset=5, attributes=code, compress=lambda plain: compress(bytes(plain))
    )
    out = dump(capsys, [segment(tmp_path, batch)], "--print-data-log")[1]
    assert f"compresscodec: {name} " in out[2]
    assert out[3].endswith("key: k payload: hello")


@pytest.mark.parametrize("code", [1, 2, 3, 4, 7])
def test_records_that_cannot_be_opened_are_told_and_the_dump_goes_on(
    code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = encode_batch([Record(None, b"x", 1)], base_offset=5, attributes=code)
    good = encode_batch([Record(None, b"good", 1)], base_offset=6)
    status, out, err = dump(capsys, [segment(tmp_path, bad, good)], "--print-data-log")
    assert status == 0
    assert out[-1].endswith("payload: good")
    assert err[0] == f"Unreadable records in {SEGMENT}"
    assert err[1].startswith("  batch at 0: ")


def test_a_wrong_checksum_a_hole_and_a_cut_end_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A wrong checksum, a hole in the offsets, and an end in the middle of a batch.
    first = encode_batch([Record(None, b"x", 1)], base_offset=5)
    first[-2] ^= 1
    second = encode_batch([Record(None, b"x", 1)], base_offset=9)
    status, out, err = dump(capsys, [segment(tmp_path, first, second, second[:-1])], "--deep-iteration")
    assert status == 0
    assert out[2].endswith("isvalid: false")
    assert out[-1] == f"Found {len(second) - 1} invalid bytes at the end of {SEGMENT}"
    assert err == [f"Non-consecutive offsets in {SEGMENT}", "  5 is followed by 9"]
    limited = dump(capsys, [tmp_path / SEGMENT], "--max-bytes", str(len(first) + 5))[1]
    assert len(limited) == 3


def test_bytes_that_are_no_batch_are_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What comes before them is printed. One line on stderr names the file and the place."""
    first = encode_batch([Record(None, b"x", 1)], base_offset=0)
    path = segment(tmp_path, first, b"\x77" * 100)
    status, out, (line,) = dump(capsys, [path])
    assert status == 1
    assert out[2].startswith("baseOffset: 0 ")
    assert out[-1] == f"Found 100 invalid bytes at the end of {SEGMENT}"
    assert line == f"{SEGMENT} is corrupt at position {len(first)}: record batch has magic 119, only 2 is served"


def index_files(folder: Path, batches: Sequence[bytes | bytearray]) -> tuple[OffsetIndex, TimeIndex]:
    """Writes a segment. Returns its indexes, with an entry for each batch but the first."""
    index, times = OffsetIndex(5), TimeIndex(5)
    position = len(batches[0])
    for batch in batches[1:]:
        header = read_header(batch)
        index.append(header.last_offset, position)
        times.maybe_append(header.max_timestamp, header.last_offset)
        position += len(batch)
    (folder / SEGMENT).write_bytes(b"".join(batches))
    return index, times


def test_indexes_are_printed_and_compared_with_their_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [encode_batch([Record(None, b"x", 100 + offset)] * 2, base_offset=offset) for offset in (5, 7, 9)]
    index, times = index_files(tmp_path, batches)
    index_path, time_path = tmp_path / f"{5:020d}.index", tmp_path / f"{5:020d}.timeindex"
    # Apache Kafka preallocates the index files of its newest segment, so they end with zeros.
    index_path.write_bytes(index.to_bytes() + bytes(80))
    time_path.write_bytes(times.to_bytes() + bytes(120))
    size = len(batches[0])
    assert dump(capsys, [index_path, time_path]) == (
        0,
        [
            f"Dumping {index_path.name}",
            f"offset: 8 position: {size}",
            f"offset: 10 position: {2 * size}",
            f"Dumping {time_path.name}",
            "timestamp: 107 offset: 8",
            "timestamp: 109 offset: 10",
        ],
        [],
    )
    assert len(dump(capsys, [index_path, time_path], "--verify-index-only")[1]) == 2
    assert dump(capsys, [index_path, time_path], "--index-sanity-check")[1][1::2] == [
        f"{index_path.name} passed sanity check.",
        f"{time_path.name} passed sanity check.",
    ]


def test_indexes_that_contradict_their_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [encode_batch([Record(None, b"x", 100 + offset)] * 2, base_offset=offset) for offset in (5, 7, 9)]
    index_files(tmp_path, batches)
    index, times = OffsetIndex(5), TimeIndex(5)
    index.append(7, len(batches[0]))
    index.append(20, 10_000)
    times.maybe_append(50, 8)
    times.maybe_append(60, 9)
    times.maybe_append(70, 20)
    index_path, time_path = tmp_path / f"{5:020d}.index", tmp_path / f"{5:020d}.timeindex"
    index_path.write_bytes(index.to_bytes())
    time_path.write_bytes(times.to_bytes())
    status, _, err = dump(capsys, [index_path])
    assert status == 0
    assert err == [
        f"Mismatches in :{index_path.name}",
        "  Index offset: 7, log offset: 8",
        "  Index offset: 20, log offset: none",
    ]
    index_path.unlink()
    assert dump(capsys, [time_path])[2] == [
        f"Found timestamp mismatch in :{time_path.name}",
        "  Index timestamp: 50, log timestamp: 107",
        f"The following indexed offsets are not found in the log of {time_path.name}.",
        "  Indexed offset: 9, found log offset: 10",
        "  Indexed offset: 20, found log offset: -1",
    ]


def test_producer_snapshots_are_printed_as_kafka_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A producer in a transaction, which has an entry for each batch, and one whose only entry is a marker: nothing follows
    its timestamp but a space."""
    path = tmp_path / f"{21:020d}.snapshot"
    batches = [ProducedBatch(2**31 - 3, 2**31 - 3, 15, 15, 4650), ProducedBatch(2**31 - 2, 2, 16, 20, 4660)]
    entries = {258: ProducerEntry(3, batches, 4660, 6, 17), 9: ProducerEntry(1, [], 77, 2)}
    path.write_bytes(encode_producer_snapshot(entries))
    assert dump(capsys, [path]) == (
        0,
        [
            f"Dumping {path.name}",
            "producerId: 258 producerEpoch: 3 coordinatorEpoch: 6 currentTxnFirstOffset: OptionalLong.empty "
            "lastTimestamp: 4650 firstSequence: 2147483645 lastSequence: 2147483645 lastOffset: 15 offsetDelta: 0 "
            "timestamp: 4650",
            "producerId: 258 producerEpoch: 3 coordinatorEpoch: 6 currentTxnFirstOffset: OptionalLong[17] "
            "lastTimestamp: 4660 firstSequence: 2147483646 lastSequence: 2 lastOffset: 20 offsetDelta: 4 timestamp: 4660",
            "producerId: 9 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong.empty "
            "lastTimestamp: 77 ",
        ],
        [],
    )
    path.write_bytes(path.read_bytes()[:-1])
    status, printed, errors = dump(capsys, [path])
    assert (status, printed) == (0, [f"Dumping {path.name}"])
    assert len(errors) == 1
    assert errors[0].startswith("the producer snapshot has CRC")


def test_aborted_transactions_are_printed_as_kafka_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Entries are shown as they are. Bytes that are no entry are an error line, and status 0 as in Kafka. An entry of a
    later version ends the tool with an error, as in Kafka."""
    path = tmp_path / f"{5:020d}.txnindex"
    entries = [struct.pack(">hqqqq", 0, 7, 1, 5, 6), struct.pack(">hqqqq", -1, 8, 9, 2, 3)]
    path.write_bytes(b"".join(entries) + b"xyz")
    assert dump(capsys, [path]) == (
        0,
        [
            f"Dumping {path.name}",
            "version: 0 producerId: 7 firstOffset: 1 lastOffset: 5 lastStableOffset: 6",
            "version: -1 producerId: 8 firstOffset: 9 lastOffset: 2 lastStableOffset: 3",
        ],
        [f"{path.name} ends with 3 bytes that are no entry"],
    )
    path.write_bytes(entries[0] + struct.pack(">hqqqq", 1, 8, 9, 20, 3))
    status, printed, errors = dump(capsys, [path])
    assert (status, printed[1:]) == (1, ["version: 0 producerId: 7 firstOffset: 1 lastOffset: 5 lastStableOffset: 6"])
    assert len(errors) == 1
    assert f"{path.name} has an entry of version 1, only 0 is known" in errors[0]


@pytest.mark.parametrize(
    ("decoder", "key", "line"),
    [
        ("--offsets-decoder", encode_key(GroupMetadataKey(group="g")), '{"type":"2","data":{"group":"g"}}'),
        ("--transaction-log-decoder", encode_transaction_key("x"), '{"type":"0","data":{"transactionalId":"x"}}'),
    ],
)
def test_records_of_internal_topics_are_decoded(
    decoder: str, key: bytes, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A decoder implies --print-data-log. Two decoders are too many."""
    path = segment(tmp_path, encode_batch([Record(key, None, 1)], base_offset=5))
    assert dump(capsys, [path], decoder)[1][-1].endswith(f"headerKeys: [] key: {line} payload: <DELETE>")
    assert dump(capsys, [path], decoder, "--skip-record-metadata")[1][-1] == f"| key: {line} payload: <DELETE>"
    foreign = segment(tmp_path, encode_batch([Record(None, b"x", 1)], base_offset=5), name=f"{6:020d}.log")
    status, _, (error,) = dump(capsys, [foreign], decoder)
    assert status == 1
    assert error.startswith("Failed to decode message at offset 5 using ")
    with pytest.raises(SystemExit) as wrong:
        main(["--files", "x", decoder, "--cluster-metadata-decoder"])
    assert wrong.value.code == 1


def test_an_empty_index_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{5:020d}.index"
    path.write_bytes(b"")
    assert dump(capsys, [path])[1][1] == f"{path.name} is empty."


def test_what_cannot_be_read_is_one_line_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / SEGMENT
    assert dump(capsys, [missing])[::2] == (1, [f"cannot read {SEGMENT}: No such file or directory"])
    corrupt = tmp_path / f"{5:020d}.index"
    corrupt.write_bytes(b"\xff" * 9)
    status, _, err = dump(capsys, [corrupt])
    assert status == 1
    assert len(err) == 1
    assert err[0].startswith(f"{corrupt.name} is corrupt: ")
    strange = segment(tmp_path, name="strange.log")
    status, _, err = dump(capsys, [strange])
    assert (status, err) == (1, ["strange.log is not named like a segment file, twenty digits and .log"])
    other = segment(tmp_path, name="other.txt")
    assert dump(capsys, [other])[::2] == (0, ["Ignoring unknown file other.txt"])


def test_the_command_line_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as wrong:
        main([])
    assert wrong.value.code == 1
    assert "--files" in capsys.readouterr().err
    with pytest.raises(SystemExit) as asked:
        main(["--version"])
    assert asked.value.code == 0
    assert capsys.readouterr().out.startswith("diskraft ")
