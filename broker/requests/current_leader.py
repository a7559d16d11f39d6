"""Names the current leader in an answer that says "not the leader" (shell, KIP-951).

This saves the client a Metadata request. The leader's endpoint is the one on the listener that the client is connected to;
another listener may be on a network that the client cannot reach.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from common.ids import BrokerId
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode

# The errors after which a client must find the leader.
LEADER_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Leader = TypeVar("Leader")
Endpoint = TypeVar("Endpoint")


class PartitionAnswer(Protocol[Leader]):
    """The answer about one partition in Produce and Fetch."""

    current_leader: Leader


def name_leaders(
    state: MetadataState,
    listener_name: str,
    moved: Iterable[tuple[PartitionAnswer[Leader], PartitionRegistration | None]],
    leader: Callable[..., Leader],
    endpoint: Callable[..., Endpoint],
) -> list[Endpoint]:
    """Sets the current leader in each answer in `moved`, and returns the endpoints of these leaders.

    `leader` and `endpoint` are the response's structs, called `LeaderIdAndEpoch` and `NodeEndpoint` in both messages.
    """
    leaders: list[BrokerId] = []
    for answer, partition in moved:
        if partition is not None and partition.has_leader:
            answer.current_leader = leader(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
            leaders.append(partition.leader)
    endpoints: list[Endpoint] = []
    for broker_id, registration in ((each, state.brokers.get(each)) for each in dict.fromkeys(leaders)):
        at = None if registration is None else registration.endpoint(listener_name)
        if registration is not None and at is not None:
            endpoints.append(endpoint(node_id=broker_id, host=at.host, port=at.port, rack=registration.rack))
    return endpoints
