"""Violations of I25 and I26, made by hand, must be found; what may happen must not be."""

import pytest

from tests.simulation.checkers.transactions import check_atomicity, check_reads, check_transactions
from tests.simulation.history import CommittedRead, History, Outcome, Transaction
from tests.simulation.violations import InvariantViolated

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def transaction(number: int, outcome: Outcome = OK, *, attempt: int = 1) -> Transaction:
    """Returns a transaction of the producer "p" that wrote to the partitions 0 and 1."""
    return Transaction(
        client="p",
        begin_ns=number,
        number=number,
        value=f"p/{number}/{attempt}".encode(),
        topic="t",
        indexes=(0, 1),
        outcome=outcome,
    )


def read(index: int, *values: bytes, offset: int = 0) -> CommittedRead:
    """Returns a read that found these values from `offset` on."""
    return CommittedRead(
        client="reader",
        at_ns=0,
        topic="t",
        index=index,
        offset=offset,
        next_offset=offset + len(values),
        values=tuple(enumerate(values, start=offset)),
        last_stable_offset=99,
        high_watermark=99,
    )


def ended(transactions: list[Transaction], reads: list[CommittedRead], position: int) -> History:
    return History(transactions=transactions, last_reads=reads, last_positions={"p": position})


def test_what_may_happen_is_no_violation() -> None:
    """An attempt that was aborted, one whose end nobody knows and that is committed, and one that is not."""
    transactions = [transaction(0, FAILED), transaction(0, attempt=2), transaction(1, UNKNOWN), transaction(2, UNKNOWN)]
    found = [b"p/0/2", b"p/1/1"]
    history = ended(transactions, [read(0, *found), read(1, *found)], 2)
    history.committed_reads += history.last_reads
    check_transactions(history)


@pytest.mark.parametrize(
    ("transactions", "first", "second", "position"),
    [
        ([transaction(0)], [b"p/0/1"], [], 1),
        ([transaction(0)], [], [], 0),
        ([transaction(0)], [b"p/0/1", b"p/0/1"], [b"p/0/1"], 1),
        ([transaction(0)], [b"p/0/1"], [b"p/0/1"], 0),
        ([transaction(0), transaction(1, UNKNOWN)], [b"p/0/1"], [b"p/0/1"], 2),
        ([transaction(0, UNKNOWN), transaction(0, attempt=2)], [b"p/0/1", b"p/0/2"], [b"p/0/1", b"p/0/2"], 1),
    ],
    ids=["in one partition", "lost", "twice", "without its position", "a position without it", "a number twice"],
)
def test_half_a_transaction_is_found(
    transactions: list[Transaction], first: list[bytes], second: list[bytes], position: int
) -> None:
    with pytest.raises(InvariantViolated, match="I25"):
        check_atomicity(ended(transactions, [read(0, *first), read(1, *second)], position))


@pytest.mark.parametrize(
    "reads",
    [[read(0, b"p/0/1")], [read(0, b"nobody")], [read(2, b"p/1/1")], [read(0, b"p/1/1"), read(0, b"p/2/1")]],
    ids=["aborted", "never written", "in another partition", "two records at one offset"],
)
def test_a_read_of_what_is_not_committed_is_found(reads: list[CommittedRead]) -> None:
    transactions = [transaction(0, FAILED), transaction(1), transaction(2)]
    with pytest.raises(InvariantViolated, match="I26"):
        check_reads(History(transactions=transactions, committed_reads=reads))
