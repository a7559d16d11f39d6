"""What a leader asks transaction coordinators, in which requests, and what their answers mean to whom."""

from typing import cast

import pytest

from broker.coordinator.core.transactions.partitions import partition_results
from broker.coordinator.core.transactions.verification import (
    Question,
    VerificationCounts,
    Verifications,
    Verified,
    offset_commit_error,
    produce_error,
)
from broker.core.verification_guards import VerificationGuard, VerificationGuards
from common.ids import BrokerId, LeaderEpoch
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

ONE, TWO = BrokerId(1), BrokerId(2)
OK = ErrorCode.NONE


def guard() -> VerificationGuard:
    return VerificationGuard(7, 0, LeaderEpoch(0), 0, 0)


def answer(request: AddPartitionsToTxnRequest | None, error: int = OK) -> AddPartitionsToTxnResponse:
    assert request is not None
    results = [partition_results(each, lambda _: cast(ErrorCode, error)) for each in request.transactions]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def question(partition: int = 0, *, transactional_id: str = "t", producer_id: int = 7) -> Question:
    return Question(transactional_id, producer_id, 0, "a", partition)


def transaction(*partitions: int, transactional_id: str = "t", producer_id: int = 7) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="a", partitions=list(partitions))],
    )


def test_one_request_to_each_coordinator_is_under_way() -> None:
    """What comes meanwhile is asked with the next one, all together, also if it is about the same partition: its guard has
    been given out after the question."""
    asking = Verifications()
    for partition, coordinator in ((0, ONE), (1, ONE), (2, TWO)):
        asking.ask(coordinator, question(partition), guard(), partition, now_ns=0)
    first, other = asking.next_request(ONE), asking.next_request(TWO)
    assert first == AddPartitionsToTxnRequest(transactions=[transaction(0, 1)])
    assert other == AddPartitionsToTxnRequest(transactions=[transaction(2)])
    asking.ask(ONE, question(0), guard(), "later", now_ns=0)
    assert asking.next_request(ONE) is None
    assert asking.answered(ONE, answer(first), now_ns=0) == [Verified(0, OK), Verified(1, OK)]
    assert asking.next_request(ONE) == AddPartitionsToTxnRequest(transactions=[transaction(0)])
    assert asking.failed(TWO, ErrorCode.NETWORK_EXCEPTION, now_ns=0) == [Verified(2, ErrorCode.NETWORK_EXCEPTION)]
    assert asking.next_request(TWO) is None


def test_who_shares_a_guard_shares_the_answer() -> None:
    """Also while the question is under way. Afterwards it is asked again. Another transactional id is another question."""
    asking, shared = Verifications(), guard()
    asking.ask(ONE, question(), shared, "first", now_ns=0)
    request = asking.next_request(ONE)
    asking.ask(ONE, question(), shared, "second", now_ns=0)
    asking.ask(ONE, question(transactional_id="u"), shared, "other id", now_ns=0)
    assert asking.answered(ONE, answer(request), now_ns=0) == [Verified("first", OK), Verified("second", OK)]
    asking.ask(ONE, question(), shared, "third", now_ns=0)
    request = asking.next_request(ONE)
    assert request == AddPartitionsToTxnRequest(transactions=[transaction(0, transactional_id="u"), transaction(0)])


def test_two_producers_with_the_same_id_are_asked_about_one_after_the_other() -> None:
    """The results are told apart by the id."""
    asking = Verifications()
    for producer_id in (7, 8, 7):
        asking.ask(ONE, question(producer_id=producer_id), guard(), producer_id, now_ns=0)
    first = asking.next_request(ONE)
    assert first == AddPartitionsToTxnRequest(transactions=[transaction(0)])
    assert asking.answered(ONE, answer(first), now_ns=0) == [Verified(7, OK), Verified(7, OK)]
    second = asking.next_request(ONE)
    assert second == AddPartitionsToTxnRequest(transactions=[transaction(0, producer_id=8)])
    assert asking.answered(ONE, answer(second, ErrorCode.PRODUCER_FENCED), now_ns=0) == [
        Verified(8, ErrorCode.PRODUCER_FENCED)
    ]
    assert asking.next_request(ONE) is None


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        # Nothing is confirmed by what is left out.
        (AddPartitionsToTxnResponse(), ErrorCode.NETWORK_EXCEPTION),
        (answer(AddPartitionsToTxnRequest(transactions=[transaction(1)])), ErrorCode.NETWORK_EXCEPTION),
        (AddPartitionsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        # A newer release may have errors that are not known here.
        (AddPartitionsToTxnResponse(error_code=9999), ErrorCode.UNKNOWN_SERVER_ERROR),
        (answer(AddPartitionsToTxnRequest(transactions=[transaction(0)]), 9999), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_only_a_clear_yes_confirms(response: AddPartitionsToTxnResponse, expected: ErrorCode) -> None:
    asking = Verifications()
    asking.ask(ONE, question(), guard(), "waiter", now_ns=0)
    asking.next_request(ONE)
    assert asking.answered(ONE, response, now_ns=0) == [Verified("waiter", expected)]


def test_questions_failures_and_their_time_are_counted() -> None:
    asking = Verifications()
    for partition in (0, 1):
        asking.ask(ONE, question(partition), guard(), partition, now_ns=10 * partition)
    asking.answered(ONE, answer(asking.next_request(ONE)), now_ns=50)
    asking.ask(ONE, question(), guard(), "refused", now_ns=60)
    asking.answered(ONE, answer(asking.next_request(ONE), ErrorCode.TRANSACTION_ABORTABLE), now_ns=65)
    assert asking.counts == VerificationCounts(asked=3, failed=1, time_ns_sum=95, time_ns_max=50)


@pytest.mark.parametrize("knows_abortable", [True, False])
def test_what_producers_and_groups_are_told(knows_abortable: bool) -> None:
    abortable = ErrorCode.TRANSACTION_ABORTABLE if knows_abortable else ErrorCode.INVALID_TXN_STATE
    table = [
        (ErrorCode.TRANSACTION_ABORTABLE, abortable, abortable),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]
    table += [
        (error, ErrorCode.NOT_ENOUGH_REPLICAS, error)
        for error in (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        )
    ]
    table += [(error, error, error) for error in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
    for error, produce, commit in table:
        assert produce_error(error, knows_abortable=knows_abortable) is produce
        assert offset_commit_error(error, knows_abortable=knows_abortable) is commit


# --- guards ----------------------------------------------------------------------------------------------------------


def begin(guards: VerificationGuards, *, producer_id: int = 7, epoch: int = 0, sequence: int = 0) -> VerificationGuard:
    return guards.begin(producer_id, epoch, sequence, leader_epoch=LeaderEpoch(3), now_ns=0)


def test_batches_of_a_producer_and_epoch_share_a_guard() -> None:
    """It knows the lowest of their sequence numbers."""
    guards = VerificationGuards()
    first = begin(guards, sequence=5)
    assert begin(guards, sequence=9) is first
    assert first.lowest_sequence == 5
    assert begin(guards, sequence=2) is first
    assert first.lowest_sequence == 2
    assert begin(guards, epoch=1) is not first
    assert begin(guards, producer_id=8) is not first
    assert len(guards) == 3


def test_the_end_of_a_guard_is_for_good() -> None:
    """The next one is another, so an old answer does not fit it."""
    guards = VerificationGuards()
    older, newer, other = begin(guards), begin(guards, epoch=1), begin(guards, producer_id=8)
    guards.end(7)
    assert [guards.is_current(each) for each in (older, newer, other)] == [False, False, True]
    again = begin(guards)
    assert again is not older
    guards.drop(older)
    assert guards.is_current(again)
    guards.drop(again)
    assert (guards.is_current(again), len(guards)) == (False, 1)
    guards.clear()
    assert (guards.is_current(other), len(guards)) == (False, 0)
    guards.end(7)
