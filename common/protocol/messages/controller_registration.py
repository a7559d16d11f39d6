"""ControllerRegistration: a new incarnation of a controller announces its listeners and features (KIP-919) (core).

The active controller writes what it says into the metadata log, so that any controller can tell a client where the others
are. The listeners are those of the controller; a broker on the same node registers its own.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, UInt16, field, message, struct


@struct
class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class Feature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(kind=Kind.REQUEST, api_key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+")
class ControllerRegistrationRequest(Struct):
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+")
class ControllerRegistrationResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
