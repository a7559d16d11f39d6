"""The guards of transactional batches that wait to be verified at one leader (core, KIP-890).

Counterpart of VerificationGuard and VerificationStateEntry in Kafka. A leader asks the transaction coordinator before a
batch begins a transaction in its partition. Without that, a batch that was delayed in the network could arrive after the
marker of its transaction. It would begin a transaction that nothing ends, and hold back the last stable offset forever.

1. A guard stands for the time from the question to the append. Batches of the same producer and epoch share it.
2. The next transactional batch or marker of the producer ends it. A marker that comes in between makes the answer worthless:
   the transaction that was confirmed has ended. A batch has no need for the guard any more, because its transaction is open.
   A marker of transaction.version 2 has an epoch of its own, and the next transaction has the same. So it leaves the guard
   of that epoch: the coordinator confirms only what is in the next transaction.
3. A guard is good for one leader epoch. Only the leader sees every marker before it answers a producer.
4. A guard outlives a refusal that the producer retries, and knows the lowest sequence number that was refused. A later batch
   must not overtake it: where the log knows nothing of the producer, any sequence number would be accepted. A producer of
   transaction.version 2 has a new epoch in each transaction, so it must begin with 0.
"""

from dataclasses import dataclass

from common.ids import LeaderEpoch
from common.records.batch import BatchHeader
from common.records.end_transaction import EndTransactionMarker
from common.storage.producers.state import InvalidTransactionState, OutOfOrderSequence, ProducerState


@dataclass(slots=True, eq=False)
class VerificationGuard:
    """One guard, compared by identity. `lowest_sequence` is that of the batches that have asked for it."""

    producer_id: int
    producer_epoch: int
    leader_epoch: LeaderEpoch
    lowest_sequence: int
    begun_ns: int
    begins_with_zero: bool = False


class VerificationGuards:
    """The guards of one partition."""

    def __init__(self) -> None:
        # By producer id and epoch. Invariant: no inner dict is empty.
        self._guards: dict[int, dict[int, VerificationGuard]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        leader_epoch: LeaderEpoch,
        now_ns: int,
        begins_with_zero: bool = False,
    ) -> VerificationGuard:
        """Returns the guard of a batch that is about to be verified. `begins_with_zero` is that of rule 4."""
        of_producer = self._guards.setdefault(producer_id, {})
        guard = of_producer.get(producer_epoch)
        if guard is None:
            guard = VerificationGuard(producer_id, producer_epoch, leader_epoch, sequence, now_ns)
            of_producer[producer_epoch] = guard
        guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        guard.begins_with_zero = guard.begins_with_zero or begins_with_zero
        return guard

    def is_current(self, guard: VerificationGuard) -> bool:
        """Whether nothing has ended the guard."""
        return self._guards.get(guard.producer_id, {}).get(guard.producer_epoch) is guard

    def validate_append(self, header: BatchHeader, guard: VerificationGuard | None, state: ProducerState) -> None:
        """Checks that the producer's transaction is open, or that the batch may begin one: nothing has ended its guard, and
        it overtakes no refused batch (rule 4). Raises ProducerRefused."""
        if state.has_open_transaction(header.producer_id, header.producer_epoch):
            return
        state.validate_epoch(header.producer_id, header.producer_epoch)
        if guard is None or not self.is_current(guard):
            raise InvalidTransactionState(f"the batch of producer {header.producer_id} is not part of an open transaction")
        first = 0 if guard.begins_with_zero else guard.lowest_sequence
        if header.producer_id not in state.entries and header.base_sequence > first:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence number {header.base_sequence} before {first}, which it has to "
                "send again"
            )

    def end_by(self, marker: EndTransactionMarker, state: ProducerState) -> None:
        """Ends the guards that this marker makes worthless (rule 2)."""
        known = state.entries.get(marker.producer_id)
        # A coordinator of Kafka 4.1 does not name the version, but the epoch may tell.
        if marker.has_own_epoch or (known is not None and known.epoch < marker.producer_epoch):
            self.end_below(marker.producer_id, marker.producer_epoch)
        else:
            self.end(marker.producer_id)

    def end(self, producer_id: int) -> None:
        """Ends the guards of a producer: a transactional batch or a marker of it is being appended (rule 2)."""
        self._guards.pop(producer_id, None)

    def end_below(self, producer_id: int, producer_epoch: int) -> None:
        """Ends the guards of a producer that have an older epoch: a marker with an epoch of its own is being appended."""
        for guard in [each for each in self._guards.get(producer_id, {}).values() if each.producer_epoch < producer_epoch]:
            self.drop(guard)

    def drop(self, guard: VerificationGuard) -> None:
        """Ends a guard whose batches have been refused for good."""
        if self.is_current(guard):
            of_producer = self._guards[guard.producer_id]
            del of_producer[guard.producer_epoch]
            if not of_producer:
                del self._guards[guard.producer_id]

    def clear(self) -> None:
        """Ends all guards: the leader epoch has changed (rule 3)."""
        self._guards.clear()

    def remove_expired(self, *, now_ns: int, expiration_ns: int) -> None:
        """Ends the guards that are as old as an expired producer. Their producers have not come back."""
        for of_producer in list(self._guards.values()):
            for guard in list(of_producer.values()):
                if now_ns - guard.begun_ns >= expiration_ns:
                    self.drop(guard)
