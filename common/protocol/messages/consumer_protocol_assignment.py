"""ConsumerProtocolAssignment: the partitions that the leader of a classic consumer group gives to a member (core).

It follows a two-byte version. The group coordinator passes it on unread; kafka-consumer-groups reads it in a description of
the group. Every version has the fields of version 0.
"""

from common.protocol.messages.consumer_protocol_subscription import TopicPartition
from common.protocol.schema import Kind, Struct, field, message


@message(kind=Kind.DATA, versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Struct):
    assigned_partitions: list[TopicPartition] = field(default_factory=list)
    user_data: bytes | None = None
