"""DescribeTransactions and ListTransactions (KIP-664, KIP-1152) (core)."""

from collections.abc import Generator, Iterable
from typing import Final

from broker.coordinator.core.regex import Regex
from broker.coordinator.core.result import Now
from broker.coordinator.core.transactions.state import TransactionState
from broker.coordinator.core.transactions.transaction import Transaction
from common.protocol.messages import describe_transactions, list_transactions

# How many steps of an automaton a turn of the event loop may cost.
WORK_AT_ONCE: Final = 50_000

_LABELS = {state.label: state for state in TransactionState}


def describe(transaction: Transaction) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in transaction.by_topic().items()
        ],
    )


def list_transaction(transaction: Transaction) -> list_transactions.TransactionState:
    return list_transactions.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )


def unknown_states(request: list_transactions.ListTransactionsRequest) -> list[str]:
    """Returns the names in the request that are names of no state."""
    return [each for each in request.state_filters if each not in _LABELS]


def requested_pattern(request: list_transactions.ListTransactionsRequest) -> Regex | None:
    """Returns what the transactional ids must match, None if nothing. Raises InvalidRegex."""
    return Regex(request.transactional_id_pattern) if request.transactional_id_pattern else None


def matching_pattern(
    pattern: Regex, listed: Iterable[list_transactions.TransactionState]
) -> Generator[None, None, list[list_transactions.TransactionState]]:
    """Returns the transactions whose ids match. Yields often enough that the event loop can do other work in between."""
    found = []
    work_before = pattern.work
    for each in listed:
        if pattern.matches(each.transactional_id):
            found.append(each)
        if pattern.work - work_before > WORK_AT_ONCE:
            work_before = pattern.work
            yield
    return found


class TransactionFilter:
    """What a ListTransactions request asks for, except for the pattern of ids. Naming only unknown states finds nothing. To
    be made once for all shards: a request of a few MiB may name 100,000s of states and producers."""

    def __init__(self, request: list_transactions.ListTransactionsRequest) -> None:
        self._states = set(request.state_filters)
        self._producer_ids = set(request.producer_id_filters)
        self._duration_ms = request.duration_filter

    def admits(self, transaction: Transaction, now: Now) -> bool:
        if self._states and transaction.state.label not in self._states:
            return False
        if self._producer_ids and transaction.producer_id not in self._producer_ids:
            return False
        return self._duration_ms < 0 or now.wall_ms - transaction.start_ms > self._duration_ms
