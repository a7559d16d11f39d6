"""ConsumerProtocolSubscription: the metadata that a consumer hands in when it joins a group (core).

It follows a two-byte version. The group coordinator passes it to the leader unread; it reads only the topics, to know when
committed offsets may expire or be deleted. Every version begins with the fields of version 0, and so will later ones.
"""

from common.protocol.schema import Int32, Kind, Struct, field, message, struct


@struct
class TopicPartition(Struct):
    topic: str = ""
    partitions: list[Int32] = field(default_factory=list)


@message(kind=Kind.DATA, versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Struct):
    topics: list[str] = field(default_factory=list)
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field(default_factory=list, versions="1+", ignorable=True)
    generation_id: Int32 = field(default=-1, versions="2+", ignorable=True)
    rack_id: str | None = field(default=None, versions="3+", ignorable=True)
