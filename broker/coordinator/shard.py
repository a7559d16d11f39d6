"""What a partition's coordinator asks of the shard that it loads: the interface between the shell and the cores (shell).

Counterpart of Kafka's CoordinatorShard. `GroupShard` and `TransactionShard` are its implementations. Everything else in this
package that loads a shard, appends its records and keeps its timers is the same for both, as in Kafka's CoordinatorRuntime.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from broker.coordinator.core.result import Answer, Now, Step
from common.protocol.errors import ErrorCode
from common.records.end_transaction import EndTransactionMarker


class Shard(Protocol):
    """The state of one partition. Its requests are methods of its own."""

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Applies a record of the log while the shard is loaded. Raises ProtocolError for a malformed record."""

    def replay_transactional(self, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Applies a record of a transactional batch, which has its effect only if the transaction is committed. Raises
        ProtocolError for a malformed record."""

    def replay_marker(self, marker: EndTransactionMarker) -> None:
        """Applies the end of a producer's transaction."""

    def loaded(self, now: Now) -> Step:
        """Ends the load."""

    def unloaded(self, error: ErrorCode) -> list[Answer]:
        """Answers all requests that wait. The shard is not used afterwards."""

    def timer_fired(self, now: Now, key: tuple[str, ...]) -> list[Step]:
        """The time of a timer set by an earlier step has come."""

    def expirable(self) -> Sequence[str]:
        """Returns the ids of what may expire. Called at a regular interval."""

    def expire(self, now: Now, ids: Sequence[str]) -> list[Step]:
        """Deletes what has expired of the groups or transactions with these ids, some of which may have gone."""


S = TypeVar("S", bound=Shard)

# An operation of the shard. Its steps are carried out in order.
Operation = Callable[[S, Now], Iterable[Step]]
