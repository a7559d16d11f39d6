"""UnregisterBroker: an administrator removes the registration of a broker that will not come back (KIP-631) (core).

A broker that is still alive simply registers again.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerRequest(Struct):
    broker_id: Int32 = 0


@message(kind=Kind.RESPONSE, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
