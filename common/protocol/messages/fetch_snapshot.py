"""FetchSnapshot: a follower of the metadata log reads a snapshot in chunks (KIP-630) (core).

`unaligned_records` holds the bytes of the snapshot file at `position`; they may begin and end inside a batch. A snapshot is
identified by its end offset (exclusive) and the epoch of the last record it covers.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Records, Struct, UInt16, field, message, struct


@struct
class SnapshotId(Struct):
    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class RequestPartitionSnapshot(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    position: Int64 = 0
    replica_directory_id: Uuid = field(default=ZERO_UUID, versions="1+", tag=0, ignorable=True)


@struct
class RequestTopicSnapshot(Struct):
    name: str = ""
    partitions: list[RequestPartitionSnapshot] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+")
class FetchSnapshotRequest(Struct):
    cluster_id: str | None = field(default=None, tag=0)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[RequestTopicSnapshot] = field(default_factory=list)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ResponsePartitionSnapshot(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch, tag=0)
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = b""


@struct
class ResponseTopicSnapshot(Struct):
    name: str = ""
    partitions: list[ResponsePartitionSnapshot] = field(default_factory=list)


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0


@message(kind=Kind.RESPONSE, api_key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+")
class FetchSnapshotResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicSnapshot] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="1+", tag=0, ignorable=True)
