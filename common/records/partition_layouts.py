"""A fast path for decoding PartitionRecord version 1, the bulk of a large cluster's log and snapshots (core).

The arrays in such a record have few elements of fixed size, so one compiled struct per combination of their lengths decodes
the whole body in one call. A cluster has few such combinations; each reader caches the structs of those it has met.

This path may return a record only if the general codec would return the same one. For anything out of the ordinary (tagged
fields, long arrays, a length that does not fit) it returns None and leaves the decision to the codec.
"""

import struct

from common.ids import Uuid
from common.protocol.numbering import FROM_APACHE, Numbering
from common.records.metadata_records import MetadataRecordType, PartitionRecord

RECORD_TYPE = MetadataRecordType.PARTITION_RECORD
VERSION = 1

# The position of the first array's count: after the partition id and the topic id.
_FIRST_COUNT = 20
_ELEMENTS_MAX = 16
_LAYOUTS_MAX = 4096

# The counts of the five arrays as on the wire: the number of elements plus one.
_Counts = tuple[int, int, int, int, int]


class PartitionLayouts:
    """Decodes ordinary PartitionRecords of version 1. Caches one compiled struct per combination of array lengths."""

    def __init__(self) -> None:
        self._layouts: dict[_Counts, struct.Struct] = {}

    def decode(self, body: bytes, numbering: Numbering) -> PartitionRecord | None:
        """Returns the record, or None if it has to be left to the codec."""
        try:
            replicas = body[_FIRST_COUNT]
            position = _FIRST_COUNT - 3 + replicas * 4
            isr = body[position]
            position += isr * 4 - 3
            removing = body[position]
            position += removing * 4 - 3
            adding = body[position]
            # The count of the directories is 12 bytes after the last array of broker ids: leader, leader epoch and partition
            # epoch lie in between.
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
        # A layout is for counts of one byte; the codec handles all others. A count byte of zero means null, and 0x80 or more
        # is the first byte of a longer varint.
        if not all(1 <= count <= _ELEMENTS_MAX for count in counts) or len(self._layouts) >= _LAYOUTS_MAX:
            return None
        replicas, isr, removing, adding, directories = (count - 1 for count in counts)
        layout = struct.Struct(f">i16sx{replicas}ix{isr}ix{removing}ix{adding}iiiix{'16s' * directories}x")
        self._layouts[counts] = layout
        return layout
