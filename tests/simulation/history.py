"""Everything the clients did: each operation with its begin time, its end time and its outcome.

Shell of the tests. Some checkers judge the cluster by this history alone, as a client would. An operation without an answer,
or with an error that a broker may return after the append, has the outcome *unknown*: its records may or may not turn up
later. The outcome is *failed* only if its records can certainly never be read.
"""

from dataclasses import dataclass, field
from enum import Enum

from common.ids import TopicId
from common.protocol.errors import ErrorCode

# Errors that a broker returns only before it has appended anything.
CERTAIN_REFUSALS = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)


class Outcome(Enum):
    """How an operation ended, as far as the client can know."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation of a client. `end_ns` is None while it is under way."""

    client: str
    begin_ns: int
    end_ns: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Produce(Operation):
    """One batch. Its values are unique in the whole history."""

    topic: str
    # The topic that the client meant. The request carries only its name.
    topic_id: TopicId
    index: int
    acks: int
    values: tuple[bytes, ...]
    # The offset of the first record, if it was acknowledged.
    offset: int = -1


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """One fetch of one partition."""

    topic: str
    topic_id: TopicId
    index: int
    offset: int
    leader_epoch: int
    records: tuple[tuple[int, bytes], ...] = ()
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True, kw_only=True)
class LatestOffset(Operation):
    """One ListOffsets request for the end of a partition."""

    topic: str
    # The topic that the client meant. The request carries only its name.
    topic_id: TopicId
    index: int
    leader_epoch: int
    offset: int = -1


@dataclass(slots=True, kw_only=True)
class TopicChange(Operation):
    """The creation or deletion of a topic."""

    topic: str
    is_creation: bool
    # The id of the created topic, if the response arrived.
    topic_id: TopicId | None = None
    min_insync_replicas: int = 1


@dataclass(slots=True, kw_only=True)
class PartitionChange(Operation):
    """A client's request for one partition: a reassignment, the cancellation of one (`target` is None), or a preferred
    election."""

    topic: str
    index: int
    target: tuple[int, ...] | None = None
    is_election: bool = False


@dataclass(slots=True)
class History:
    """All operations, in the order in which they began."""

    produces: list[Produce] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    latest_offsets: list[LatestOffset] = field(default_factory=list)
    topic_changes: list[TopicChange] = field(default_factory=list)
    partition_changes: list[PartitionChange] = field(default_factory=list)

    def acknowledged(self, *, acks: int) -> list[Produce]:
        """Returns the acknowledged batches that were sent with this `acks`."""
        return [each for each in self.produces if each.acks == acks and each.outcome is Outcome.OK]

    def summary(self) -> str:
        """Returns one line of figures."""
        ok = sum(each.outcome is Outcome.OK for each in self.produces)
        failed = sum(each.outcome is Outcome.FAILED for each in self.produces)
        unknown = len(self.produces) - ok - failed
        read = sum(len(each.records) for each in self.polls)
        return f"{ok} batches acknowledged, {failed} refused, {unknown} unknown; {read} records read"
