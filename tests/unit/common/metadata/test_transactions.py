"""The buffer that holds back the records of a metadata transaction."""

import pytest

from common.ids import Offset
from common.metadata.transactions import TransactionBuffer, TransactionError
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KnownRecord,
    NoOpRecord,
    TopicRecord,
)

FIRST, SECOND, THIRD = (TopicRecord(name=name) for name in ("a", "b", "c"))


def feed(buffer: TransactionBuffer, *records: KnownRecord) -> list[list[tuple[KnownRecord, int]]]:
    """Feeds the records to the buffer at offsets from 10 and returns what the buffer released after each record."""
    return [list(buffer.feed(record, Offset(10 + index))) for index, record in enumerate(records)]


def test_records_outside_a_transaction_pass() -> None:
    """Outside a transaction nothing is held back."""
    buffer = TransactionBuffer()
    assert buffer.stable_offset == -1
    assert feed(buffer, FIRST, NoOpRecord()) == [[(FIRST, 10)], [(NoOpRecord(), 11)]]
    assert (buffer.is_open, buffer.stable_offset) == (False, 11)


def test_a_transaction_comes_out_whole_at_its_end() -> None:
    """The records of a transaction are released at its end record, in order and with their own offsets."""
    buffer = TransactionBuffer()
    assert feed(buffer, FIRST, BeginTransactionRecord(name="x"), SECOND, THIRD) == [[(FIRST, 10)], [], [], []]
    assert (buffer.is_open, buffer.stable_offset) == (True, 10)
    assert list(buffer.feed(EndTransactionRecord(), Offset(14))) == [(SECOND, 12), (THIRD, 13)]
    assert (buffer.is_open, buffer.stable_offset) == (False, 14)
    assert list(buffer.feed(FIRST, Offset(15))) == [(FIRST, 15)]


def test_an_aborted_transaction_never_happened() -> None:
    """No record of an aborted transaction is released. Records after the abort pass."""
    buffer = TransactionBuffer()
    outcome = feed(buffer, BeginTransactionRecord(), FIRST, AbortTransactionRecord(reason="r"), SECOND)
    assert outcome == [[], [], [], [(SECOND, 13)]]
    assert buffer.stable_offset == 13


@pytest.mark.parametrize(
    "records",
    [
        (BeginTransactionRecord(), BeginTransactionRecord()),
        (EndTransactionRecord(),),
        (AbortTransactionRecord(),),
        (BeginTransactionRecord(), EndTransactionRecord(), EndTransactionRecord()),
    ],
)
def test_marks_that_do_not_pair(records: tuple[KnownRecord, ...]) -> None:
    """Nested or unpaired transaction markers mean that the log is invalid."""
    with pytest.raises(TransactionError):
        feed(TransactionBuffer(), *records)


def test_a_snapshot_resets_the_buffer() -> None:
    """Loading a snapshot replaces the log, so the buffer drops the records of a transaction that was open."""
    buffer = TransactionBuffer()
    feed(buffer, BeginTransactionRecord(), FIRST)
    buffer.reset(Offset(99))
    assert (buffer.is_open, buffer.stable_offset) == (False, 99)
    assert list(buffer.feed(SECOND, Offset(100))) == [(SECOND, 100)]
