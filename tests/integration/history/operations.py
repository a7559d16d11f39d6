"""What clients did and what they saw: the operations of a history, and their form as lines of JSON (no I/O).

Every operation has a begin and an end on one monotonic clock, which all processes of the machine share. An operation that
has no end, because its client was killed or is still waiting, has the outcome UNKNOWN: it may have happened, or happen
later. A producer's values are unique in the whole history and say who sent them: `producer/partition/number`, where the
numbers of a producer grow within each partition.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Place = tuple[int, int]
"""(Partition, offset)."""

NO_OFFSET = -1


class Outcome(Enum):
    """How an operation ended, as far as its client can know."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation of a client. `order` is its place among the client's operations, by their ends."""

    client: str
    order: int
    begin_ns: int
    end_ns: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Send(Operation):
    """One record. FAILED means that it was certainly not written."""

    partition: int
    value: str
    offset: int = NO_OFFSET
    """Where the record is, according to the acknowledgement. Clients do not learn it when a duplicate was acknowledged."""
    transaction: str = ""
    """The transaction that it belongs to, if any."""


@dataclass(slots=True, kw_only=True)
class EndTransaction(Operation):
    """A commit (OK: committed) or an abort (FAILED: aborted) of a producer's transaction. A transaction whose end is UNKNOWN
    or missing may have ended in either way."""

    transaction: str


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """What one poll returned, in the order in which it was returned."""

    records: list[tuple[int, int, str]]
    """(Partition, offset, value)."""


@dataclass(slots=True, kw_only=True)
class Assign(Operation):
    """The client was given these partitions: whatever it polls of them next, it begins anew."""

    partitions: list[int]


@dataclass(slots=True, kw_only=True)
class Commit(Operation):
    """A commit of a group's offsets, by partition."""

    offsets: dict[int, int]


@dataclass(slots=True, kw_only=True)
class Committed(Operation):
    """A read of a group's committed offsets. NO_OFFSET where the group has none."""

    offsets: dict[int, int]


@dataclass(slots=True)
class History:
    """The operations of all clients. Each client's are in the order in which they ended, with the unfinished last."""

    sends: list[Send] = field(default_factory=list)
    transactions: list[EndTransaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    log: dict[Place, str] = field(default_factory=dict)
    """Every record in the logs after the last fault was healed."""

    def add(self, operation: Operation) -> None:
        match operation:
            case Send():
                self.sends.append(operation)
            case EndTransaction():
                self.transactions.append(operation)
            case Poll():
                self.polls.append(operation)
            case Assign():
                self.assigns.append(operation)
            case Commit():
                self.commits.append(operation)
            case Committed():
                self.committed.append(operation)


KINDS: Mapping[str, type[Operation]] = {
    "send": Send,
    "end": EndTransaction,
    "poll": Poll,
    "assign": Assign,
    "commit": Commit,
    "committed": Committed,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def begun_line(number: int, kind: type[Operation], begin_ns: int, fields: Mapping[str, Any]) -> str:
    """Returns the line that a client writes before it does the operation."""
    return json.dumps([number, NAMES[kind], begin_ns, fields], separators=(",", ":"))


def ended_line(number: int, end_ns: int, outcome: Outcome, fields: Mapping[str, Any]) -> str:
    """Returns the line that a client writes once it knows how the operation ended."""
    return json.dumps([number, end_ns, outcome.value, fields], separators=(",", ":"))


def parse(client: str, lines: Iterable[str]) -> list[Operation]:
    """Returns one client's operations. A last line that was cut off by a kill is left out; damage elsewhere raises
    ValueError."""
    begun: dict[int, Operation] = {}
    ended: list[Operation] = []
    for line in lines:
        if not line.endswith("\n"):
            break
        number, second, third, fields = json.loads(line)
        if isinstance(second, str):
            begun[number] = KINDS[second](client=client, order=0, begin_ns=third, **_typed(fields))
            continue
        operation = begun.pop(number)
        operation.end_ns, operation.outcome = second, Outcome(third)
        for name, value in _typed(fields).items():
            setattr(operation, name, value)
        ended.append(operation)
    found = ended + list(begun.values())
    for order, operation in enumerate(found):
        operation.order = order
    return found


def _typed(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON knows neither tuples nor numbers as keys."""
    if "records" in fields:
        fields["records"] = [(partition, offset, value) for partition, offset, value in fields["records"]]
    if "offsets" in fields:
        fields["offsets"] = {int(partition): offset for partition, offset in fields["offsets"].items()}
    return fields


def value_of(producer: str, partition: int, number: int) -> str:
    """Returns the value of a producer's record."""
    return f"{producer}/{partition}/{number}"


def source_of(value: str) -> tuple[str, int, int]:
    """Returns producer, partition and number of a value. Raises ValueError if no producer can have sent it."""
    producer, partition, number = value.split("/")
    return producer, int(partition), int(number)
