"""Judges a history: what acknowledged writes, polls and commits promise, and what was found (pure: no I/O, no clock).

The anomalies are those of Jepsen's Kafka workload, for one topic whose records are never deleted:

* lost write: an acknowledged record is not in the log, or not at its offset
* duplicate: a record of an idempotent producer is in the log twice
* reordered: a producer's record comes after a later one of the same producer and partition
* foreign record: the log has what nobody sent, or what was refused
* dirty read: a poll returns what nobody sent, or what is not in the log
* gap: an offset without a record, though no transaction has left a marker there
* non-monotonic poll, skipped poll: within one assignment a client polls an offset again, or jumps over a record
* unread: a group commits an offset beyond a record that none of its members has polled
* lost commit: a group's committed offset goes back
* G1a, torn transaction: a read_committed client sees a record of an aborted transaction, or a part of a committed one only

An operation with an unknown outcome may have happened or not. So it excuses what it could explain and promises nothing.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.integration.history.operations import (
    NO_OFFSET,
    Assign,
    Commit,
    History,
    Operation,
    Outcome,
    Place,
    Poll,
    source_of,
)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One violation. `kind` is one of the names above."""

    kind: str
    detail: str


def judge(history: History) -> list[Anomaly]:
    """Returns everything that is wrong with the history, empty if nothing is."""
    checks = (
        _lost_writes,
        _duplicates,
        _reordered,
        _foreign_records,
        _gaps,
        _dirty_reads,
        _poll_order,
        _unread,
        _lost_commits,
        _aborted_reads,
        _torn_transactions,
    )
    return [anomaly for check in checks for anomaly in check(history)]


def summary(history: History) -> dict[str, int]:
    """Returns how much was done: a history in which little happened proves little."""
    sends = Counter(send.outcome for send in history.sends)
    commits = Counter(commit.outcome for commit in history.commits)
    return {
        "sent": len(history.sends),
        "acknowledged": sends[Outcome.OK],
        "unknown sends": sends[Outcome.UNKNOWN],
        "in the log": len(history.log),
        "polled": sum(len(poll.records) for poll in history.polls),
        "assignments": len(history.assigns),
        "commits": commits[Outcome.OK],
        "unknown or failed commits": commits[Outcome.UNKNOWN] + commits[Outcome.FAILED],
        "transactions": len(history.transactions),
    }


# --- writes ----------------------------------------------------------------------------------------------------------


def _lost_writes(history: History) -> Iterator[Anomaly]:
    committed = {end.transaction for end in history.transactions if end.outcome is Outcome.OK}
    values = set(history.log.values())
    for send in history.sends:
        if send.outcome is not Outcome.OK or (send.transaction and send.transaction not in committed):
            continue
        if send.value not in values:
            yield Anomaly("lost write", f"{send.value} was acknowledged at {send.partition}:{send.offset}, and is nowhere")
        elif send.offset != NO_OFFSET and history.log.get((send.partition, send.offset)) != send.value:
            found = history.log.get((send.partition, send.offset))
            yield Anomaly("lost write", f"{send.value} was acknowledged at {send.partition}:{send.offset}, where {found} is")


def _duplicates(history: History) -> Iterator[Anomaly]:
    places: dict[str, list[Place]] = defaultdict(list)
    for place, value in sorted(history.log.items()):
        places[value].append(place)
    for value, found in places.items():
        if len(found) > 1:
            yield Anomaly("duplicate", f"{value} is at {_told(found)}")


def _reordered(history: History) -> Iterator[Anomaly]:
    newest: dict[tuple[str, int], int] = {}
    for (partition, offset), value in sorted(history.log.items()):
        source = _source(value)
        if source is None:
            continue
        producer, _, number = source
        before = newest.get((producer, partition), -1)
        # A second copy of the same record is a duplicate, not a matter of order.
        if number < before:
            yield Anomaly("reordered", f"{value} is at {partition}:{offset}, after number {before} of the same producer")
        newest[producer, partition] = max(before, number)


def _foreign_records(history: History) -> Iterator[Anomaly]:
    sends = {send.value: send for send in history.sends}
    for (partition, offset), value in sorted(history.log.items()):
        send = sends.get(value)
        if send is None:
            yield Anomaly("foreign record", f"nobody sent {value}, which is at {partition}:{offset}")
        elif send.outcome is Outcome.FAILED and not send.transaction:
            yield Anomaly("foreign record", f"{value} was refused ({send.error}), and is at {partition}:{offset}")
        elif send.partition != partition:
            yield Anomaly("foreign record", f"{value} is in partition {partition}")


def _gaps(history: History) -> Iterator[Anomaly]:
    if any(send.transaction for send in history.sends):
        # Markers and aborted records leave gaps, and a reader cannot tell these from others.
        return
    for partition, offsets in _offsets(history).items():
        expected = 0
        for offset in offsets:
            if offset != expected:
                yield Anomaly("gap", f"partition {partition} has no record from {expected} to {offset - 1}")
            expected = offset + 1


# --- polls -----------------------------------------------------------------------------------------------------------


def _dirty_reads(history: History) -> Iterator[Anomaly]:
    sent = {send.value for send in history.sends}
    for poll in history.polls:
        for partition, offset, value in poll.records:
            if value not in sent:
                yield Anomaly("dirty read", f"{poll.client} polled {value} at {partition}:{offset}, which nobody sent")
            elif (found := history.log.get((partition, offset))) != value:
                detail = f"{poll.client} polled {value} at {partition}:{offset}, where the log has {found}"
                yield Anomaly("dirty read", detail)


def _poll_order(history: History) -> Iterator[Anomaly]:
    offsets = _offsets(history)
    for client, operations in _by_client([*history.polls, *history.assigns]).items():
        last: dict[int, int] = {}
        for operation in operations:
            if isinstance(operation, Assign):
                for partition in operation.partitions:
                    last.pop(partition, None)
            elif isinstance(operation, Poll):
                for partition, offset, _ in operation.records:
                    if partition in last:
                        yield from _step(client, partition, last[partition], offset, offsets.get(partition, []))
                    last[partition] = offset


def _step(client: str, partition: int, before: int, offset: int, offsets: list[int]) -> Iterator[Anomaly]:
    if offset <= before:
        yield Anomaly("non-monotonic poll", f"{client} polled {partition}:{offset} after {partition}:{before}")
        return
    skipped = offsets[bisect_left(offsets, before + 1) : bisect_left(offsets, offset)]
    if skipped:
        detail = f"{client} polled {partition}:{offset} after {partition}:{before}, {len(skipped)} records are between"
        yield Anomaly("skipped poll", detail)


# --- committed offsets -----------------------------------------------------------------------------------------------


def _unread(history: History) -> Iterator[Anomaly]:
    polled: dict[int, set[int]] = defaultdict(set)
    # A client that commits is a member of the group; others read on their own.
    members = {commit.client for commit in history.commits}
    for poll in history.polls:
        if poll.client in members:
            for partition, offset, _ in poll.records:
                polled[partition].add(offset)
    ends: dict[int, int] = {}
    for commit in history.commits:
        if commit.outcome is Outcome.OK:
            for partition, offset in commit.offsets.items():
                ends[partition] = max(ends.get(partition, 0), offset)
    for partition, offsets in _offsets(history).items():
        missed = [offset for offset in offsets if offset < ends.get(partition, 0) and offset not in polled[partition]]
        if missed:
            detail = (
                f"nobody of the group polled {_told([(partition, each) for each in missed])}; {ends[partition]} is committed"
            )
            yield Anomaly("unread", detail)


def _lost_commits(history: History) -> Iterator[Anomaly]:
    """A read of a committed offset finds at least what was committed before the read began. It may find less only where a
    commit of just that offset has an unknown outcome: its request may have been delayed."""
    floors = _Floors(history.commits)
    for client, partition, begin_ns, offset, what in _reads_of_commits(history):
        floor = floors.at(partition, begin_ns)
        if offset < floor and not floors.is_excused(partition, offset):
            detail = f"{client} {what} {partition}:{offset}, though {partition}:{floor} was committed before"
            yield Anomaly("lost commit", detail)


def _reads_of_commits(history: History) -> Iterator[tuple[str, int, int, int, str]]:
    """Yields (client, partition, begin, offset, what it did) of each read of a committed offset: the explicit reads, and the
    first polls of members after an assignment, which begin where the group has committed."""
    for read in history.committed:
        if read.outcome is Outcome.OK:
            for partition, offset in read.offsets.items():
                yield read.client, partition, read.begin_ns, offset, "read the committed offset"
    members = {commit.client for commit in history.commits}
    for client, operations in _by_client([*history.polls, *history.assigns]).items():
        if client not in members:
            continue
        assigned: dict[int, int] = {}
        for operation in operations:
            if isinstance(operation, Assign):
                assigned |= dict.fromkeys(operation.partitions, operation.begin_ns)
            elif isinstance(operation, Poll):
                for partition, offset, _ in operation.records:
                    if partition in assigned:
                        yield client, partition, assigned.pop(partition), offset, "was assigned the partition and began at"


class _Floors:
    """The highest offset that was certainly committed, by partition and time."""

    def __init__(self, commits: list[Commit]) -> None:
        self._times: dict[int, list[int]] = defaultdict(list)
        self._highest: dict[int, list[int]] = defaultdict(list)
        self._unknown: set[Place] = set()
        for commit in sorted(commits, key=lambda each: each.end_ns or 0):
            for partition, offset in commit.offsets.items():
                if commit.outcome is Outcome.OK and commit.end_ns is not None:
                    highest = self._highest[partition]
                    self._times[partition].append(commit.end_ns)
                    highest.append(max(offset, highest[-1] if highest else NO_OFFSET))
                elif commit.outcome is Outcome.UNKNOWN:
                    self._unknown.add((partition, offset))

    def at(self, partition: int, begin_ns: int) -> int:
        """Returns the highest offset whose commit had ended before this time, NO_OFFSET if there is none."""
        index = bisect_left(self._times[partition], begin_ns)
        return self._highest[partition][index - 1] if index else NO_OFFSET

    def is_excused(self, partition: int, offset: int) -> bool:
        return (partition, offset) in self._unknown


# --- transactions ----------------------------------------------------------------------------------------------------


def _aborted(history: History) -> set[str]:
    return {end.transaction for end in history.transactions if end.outcome is Outcome.FAILED}


def _aborted_reads(history: History) -> Iterator[Anomaly]:
    aborted = _aborted(history)
    sent_in = {send.value: send.transaction for send in history.sends if send.transaction in aborted}
    reads = [(poll.client, partition, offset, value) for poll in history.polls for partition, offset, value in poll.records]
    reads += [("the last read", partition, offset, value) for (partition, offset), value in sorted(history.log.items())]
    for client, partition, offset, value in reads:
        if value in sent_in:
            yield Anomaly("G1a", f"{client} saw {value} at {partition}:{offset}, of the aborted {sent_in[value]}")


def _torn_transactions(history: History) -> Iterator[Anomaly]:
    """A transaction is visible as a whole or not at all, even one whose end is unknown. Only acknowledged records count: a
    client commits nothing else."""
    values = set(history.log.values())
    seen: dict[str, set[bool]] = defaultdict(set)
    for send in history.sends:
        if send.transaction and send.outcome is Outcome.OK:
            seen[send.transaction].add(send.value in values)
    for transaction, visible in sorted(seen.items()):
        if len(visible) > 1:
            yield Anomaly("torn transaction", f"a part of {transaction} is in the log, a part is not")


# --- shared ----------------------------------------------------------------------------------------------------------


def _source(value: str) -> tuple[str, int, int] | None:
    try:
        return source_of(value)
    except ValueError:
        # Told as a foreign record.
        return None


def _offsets(history: History) -> dict[int, list[int]]:
    """Returns the offsets of each partition in the log, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted(history.log):
        found[partition].append(offset)
    return found


def _by_client(operations: list[Operation]) -> dict[str, list[Operation]]:
    """Returns each client's operations in the order in which they ended."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(operations, key=lambda each: (each.client, each.order)):
        found[operation.client].append(operation)
    return found


def _told(places: list[Place]) -> str:
    shown = ", ".join(f"{partition}:{offset}" for partition, offset in places[:5])
    return shown + (f" and {len(places) - 5} more" if len(places) > 5 else "")
