"""UnregisterController: the metadata forgets a controller that has gone for good (core).

Only the controllers of Apache Kafka 4.4 serve it. Brokers forward it to them.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.UNREGISTER_CONTROLLER, versions="0", flexible="0+")
class UnregisterControllerRequest(Struct):
    controller_id: Int32 = 0


@message(kind=Kind.RESPONSE, api_key=ApiKey.UNREGISTER_CONTROLLER, versions="0", flexible="0+")
class UnregisterControllerResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
