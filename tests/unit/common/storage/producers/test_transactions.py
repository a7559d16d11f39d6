"""Open and unreplicated transactions: where the first unstable offset is after each event.

Each step is (what, first offset[, last offset]) and the expected first unstable offset after it.
"""

import random

import pytest

from common.storage.producers.transactions import UNREPLICATED_MAX, Transactions


@pytest.mark.parametrize(
    "steps",
    [
        # One transaction: it holds the offset back until its marker is replicated, not only written.
        [("begin 5", 5), ("end 5 9", 5), ("replicated 9", 5), ("replicated 10", None)],
        # A transaction that began later, and ended earlier, is not seen until the first one has gone.
        [("begin 0", 0), ("begin 3", 0), ("end 3 7", 0), ("replicated 8", 0), ("end 0 8", 0), ("replicated 9", None)],
        [("begin 0", 0), ("begin 3", 0), ("end 0 7", 0), ("replicated 8", 3), ("end 3 9", 3), ("replicated 99", None)],
        # The one that began later ends later and is replicated later.
        [("begin 0", 0), ("end 0 1", 0), ("begin 2", 0), ("end 2 3", 0), ("replicated 3", 2), ("replicated 4", None)],
        # An open one that began before an unreplicated one.
        [("begin 1", 1), ("begin 2", 1), ("end 2 3", 1), ("end 1 4", 1), ("replicated 4", 1), ("replicated 5", None)],
    ],
)
def test_the_first_unstable_offset(steps: list[tuple[str, int | None]]) -> None:
    transactions = Transactions()
    assert transactions.first_unstable_offset is None
    for step, expected in steps:
        match step.split():
            case ["begin", first]:
                transactions.begin(int(first))
            case ["end", first, last]:
                transactions.end(int(first), int(last))
            case [_, high_watermark]:
                transactions.replicated_up_to(int(high_watermark))
        assert transactions.first_unstable_offset == expected, step


def test_the_end_of_a_transaction_returns_where_the_next_one_began() -> None:
    transactions = Transactions([7, 3])
    transactions.begin(9)
    assert transactions.end(7, 10) == 3
    assert transactions.end(3, 11) == 9
    assert transactions.end(9, 12) == 13


def test_a_copy_shares_nothing() -> None:
    transactions = Transactions([3])
    copied = transactions.copy()
    transactions.end(3, 4)
    transactions.replicated_up_to(5)
    assert transactions.first_unstable_offset is None
    assert copied.first_unstable_offset == 3
    copied.end(3, 4)
    another = copied.copy()
    copied.replicated_up_to(5)
    assert another.first_unstable_offset == 3


@pytest.mark.parametrize("seed", range(20))
def test_any_order_gives_the_same_as_a_list(seed: int) -> None:
    """Compared with a list of all transactions, through random beginnings, ends and advances."""
    rng = random.Random(seed)
    transactions = Transactions()
    model: dict[int, int | None] = {}
    high_watermark = 0
    for offset in range(300):
        running = [first for first, last in model.items() if last is None]
        if running and rng.random() < 0.5:
            first = rng.choice(running)
            model[first] = offset
            others = [each for each in running if each != first]
            assert transactions.end(first, offset) == min(others, default=offset + 1)
        else:
            model[offset] = None
            transactions.begin(offset)
        if rng.random() < 0.3:
            high_watermark = rng.randint(high_watermark, offset + 1)
            transactions.replicated_up_to(high_watermark)
            model = {first: last for first, last in model.items() if last is None or last >= high_watermark}
        assert transactions.first_unstable_offset == min(model, default=None)


def test_many_unreplicated_transactions_take_bounded_memory() -> None:
    """A log is loaded with more transactions than are counted one by one. The offset is never too high, and in the end it is
    released."""
    transactions = Transactions()
    count = 5 * UNREPLICATED_MAX
    for number in range(count):
        transactions.begin(2 * number)
        transactions.end(2 * number, 2 * number + 1)
        assert len(transactions._unreplicated) <= UNREPLICATED_MAX
    for high_watermark in range(0, 2 * count, 997):
        transactions.replicated_up_to(high_watermark)
        unstable = transactions.first_unstable_offset
        assert unstable is not None
        assert unstable <= high_watermark
    transactions.replicated_up_to(2 * count)
    assert transactions.first_unstable_offset is None
