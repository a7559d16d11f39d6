"""Who leads a partition now and where, for responses that say "not me" (shell, KIP-951).

Easy to get wrong: a leader is named only with an endpoint of the listener that the client came in by, otherwise the hint
sends the client to a network that it cannot reach.
"""

from collections.abc import Iterator, Sequence

from common.ids import NO_LEADER, BrokerId, LeaderEpoch
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState


def current_leader(state: MetadataState, topic: str, index: int) -> tuple[BrokerId, LeaderEpoch] | None:
    """The leader that the newest applied metadata names; None when there is no such partition or no leader."""
    found = state.topic_named(topic)
    return None if found is None else leader_of(found.partitions.get(index))


def leader_of(partition: PartitionRegistration | None) -> tuple[BrokerId, LeaderEpoch] | None:
    if partition is None or partition.leader == NO_LEADER:
        return None
    return partition.leader, partition.leader_epoch


def node_endpoints(
    state: MetadataState, brokers: Sequence[BrokerId], listener_name: str
) -> Iterator[tuple[BrokerId, str, int, str | None]]:
    """(id, host, port, rack) of these brokers on that listener."""
    for broker_id in brokers:
        registration = state.brokers.get(broker_id)
        endpoint = None if registration is None else registration.endpoint(listener_name)
        if registration is not None and endpoint is not None:
            yield broker_id, endpoint.host, endpoint.port, registration.rack
