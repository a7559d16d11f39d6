"""The totals of moves that each directory gets, with logs that are only sizes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.hosting import move_totals
from broker.hosting.move_totals import MoveTotals
from broker.hosting.partition import Partition
from common.ids import DirectoryId
from tests.unit.broker.cluster import directory

A, B = directory(1, "a"), directory(1, "b")


class Moving:
    """Stands in for a partition."""

    def __init__(self, size_bytes: int) -> None:
        self.log = SimpleNamespace(size_bytes=size_bytes)
        self.future: Any = None

    @property
    def partition(self) -> Partition:
        return cast(Partition, self)


def shown(totals: MoveTotals, directory_id: DirectoryId) -> tuple[int, int]:
    return totals.count_into(directory_id), totals.bytes_into(directory_id)


def test_a_move_counts_in_its_directory_from_its_beginning_to_its_end() -> None:
    totals = MoveTotals()
    one, two, other = Moving(100), Moving(30), Moving(7)
    for moving, target in ((one, A), (two, A), (other, B)):
        totals.add(moving.partition, target)
    assert (shown(totals, A), shown(totals, B)) == ((2, 130), (1, 7))
    one.future = SimpleNamespace(log=SimpleNamespace(size_bytes=60))
    totals.measure(one.partition)
    assert shown(totals, A) == (2, 70)
    # The copy is larger than the log, which was compacted meanwhile.
    one.log.size_bytes = 50
    totals.measure(one.partition)
    assert shown(totals, A) == (2, 30)
    for moving in (one, two):
        totals.remove(moving.partition)
        totals.measure(moving.partition)
    assert (shown(totals, A), shown(totals, B)) == ((0, 0), (1, 7))


def test_each_look_measures_some_and_all_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs grow without a chunk being copied."""
    monkeypatch.setattr(move_totals, "_MEASURED_AT_ONCE", 2)
    totals = MoveTotals()
    moving = [Moving(0) for _ in range(5)]
    for each in moving:
        totals.add(each.partition, A)
        each.log.size_bytes = 10
    found = []
    for _ in range(4):
        totals.measure_some()
        found.append(totals.bytes_into(A))
    assert found == [20, 40, 50, 50]
