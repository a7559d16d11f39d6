"""The offset up to which a copy agrees with the log from which it was copied: the cases of KIP-101 and KIP-279.

Both logs are local, so both leader-epoch caches are available."""

import random

import pytest

from common.ids import Offset
from common.storage.copy_divergence import end_of_agreement
from common.storage.leader_epochs import LeaderEpochs

Entries = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("current", "current_end", "copy", "copy_end", "expected"),
    [
        ([(1, 0)], 50, [(1, 0)], 30, 30),  # the copy only lags behind
        ([(1, 0)], 30, [(1, 0)], 50, 30),  # the current log was truncated within the epoch
        ([(1, 0), (2, 20)], 50, [(1, 0)], 30, 20),  # ... and continued in another epoch
        ([(1, 0), (2, 20)], 50, [(1, 0), (2, 20)], 50, 50),  # equal
        ([(1, 0), (2, 20), (3, 50)], 50, [(1, 0), (2, 20)], 50, 50),  # an epoch without records makes no difference
        ([(1, 0), (3, 20)], 50, [(1, 0), (2, 20)], 40, 20),  # epoch 2 was never on the current log
        ([(1, 0), (3, 10)], 50, [(1, 0), (2, 20)], 40, 10),  # ... and epoch 3 starts lower
        ([(1, 0)], 50, [(1, 0), (2, 20)], 40, 20),  # the copy has a newer epoch than the current log
        ([(1, 0), (4, 30)], 60, [(1, 0), (2, 10), (3, 20)], 40, 10),  # the copy must go back two epochs
        ([(1, 0), (2, 10), (4, 30)], 60, [(1, 0), (3, 20)], 40, 10),  # each has an epoch that the other lacks
        ([(5, 0)], 50, [(1, 0), (2, 20)], 40, 0),  # they have nothing in common
        ([(1, 0)], 50, [], 0, 0),  # the copy is empty
        ([], 0, [(1, 0)], 40, 0),  # the current log was emptied
        ([], 30, [], 20, 20),  # the records are older than leader epochs
        ([(2, 10)], 30, [], 20, 10),  # the first records have no epoch
    ],
)
def test_where_a_copy_must_be_truncated(
    current: Entries, current_end: int, copy: Entries, copy_end: int, expected: int
) -> None:
    assert agreement(current, 0, current_end, copy, copy_end) == expected


@pytest.mark.parametrize(
    ("copy", "copy_end", "expected"),
    [
        ([(1, 0), (2, 20)], 60, 60),
        ([(1, 0), (3, 20)], 60, 40),  # all records at or above the current log start differ
        ([(1, 0), (3, 20)], 40, 40),  # the copy ends where the current log starts
        ([(1, 0), (3, 20)], 30, 30),  # the copy ends below the current log start
    ],
)
def test_nothing_is_compared_below_the_start_of_the_current_log(copy: Entries, copy_end: int, expected: int) -> None:
    assert agreement([(2, 40)], 40, 80, copy, copy_end) == expected


@pytest.mark.parametrize("seed", range(200))
def test_the_result_is_the_longest_common_prefix(seed: int) -> None:
    """Two logs start with the same random records. Then each continues with epochs that only it has, as after a
    truncation."""
    rng = random.Random(seed)
    shared, first_free = records(rng, 0, rng.randint(0, 6))
    one, _ = records(rng, first_free, rng.randint(0, 6), step=2)
    other, _ = records(rng, first_free + 1, rng.randint(0, 6), step=2)
    current, copy = shared + one, shared + other
    assert agreement(entries(current), 0, len(current), entries(copy), len(copy)) == len(shared)


def records(rng: random.Random, epoch: int, epochs: int, *, step: int = 1) -> tuple[list[int], int]:
    """Returns the epoch of each record, and an epoch that is higher than all of them."""
    found: list[int] = []
    for _ in range(epochs):
        found += [epoch] * rng.randint(0, 4)
        epoch += step * rng.randint(1, 2)
    return found, epoch


def entries(epochs: list[int]) -> Entries:
    return LeaderEpochs((epoch, offset) for offset, epoch in enumerate(epochs)).entries


def agreement(current: Entries, current_start: int, current_end: int, copy: Entries, copy_end: int) -> int:
    return end_of_agreement(
        current=LeaderEpochs(current),
        current_start=Offset(current_start),
        current_end=Offset(current_end),
        copy=LeaderEpochs(copy),
        copy_end=Offset(copy_end),
    )
