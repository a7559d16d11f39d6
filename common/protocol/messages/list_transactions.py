"""ListTransactions: the transactional ids that a broker coordinates (KIP-664, KIP-994, KIP-1152) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsRequest(Struct):
    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[Int64] = field(default_factory=list)
    duration_filter: Int64 = field(default=-1, versions="1+")
    transactional_id_pattern: str | None = field(default=None, versions="2+", nullable="2+")


@struct
class TransactionState(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""


@message(kind=Kind.RESPONSE, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)
