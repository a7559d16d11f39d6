"""AllocateProducerIds: a broker asks the controller for a block of producer ids (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@message(kind=Kind.RESPONSE, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+")
class AllocateProducerIdsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
