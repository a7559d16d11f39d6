"""The fast decoder of PartitionRecords decodes ordinary records and leaves all others to the codec."""

import pytest

from common.ids import Uuid
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.protocol.numbering import Numbering
from common.records.metadata_frame import encode_record
from common.records.metadata_records import PartitionRecord
from common.records.partition_layouts import PartitionLayouts
from tests.unit.common.metadata.builders import directory, topic_id

ORDINARY = PartitionRecord(
    partition_id=70_000,
    topic_id=topic_id(1),
    replicas=[1, 2, 3],
    isr=[2, 3],
    removing_replicas=[1],
    adding_replicas=[3, 2],
    leader=2,
    leader_epoch=300,
    partition_epoch=400,
    directories=[UNASSIGNED, LOST, MIGRATING],
)


def body(record: PartitionRecord, numbering: Numbering = Numbering.KIP858) -> bytes:
    return encode_record(record, 1, numbering)[3:]


@pytest.mark.parametrize("numbering", list(Numbering))
def test_records_of_any_layout_come_back_whole(numbering: Numbering) -> None:
    """Records with the same layout and with different ones are decoded correctly, in both numberings."""
    layouts = PartitionLayouts()
    other = PartitionRecord(replicas=[7], isr=[7], leader=7, directories=[directory(1)])
    empty = PartitionRecord()
    for record in (ORDINARY, other, ORDINARY, empty, other):
        assert layouts.decode(body(record, numbering), numbering) == record


@pytest.mark.parametrize(
    "extraordinary",
    [
        body(PartitionRecord(replicas=[1], leader_recovery_state=1)),
        body(PartitionRecord(unknown_tagged_fields={9: b"x"})),
        body(PartitionRecord(replicas=list(range(17)))),
        body(PartitionRecord(replicas=list(range(200)))),
        body(ORDINARY) + b"\x00",
        body(ORDINARY)[:-1],
        body(ORDINARY)[:19],
        body(ORDINARY)[:20] + b"\x00" + body(ORDINARY)[21:],
        b"",
    ],
)
def test_everything_else_is_left_to_the_codec(extraordinary: bytes) -> None:
    """The fast decoder returns None for tagged fields, long arrays, null arrays and wrong sizes."""
    assert PartitionLayouts().decode(extraordinary, Numbering.KIP858) is None


def test_the_memory_is_bounded() -> None:
    """The fast decoder remembers at most 4096 layouts. Records with further layouts are left to the codec."""
    layouts = PartitionLayouts()
    answered = 0
    for number in range(9 * 9 * 9 * 9):
        sizes = (number % 9, number // 9 % 9, number // 81 % 9, number // 729)
        record = PartitionRecord(
            replicas=[0] * sizes[0],
            isr=[0] * sizes[1],
            removing_replicas=[0] * sizes[2],
            directories=[Uuid(bytes(16))] * sizes[3],
        )
        answered += layouts.decode(body(record), Numbering.KIP858) is not None
    assert answered == 4096
