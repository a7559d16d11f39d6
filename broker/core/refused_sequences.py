"""Gaps in the sequence numbers of idempotent producers that a refused batch has left (core).

A client sends up to five batches of a partition before it gets the first answer. If a batch is refused for the moment, the
batches sent after it come with a gap before them. Apache Kafka handles the requests of a connection one at a time, so it
nearly always refuses them for the same reason. Here a request is handled while the answers to earlier ones wait, so the
reason may be gone by then.

OUT_OF_ORDER_SEQUENCE_NUMBER would be true. But librdkafka then begins a new epoch for all partitions, and sends again what
other partitions may already have, under sequence numbers that are no longer recognized (librdkafka issue 4953). So a batch
that comes after a refused one is refused with the same error, and the client sends both again.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from common.protocol.errors import ErrorCode
from common.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader

# A client that got one of these sends the batch again with the same sequence number.
MOMENTARY: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # Of the coordinator, while it writes the markers of the former transaction.
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
ENTRIES_MAX: Final = 10_000
_SEQUENCES: Final = 1 << 31


class _Refusal(NamedTuple):
    """The latest batch of a producer that was refused in a partition."""

    epoch: int
    sequence: int
    error: ErrorCode


class RefusedSequences:
    """The refusals of one broker. Remembers at most ENTRIES_MAX producers; a forgotten one gets the true error."""

    def __init__(self) -> None:
        # By topic, partition and producer id, the latest refusal last.
        self._refusals: OrderedDict[tuple[str, int, int], _Refusal] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refusals)

    def refuse(self, topic: str, index: int, header: BatchHeader, error: ErrorCode) -> ErrorCode:
        """Returns the error with which to refuse this batch, which would be refused with `error`."""
        if header.producer_id == NO_PRODUCER_ID or header.base_sequence == NO_SEQUENCE:
            return error
        if error in MOMENTARY:
            self._note(topic, index, header, error)
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._error_after_refusal(topic, index, header) or error
        return error

    def appended(self, topic: str, index: int, producer_id: int) -> None:
        """Forgets the producer's refusal: what it sends next follows an appended batch."""
        if self._refusals:
            self._refusals.pop((topic, index, producer_id), None)

    def _error_after_refusal(self, topic: str, index: int, header: BatchHeader) -> ErrorCode | None:
        refusal = self._refusals.pop((topic, index, header.producer_id), None)
        if refusal is None or refusal.epoch != header.producer_epoch:
            return None
        # Sequence numbers wrap around. One that has not grown means that the client knows of the refusal and begins again.
        if not 0 < (header.base_sequence - refusal.sequence) % _SEQUENCES < _SEQUENCES // 2:
            return None
        self._note(topic, index, header, refusal.error)
        return refusal.error

    def _note(self, topic: str, index: int, header: BatchHeader, error: ErrorCode) -> None:
        key = (topic, index, header.producer_id)
        self._refusals[key] = _Refusal(header.producer_epoch, header.base_sequence, error)
        self._refusals.move_to_end(key)
        if len(self._refusals) > ENTRIES_MAX:
            self._refusals.popitem(last=False)
