"""The quick way to decode PartitionRecord version 1, of which a large cluster's log and snapshots mostly consist (core).

All arrays of such a record have few elements of fixed size, so that one compiled struct per combination of their lengths
takes the whole body apart in one call. There are few combinations in a cluster; each reader keeps the ones that it met.

Easy to get wrong: this may only answer where the general codec would give the same record. Anything out of the
ordinary (tagged fields, long arrays, a length that does not fit) gives None, and the codec decides what it is.
"""

import struct

from common.ids import Uuid
from common.protocol.numbering import FROM_APACHE, Numbering
from common.records.metadata_records import MetadataRecordType, PartitionRecord

RECORD_TYPE = MetadataRecordType.PARTITION_RECORD
VERSION = 1

# Partition id and topic id come before the first array.
_FIRST_COUNT = 20
_ELEMENTS_MAX = 16
_LAYOUTS_MAX = 4096

# The counts as they are on the wire, one more than the number of elements.
_Counts = tuple[int, int, int, int, int]


class PartitionLayouts:
    """Decodes ordinary PartitionRecords and remembers their layouts."""

    def __init__(self) -> None:
        self._layouts: dict[_Counts, struct.Struct] = {}

    def decode(self, body: bytes, numbering: Numbering) -> PartitionRecord | None:
        """The record, or None where only the codec can tell."""
        try:
            replicas = body[_FIRST_COUNT]
            position = _FIRST_COUNT - 3 + replicas * 4
            isr = body[position]
            position += isr * 4 - 3
            removing = body[position]
            position += removing * 4 - 3
            adding = body[position]
            # Behind the last array of brokers: leader, leader epoch, partition epoch.
            directories = body[position + adding * 4 + 9]
        except IndexError:
            return None
        counts = (replicas, isr, removing, adding, directories)
        layout = self._layouts.get(counts) or self._new_layout(counts)
        if layout is None or layout.size != len(body) or body[-1]:
            return None
        values = layout.unpack(body)
        isr_start = replicas + 1
        removing_start = isr_start + isr - 1
        adding_start = removing_start + removing - 1
        leader = adding_start + adding - 1
        directory_ids: list[Uuid] = list(values[leader + 3 :])
        if numbering is Numbering.APACHE:
            directory_ids = [FROM_APACHE.get(each, each) for each in directory_ids]
        return PartitionRecord(
            partition_id=values[0],
            topic_id=values[1],
            replicas=list(values[2:isr_start]),
            isr=list(values[isr_start:removing_start]),
            removing_replicas=list(values[removing_start:adding_start]),
            adding_replicas=list(values[adding_start:leader]),
            leader=values[leader],
            leader_epoch=values[leader + 1],
            partition_epoch=values[leader + 2],
            directories=directory_ids,
        )

    def _new_layout(self, counts: _Counts) -> struct.Struct | None:
        # A count of zero would be null; a byte of 0x80 and more is the first of several.
        if not all(1 <= count <= _ELEMENTS_MAX for count in counts) or len(self._layouts) >= _LAYOUTS_MAX:
            return None
        replicas, isr, removing, adding, directories = (count - 1 for count in counts)
        layout = struct.Struct(f">i16sx{replicas}ix{isr}ix{removing}ix{adding}iiiix{'16s' * directories}x")
        self._layouts[counts] = layout
        return layout
