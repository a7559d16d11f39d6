"""DescribeCluster: cluster id, controller and brokers, for admin tools (core).

`endpoint_type` says whether the client asks for brokers or for controllers (KIP-919). A broker's listener answers only
requests for brokers, and a controller's listener only requests for controllers. Since version 2 a client may ask for the
fenced brokers, too (KIP-1073).
"""

from enum import IntEnum

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


class EndpointType(IntEnum):
    """The values of `endpoint_type`."""

    BROKER = 1
    CONTROLLER = 2


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterRequest(Struct):
    include_cluster_authorized_operations: bool = False
    endpoint_type: Int8 = field(default=1, versions="1+")
    include_fenced_brokers: bool = field(default=False, versions="2+")


@struct
class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: bool = field(default=False, versions="2+")


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Int8 = field(default=1, versions="1+")
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: Int32 = -0x80000000
