"""Chooses the replica from which a consumer should read (core, KIP-392).

Counterpart of Kafka's ReplicaSelector, RackAwareReplicaSelector and ReplicaManager.findPreferredReadReplica. The leader
chooses for each fetch of a consumer that names its rack. If the choice is a follower, the leader answers with the follower's
id instead of records, and the consumer fetches there until its metadata expires or that follower answers with an error.

1. Only a follower that the leader would keep in the ISR is named: an unfenced broker that is not shutting down, with the
   replica in an online directory that is not suspected of hanging (`PartitionReplica.readable_followers`). Otherwise the
   consumer would be sent to a replica that cannot serve it, come back to the leader, and be sent there again.
2. The leader itself wins if it is in the consumer's rack.
3. Among the followers in the rack the one that has most of the log wins, then the one that was caught up last.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.core.partition_replica import PartitionReplica
from common.configuration.server import LEADER_SELECTORS, RACK_AWARE_SELECTOR
from common.ids import BrokerId, Offset


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that may be chosen. `last_caught_up_ns` is None if the follower has never had all that the leader had."""

    broker_id: BrokerId
    rack: str | None
    log_end_offset: Offset
    last_caught_up_ns: int | None = None


ReplicaSelector = Callable[[str, str | None, Iterable[ReplicaView]], BrokerId | None]
"""Takes the consumer's rack, the leader's rack and the followers; returns the chosen follower, or None for the leader."""


def select_by_rack(client_rack: str, leader_rack: str | None, followers: Iterable[ReplicaView]) -> BrokerId | None:
    """Returns the best follower in the consumer's rack. Returns None if the leader is in that rack, or no follower is."""
    if client_rack == leader_rack:
        return None
    in_rack = [follower for follower in followers if follower.rack == client_rack]
    return max(in_rack, key=_rank).broker_id if in_rack else None


def _rank(follower: ReplicaView) -> tuple[int, int, int]:
    caught_up_ns = -1 if follower.last_caught_up_ns is None else follower.last_caught_up_ns
    return follower.log_end_offset, caught_up_ns, follower.broker_id


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """Returns the selector that replica.selector.class names; None if consumers always read from the leader."""
    assert class_name in (None, *LEADER_SELECTORS, RACK_AWARE_SELECTOR), class_name
    return select_by_rack if class_name == RACK_AWARE_SELECTOR else None


def preferred_read_replica(
    replica: PartitionReplica,
    select: ReplicaSelector,
    *,
    client_rack: str,
    listener_name: str,
    fetch_offset: Offset,
) -> BrokerId | None:
    """Returns the follower from which the consumer should read at `fetch_offset`; None for the leader. The follower must be
    reachable on the listener that the consumer uses."""
    local = replica.registration(replica.local_id)
    views = []
    for broker_id, follower in replica.readable_followers(fetch_offset):
        registration = replica.registration(broker_id)
        if registration is not None and registration.endpoint(listener_name) is not None:
            views.append(ReplicaView(broker_id, registration.rack, follower.log_end_offset, follower.last_caught_up_ns))
    return select(client_rack, None if local is None else local.rack, views)
