"""InitProducerId: gives a producer its id and epoch (KIP-98) (core).

A producer that already has an id may send it with its epoch, to get the next epoch or another id (KIP-360).
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message


@message(kind=Kind.REQUEST, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+")
class InitProducerIdRequest(Struct):
    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = field(default=-1, versions="3+")
    producer_epoch: Int16 = field(default=-1, versions="3+")


@message(kind=Kind.RESPONSE, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+")
class InitProducerIdResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
