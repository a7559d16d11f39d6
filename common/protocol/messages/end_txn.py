"""EndTxn: a producer commits or aborts its transaction (KIP-98) (core).

Version 5, which answers with the producer's next epoch, exists only together with transaction.version 2 and is not declared.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.END_TXN, versions="0-4", flexible="3+")
class EndTxnRequest(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


@message(kind=Kind.RESPONSE, api_key=ApiKey.END_TXN, versions="0-4", flexible="3+")
class EndTxnResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
