"""What the clients saw, judged by itself: I1, I2 and I3 over the history.

Shell of the tests. Nothing here looks into the cluster. Easy to get wrong: only what a consumer has read, or acks=all has
acknowledged, is promised for ever; a record of acks=1 may be lost with its leader. And the high watermark may be lower under
a new leader than it was under the old one, so it is compared within one leader epoch.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from common.ids import TopicIdPartition
from tests.simulation.history import History, LatestOffset, Outcome, Poll, Produce
from tests.simulation.violations import InvariantViolated

ALL = -1
# The longest that a leader may go on with an ISR that the controller has made smaller meanwhile: its session, and some.
LEADER_IGNORANCE_NS = 6_000_000_000
# The pace at which the cluster is looked at for everything that counts in seconds.
BOUNDS_INTERVAL_NS = 50_000_000


def check_history(history: History, *, excused: Iterable[TopicIdPartition] = ()) -> None:
    """Raises InvariantViolated. `excused` partitions lost all their replicas' disks: what was read once may be gone."""
    forgiven = frozenset(excused)
    written = {value: produce for produce in history.produces for value in produce.values}
    polls: dict[TopicIdPartition, list[Poll]] = {}
    for poll in history.polls:
        polls.setdefault(TopicIdPartition(poll.topic_id, poll.index), []).append(poll)
    for key, of_partition in polls.items():
        for poll in of_partition:
            _check_poll(poll, written)
            if poll.error == "OFFSET_OUT_OF_RANGE" and key not in forgiven:
                raise InvariantViolated("I1", f"{_where(poll)}: the log ends before what was read already")
        if key not in forgiven:
            _check_values(of_partition)
        _check_steps(of_partition)
        _check_order(poll for poll in of_partition if poll.outcome is Outcome.OK)
    _check_acknowledged(history, polls, forgiven)
    _check_latest_offsets(history)


def _check_poll(poll: Poll, written: dict[bytes, Produce]) -> None:
    for position, (offset, value) in enumerate(poll.records):
        if offset != poll.offset + position:
            raise InvariantViolated("I2", f"{_where(poll)}: offset {offset} came where {poll.offset + position} belongs")
        produce = written.get(value)
        if produce is None or (produce.topic, produce.index) != (poll.topic, poll.index):
            raise InvariantViolated("I2", f"{_where(poll)}: {_short(value)} at {offset} was never written there")
        if produce.outcome is Outcome.FAILED:
            raise InvariantViolated("I2", f"{_where(poll)}: {_short(value)} at {offset} was refused with {produce.error}")
        if offset >= poll.high_watermark:
            raise InvariantViolated("I3", f"{_where(poll)}: offset {offset} is above high watermark {poll.high_watermark}")


def _check_values(polls: list[Poll]) -> None:
    """I1 and I2: an offset has one value, and a value one offset."""
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
    """I2: each consumer goes on where its last records ended."""
    positions: dict[str, int] = {}
    for poll in polls:
        expected = positions.get(poll.client, 0)
        if poll.offset != expected:
            raise InvariantViolated("I2", f"{_where(poll)}: the consumer was at {expected}")
        if poll.records:
            positions[poll.client] = poll.records[-1][0] + 1


def _check_order(operations: Iterable[Poll | LatestOffset]) -> None:
    """I3: in one leader epoch, what began after another had ended sees no lower high watermark."""
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
    """I1: where acks=all acknowledged a record, nobody reads another one."""
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


def _check_latest_offsets(history: History) -> None:
    changed = {change.topic for change in history.topic_changes if not change.is_creation}
    by_partition: dict[tuple[str, int], list[LatestOffset]] = {}
    for each in history.latest_offsets:
        # The request names the topic: after a deletion nobody knows which one has answered.
        if each.outcome is Outcome.OK and each.topic not in changed:
            by_partition.setdefault((each.topic, each.index), []).append(each)
    for operations in by_partition.values():
        _check_order(operations)


def check_isr_sizes(
    history: History,
    isr_sizes: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
    without_controller: Sequence[int] = (),
) -> None:
    """I1: no write of acks=all is acknowledged while the ISR that is recorded has been too small for long. Raises
    InvariantViolated. For a short time a leader may not know yet that the controller has made its ISR smaller; the time in
    which nobody could tell it does not count: `without_controller` are the looks, in order, that found no controller."""
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
    """From when on a leader may not have heard of anything, at `begin_ns`."""
    from_ns = begin_ns - LEADER_IGNORANCE_NS
    for look_ns in reversed(without_controller[: bisect_right(without_controller, begin_ns)]):
        if look_ns < from_ns:
            break
        from_ns -= BOUNDS_INTERVAL_NS
    return from_ns


def _is_topic_certain(history: History, produce: Produce) -> bool:
    """Whether the topic that answered is the one that the client meant: the request carries a name, and the topic behind it
    may have been deleted and created again meanwhile."""
    return all(
        change.is_creation or change.topic != produce.topic or change.begin_ns > (produce.end_ns or 0)
        for change in history.topic_changes
    )


def acknowledged_records(produce: Produce) -> Iterator[tuple[int, bytes]]:
    """Offset and value of each record of an acknowledged batch."""
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
