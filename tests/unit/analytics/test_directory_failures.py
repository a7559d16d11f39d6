"""How failed directories are found in the registration records of brokers.

Each record belongs to a group: its transaction or, outside transactions, its batch. The number of a group is its first
offset.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from analytics.directory_failures import (
    ABORT,
    BEGIN,
    END,
    REGISTER,
    REGISTRATION_CHANGE,
    SNAPSHOT,
    UNREGISTER,
    DirectoryFailure,
    Step,
    find_directory_failures,
    unsettled_groups,
)


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def step(
    type_: str,
    offset: int,
    log_dirs: Sequence[str] | None = None,
    *,
    broker: int | None = 1,
    incarnation: str | None = None,
    group: int | None = None,
    lost: Sequence[str] | None = None,
    source: str = "segment",
) -> Step:
    """Returns a record at this offset. Its time in seconds is the same number."""
    return Step(
        type=type_,
        offset=offset,
        group=offset if group is None else group,
        time=at(offset),
        source=source,
        broker_id=broker,
        incarnation_id=incarnation,
        log_dirs=log_dirs,
        lost_log_dirs=lost,
    )


def registered(offset: int, *log_dirs: str, incarnation: str = "i", broker: int = 1) -> Step:
    return step(REGISTER, offset, log_dirs, incarnation=incarnation, broker=broker, lost=[])


def changed(offset: int, *log_dirs: str, group: int | None = None, broker: int = 1) -> Step:
    return step(REGISTRATION_CHANGE, offset, log_dirs or None, group=group, broker=broker)


def told(*steps: Step) -> list[tuple[str, int, int, int | None]]:
    """Returns the directory, the broker, the first group and the end group of each failure."""
    failures = find_directory_failures(steps)
    return [(each.directory_id, each.broker_id, each.group, each.until_group) for each in failures]


def test_what_a_change_drops_has_failed() -> None:
    """One directory fails, then two at once. Each failure is reported once. A registration change that leaves the
    directories unchanged reports nothing."""
    steps = (registered(1, "A", "B", "C", "D"), changed(2), changed(5, "A", "C", "D"), changed(6, "A"), changed(7, "A"))
    assert told(*steps) == [("B", 1, 5, None), ("C", 1, 6, None), ("D", 1, 6, None)]


def test_brokers_do_not_mix() -> None:
    """Each broker has its own list of directories."""
    assert told(registered(1, "A"), registered(2, "B", "C", broker=2), changed(3, "C", broker=2)) == [("B", 2, 3, None)]


def test_the_same_incarnation_that_leaves_one_out_has_lost_it() -> None:
    """If an incarnation registers again without one of its directories, that directory is reported as lost. A registration
    without any directory comes from an older metadata.version, and nothing is reported."""
    assert told(registered(1, "A", "B"), registered(4, "B")) == [("A", 1, 4, None)]
    assert told(registered(1, "A", "B"), registered(4)) == []


def test_a_new_incarnation_begins_anew_and_ends_the_failure() -> None:
    """A directory that the new incarnation does not register died before its start, which is not a new failure. A directory
    that it registers may fail again."""
    steps = (registered(1, "A", "B"), changed(2, "A"), registered(5, "B", incarnation="j"), changed(8, "C"))
    assert told(*steps) == [("B", 1, 2, 5), ("B", 1, 8, None)]


def test_a_removed_broker_ends_the_failure() -> None:
    """The failure ends when the broker is unregistered: later partition changes are not caused by the failed directory."""
    assert told(registered(1, "A", "B"), changed(2, "A"), step(UNREGISTER, 6)) == [("B", 1, 2, 6)]


def test_a_failure_in_a_transaction_has_the_time_of_its_begin() -> None:
    """In a transaction, the partition changes come in earlier batches than the registration change. They are one group, and
    the failure has the time of the transaction's begin record."""
    steps = (
        registered(1, "A", "B"),
        step(BEGIN, 10, broker=None, group=10),
        changed(30, "A", group=10),
        step(END, 31, broker=None, group=10),
    )
    (failure,) = find_directory_failures(steps)
    assert failure == DirectoryFailure("B", 1, at(10), 30, 10, "segment")


def test_what_was_aborted_or_has_not_ended_never_happened() -> None:
    """A failure in an aborted transaction never counts. A failure in an unfinished transaction counts once the transaction
    is complete."""
    aborted = (step(BEGIN, 10, broker=None), changed(11, "A", group=10), step(ABORT, 12, broker=None, group=10))
    unfinished = (step(BEGIN, 20, broker=None), changed(21, "A", group=20))
    steps = (registered(1, "A", "B"), *aborted, *unfinished)
    assert unsettled_groups(steps) == [10, 20]
    assert told(*steps) == []
    assert told(*steps, step(END, 22, broker=None, group=20)) == [("B", 1, 20, None)]


def test_a_snapshot_tells_what_was_lost_before() -> None:
    """A snapshot at the beginning of the log reports its lost directories. A snapshot in the middle also reports what is
    missing compared with the records before it. Such a failure has the snapshot's time, the latest possible."""
    snapshot = step(REGISTER, 50, ["A"], incarnation="i", lost=["B", "C"], source=SNAPSHOT)
    assert told(snapshot, changed(60, "A")) == [("B", 1, 50, None), ("C", 1, 50, None)]
    assert told(registered(1, "A", "B", "C"), changed(5, "A", "B"), snapshot) == [("C", 1, 5, None), ("B", 1, 50, None)]
    assert told(registered(1, "A", "B", incarnation="h"), snapshot) == [("B", 1, 50, None), ("C", 1, 50, None)]
    assert [each.source for each in find_directory_failures([snapshot])] == [SNAPSHOT, SNAPSHOT]


def test_the_form_for_programs() -> None:
    """Times are UTC with milliseconds and a Z. Without partition changes, last_change_ms is None."""
    failure = DirectoryFailure("B", 1, datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), 30, 10, "segment")
    assert failure.as_json() == {
        "directory_id": "B",
        "broker_id": 1,
        "time": "2026-01-02T03:04:05.678Z",
        "offset": 30,
        "source": "segment",
        "partition_count": 0,
        "leaders_moved": 0,
        "leaderless": 0,
        "last_change_ms": None,
        "partitions": [],
    }
