"""Fetch: consumers, followers and observers of the metadata log read record batches (core).

Version 13 replaced topic names with topic ids (KIP-516). Version 15 moved the replica id, along with the broker epoch, into
the tagged `replica_state` (KIP-903). Version 17 added the directory id of the fetching quorum replica (KIP-853), version 18
the high watermark that it knows, so that its leader answers at once if there is a newer one (KIP-1166). A follower
identifies itself by `replica_id` up to version 14 and by `replica_state` from 15 on. The other field is not part of that
version and must keep its default.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Int64, Kind, Records, Struct, field, message, struct

# The value of `isolation_level`, here and in ListOffsets, for isolation.level=read_committed.
READ_COMMITTED = 1
# The value of a partition's `high_watermark` in the Fetch of a replica that does not say which one it knows.
HIGH_WATERMARK_NOT_TOLD = 2**63 - 1


@struct
class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@struct
class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = field(default=-1, versions="9+", ignorable=True)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = field(default=-1, versions="12+")
    log_start_offset: Int64 = field(default=-1, versions="5+", ignorable=True)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = field(default=ZERO_UUID, versions="17+", tag=0, ignorable=True)
    high_watermark: Int64 = field(default=HIGH_WATERMARK_NOT_TOLD, versions="18+", tag=1, ignorable=True)


@struct
class FetchTopic(Struct):
    topic: str = field(default="", versions="4-12", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
    partitions: list[FetchPartition] = field(default_factory=list)


@struct
class ForgottenTopic(Struct):
    topic: str = field(default="", versions="7-12", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
    partitions: list[Int32] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchRequest(Struct):
    cluster_id: str | None = field(default=None, versions="12+", tag=0, ignorable=True)
    replica_id: Int32 = field(default=-1, versions="4-14")
    replica_state: ReplicaState = field(default_factory=ReplicaState, versions="15+", tag=1)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = field(default=0, versions="7+", ignorable=True)
    session_epoch: Int32 = field(default=-1, versions="7+", ignorable=True)
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list, versions="7+")
    rack_id: str = field(default="", versions="11+", ignorable=True)


@struct
class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


@struct
class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = field(default=-1, versions="5+", ignorable=True)
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset, versions="12+", tag=0)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch, versions="12+", tag=1, ignorable=True)
    snapshot_id: SnapshotId = field(default_factory=SnapshotId, versions="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: Int32 = field(default=-1, versions="11+")
    records: Records | None = None


@struct
class FetchableTopicResponse(Struct):
    topic: str = field(default="", versions="4-12", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
    partitions: list[PartitionData] = field(default_factory=list)


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


@message(kind=Kind.RESPONSE, api_key=ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, versions="7+", ignorable=True)
    session_id: Int32 = field(default=0, versions="7+")
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="16+", tag=0, ignorable=True)
