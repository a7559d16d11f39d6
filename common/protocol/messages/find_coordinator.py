"""FindCoordinator: the broker that leads the coordinator's partition for a group or a transactional id (core).

From version 4 on, a request names several keys and the answer has one entry for each (KIP-699). Versions 5 and 6 have the
same fields; they only allow more error codes and the key type of share groups. The fields of the single form are ignorable
here, so that an error response can fill both forms.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Struct):
    key: str = field(default="", versions="0-3")
    key_type: Int8 = field(default=0, versions="1+")
    coordinator_keys: list[str] = field(default_factory=list, versions="4+")


@struct
class Coordinator(Struct):
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = field(default=None, ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    error_code: Int16 = field(default=0, versions="0-3", ignorable=True)
    error_message: str | None = field(default="", versions="1-3", ignorable=True)
    node_id: Int32 = field(default=0, versions="0-3", ignorable=True)
    host: str = field(default="", versions="0-3", ignorable=True)
    port: Int32 = field(default=0, versions="0-3", ignorable=True)
    coordinators: list[Coordinator] = field(default_factory=list, versions="4+")
