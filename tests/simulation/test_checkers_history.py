"""Tests the checker of what clients saw: a valid history passes, and each planted observation breaks its invariant."""

from collections.abc import Callable

import pytest

from common.ids import TopicId, TopicIdPartition, Uuid
from tests.simulation.checkers.history import BOUNDS_INTERVAL_NS, check_history, check_isr_sizes
from tests.simulation.history import History, LatestOffset, Outcome, Poll, Produce, TopicChange
from tests.simulation.violations import InvariantViolated

TOPIC = TopicId(Uuid(b"t" * 16))


def produce(value: str, offset: int, *, outcome: Outcome = Outcome.OK, acks: int = -1) -> Produce:
    return Produce(
        client="p",
        begin_ns=offset,
        end_ns=offset + 1,
        outcome=outcome,
        topic="t",
        topic_id=TOPIC,
        index=0,
        acks=acks,
        values=(value.encode(),),
        offset=offset,
    )


def poll(client: str, offset: int, *values: str, at_ns: int = 100, high_watermark: int = 10, error: str = "") -> Poll:
    return Poll(
        client=client,
        begin_ns=at_ns,
        end_ns=at_ns + 1,
        outcome=Outcome.FAILED if error else Outcome.OK,
        error=error,
        topic="t",
        topic_id=TOPIC,
        index=0,
        offset=offset,
        leader_epoch=0,
        records=tuple(enumerate((value.encode() for value in values), start=offset)),
        high_watermark=high_watermark,
    )


def latest(offset: int, *, at_ns: int) -> LatestOffset:
    return LatestOffset(
        client="c",
        begin_ns=at_ns,
        end_ns=at_ns + 1,
        outcome=Outcome.OK,
        topic="t",
        topic_id=TOPIC,
        index=0,
        leader_epoch=0,
        offset=offset,
    )


def innocent() -> History:
    return History(
        produces=[produce("a", 0), produce("b", 1), produce("lost", 2, acks=1), produce("c", -1, outcome=Outcome.UNKNOWN)],
        polls=[poll("c", 0, "a", "b"), poll("c", 2, "c", at_ns=200), poll("d", 0, "a", at_ns=200)],
        latest_offsets=[latest(2, at_ns=10), latest(3, at_ns=20)],
    )


def test_an_innocent_history_passes() -> None:
    """A write with an unknown outcome may be read, an acks=1 record may be lost, and each consumer has its own position."""
    check_history(innocent())


@pytest.mark.parametrize(
    ("invariant", "plant"),
    [
        ("I1", lambda history: history.produces.append(produce("d", 2))),
        ("I1", lambda history: history.polls.append(poll("e", 0, "b"))),
        ("I1", lambda history: history.polls.append(poll("c", 3, error="OFFSET_OUT_OF_RANGE", at_ns=300))),
        ("I2", lambda history: history.polls.append(poll("e", 0, "nobody wrote this"))),
        ("I2", lambda history: history.produces.append(produce("c", -1, outcome=Outcome.FAILED))),
        ("I2", lambda history: history.polls.append(poll("e", 0, "a", "b", "c", "a"))),
        ("I2", lambda history: history.polls.append(poll("c", 1, "b", at_ns=300))),
        ("I3", lambda history: history.polls.append(poll("e", 0, "a", "b", high_watermark=1))),
        ("I3", lambda history: history.polls.append(poll("c", 3, at_ns=300, high_watermark=9))),
        ("I3", lambda history: history.latest_offsets.append(latest(1, at_ns=30))),
    ],
)
def test_what_must_not_be_seen_is_found(invariant: str, plant: Callable[[History], None]) -> None:
    """Each case plants one violation: a lost, changed, foreign, refused or duplicated record, a wrong position of a
    consumer, a high watermark that fell, or a read past the high watermark."""
    history = innocent()
    plant(history)
    with pytest.raises(InvariantViolated) as caught:
        check_history(history)
    assert caught.value.invariant == invariant


def test_a_gap_inside_one_answer_is_found() -> None:
    """I2: an offset is missing among the records of one poll."""
    history = innocent()
    gap = poll("e", 0, "a", "b")
    gap.records = ((0, b"a"), (2, b"c"))
    history.polls.append(gap)
    with pytest.raises(InvariantViolated, match="offset 2 came where 1 belongs"):
        check_history(history)


def test_a_partition_that_lost_all_its_disks_is_excused() -> None:
    """A changed record is no violation in an excused partition: all its replicas lost their disks."""
    history = innocent()
    history.polls.append(poll("e", 0, "b"))
    check_history(history, excused=[TopicIdPartition(TOPIC, 0)])


def test_an_isr_that_was_too_small_for_long() -> None:
    """I1: a write with acks=all and min.insync.replicas=2 was acknowledged long after the ISR had shrunk to one. Shortly
    after the shrink this is allowed, because the leader may not know about the shrink yet."""
    second = 1_000_000_000
    created = TopicChange(client="a", begin_ns=0, topic="t", is_creation=True, min_insync_replicas=2)
    write = produce("a", 0)
    write.begin_ns, write.end_ns = 20 * second, 21 * second
    history = History(produces=[write], topic_changes=[created])
    for sizes in ([(0, 3), (19 * second, 1)], [(0, 3), (2 * second, 1), (18 * second, 2)], [(20 * second, 3)], []):
        check_isr_sizes(history, {("t", 0): sizes})
    with pytest.raises(InvariantViolated, match="with 1 in sync"):
        check_isr_sizes(history, {("t", 0): [(0, 3), (10 * second, 1)]})
    # Without a controller the leader cannot learn about the shrink (seed 100436). But a time without a controller is no
    # excuse if it ended long before the write or began after it.
    shrunk = {("t", 0): [(0, 3), (10 * second, 1)]}
    check_isr_sizes(history, shrunk, range(11 * second, 20 * second, BOUNDS_INTERVAL_NS))
    for away in (range(11 * second, 13 * second, BOUNDS_INTERVAL_NS), range(21 * second, 30 * second, BOUNDS_INTERVAL_NS)):
        with pytest.raises(InvariantViolated, match="with 1 in sync"):
            check_isr_sizes(history, shrunk, away)


@pytest.mark.parametrize(("repeated", "is_found"), [(None, False), (3, False), (4, True), (0, True)])
def test_a_retry_is_acknowledged_where_the_first_attempt_was(repeated: int | None, is_found: bool) -> None:
    """I2: a different offset means that the record was stored twice, even if nobody has read it."""
    sent = produce("a", 3)
    sent.repeated_offset = repeated
    if not is_found:
        check_history(History(produces=[sent]))
        return
    with pytest.raises(InvariantViolated, match="I2: t-0: a was acknowledged at 3, and its retry at"):
        check_history(History(produces=[sent]))
    check_history(History(produces=[sent]), excused=[TopicIdPartition(TOPIC, 0)])
