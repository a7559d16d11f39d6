"""Checks what transactional producers wrote: I25 and I26 over the history.

Shell of the tests. This module never looks into the cluster. Each producer counts: a transaction writes the next number into
some partitions and moves the producer's position to the number after it. So in the end exactly the numbers below the
position can be read, each from one transaction, and that one from all of its partitions.
"""

from collections import defaultdict

from tests.simulation.history import CommittedRead, History, Outcome, Transaction
from tests.simulation.violations import InvariantViolated


def check_transactions(history: History) -> None:
    """Checks the whole history. Raises InvariantViolated."""
    check_reads(history)
    if history.last_positions:
        check_atomicity(history)


def check_reads(history: History) -> None:
    """I26: no read with read_committed shows a record of a transaction whose producer never asked to commit it, and two
    reads of an offset show the same."""
    written = {each.value: each for each in history.transactions}
    seen: dict[tuple[str, int, int], bytes] = {}
    for read in history.committed_reads:
        for offset, value in read.values:
            transaction = written.get(value)
            where = f"{read.topic}-{read.index}: {read.client} read {value!r} at offset {offset}"
            if transaction is None or read.index not in transaction.indexes:
                raise InvariantViolated("I26", f"{where}, which nobody wrote there")
            if transaction.outcome is Outcome.FAILED:
                raise InvariantViolated("I26", f"{where}, which is aborted")
            if seen.setdefault((read.topic, read.index, offset), value) != value:
                raise InvariantViolated("I26", f"{where}, where another record was read before")


def check_atomicity(history: History) -> None:
    """I25: after the end, a transaction is read in all of its partitions or in none, once; those that are read have the
    numbers below the producer's position, one each; and every commit that was acknowledged is among them."""
    found = _found_in(history.last_reads)
    by_producer: dict[str, list[Transaction]] = defaultdict(list)
    for transaction in history.transactions:
        indexes = found.get(transaction.value, [])
        if indexes and sorted(indexes) != sorted(transaction.indexes):
            raise InvariantViolated(
                "I25",
                f"{transaction.value!r} was written to the partitions {list(transaction.indexes)} and is read in {indexes}",
            )
        if transaction.outcome is Outcome.OK and not indexes:
            raise InvariantViolated("I25", f"{transaction.value!r} was committed and is not read")
        if indexes:
            by_producer[transaction.client].append(transaction)
    for client, position in history.last_positions.items():
        numbers = sorted(each.number for each in by_producer[client])
        if numbers != list(range(max(position, 0))):
            raise InvariantViolated("I25", f"{client}: the position is {position}, and the numbers {numbers} are read")


def _found_in(reads: list[CommittedRead]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for read in reads:
        for _, value in read.values:
            found[value].append(read.index)
    return found
