"""AddOffsetsToTxn: a producer adds the offsets of a consumer group to its transaction (KIP-98) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


@message(kind=Kind.RESPONSE, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
