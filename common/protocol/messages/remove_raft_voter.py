"""RemoveRaftVoter: a controller is no longer a voter of the metadata quorum (KIP-853) (core).

Forwarded like AddRaftVoter.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, message


@message(kind=Kind.REQUEST, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")
class RemoveRaftVoterRequest(Struct):
    cluster_id: str | None = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


@message(kind=Kind.RESPONSE, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")
class RemoveRaftVoterResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
