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
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

# The names of compacted topics begin like this.
COMPACTED = "compacted-"


def is_compacted(name: str) -> bool:
    """Whether the topic of this name is compacted. Also takes the name of a partition or of its folder."""
    return name.startswith(COMPACTED)


# The names of topics that only transactional producers write to begin like this, if need be after COMPACTED.
TRANSACTIONAL = "transactional-"


def is_transactional(name: str) -> bool:
    """Whether only transactional producers write to the topic of this name. Also takes the name of a partition."""
    return name.removeprefix(COMPACTED).startswith(TRANSACTIONAL)


# The names of topics whose records are deleted from the front begin like these: by DeleteRecords only, and by retention too.
TRIMMED = "trimmed-"
AGING = "aging-"


def is_trimmed(name: str) -> bool:
    """Whether only DeleteRecords deletes records of the topic of this name. Also takes the name of a partition."""
    return name.startswith(TRIMMED)


def is_aging(name: str) -> bool:
    """Whether the retention of the topic of this name changes. Also takes the name of a partition."""
    return name.startswith(AGING)


# The names of topics with unclean elections begin like this.
CARELESS = "careless-"


def is_careless(name: str) -> bool:
    """Whether the topic of this name allows unclean elections, so that acknowledged records may be lost. Also takes the name
    of a partition."""
    return name.startswith(CARELESS)


def key_of(value: bytes) -> bytes:
    """Returns the key of a record in a compacted topic. It follows from the value, so that a checker knows it too."""
    return b"k" + value.rstrip(b".")[-1:]


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
    """One batch. Its values are unique in the whole history. An idempotent producer may have sent it several times."""

    topic: str
    # The topic that the client meant. The request carries only its name.
    topic_id: TopicId
    index: int
    acks: int
    values: tuple[bytes, ...]
    # The offset of the first record, if it was acknowledged.
    offset: int = -1
    # The offset in the answer to one more attempt after that. None if there was none, or if it was not acknowledged.
    repeated_offset: int | None = None


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """One fetch of one partition. `follower` is the broker that was asked if it was not the leader, else -1."""

    topic: str
    topic_id: TopicId
    index: int
    offset: int
    leader_epoch: int
    follower: int = -1
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
class RecordDeletion(Operation):
    """One DeleteRecords request for one partition."""

    topic: str
    topic_id: TopicId
    index: int
    # -1: all records below the high watermark.
    offset: int
    # The low watermark in the response, if it succeeded.
    low_watermark: int = -1


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


@dataclass(slots=True, kw_only=True)
class OffsetCommit(Operation):
    """One commit of one partition's position by a member of a group."""

    group: str
    topic: str
    index: int
    generation: int
    member_id: str
    offset: int


@dataclass(slots=True, kw_only=True)
class OffsetRead(Operation):
    """One question for a committed position, by a client outside the group. The offset is -1 if there is none."""

    group: str
    topic: str
    index: int
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member learned from a SyncGroup that succeeded, or from a heartbeat of the consumer protocol. After a
    heartbeat, `generation` is the member's epoch."""

    group: str
    generation: int
    member_id: str
    indexes: tuple[int, ...]
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnexpectedError:
    """An error that clients do not expect of this request, so that some of them give up."""

    client: str
    request: str
    error: str
    at_ns: int


@dataclass(slots=True, kw_only=True)
class Transaction(Operation):
    """One transaction: a value in each of these partitions, and the position `number + 1`. FAILED: its producer has not
    asked to commit it."""

    number: int
    value: bytes
    topic: str
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRead:
    """One fetch with isolation.level=read_committed, without what is aborted."""

    client: str
    at_ns: int
    topic: str
    index: int
    offset: int
    next_offset: int
    values: tuple[tuple[int, bytes], ...]
    last_stable_offset: int
    high_watermark: int


@dataclass(slots=True)
class History:
    """All operations, in the order in which they began."""

    produces: list[Produce] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    latest_offsets: list[LatestOffset] = field(default_factory=list)
    deletions: list[RecordDeletion] = field(default_factory=list)
    topic_changes: list[TopicChange] = field(default_factory=list)
    partition_changes: list[PartitionChange] = field(default_factory=list)
    offset_commits: list[OffsetCommit] = field(default_factory=list)
    offset_reads: list[OffsetRead] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    unexpected_errors: list[UnexpectedError] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    committed_reads: list[CommittedRead] = field(default_factory=list)
    # After the end: everything that is committed, and the position of each transactional producer.
    last_reads: list[CommittedRead] = field(default_factory=list)
    last_positions: dict[str, int] = field(default_factory=dict)

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
