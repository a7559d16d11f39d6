"""The records of `__transaction_state`: the state of each transactional id (KIP-98) (core).

Key and value begin with their version in two bytes. A record without a value is a tombstone: the transactional id has
expired. Version 1 of the value, the first flexible one, is written from transaction.version 1 on (KIP-890).
"""

from typing import Final

from common.parts import Buffer
from common.protocol.codec import decode_with_version, encode_with_version
from common.protocol.errors import BufferUnderflow
from common.protocol.schema import Int8, Int16, Int32, Int64, Kind, Struct, field, message, struct

TRANSACTION_KEY_VERSION: Final = 0
CLASSIC_VALUE_VERSION: Final = 0
FLEXIBLE_VALUE_VERSION: Final = 1


@message(kind=Kind.DATA, versions="0", flexible="none")
class TransactionLogKey(Struct):
    transactional_id: str = ""


@struct
class PartitionsSchema(Struct):
    topic: str = ""
    partition_ids: list[Int32] = field(default_factory=list)


@message(kind=Kind.DATA, versions="0-1", flexible="1+")
class TransactionLogValue(Struct):
    producer_id: Int64 = 0
    previous_producer_id: Int64 = field(default=-1, versions="1+", tag=0, ignorable=True)
    next_producer_id: Int64 = field(default=-1, versions="1+", tag=1, ignorable=True)
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    # None while the transaction is Empty.
    transaction_partitions: list[PartitionsSchema] | None = field(default_factory=list)
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = field(default=0, versions="1+", tag=2, ignorable=True)


def encode_transaction_key(transactional_id: str) -> bytes:
    return encode_with_version(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_KEY_VERSION)


def encode_transaction(value: TransactionLogValue, version: int = CLASSIC_VALUE_VERSION) -> bytes:
    """The classic version leaves out the tagged fields."""
    return encode_with_version(value, version)


def decode_transaction_key(key: Buffer) -> str | None:
    """Returns the transactional id, or None if a newer version of Kafka wrote the key. Raises RemoteProtocolError."""
    if len(key) < 2:
        raise BufferUnderflow("the key of a record in __transaction_state ends in its version")
    if int.from_bytes(key[:2], "big", signed=True) != TRANSACTION_KEY_VERSION:
        return None
    return decode_with_version(TransactionLogKey, key).transactional_id


def is_newer_transaction(value: Buffer) -> bool:
    """Whether a newer version of Kafka wrote the value, so that `decode_transaction` cannot read it."""
    return len(value) >= 2 and int.from_bytes(value[:2], "big", signed=True) > FLEXIBLE_VALUE_VERSION


def decode_transaction(value: Buffer) -> TransactionLogValue:
    """Raises RemoteProtocolError."""
    return decode_with_version(TransactionLogValue, value)
