"""The result of a coordinator operation: records, answers and timers (core).

Counterpart of Kafka's CoordinatorResult. An operation changes the shard's state at once. The shell appends the records of a
step as one batch and gives the answers of a step when the records of this step and of all steps before it are committed, so
that no answer shows state that may still be lost. If an append fails, the shell throws the shard away and loads the
partition again; nothing is ever rolled back.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from common.protocol.schema import Struct
from common.records.end_transaction import EndTransactionMarker

# Names a request that waits for its answer. Made by the shell; the core only hands it back.
Waiter = Hashable


@dataclass(frozen=True, slots=True)
class Now:
    """The time of an operation: the monotonic clock for timers, the wall clock for what is written into records."""

    ns: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent the request, and what the client can do with the answer. The handler derives the latter from the version."""

    client_id: str
    client_host: str
    """As Kafka shows it: the address after a slash."""
    can_join_with_new_id: bool = True
    """JoinGroup from version 4 on: a new dynamic member is answered MEMBER_ID_REQUIRED and joins again (KIP-394)."""
    can_skip_assignment: bool = True
    """JoinGroup from version 9 on: a leader may be told not to assign (KIP-814)."""
    knows_missing_groups: bool = True
    """OffsetCommit from version 9 on, TxnOffsetCommit and DescribeGroups from version 6 on: expects GROUP_ID_NOT_FOUND. Such
    a commit also knows the errors of member epochs."""
    brings_member_id: bool = True
    """ConsumerGroupHeartbeat from version 1 on: the client makes the id of a new member (KIP-1082)."""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record of the coordinated partition, key and value encoded with their version. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request, complete but for the throttle time and what belongs to the request's version."""

    waiter: Waiter
    response: Struct


@dataclass(frozen=True, slots=True)
class TimerChange:
    """Sets the timer `key` to `at_ns`, in place of the time it had; None cancels it. A timer that fires is gone."""

    key: tuple[str, ...]
    at_ns: int | None


@dataclass(frozen=True, slots=True)
class MarkersDue:
    """A transaction whose outcome is decided: the marker that each of its partitions, by topic and index, is to get."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[tuple[str, int]]
    transaction_version: int = 0
    """At 2, the epoch was raised at the end of the transaction, so no other marker and no batch of it has this epoch."""


@dataclass(slots=True)
class Step:
    """What an operation asks of the shell. Timer changes take effect at once, in order, before the records are written."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    transaction: tuple[int, int] | None = None
    """The producer's id and epoch if the records are part of its transaction."""
    marker: EndTransactionMarker | None = None
    """Written in place of records. Invariant: there are no records then."""
    markers_due: list[MarkersDue] = field(default_factory=list)
    """Sent when the records of this step and of all steps before it are committed."""
