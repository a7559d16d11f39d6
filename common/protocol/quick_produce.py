"""A quick codec for Produce of the usual form, in front of the generated one (core).

For a broker that serves small requests, the codec is a good part of the work. A request has the usual form if its version is
flexible and it has one topic with one partition, records of less than 16 KiB, no transactional id and no tagged fields. A
response has it if it has one topic with one partition, and reports an error by its code only. Everything else, and all that
is malformed, goes to the generated codec, which alone decides what is valid. For every input both give the same result.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from common.ids import ZERO_UUID
from common.parts import Buffer, Part
from common.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from common.protocol.schema import NO_TAGGED_FIELDS, Struct, message_schema

Encoder = Callable[[Any], list[Part]]
Decoder = Callable[[Buffer], tuple[Any, int, int]]

# The length plus one of a name or an array whose length takes a single byte.
_SHORT_MAX: Final = 127
_ONE: Final = 2
# Transactional id (null), acks, timeout, number of topics plus one, length of the topic's name plus one.
_REQUEST_START: Final = struct.Struct(">BhiBB").unpack_from
_NAME_START: Final = 9
# The same with the topic's id in place of the name.
_REQUEST_START_WITH_ID: Final = struct.Struct(">BhiB16s").unpack_from
_REQUEST_START_WITH_ID_BYTES: Final = 24
_ID_BYTES: Final = 16
_TOPIC_IDS_FIRST_VERSION: Final = 13
# Number of partitions plus one, index, first byte of the length of the records plus one.
_PARTITION_START: Final = struct.Struct(">BiB").unpack_from
_PARTITION_START_BYTES: Final = 6
# No tagged fields of the partition, the topic and the request.
_REQUEST_END: Final = struct.Struct(">BH").unpack_from
_REQUEST_END_BYTES: Final = 3
# The memory of the elements, as the generated decoder estimates it.
_REQUEST_MEMORY: Final = 480
# Number of topics plus one and length of the topic's name plus one, by the length.
_RESPONSE_STARTS: Final = tuple(bytes((_ONE, length + 1)) for length in range(_SHORT_MAX))
# Number of topics plus one. The topic's id follows.
_RESPONSE_START_WITH_ID: Final = bytes((_ONE,))
# Number of partitions plus one; index, error code, base offset, log append time, log start offset; number of record errors
# plus one; the error message (null), no tagged fields of the partition and the topic; throttle time; no tagged fields.
_RESPONSE_END: Final = struct.Struct(">BihqqqBxxxix").pack
_new: Final = object.__new__


def quick_decoder(message_class: type[Struct], version: int, general: Decoder) -> Decoder:
    """Returns a decoder that leaves to `general` only what is not of the usual form, or `general` itself if this class and
    version have no quick decoder."""
    if message_class is not ProduceRequest or version not in message_schema(message_class).flexible:
        return general

    has_ids = version >= _TOPIC_IDS_FIRST_VERSION

    def decode(buffer: Buffer) -> tuple[Any, int, int]:
        data = memoryview(buffer)
        try:
            name, topic_id = "", ZERO_UUID
            if has_ids:
                no_id, acks, timeout_ms, topics, topic_id = _REQUEST_START_WITH_ID(data)
                position = _REQUEST_START_WITH_ID_BYTES
            else:
                no_id, acks, timeout_ms, topics, name_length = _REQUEST_START(data)
                if not 0 < name_length <= _SHORT_MAX:
                    return general(buffer)
                position = _NAME_START + name_length - 1
                name = str(data[_NAME_START:position], "utf-8")
            if no_id or topics != _ONE:
                return general(buffer)
            partitions, index, length = _PARTITION_START(data, position)
            position += _PARTITION_START_BYTES
            if length > _SHORT_MAX:
                second = data[position]
                if second > _SHORT_MAX:
                    # Records of 16 KiB and more, for which the time of the codec does not matter.
                    return general(buffer)
                length = (length & 127) | second << 7
                position += 1
            end = position + length - 1
            if partitions != _ONE or not length or _REQUEST_END(data, end) != (0, 0):
                return general(buffer)
        except (struct.error, IndexError, UnicodeDecodeError):
            return general(buffer)
        partition = _new(PartitionProduceData)
        partition.index = index
        partition.records = data[position:end]
        topic = _new(TopicProduceData)
        topic.name = name
        topic.topic_id = topic_id
        topic.partition_data = [partition]
        request = _new(ProduceRequest)
        request.transactional_id = None
        request.acks = acks
        request.timeout_ms = timeout_ms
        request.topic_data = [topic]
        partition.unknown_tagged_fields = topic.unknown_tagged_fields = request.unknown_tagged_fields = NO_TAGGED_FIELDS
        return request, end + _REQUEST_END_BYTES, _REQUEST_MEMORY

    return decode


def quick_encoder(message_class: type[Struct], version: int, general: Encoder) -> Encoder:
    """Returns an encoder that leaves to `general` only what is not of the usual form, or `general` itself if this class and
    version have no quick encoder."""
    if message_class is not ProduceResponse or version not in message_schema(message_class).flexible:
        return general

    has_ids = version >= _TOPIC_IDS_FIRST_VERSION

    def encode(message: ProduceResponse) -> list[Part]:
        if len(message.responses) != 1 or message.node_endpoints or message.unknown_tagged_fields:
            return general(message)
        [topic] = message.responses
        if len(topic.partition_responses) != 1 or topic.unknown_tagged_fields:
            return general(message)
        [answer] = topic.partition_responses
        name = topic.topic_id if has_ids else topic.name.encode()
        if len(name) != _ID_BYTES if has_ids else len(name) >= _SHORT_MAX:
            return general(message)
        if _has_more_than_numbers(answer):
            return general(message)
        end = _RESPONSE_END(
            _ONE,
            answer.index,
            answer.error_code,
            answer.base_offset,
            answer.log_append_time_ms,
            answer.log_start_offset,
            1,
            message.throttle_time_ms,
        )
        return [(_RESPONSE_START_WITH_ID if has_ids else _RESPONSE_STARTS[len(name)]) + name + end]

    return encode


def _has_more_than_numbers(answer: PartitionProduceResponse) -> bool:
    if answer.error_message is not None or answer.record_errors or answer.unknown_tagged_fields:
        return True
    leader = answer.current_leader
    return leader.leader_id != -1 or leader.leader_epoch != -1 or bool(leader.unknown_tagged_fields)
