"""Record batches and metadata records with generated contents."""

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.metadata.record_reader import MetadataRecordReader
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.protocol.schema import ArrayOf, Primitive, Struct, StructSchema, message_schema
from common.records.batch import BatchError, read_header, set_base_offset_and_epoch, split_batches, validate_batch
from common.records.metadata_frame import decode_any_record, decode_record, encode_record
from common.records.metadata_records import RECORD_CLASSES, KnownRecord, PartitionRecord
from common.records.record import Record, append_varint, encode_batch, encode_values_batch, iterate_records, read_varint

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-1, 2**62)
SMALL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), SMALL_BYTES), max_size=3).map(tuple)
RECORDS = st.lists(st.builds(Record, SMALL_BYTES, SMALL_BYTES, TIMES, HEADERS), min_size=1, max_size=20)


@given(INT64)
def test_every_varint_comes_back_and_delimits_itself(value: int) -> None:
    """Every signed 64-bit number survives a round trip, and its varint is self-delimiting."""
    out = bytearray()
    append_varint(out, value)
    assert read_varint(bytes(out) + b"\xff", 0) == (value, len(out))


@given(RECORDS, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_records_come_back_with_offsets_from_their_base(records: list[Record], base_offset: int, leader_epoch: int) -> None:
    """An encoded batch is valid and decodes to the same records, with offsets counted from the base offset."""
    batch = encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)
    ((header, view),) = split_batches(batch)
    validate_batch(header, view)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    expected = [
        Record(record.key, record.value, record.timestamp_ms, record.headers, base_offset + delta)
        for delta, record in enumerate(records)
    ]
    assert list(iterate_records(view)) == expected


@given(RECORDS, st.integers(0, 2**40))
def test_kafka_python_reads_and_writes_the_same(records: list[Record], base_offset: int) -> None:
    """An independent implementation reads our batches, and encodes the same records to the same bytes."""
    batch = encode_batch(records, base_offset=base_offset)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    expected = list(iterate_records(batch))
    read = [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs]
    assert read == [(each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in expected]
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for delta, each in enumerate(records):
        builder.append(delta, each.timestamp_ms, each.key, each.value, [*each.headers])
    made = builder.build()
    set_base_offset_and_epoch(made, base_offset, -1)
    assert made == batch


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=200), TIMES)
def test_the_short_encoder_writes_what_the_general_one_writes(values: list[bytes], timestamp_ms: int) -> None:
    """The fast encoder of the metadata log writes the same bytes as the general one."""
    general = encode_batch([Record(None, value, timestamp_ms) for value in values], base_offset=3, leader_epoch=1)
    assert encode_values_batch(values, base_offset=3, leader_epoch=1, timestamp_ms=timestamp_ms) == general


@given(RECORDS, st.data())
def test_any_damage_is_noticed(records: list[Record], data: st.DataObject) -> None:
    """Changing any byte except in base offset and epoch makes reading or validating raise a BatchError."""
    batch = encode_batch(records)
    position = data.draw(st.integers(8, len(batch) - 1).filter(lambda at: not 12 <= at < 16))
    batch[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BatchError):
        validate_batch(read_header(batch), batch)


@given(RECORDS, INT64, st.integers(-(2**31), 2**31 - 1))
def test_a_batch_stays_valid_whatever_is_stamped(records: list[Record], base_offset: int, leader_epoch: int) -> None:
    """Any base offset and epoch can be stamped and the batch stays valid."""
    batch = encode_batch(records)
    set_base_offset_and_epoch(batch, base_offset, leader_epoch)
    header = read_header(batch)
    validate_batch(header, batch)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, leader_epoch)


# --- metadata records -------------------------------------------------------------------------------------------

PRIMITIVES: dict[Primitive, st.SearchStrategy[Any]] = {
    Primitive.BOOL: st.booleans(),
    Primitive.INT8: st.integers(-(2**7), 2**7 - 1),
    Primitive.INT16: st.integers(-(2**15), 2**15 - 1),
    Primitive.UINT16: st.integers(0, 2**16 - 1),
    Primitive.INT32: st.integers(-(2**31), 2**31 - 1),
    Primitive.INT64: INT64,
    Primitive.FLOAT64: st.floats(allow_nan=False),
    Primitive.BYTES: st.binary(max_size=20),
    Primitive.UUID: st.binary(min_size=16, max_size=16),
    Primitive.ASSIGNED_DIRECTORY_ID: st.sampled_from([bytes(15) + bytes([last]) for last in range(4)])
    | st.binary(min_size=16, max_size=16),
    Primitive.STRING: st.text(max_size=20),
}


def structs(schema: StructSchema, version: int) -> st.SearchStrategy[Struct]:
    """Returns a strategy for a declared struct. Fields that the version lacks keep their defaults."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for each in schema.fields:
        if version not in each.versions:
            continue
        strategy = values(each.wire_type, version)
        fields[each.name] = st.none() | strategy if version in each.nullable else strategy
    return st.builds(schema.python_class, **fields)


def values(wire_type: Primitive | StructSchema | ArrayOf, version: int) -> st.SearchStrategy[Any]:
    if isinstance(wire_type, ArrayOf):
        return st.lists(values(wire_type.element, version), max_size=4)
    if isinstance(wire_type, StructSchema):
        return structs(wire_type, version)
    return PRIMITIVES[wire_type]


TYPES_AND_VERSIONS = [
    (record_class, version) for record_class in RECORD_CLASSES.values() for version in message_schema(record_class).versions
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record_class", "version"),
    TYPES_AND_VERSIONS,
    ids=[f"{each.__name__}-{version}" for each, version in TYPES_AND_VERSIONS],
)
@given(data=st.data(), numbering=st.sampled_from(list(Numbering)))
def test_metadata_records_come_back(
    record_class: type[KnownRecord], version: int, data: st.DataObject, numbering: Numbering
) -> None:
    """Every record type and version survives encoding and decoding, in both numberings."""
    record = data.draw(structs(message_schema(record_class), version))
    assert isinstance(record, record_class)
    frame = encode_record(record, version, numbering)
    assert decode_record(frame, numbering) == record
    assert decode_any_record(memoryview(frame), numbering) == record


@given(data=st.data(), numbering=st.sampled_from(list(Numbering)))
def test_the_reader_decodes_as_the_codec_does(data: st.DataObject, numbering: Numbering) -> None:
    """The fast path for PartitionRecords returns the codec's record or defers to the codec, also for damaged bytes."""
    reader = MetadataRecordReader(numbering)
    record = data.draw(structs(message_schema(PartitionRecord), 1))
    assert isinstance(record, PartitionRecord)
    if data.draw(st.booleans()):
        record.leader_recovery_state = 0
        record.unknown_tagged_fields = {}
    frame = bytearray(encode_record(record, 1, numbering))
    assert reader.decode(bytes(frame)) == record
    assert reader.decode(memoryview(frame)) == record
    for _ in range(5):
        frame[data.draw(st.integers(3, len(frame) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(frame[: data.draw(st.integers(3, len(frame)))])
        try:
            expected = decode_record(cut, numbering)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                reader.decode(cut)
        else:
            assert reader.decode(cut) == expected
