"""After a refused batch of an idempotent producer, later ones get the same error, until the client begins again."""

import pytest

from broker.core.refused_sequences import ENTRIES_MAX, RefusedSequences
from common.protocol.errors import ErrorCode
from common.records.batch import BatchHeader, read_header
from common.records.record import Record, encode_batch

SHORT = ErrorCode.NOT_ENOUGH_REPLICAS
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
LAST = 2**31 - 1


def header(sequence: int, *, producer_id: int = 40, epoch: int = 0) -> BatchHeader:
    records = [Record(key=None, value=b"x", timestamp_ms=1)]
    return read_header(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ([(5, SHORT), (6, GAP), (9, GAP)], [SHORT, SHORT, SHORT]),
        # The client knows of the refusal, and yet sends something else.
        ([(5, SHORT), (6, GAP), (6, GAP), (7, GAP)], [SHORT, SHORT, GAP, GAP]),
        ([(5, SHORT), (4, GAP), (6, GAP)], [SHORT, GAP, GAP]),
        ([(5, SHORT), (5, GAP)], [SHORT, GAP]),
        ([(5, GAP), (6, GAP)], [GAP, GAP]),
        # The last reason counts.
        ([(5, SHORT), (6, ErrorCode.NOT_LEADER_OR_FOLLOWER), (7, GAP)], [SHORT, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]),
        # The markers of the former transaction have been written between the two batches.
        ([(0, ErrorCode.CONCURRENT_TRANSACTIONS), (1, GAP)], [ErrorCode.CONCURRENT_TRANSACTIONS] * 2),
        # Sequence numbers wrap around.
        ([(LAST, SHORT), (0, GAP), (1, GAP)], [SHORT, SHORT, SHORT]),
        ([(0, SHORT), (LAST, GAP)], [SHORT, GAP]),
        # What the client does not send again leaves no gap of ours.
        ([(5, ErrorCode.MESSAGE_TOO_LARGE), (6, GAP)], [ErrorCode.MESSAGE_TOO_LARGE, GAP]),
        ([(5, SHORT), (6, ErrorCode.INVALID_PRODUCER_EPOCH)], [SHORT, ErrorCode.INVALID_PRODUCER_EPOCH]),
    ],
)
def test_a_gap_after_a_refusal_is_refused_alike(sent: list[tuple[int, ErrorCode]], answers: list[ErrorCode]) -> None:
    refused = RefusedSequences()
    assert [refused.refuse("t", 0, header(sequence), error) for sequence, error in sent] == answers


def test_other_producers_partitions_and_epochs_are_judged_by_themselves() -> None:
    refused = RefusedSequences()
    refused.refuse("t", 0, header(5), SHORT)
    assert refused.refuse("t", 0, header(6, producer_id=41), GAP) is GAP
    assert refused.refuse("t", 1, header(6), GAP) is GAP
    assert refused.refuse("u", 0, header(6), GAP) is GAP
    assert refused.refuse("t", 0, header(6, epoch=1), GAP) is GAP


def test_an_append_ends_the_refusal() -> None:
    refused = RefusedSequences()
    refused.refuse("t", 0, header(5), SHORT)
    refused.appended("t", 0, 40)
    assert refused.refuse("t", 0, header(6), GAP) is GAP


def test_a_producer_that_is_not_idempotent_is_not_remembered() -> None:
    refused = RefusedSequences()
    assert refused.refuse("t", 0, header(-1, producer_id=-1, epoch=-1), SHORT) is SHORT
    assert len(refused) == 0


def test_only_so_many_are_remembered() -> None:
    refused = RefusedSequences()
    for producer_id in range(ENTRIES_MAX + 1):
        refused.refuse("t", 0, header(5, producer_id=producer_id), SHORT)
    assert len(refused) == ENTRIES_MAX
    assert refused.refuse("t", 0, header(6, producer_id=0), GAP) is GAP
    assert refused.refuse("t", 0, header(6, producer_id=1), GAP) is SHORT
