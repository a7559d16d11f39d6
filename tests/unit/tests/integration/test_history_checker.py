"""The checker of the history check finds each anomaly that is planted, and none in a history without one.

Every test begins with the same good history and spoils one thing. What the checker tells is compared whole, so each anomaly
is found once, by its own name, and nothing else is reported with it.
"""

from collections.abc import Sequence

import pytest

from tests.integration.history.checker import judge, summary
from tests.integration.history.operations import (
    Assign,
    Commit,
    Committed,
    EndTransaction,
    History,
    Outcome,
    Poll,
    Send,
    begun_line,
    ended_line,
    parse,
    source_of,
    value_of,
)

COUNT = 6
READER, MEMBER, OTHER = "reader", "member-1", "member-2"


def value(number: int, producer: str = "p") -> str:
    return value_of(producer, 0, number)


class Told:
    """A history that is written down operation by operation; each begins when the one before has ended."""

    def __init__(self) -> None:
        self.history = History()
        self._now = 0

    def send(self, number: int, offset: int, *, outcome: Outcome = Outcome.OK, producer: str = "p", txn: str = "") -> Send:
        begin, end = self._next()
        operation = Send(
            client=producer,
            order=begin,
            begin_ns=begin,
            end_ns=end,
            outcome=outcome,
            partition=0,
            value=value(number, producer),
            offset=offset,
            transaction=txn,
        )
        self.history.add(operation)
        return operation

    def poll(self, client: str, *offsets: int) -> Poll:
        begin, end = self._next()
        records = [(0, offset, self.history.log.get((0, offset), value(offset))) for offset in offsets]
        operation = Poll(client=client, order=begin, begin_ns=begin, end_ns=end, outcome=Outcome.OK, records=records)
        self.history.add(operation)
        return operation

    def assign(self, client: str) -> None:
        begin, end = self._next()
        self.history.add(Assign(client=client, order=begin, begin_ns=begin, end_ns=end, outcome=Outcome.OK, partitions=[0]))

    def commit(self, client: str, offset: int, outcome: Outcome = Outcome.OK) -> None:
        begin, end = self._next()
        self.history.add(
            Commit(client=client, order=begin, begin_ns=begin, end_ns=end, outcome=outcome, offsets={0: offset})
        )

    def committed(self, client: str, offset: int) -> None:
        begin, end = self._next()
        self.history.add(
            Committed(client=client, order=begin, begin_ns=begin, end_ns=end, outcome=Outcome.OK, offsets={0: offset})
        )

    def end(self, transaction: str, outcome: Outcome) -> None:
        begin, end = self._next()
        self.history.add(
            EndTransaction(client="p", order=begin, begin_ns=begin, end_ns=end, outcome=outcome, transaction=transaction)
        )

    def log(self, *numbers: int) -> None:
        self.history.log = {(0, offset): value(number) for offset, number in enumerate(numbers)}

    def kinds(self) -> list[str]:
        return [anomaly.kind for anomaly in judge(self.history)]

    def _next(self) -> tuple[int, int]:
        self._now += 2
        return self._now - 1, self._now


@pytest.fixture
def told() -> Told:
    """Six records were sent, acknowledged, read by a reader and by a group of two members, of which the second took over."""
    made = Told()
    for number in range(COUNT):
        made.send(number, number)
    made.log(*range(COUNT))
    made.assign(READER)
    made.poll(READER, 0, 1, 2)
    made.poll(READER, 3, 4, 5)
    made.committed(MEMBER, -1)
    made.assign(MEMBER)
    made.poll(MEMBER, 0, 1, 2, 3)
    made.commit(MEMBER, 3)
    made.committed(OTHER, 3)
    made.assign(OTHER)
    made.poll(OTHER, 3, 4, 5)
    made.commit(OTHER, 6)
    return made


def test_a_good_history_has_no_anomaly(told: Told) -> None:
    assert told.kinds() == []
    assert summary(told.history) == {
        "sent": 6,
        "acknowledged": 6,
        "unknown sends": 0,
        "in the log": 6,
        "polled": 13,
        "assignments": 3,
        "commits": 2,
        "unknown or failed commits": 0,
        "transactions": 0,
    }


def test_a_record_whose_outcome_is_unknown_may_be_there_or_not(told: Told) -> None:
    told.send(6, -1, outcome=Outcome.UNKNOWN)
    assert told.kinds() == []
    told.log(*range(7))
    assert told.kinds() == []


# --- writes ----------------------------------------------------------------------------------------------------------


def test_a_lost_acknowledged_write(told: Told) -> None:
    told.send(6, 6)
    assert told.kinds() == ["lost write"]


def test_an_acknowledged_write_whose_offset_the_client_did_not_learn(told: Told) -> None:
    """The acknowledgement of a duplicate has no offset. The record must be somewhere all the same."""
    told.send(6, -1)
    assert told.kinds() == ["lost write"]
    told.log(*range(7))
    assert told.kinds() == []


def test_an_acknowledged_write_that_is_elsewhere(told: Told) -> None:
    told.send(6, 7)
    told.send(7, 6)
    told.log(*range(8))
    assert told.kinds() == ["lost write", "lost write"]


def test_a_duplicate(told: Told) -> None:
    told.log(*range(COUNT), 5)
    assert told.kinds() == ["duplicate"]


def test_records_of_a_producer_in_another_order(told: Told) -> None:
    told.send(6, -1)
    told.send(7, -1)
    told.log(*range(COUNT), 7, 6)
    assert told.kinds() == ["reordered"]


def test_producers_are_in_no_order_among_each_other(told: Told) -> None:
    told.send(0, 6, producer="q")
    told.history.log[0, 6] = value(0, "q")
    assert told.kinds() == []


def test_a_record_that_nobody_sent(told: Told) -> None:
    told.log(*range(COUNT), 6)
    assert told.kinds() == ["foreign record"]
    told.history.log[0, 6] = "garbage"
    assert told.kinds() == ["foreign record"]


def test_a_record_that_was_refused(told: Told) -> None:
    told.send(6, -1, outcome=Outcome.FAILED)
    assert told.kinds() == []
    told.log(*range(7))
    assert told.kinds() == ["foreign record"]


def test_a_record_in_another_partition(told: Told) -> None:
    told.send(6, -1)
    told.history.log[1, 0] = value(6)
    assert told.kinds() == ["foreign record"]


def test_an_offset_without_a_record(told: Told) -> None:
    told.send(6, 7)
    told.history.log[0, 7] = value(6)
    assert told.kinds() == ["gap"]


# --- polls -----------------------------------------------------------------------------------------------------------


def test_a_poll_of_what_nobody_sent(told: Told) -> None:
    told.poll(READER, 6)
    assert told.kinds() == ["dirty read"]


def test_a_poll_of_what_is_not_in_the_log(told: Told) -> None:
    """The record was read before it was committed, and then truncated: its outcome is unknown, but a reader saw it."""
    told.send(6, -1, outcome=Outcome.UNKNOWN)
    told.poll(READER, 6)
    assert told.kinds() == ["dirty read"]


def test_a_poll_of_what_another_record_has_replaced(told: Told) -> None:
    told.send(6, -1, outcome=Outcome.UNKNOWN)
    told.poll(READER, 6)
    told.send(7, 6)
    told.log(*range(COUNT), 7)
    assert told.kinds() == ["dirty read"]


@pytest.mark.parametrize("offsets", [(5,), (2,), (0,)])
def test_a_non_monotonic_poll(told: Told, offsets: Sequence[int]) -> None:
    told.poll(READER, *offsets)
    assert told.kinds() == ["non-monotonic poll"]


def test_a_non_monotonic_poll_within_one_answer(told: Told) -> None:
    told.assign(READER)
    told.poll(READER, 1, 2, 1)
    assert told.kinds() == ["non-monotonic poll"]


def test_an_assignment_begins_anew(told: Told) -> None:
    told.assign(READER)
    told.poll(READER, 1, 2)
    assert told.kinds() == []


def test_a_skipped_poll(told: Told) -> None:
    told.assign(READER)
    told.poll(READER, 0, 1)
    told.poll(READER, 4)
    assert told.kinds() == ["skipped poll"]


def test_an_offset_without_a_record_cannot_be_polled(told: Told) -> None:
    """A marker of a transaction takes an offset that no client ever sees."""
    told.send(6, 7, txn="x")
    told.end("x", Outcome.OK)
    told.history.log[0, 7] = value(6)
    told.poll(READER, 7)
    assert told.kinds() == []


# --- committed offsets -----------------------------------------------------------------------------------------------


def test_a_record_that_the_group_has_not_read(told: Told) -> None:
    """That a reader outside of the group has polled the record does not help."""
    told.history.polls = [poll for poll in told.history.polls if poll.client != OTHER]
    assert told.kinds() == ["unread"]


def test_a_committed_offset_that_goes_back(told: Told) -> None:
    told.committed(MEMBER, 3)
    assert told.kinds() == ["lost commit"]


def test_a_committed_offset_that_is_gone(told: Told) -> None:
    told.committed(MEMBER, -1)
    assert told.kinds() == ["lost commit"]


def test_a_member_that_begins_before_what_was_committed(told: Told) -> None:
    told.assign(MEMBER)
    told.poll(MEMBER, 4, 5)
    assert told.kinds() == ["lost commit"]


def test_a_commit_whose_outcome_is_unknown_may_still_arrive(told: Told) -> None:
    told.commit(MEMBER, 4, Outcome.UNKNOWN)
    told.committed(MEMBER, 4)
    assert told.kinds() == []
    told.committed(MEMBER, 5)
    assert told.kinds() == ["lost commit"]


def test_a_commit_that_has_not_ended_when_the_offset_is_read(told: Told) -> None:
    """The read began before the commit ended, so it may find either offset."""
    told.commit(OTHER, 6)
    late = told.history.commits[-1]
    told.committed(MEMBER, 6)
    told.history.committed[-1].begin_ns = late.begin_ns
    assert told.kinds() == []


# --- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_that_was_committed_is_there(told: Told) -> None:
    told.send(6, 6, txn="x")
    told.send(7, 7, txn="x")
    told.end("x", Outcome.OK)
    assert told.kinds() == ["lost write", "lost write"]
    told.log(*range(8))
    assert told.kinds() == []


def test_a_transaction_that_was_aborted_is_not_there(told: Told) -> None:
    told.send(6, 6, txn="x")
    told.end("x", Outcome.FAILED)
    assert told.kinds() == []
    told.log(*range(7))
    assert told.kinds() == ["G1a"]


def test_an_aborted_record_that_a_client_polled(told: Told) -> None:
    """G1a, and since the record is not in the log for those who read committed records only, a dirty read."""
    told.send(6, 6, txn="x")
    told.end("x", Outcome.FAILED)
    told.poll(READER, 6)
    assert told.kinds() == ["dirty read", "G1a"]


def test_a_part_of_a_transaction(told: Told) -> None:
    """Its end is unknown, because the producer died. It may be there or not, but not in parts."""
    told.send(6, 6, txn="x")
    told.send(7, 7, txn="x")
    assert told.kinds() == []
    told.log(*range(7))
    assert told.kinds() == ["torn transaction"]
    told.log(*range(8))
    assert told.kinds() == []


# --- files -----------------------------------------------------------------------------------------------------------


def test_operations_survive_their_file() -> None:
    """One operation of each kind, among them two that are open at the same time and one without an end."""
    lines = [
        begun_line(1, Send, 10, {"partition": 2, "value": "p/2/0"}),
        begun_line(2, Send, 11, {"partition": 3, "value": "p/3/0"}),
        ended_line(2, 12, Outcome.OK, {"offset": 7}),
        begun_line(3, Poll, 13, {"records": []}),
        ended_line(3, 14, Outcome.OK, {"records": [[2, 5, "p/2/1"]]}),
        begun_line(4, Assign, 15, {"partitions": [1, 2]}),
        ended_line(4, 16, Outcome.OK, {}),
        begun_line(5, Commit, 17, {"offsets": {2: 6}}),
        ended_line(5, 18, Outcome.UNKNOWN, {"error": "timed out"}),
        begun_line(6, Committed, 19, {"offsets": {}}),
        ended_line(6, 20, Outcome.OK, {"offsets": {2: 6}}),
        begun_line(7, EndTransaction, 21, {"transaction": "x"}),
        ended_line(7, 22, Outcome.FAILED, {}),
    ]
    ok = Outcome.OK
    assert parse("c", [f"{line}\n" for line in lines]) == [
        Send(client="c", order=0, begin_ns=11, end_ns=12, outcome=ok, partition=3, value="p/3/0", offset=7),
        Poll(client="c", order=1, begin_ns=13, end_ns=14, outcome=ok, records=[(2, 5, "p/2/1")]),
        Assign(client="c", order=2, begin_ns=15, end_ns=16, outcome=ok, partitions=[1, 2]),
        Commit(client="c", order=3, begin_ns=17, end_ns=18, outcome=Outcome.UNKNOWN, error="timed out", offsets={2: 6}),
        Committed(client="c", order=4, begin_ns=19, end_ns=20, outcome=ok, offsets={2: 6}),
        EndTransaction(client="c", order=5, begin_ns=21, end_ns=22, outcome=Outcome.FAILED, transaction="x"),
        Send(client="c", order=6, begin_ns=10, partition=2, value="p/2/0"),
    ]


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    whole = begun_line(1, Send, 10, {"partition": 2, "value": "p/2/0"})
    assert len(parse("c", [f"{whole}\n", whole[:20]])) == 1
    with pytest.raises(ValueError, match="line 1 column 21"):
        parse("c", [f"{whole[:20]}\n", f"{whole}\n"])


def test_a_value_says_who_sent_it() -> None:
    assert source_of(value_of("producer-confluent.3", 4, 117)) == ("producer-confluent.3", 4, 117)
    with pytest.raises(ValueError, match="not enough values"):
        source_of("garbage")
