"""ConsumerGroupHeartbeat: the one request by which a consumer joins, stays in and leaves a group of KIP-848 (core).

`member_epoch` 0 joins, -1 leaves, -2 is a static member that leaves to come back. A field that is null, or -1 in
`rebalance_timeout_ms`, has not changed since the member's last heartbeat. From version 1 on, the client makes its member id
itself (KIP-1082) and may subscribe to topics by a regular expression.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import ZERO_UUID, Int16, Int32, Kind, Struct, Uuid, field, message, struct


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Struct):
    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(default=None, versions="1+")
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
