"""Checks only what the clients saw: I1, I2 and I3 over the history.

Shell of the tests. This module never looks into the cluster. A record must survive once a consumer has read it or it was
acknowledged with acks=all; a record sent with acks=1 may be lost with its leader. A new leader may start with a lower high
watermark than the old one had, so high watermarks are compared within one leader epoch only.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from common.ids import TopicIdPartition
from tests.simulation.history import (
    History,
    LatestOffset,
    Outcome,
    Poll,
    Produce,
    is_aging,
    is_careless,
    is_compacted,
    is_trimmed,
)
from tests.simulation.violations import InvariantViolated

ALL = -1
# How long a leader may keep using an ISR that the controller has already shrunk: the leader's session timeout plus some
# slack.
LEADER_IGNORANCE_NS = 6_000_000_000
# How often the rules with a time limit are checked.
BOUNDS_INTERVAL_NS = 50_000_000


def check_history(history: History, *, excused: Iterable[TopicIdPartition] = ()) -> None:
    """Checks the whole history. Raises InvariantViolated. `excused` partitions lost the disks of all their replicas, so
    records that were read before may be gone."""
    forgiven = frozenset(excused)
    written = {value: produce for produce in history.produces for value in produce.values}
    polls: dict[TopicIdPartition, list[Poll]] = {}
    for poll in history.polls:
        polls.setdefault(TopicIdPartition(poll.topic_id, poll.index), []).append(poll)
    for key, of_partition in polls.items():
        for poll in of_partition:
            _check_poll(poll, written)
            # A follower may lack what the consumer has read from another replica. The consumer goes back to the leader.
            # What is deleted from the front cannot be read again (I30).
            is_deleted_from = is_trimmed(poll.topic) or is_aging(poll.topic)
            is_excused = poll.follower >= 0 or is_deleted_from or key in forgiven
            if poll.error == "OFFSET_OUT_OF_RANGE" and not is_excused:
                raise InvariantViolated("I1", f"{_where(poll)}: the log ends before what was read already")
        if key not in forgiven:
            _check_values(of_partition)
        _check_steps(of_partition)
        # A follower learns the high watermark later than the leader.
        _check_order(poll for poll in of_partition if poll.outcome is Outcome.OK and poll.follower < 0)
    _check_acknowledged(history, polls, forgiven)
    _check_repeated(history, forgiven)
    _check_latest_offsets(history)


def _check_poll(poll: Poll, written: dict[bytes, Produce]) -> None:
    next_offset = poll.offset
    for offset, value in poll.records:
        # Compaction leaves gaps. What is missing there is looked for in the logs (`raw_logs.check_found`).
        if offset < next_offset or (offset > next_offset and not is_compacted(poll.topic)):
            raise InvariantViolated("I2", f"{_where(poll)}: offset {offset} came where {next_offset} belongs")
        next_offset = offset + 1
        produce = written.get(value)
        if produce is None or (produce.topic, produce.index) != (poll.topic, poll.index):
            raise InvariantViolated("I2", f"{_where(poll)}: {_short(value)} at {offset} was never written there")
        if produce.outcome is Outcome.FAILED:
            raise InvariantViolated("I2", f"{_where(poll)}: {_short(value)} at {offset} was refused with {produce.error}")
        if offset >= poll.high_watermark:
            raise InvariantViolated("I3", f"{_where(poll)}: offset {offset} is above high watermark {poll.high_watermark}")


def _check_values(polls: list[Poll]) -> None:
    """I1 and I2: each offset has one value, and each value one offset."""
    value_at: dict[int, tuple[bytes, Poll]] = {}
    offset_of: dict[bytes, int] = {}
    for poll in polls:
        for offset, value in poll.records:
            known, first = value_at.setdefault(offset, (value, poll))
            if known != value:
                raise InvariantViolated(
                    "I1", f"{_where(poll)}: offset {offset} is {_short(value)}; {first.client} read {_short(known)} there"
                )
            if offset_of.setdefault(value, offset) != offset:
                raise InvariantViolated("I2", f"{_where(poll)}: {_short(value)} is at {offset} and at {offset_of[value]}")


def _check_steps(polls: list[Poll]) -> None:
    """I2: each consumer continues where its last records ended."""
    positions: dict[str, int] = {}
    for poll in polls:
        expected = positions.get(poll.client, 0)
        # Where records are deleted, a consumer begins again.
        if poll.offset != expected and not (is_trimmed(poll.topic) or is_aging(poll.topic) or is_careless(poll.topic)):
            raise InvariantViolated("I2", f"{_where(poll)}: the consumer was at {expected}")
        if poll.records:
            positions[poll.client] = poll.records[-1][0] + 1


def _check_order(operations: Iterable[Poll | LatestOffset]) -> None:
    """I3: within one leader epoch, an operation never sees a lower high watermark than an operation that ended before it
    began."""
    by_epoch: dict[int, list[Poll | LatestOffset]] = {}
    for each in operations:
        by_epoch.setdefault(each.leader_epoch, []).append(each)
    for of_epoch in by_epoch.values():
        ended: list[tuple[int, int]] = []
        highest = -1
        for each in sorted(of_epoch, key=lambda operation: operation.begin_ns):
            while ended and ended[0][0] < each.begin_ns:
                highest = max(highest, heappop(ended)[1])
            if _end_offset(each) < highest:
                raise InvariantViolated(
                    "I3",
                    f"{_where(each)}: high watermark {_end_offset(each)} after {highest}, leader epoch {each.leader_epoch}",
                )
            if each.end_ns is not None:
                heappush(ended, (each.end_ns, _end_offset(each)))


def _check_acknowledged(
    history: History, polls: dict[TopicIdPartition, list[Poll]], forgiven: frozenset[TopicIdPartition]
) -> None:
    """I1: at the offset of a record that was acknowledged with acks=all, no consumer reads a different record."""
    read = {
        (key, offset): (value, poll)
        for key, of_partition in polls.items()
        for poll in of_partition
        for offset, value in poll.records
    }
    for produce in history.acknowledged(acks=ALL):
        if not _is_topic_certain(history, produce):
            continue
        key = TopicIdPartition(produce.topic_id, produce.index)
        for offset, value in acknowledged_records(produce):
            found, poll = read.get((key, offset), (value, None))
            if found != value and poll is not None and key not in forgiven:
                raise InvariantViolated(
                    "I1", f"{_where(poll)}: offset {offset} is {_short(found)}, acknowledged there was {_short(value)}"
                )


def _check_repeated(history: History, forgiven: frozenset[TopicIdPartition]) -> None:
    """I2: a retry that is acknowledged has the offset of the first attempt."""
    for produce in history.acknowledged(acks=ALL):
        repeated = produce.repeated_offset
        is_forgiven = TopicIdPartition(produce.topic_id, produce.index) in forgiven
        if repeated not in (None, produce.offset) and not is_forgiven and _is_topic_certain(history, produce):
            raise InvariantViolated(
                "I2",
                f"{produce.topic}-{produce.index}: {_short(produce.values[0])} was acknowledged at {produce.offset}, and "
                f"its retry at {repeated}",
            )


def _check_latest_offsets(history: History) -> None:
    changed = {change.topic for change in history.topic_changes if not change.is_creation}
    by_partition: dict[tuple[str, int], list[LatestOffset]] = {}
    for each in history.latest_offsets:
        # The request carries only the topic's name. If that name was deleted, it is unknown which topic of that name the
        # response is about.
        if each.outcome is Outcome.OK and each.topic not in changed:
            by_partition.setdefault((each.topic, each.index), []).append(each)
    for operations in by_partition.values():
        _check_order(operations)


def check_isr_sizes(
    history: History,
    isr_sizes: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
    without_controller: Sequence[int] = (),
) -> None:
    """I1: no acks=all write is acknowledged if the committed ISR has been smaller than min.insync.replicas for some time.
    Raises InvariantViolated.

    For a short time a leader may not know that the controller has shrunk its ISR. Time without a controller that could
    inform the leader does not count: `without_controller` lists, in ascending order, the times at which a look found no
    active, running controller, or a broker that was cut off from it."""
    minimum = {change.topic: change.min_insync_replicas for change in history.topic_changes if change.is_creation}
    for produce in history.acknowledged(acks=ALL):
        sizes = isr_sizes.get((produce.topic, produce.index), ())
        from_ns = _ignorant_since(produce.begin_ns, without_controller)
        before = [size for at_ns, size in sizes if at_ns <= from_ns][-1:]
        during = [size for at_ns, size in sizes if from_ns < at_ns <= (produce.end_ns or produce.begin_ns)]
        largest = max(before + during, default=None)
        needed = minimum.get(produce.topic, 1)
        if largest is not None and largest < needed:
            raise InvariantViolated(
                "I1",
                f"{produce.topic}-{produce.index}: {_short(produce.values[0])} was acknowledged at "
                f"{(produce.end_ns or 0) / 1e9:.6f} s with {largest} in sync, min.insync.replicas is {needed}",
            )


def _ignorant_since(begin_ns: int, without_controller: Sequence[int]) -> int:
    """At `begin_ns` a leader may not know yet about ISR changes that are newer than the returned time."""
    from_ns = begin_ns - LEADER_IGNORANCE_NS
    for look_ns in reversed(without_controller[: bisect_right(without_controller, begin_ns)]):
        if look_ns < from_ns:
            break
        from_ns -= BOUNDS_INTERVAL_NS
    return from_ns


def _is_topic_certain(history: History, produce: Produce) -> bool:
    """Whether the response surely came from the topic that the client meant. The request carries only a name, and the topic
    of that name may have been deleted and created again meanwhile."""
    return all(
        change.is_creation or change.topic != produce.topic or change.begin_ns > (produce.end_ns or 0)
        for change in history.topic_changes
    )


def acknowledged_records(produce: Produce) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the value of each record of an acknowledged batch."""
    return enumerate(produce.values, start=produce.offset)


def _end_offset(operation: Poll | LatestOffset) -> int:
    return operation.high_watermark if isinstance(operation, Poll) else operation.offset


def _where(operation: Poll | LatestOffset) -> str:
    return (
        f"{operation.topic}-{operation.index}, {operation.client} at {operation.begin_ns / 1e9:.6f} s from "
        f"{operation.offset}"
    )


def _short(value: bytes) -> str:
    return value.rstrip(b".").decode(errors="replace")
