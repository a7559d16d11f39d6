"""The index of aborted transactions: Kafka's bytes, searches, truncation, and damage."""

import pytest

from common.storage.transaction_index import AbortedRange, AbortedTransaction, CorruptTransactionIndex, TransactionIndex
from tests.unit.common.records.hexadecimal import from_annotated

# The same as from TransactionIndex.append of Apache Kafka 3.9.1.
GOLDEN = from_annotated("""
    00 00                     # version 0
    00 00 00 00 00 00 01 02   # producer id
    00 00 00 00 00 00 00 05   # first offset
    00 00 00 00 00 00 00 0b   # offset of the marker
    00 00 00 00 00 00 00 03   # last stable offset: another transaction began there
    00 00
    00 00 00 00 00 00 00 07
    00 00 00 00 00 00 00 03
    00 00 00 00 00 00 00 0c
    00 00 00 00 00 00 00 0d
""")
ENTRIES = [AbortedTransaction(0x0102, 5, 11, 3), AbortedTransaction(7, 3, 12, 13)]


def index_of(*entries: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex()
    for each in entries:
        index.append(each)
    return index


def entries_of(index: TransactionIndex) -> list[AbortedTransaction]:
    return [index[number] for number in range(len(index))]


def test_the_file_has_kafkas_bytes() -> None:
    assert index_of(*ENTRIES).to_bytes().hex(" ") == GOLDEN.hex(" ")
    read = TransactionIndex.from_bytes(GOLDEN, base_offset=11)
    assert entries_of(read) == ENTRIES
    assert read.range == AbortedRange(first_offset=3, last_stable_offset=13)
    assert read.to_bytes() == GOLDEN


def test_an_empty_file_is_an_index_without_entries() -> None:
    empty = TransactionIndex.from_bytes(b"", base_offset=5)
    assert (len(empty), empty.range, empty.overlapping(0, 100), len(empty.truncated_to(9))) == (0, None, [], 0)


@pytest.mark.parametrize(
    ("content", "base_offset"),
    [
        (GOLDEN[:-1], 0),
        (GOLDEN + b"\0", 0),
        # The first marker is below the segment.
        (GOLDEN, 12),
        # The markers do not ascend.
        (GOLDEN[34:] + GOLDEN[:34], 0),
        (GOLDEN[:34] + GOLDEN[:34], 0),
        (b"\xff\xff" + GOLDEN[2:], 0),
        # A producer id, a first offset and a last stable offset below zero; a transaction that ends before it begins.
        (GOLDEN[:2] + b"\xff" * 8 + GOLDEN[10:], 0),
        (GOLDEN[:10] + b"\xff" * 8 + GOLDEN[18:], 0),
        (GOLDEN[:26] + b"\xff" * 8 + GOLDEN[34:], 0),
        (GOLDEN[:17] + b"\x0c" + GOLDEN[18:], 0),
    ],
)
def test_a_damaged_file_is_refused(content: bytes, base_offset: int) -> None:
    with pytest.raises(CorruptTransactionIndex):
        TransactionIndex.from_bytes(content, base_offset=base_offset)


# Producer 1 aborts three times; producer 2 spans the first two; producer 3 begins late.
FIVE = [
    AbortedTransaction(1, 0, 4, 2),
    AbortedTransaction(1, 5, 8, 2),
    AbortedTransaction(2, 2, 10, 11),
    AbortedTransaction(1, 12, 20, 15),
    AbortedTransaction(3, 15, 22, 23),
]


@pytest.mark.parametrize(
    ("start", "upper", "expected"),
    [
        (0, 1, [0]),
        (0, 3, [0, 2]),
        (4, 5, [0, 2]),
        (5, 6, [1, 2]),
        (9, 10, [2]),
        (10, 11, [2]),
        (11, 12, []),
        (11, 13, [3]),
        (12, 16, [3, 4]),
        (21, 30, [4]),
        (23, 30, []),
        (0, 100, [0, 1, 2, 3, 4]),
    ],
)
def test_a_search_returns_the_transactions_of_a_range(start: int, upper: int, expected: list[int]) -> None:
    assert index_of(*FIVE).overlapping(start, upper) == [FIVE[number] for number in expected]


@pytest.mark.parametrize("end", range(25))
def test_truncation_keeps_the_entries_whose_markers_are_left(end: int) -> None:
    index = index_of(*FIVE)
    kept = index.truncated_to(end)
    assert entries_of(kept) == [each for each in FIVE if each.last_offset < end]
    assert len(index) == 5
    if len(kept):
        assert kept.range is not None
        assert kept.range.first_offset == min(each.first_offset for each in FIVE if each.last_offset < end)


def test_markers_ascend() -> None:
    with pytest.raises(AssertionError):
        index_of(FIVE[1], FIVE[0])
