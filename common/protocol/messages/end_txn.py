"""EndTxn: a producer commits or aborts its transaction (KIP-98) (core).

Version 5 ends a transaction of version 2: the coordinator raises the epoch and answers with it, or with another producer id
if the epochs are exhausted (KIP-890).
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message


@message(kind=Kind.REQUEST, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnRequest(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


@message(kind=Kind.RESPONSE, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field(default=-1, versions="5+", ignorable=True)
    producer_epoch: Int16 = field(default=-1, versions="5+", ignorable=True)
