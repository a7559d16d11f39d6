"""What a leader asks transaction coordinators, in which requests, and what their answers mean to whom."""

from typing import cast

import pytest

from broker.coordinator.core.transactions.partitions import partition_results
from broker.coordinator.core.transactions.verification import (
    AddRetries,
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


def question(partition: int = 0, *, transactional_id: str = "t", producer_id: int = 7, is_add: bool = False) -> Question:
    return Question(transactional_id, producer_id, 0, "a", partition, is_add)


def transaction(
    *partitions: int, transactional_id: str = "t", producer_id: int = 7, is_add: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        verify_only=not is_add,
        topics=[AddPartitionsToTxnTopic(name="a", partitions=list(partitions))],
    )


def test_one_request_to_each_coordinator_is_under_way() -> None:
    """What comes meanwhile is asked with the next one, all together, also if it is about the same partition: its guard has
    been given out after the question."""
    asking = Verifications(AddRetries())
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
    asking, shared = Verifications(AddRetries()), guard()
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
    asking = Verifications(AddRetries())
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
    asking = Verifications(AddRetries())
    asking.ask(ONE, question(), guard(), "waiter", now_ns=0)
    asking.next_request(ONE)
    assert asking.answered(ONE, response, now_ns=0) == [Verified("waiter", expected)]


def test_what_is_to_be_added_is_asked_apart_from_what_is_to_be_verified() -> None:
    """A transactional id is in a request once, and its partitions are either added or verified."""
    asking, shared = Verifications(AddRetries()), guard()
    asking.ask(ONE, question(), shared, "verified", now_ns=0)
    asking.ask(ONE, question(is_add=True), shared, "added", now_ns=0)
    first = asking.next_request(ONE)
    assert first == AddPartitionsToTxnRequest(transactions=[transaction(0)])
    assert asking.answered(ONE, answer(first), now_ns=0) == [Verified("verified", OK)]
    second = asking.next_request(ONE)
    assert second == AddPartitionsToTxnRequest(transactions=[transaction(0, is_add=True)])
    assert asking.answered(ONE, answer(second), now_ns=0) == [Verified("added", OK)]


def test_an_addition_that_comes_too_early_is_repeated_for_a_while() -> None:
    """The markers of the transaction before are being written. Those who come meanwhile wait behind the first, and another
    coordinator may be the one that answers."""
    asking, shared = Verifications(AddRetries()), guard()
    asking.ask(ONE, question(is_add=True), shared, "first", now_ns=0)
    early = ErrorCode.CONCURRENT_TRANSACTIONS
    assert asking.answered(ONE, answer(asking.next_request(ONE), early), now_ns=5) == []
    assert (asking.has_to_ask_again, asking.next_request(ONE)) == (True, None)
    asking.ask(ONE, question(is_add=True), shared, "second", now_ns=6)
    assert asking.ask_again(lambda _: TWO, now_ns=10) == ({TWO}, [])
    assert not asking.has_to_ask_again
    request = asking.next_request(TWO)
    assert request == AddPartitionsToTxnRequest(transactions=[transaction(0, is_add=True)])
    assert asking.answered(TWO, answer(request), now_ns=20) == [Verified("first", OK), Verified("second", OK)]


def test_the_repetition_ends() -> None:
    """After the time that it may take, or when there is nobody to ask. What is only verified is not repeated."""
    early = ErrorCode.CONCURRENT_TRANSACTIONS
    asking = Verifications(AddRetries(max_ns=7))
    asking.ask(ONE, question(is_add=True), guard(), "added", now_ns=0)
    assert asking.answered(ONE, answer(asking.next_request(ONE), early), now_ns=6) == []
    asking.ask_again(lambda _: ONE, now_ns=6)
    assert asking.answered(ONE, answer(asking.next_request(ONE), early), now_ns=7) == [Verified("added", early)]
    asking.ask(ONE, question(), guard(), "verified", now_ns=0)
    assert asking.answered(ONE, answer(asking.next_request(ONE), early), now_ns=0) == [Verified("verified", early)]
    asking.ask(ONE, question(is_add=True), guard(), "nobody", now_ns=0)
    asking.answered(ONE, answer(asking.next_request(ONE), early), now_ns=0)
    assert asking.ask_again(lambda _: None, now_ns=1) == (set(), [Verified("nobody", ErrorCode.COORDINATOR_NOT_AVAILABLE)])


def test_a_coordinator_of_an_older_release_verifies_nothing_and_adds_nothing() -> None:
    asking = Verifications(AddRetries())
    asking.ask(ONE, question(0), guard(), "verified", now_ns=0)
    asking.ask(ONE, question(1, transactional_id="u", is_add=True), guard(), "added", now_ns=0)
    asking.next_request(ONE)
    assert asking.not_served(ONE, now_ns=0) == [
        Verified("verified", OK),
        Verified("added", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


def test_questions_failures_and_their_time_are_counted() -> None:
    asking = Verifications(AddRetries())
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
    ]
    table += [
        (error, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for error in (
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
        )
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


def test_who_wants_to_add_knows_that_it_may_be_too_early() -> None:
    for error, expected in (
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
    ):
        assert produce_error(error, knows_abortable=True, is_add=True) is expected


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


def test_a_marker_with_an_epoch_of_its_own_ends_the_guards_below_it() -> None:
    """The guard with the same epoch is for the next transaction."""
    guards = VerificationGuards()
    older, same, other = begin(guards), begin(guards, epoch=1), begin(guards, producer_id=8)
    guards.end_below(7, 1)
    assert [guards.is_current(each) for each in (older, same, other)] == [False, True, True]
    guards.end_below(7, 2)
    guards.end_below(7, 3)
    assert len(guards) == 1
