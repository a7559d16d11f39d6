"""A quick encoder for the answer to a Fetch of the usual form, in front of the generated one (core).

See `quick_produce`: this is the same for the other request of which a broker serves thousands a second. An answer has the
usual form if its version is flexible, it has one topic with one partition, no aborted transactions and no tagged fields.
"""

import struct
from typing import Final

from common.parts import Buffer, Part
from common.protocol.messages.fetch import FetchResponse, PartitionData
from common.protocol.quick_produce import Encoder
from common.protocol.schema import Struct, message_schema
from common.protocol.varint import SMALL_UVARINTS, encode_uvarint

# The length plus one of a name or an array whose length takes a single byte.
_SHORT_MAX: Final = 127
_ONE: Final = 2
_ID_BYTES: Final = 16
_TOPIC_IDS_FIRST_VERSION: Final = 13
# Throttle time, error code, session id, number of topics plus one.
_START: Final = struct.Struct(">ihiB").pack
# Number of partitions plus one; index, error code, high watermark, last stable offset, log start offset; number of aborted
# transactions plus one, or 0 for null; preferred read replica.
_PARTITION: Final = struct.Struct(">BihqqqBi").pack
# No tagged fields of the partition, the topic and the answer.
_END: Final = bytes(3)


def quick_encoder(message_class: type[Struct], version: int, general: Encoder) -> Encoder:
    """Returns an encoder that leaves to `general` only what is not of the usual form, or `general` itself if this class and
    version have no quick encoder."""
    if message_class is not FetchResponse or version not in message_schema(message_class).flexible:
        return general

    has_ids = version >= _TOPIC_IDS_FIRST_VERSION

    def encode(message: FetchResponse) -> list[Part]:
        if len(message.responses) != 1 or message.node_endpoints or message.unknown_tagged_fields:
            return general(message)
        [topic] = message.responses
        if len(topic.partitions) != 1 or topic.unknown_tagged_fields:
            return general(message)
        [data] = topic.partitions
        name = topic.topic_id if has_ids else topic.topic.encode()
        if len(name) != _ID_BYTES if has_ids else len(name) >= _SHORT_MAX:
            return general(message)
        aborted, records = data.aborted_transactions, data.records
        if aborted or records is None or _has_tagged_fields(data):
            return general(message)
        pieces: list[Part] = [records] if isinstance(records, Buffer) else [*records]
        size = 1 + sum(map(len, pieces))
        start = _START(message.throttle_time_ms, message.error_code, message.session_id, _ONE)
        partition = _PARTITION(
            _ONE,
            data.partition_index,
            data.error_code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            0 if aborted is None else 1,
            data.preferred_read_replica,
        )
        if not has_ids:
            name = SMALL_UVARINTS[len(name) + 1] + name
        length = SMALL_UVARINTS[size] if size <= _SHORT_MAX else encode_uvarint(size)
        return [start + name + partition + length, *pieces, _END]

    return encode


def _has_tagged_fields(data: PartitionData) -> bool:
    epoch, leader, snapshot = data.diverging_epoch, data.current_leader, data.snapshot_id
    return (
        epoch.epoch != -1
        or epoch.end_offset != -1
        or leader.leader_id != -1
        or leader.leader_epoch != -1
        or snapshot.end_offset != -1
        or snapshot.epoch != -1
        or bool(
            data.unknown_tagged_fields
            or epoch.unknown_tagged_fields
            or leader.unknown_tagged_fields
            or snapshot.unknown_tagged_fields
        )
    )
