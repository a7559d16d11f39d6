"""AddRaftVoter: a controller becomes a voter of the metadata quorum (KIP-853) (core).

Brokers forward it to a controller of Apache Kafka; the quorum of Diskraft's own controllers does not change at run time.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, UInt16, field, message, struct


@struct
class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


@message(kind=Kind.REQUEST, api_key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")
class AddRaftVoterRequest(Struct):
    cluster_id: str | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    ack_when_committed: bool = field(default=True, versions="1+")


@message(kind=Kind.RESPONSE, api_key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")
class AddRaftVoterResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
