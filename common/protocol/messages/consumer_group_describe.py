"""ConsumerGroupDescribe: the state and the members of groups of KIP-848 (core).

A group of the classic protocol is answered with GROUP_ID_NOT_FOUND, and described by DescribeGroups. From version 1 on,
`member_type` says which protocol a member speaks.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import NOT_ASKED
from common.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Kind, Struct, Uuid, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Struct):
    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


@struct
class DescribedTopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = field(default_factory=list)


@struct
class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = field(default_factory=list)


@struct
class DescribedConsumer(Struct):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    assignment: DescribedAssignment = field(default_factory=DescribedAssignment)
    target_assignment: DescribedAssignment = field(default_factory=DescribedAssignment)
    member_type: Int8 = field(default=-1, versions="1+", ignorable=True)


@struct
class DescribedConsumerGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[DescribedConsumer] = field(default_factory=list)
    authorized_operations: Int32 = NOT_ASKED


@message(kind=Kind.RESPONSE, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Struct):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedConsumerGroup] = field(default_factory=list)
