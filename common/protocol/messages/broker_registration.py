"""BrokerRegistration: a new incarnation of a broker announces its identity and endpoints (KIP-631, KIP-858) (core).

Despite its name, `log_dirs` holds directory ids: those of all directories that are online when the request is built. Version
4 allows features whose lowest supported version is 0. `previous_broker_epoch` is -1 after an unclean shutdown.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, UInt16, field, message, struct


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


@message(kind=Kind.REQUEST, api_key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+")
class BrokerRegistrationRequest(Struct):
    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    rack: str | None = None
    is_migrating_zk_broker: bool = field(default=False, versions="1+")
    log_dirs: list[Uuid] = field(default_factory=list, versions="2+", ignorable=True)
    previous_broker_epoch: Int64 = field(default=-1, versions="3+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+")
class BrokerRegistrationResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
