"""The rows of metadata records: typed columns, both numberings, unknown types, control records, transactions and JSON."""

import json
from typing import Any

import pytest

from analytics.record_rows import COLUMNS, RecordRows, UnknownNumbering
from analytics.record_text import RecordTexts, UuidTexts
from common.ids import uuid_text
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.protocol.numbering import Numbering
from common.protocol.schema import message_schema
from common.records.batch import read_header
from common.records.control import LeaderChangeMessage, encode_control_batch
from common.records.metadata_frame import decode_record, encode_record
from common.records.metadata_records import (
    RECORD_CLASSES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FencingChange,
    KnownRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuotaEntity,
    UnfenceBrokerRecord,
    UserScramCredentialRecord,
)
from common.records.record import encode_values_batch
from tests.unit.analytics.metadata_dirs import newest_version, numbered
from tests.unit.common.metadata.builders import directory, register, topic, topic_id, uuid
from tools.kafka.record_json import to_json


def rows_of(rows: RecordRows, *frames: bytes, base_offset: int = 10) -> list[dict[str, Any]]:
    """Returns the rows of one batch, without columns that are null."""
    batch = encode_values_batch(frames, base_offset=base_offset, leader_epoch=3, timestamp_ms=5000)
    return [
        {name: value for name, value in zip(COLUMNS, row, strict=True) if value is not None}
        for row in rows.of_log_batch(read_header(batch), memoryview(batch))
    ]


def frame(record: KnownRecord, numbering: Numbering = Numbering.KIP858) -> bytes:
    return encode_record(record, newest_version(record), numbering)


def test_a_partition_has_all_its_columns() -> None:
    """The row has the record's offset, its type, and each field under its name."""
    record = PartitionRecord(
        partition_id=4,
        topic_id=topic_id(1),
        replicas=[1, 2],
        isr=[2],
        leader=2,
        leader_epoch=7,
        partition_epoch=9,
        directories=[directory(1), directory(2)],
    )
    (row,) = rows_of(RecordRows(), frame(record))
    text = row.pop("record")
    assert row == {
        "offset": 10,
        "epoch": 3,
        "time": 5000,
        "source": "segment",
        "batch_offset": 10,
        "type": "PARTITION_RECORD",
        "type_number": 3,
        "version": 1,
        "is_control": False,
        "topic_id": uuid_text(topic_id(1)),
        "partition": 4,
        "leader": 2,
        "leader_epoch": 7,
        "partition_epoch": 9,
        "leader_recovery_state": 0,
        "replicas": [1, 2],
        "isr": [2],
        "removing_replicas": [],
        "adding_replicas": [],
        "directories": [uuid_text(directory(1)), uuid_text(directory(2))],
    }
    assert json.loads(text)["partitionEpoch"] == 9


def test_what_a_change_does_not_name_is_null() -> None:
    """On the wire, a field that does not change may have a value such as NO_LEADER_CHANGE. In the row it is null. A leader
    of -1 means no leader and stays."""
    silent, leaderless = rows_of(
        RecordRows(),
        frame(PartitionChangeRecord(partition_id=0, topic_id=topic_id(1))),
        frame(PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=-1)),
    )
    assert not {"leader", "isr", "replicas", "directories", "leader_recovery_state"} & silent.keys()
    assert leaderless["leader"] == -1


def test_brokers_say_what_changed_of_them() -> None:
    """The row of a broker's registration has all columns. In the row of a registration change, null means "no change". Old
    clusters fence and unfence brokers with separate record types."""
    registered, lost, fenced, unfenced = rows_of(
        RecordRows(),
        frame(register(1, directories=[directory(1), directory(2)], epoch=5)),
        frame(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[directory(2)])),
        frame(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=FencingChange.FENCE)),
        frame(UnfenceBrokerRecord(id=1, epoch=5)),
    )
    assert registered["log_dirs"] == [uuid_text(directory(1)), uuid_text(directory(2))]
    assert registered["incarnation_id"] == uuid_text(uuid(1_000_001))
    assert (lost["log_dirs"], "fenced" in lost) == ([uuid_text(directory(2))], False)
    assert (fenced["fenced"], "log_dirs" in fenced) == (True, False)
    assert (unfenced["broker_id"], unfenced["fenced"]) == (1, False)


@pytest.mark.parametrize("numbering", list(Numbering))
def test_reserved_directory_ids_have_names_in_both_numberings(numbering: Numbering) -> None:
    """The reader learns the numbering of the reserved ids from the log's first records. A continued export gets it as an
    argument. The JSON has the numbers of the log, as `kafka-dump-log` prints them."""
    record = PartitionRecord(
        partition_id=0, topic_id=topic_id(1), replicas=[1, 2, 3, 4], directories=[UNASSIGNED, LOST, MIGRATING, directory(1)]
    )
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), directories=[LOST, directory(1)])
    rows = RecordRows()
    rows_of(rows, *(frame(each, numbering) for each in numbered(numbering)))
    assert rows.numbering is numbering
    for reader in (rows, RecordRows(numbering)):
        made, changed = rows_of(reader, frame(record, numbering), frame(change, numbering))
        assert made["directories"] == ["UNASSIGNED", "LOST", "MIGRATING", uuid_text(directory(1))]
        assert changed["directories"] == ["LOST", uuid_text(directory(1))]
        for row, given in ((made, record), (changed, change)):
            stored = decode_record(frame(given, numbering), Numbering.KIP858)
            assert json.loads(row["record"]) == to_json(stored, newest_version(given))


def test_a_partition_from_before_directories_is_migrating() -> None:
    """Version 0 of the record has no directories, so every replica is MIGRATING."""
    record = PartitionRecord(partition_id=0, topic_id=topic_id(1), replicas=[1, 2])
    (row,) = rows_of(RecordRows(), encode_record(record, 0, Numbering.KIP858))
    assert row["directories"] == ["MIGRATING", "MIGRATING"]


def test_an_unknown_numbering_is_an_error() -> None:
    """If the numbering is unknown, all later directory ids could be decoded wrongly, so reading ends with an error."""
    with pytest.raises(UnknownNumbering, match="level 7"):
        rows_of(RecordRows(), frame(FeatureLevelRecord(name="diskraft.directory.numbering", feature_level=7)))


def test_unknown_records_are_kept_as_bytes() -> None:
    """The record may have a type or a version from a later release, or its bytes may not be a record at all."""
    later_type, later_version, broken, cut = rows_of(
        RecordRows(), b"\x01\x64\x02body", b"\x01\x02\x09body", b"\x01\x02\x00\xff", b"\x07"
    )
    assert (later_type["type"], later_type["type_number"], later_type["version"]) == ("UNKNOWN", 100, 2)
    assert later_type["raw"] == later_version["raw"] == b"body"
    assert (later_version["type"], later_version["version"]) == ("TOPIC_RECORD", 9)
    assert (broken["type"], broken["raw"]) == ("UNREADABLE", b"\x01\x02\x00\xff")
    assert (cut["type"], cut["raw"]) == ("UNREADABLE", b"\x07")


def test_tagged_fields_that_are_not_known_keep_the_bytes_too() -> None:
    """The JSON does not show such fields, so the row keeps the raw bytes."""
    record = topic(1)
    record.unknown_tagged_fields = {77: b"later"}
    (row,) = rows_of(RecordRows(), frame(record))
    assert (row["topic_name"], row["raw"]) == ("topic-1", frame(record))


def test_control_records_have_rows() -> None:
    """A leader change is part of the history, and without its row an offset would be missing."""
    batch = encode_control_batch([LeaderChangeMessage(leader_id=100)], timestamp_ms=5000, base_offset=4, leader_epoch=2)
    (row,) = RecordRows().of_log_batch(read_header(batch), memoryview(batch))
    found = dict(zip(COLUMNS, row, strict=True))
    assert (found["offset"], found["type"], found["is_control"]) == (4, "LEADER_CHANGE", True)
    assert json.loads(found["record"])["leaderId"] == 100


def test_a_transaction_marks_all_its_records() -> None:
    """All records from the start of a transaction to its end or abort are marked, across batches. They are marked across two
    exports, too, if the second export gets the offset of the start."""
    rows = RecordRows()
    first = rows_of(rows, frame(NoOpRecord()), frame(BeginTransactionRecord(name="t")), frame(NoOpRecord()), base_offset=5)
    assert [row.get("transaction_offset") for row in first] == [None, 6, 6]
    continued = RecordRows(transaction_offset=rows.transaction_offset)
    for reader in (rows, continued):
        rest = rows_of(reader, frame(NoOpRecord()), frame(EndTransactionRecord()), frame(NoOpRecord()), base_offset=8)
        assert [row.get("transaction_offset") for row in rest] == [6, 6, None]
    aborted = rows_of(rows, frame(BeginTransactionRecord()), frame(AbortTransactionRecord()), frame(NoOpRecord()))
    assert [row.get("transaction_offset") for row in aborted] == [10, 10, None]


@pytest.mark.parametrize("record_class", RECORD_CLASSES.values(), ids=lambda each: each.__name__)
def test_the_text_is_what_kafkas_tools_print(record_class: type[KnownRecord]) -> None:
    """Compares the fast path, `RecordTexts`, with the general one, `to_json`: for every type and version, with default and
    other values."""
    texts = RecordTexts(UuidTexts())
    for record in (record_class(), *(each for each in FILLED if isinstance(each, record_class))):
        for version in message_schema(record_class).versions:
            assert json.loads(texts.text(record, version)) == to_json(record, version)


FILLED: list[KnownRecord] = [
    register(1, directories=[directory(1)], lost=[directory(2)], rack='a "rack"'),
    BrokerRegistrationChangeRecord(broker_id=1, fenced=1, in_controlled_shutdown=1, log_dirs=[directory(1), directory(2)]),
    PartitionRecord(partition_id=1, replicas=[1, 2], isr=[1], directories=[LOST, directory(1)], leader_recovery_state=1),
    PartitionChangeRecord(partition_id=1, isr=[], leader=-1, directories=[directory(1)], removing_replicas=[4]),
    ConfigRecord(resource_type=2, resource_name="t\n", name="retention.ms", value="é"),
    BeginTransactionRecord(name="many"),
    ClientQuotaRecord(entity=[QuotaEntity(entity_type="user", entity_name="u")], key="k", value=1048576.5, remove=True),
    UserScramCredentialRecord(name="u", mechanism=1, salt=b"\x00\xff", iterations=4096),
    DelegationTokenRecord(owner="User:o", renewers=["User:n"], token_id="i"),
]
