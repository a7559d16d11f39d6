"""Checks what the members of groups saw: I23, I24 and I27 over the history.

Shell of the tests. This module never looks into the cluster. Members raise the position of a partition and nothing else, and
each begins where the last commit ended. So an accepted commit below an earlier accepted one means that a commit was lost on
the way, or that two members owned the partition.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from tests.simulation.history import History, OffsetCommit, OffsetRead, Outcome
from tests.simulation.violations import InvariantViolated

_Position = tuple[str, str, int]


def check_groups(history: History) -> None:
    """Checks the whole history. Raises InvariantViolated."""
    check_errors(history)
    check_owners(history)
    committed = [each for each in history.offset_commits if each.outcome is Outcome.OK]
    read = [each for each in history.offset_reads if each.outcome is Outcome.OK]
    for operations in _by_position([*committed, *read]).values():
        check_order(operations)


def check_errors(history: History) -> None:
    """I27: members get only errors that their clients know what to do with."""
    for each in history.unexpected_errors:
        raise InvariantViolated("I27", f"{each.client} got {each.error} for {each.request} at {each.at_ns / 1e9:.6f} s")


def check_owners(history: History) -> None:
    """I23: in one generation of a group, a partition has one owner."""
    owners: dict[tuple[str, int, int], str] = {}
    for each in history.assignments:
        for index in each.indexes:
            owner = owners.setdefault((each.group, each.generation, index), each.member_id)
            if owner != each.member_id:
                raise InvariantViolated(
                    "I23",
                    f"{each.group}, generation {each.generation}: partition {index} belongs to {owner} and, "
                    f"since {each.at_ns / 1e9:.6f} s, to {each.member_id}",
                )


def check_order(operations: Iterable[OffsetCommit | OffsetRead]) -> None:
    """I24: no operation on a position has a lower offset than a commit that was acknowledged before the operation began."""
    ended: list[tuple[int, int]] = []
    highest = -1
    for each in sorted(operations, key=lambda operation: operation.begin_ns):
        while ended and ended[0][0] < each.begin_ns:
            highest = max(highest, heappop(ended)[1])
        if each.offset < highest:
            what = "committed" if isinstance(each, OffsetCommit) else "read"
            raise InvariantViolated(
                "I24",
                f"{each.group}, {each.topic}-{each.index}: {each.client} {what} {each.offset} at "
                f"{each.begin_ns / 1e9:.6f} s, after {highest} was acknowledged",
            )
        if isinstance(each, OffsetCommit) and each.end_ns is not None:
            heappush(ended, (each.end_ns, each.offset))


def _by_position(
    operations: Iterable[OffsetCommit | OffsetRead],
) -> dict[_Position, list[OffsetCommit | OffsetRead]]:
    found: dict[_Position, list[OffsetCommit | OffsetRead]] = {}
    for each in operations:
        found.setdefault((each.group, each.topic, each.index), []).append(each)
    return found
