"""BrokerHeartbeat: renews the broker's session and reports failed directories (KIP-631, KIP-858) (core).

`offline_log_dirs` holds the ids of all directories lost since this incarnation registered. Every heartbeat repeats the whole
list. The list grows with the number of disks, never with the number of partitions.

`cordoned_log_dirs` holds the ids of the directories that get no new replicas (KIP-1066), or null as long as the broker does
not know its configuration, or metadata.version is below 30.
"""

from common.ids import Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message


@message(kind=Kind.REQUEST, api_key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[Uuid] = field(default_factory=list, versions="1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = field(default=None, versions="2+", tag=1)


@message(kind=Kind.RESPONSE, api_key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
