"""Whether a fault may happen now: every partition keeps an in-sync replica that nothing has touched (shell of the tests).

A replica that lost something counts as *damaged* until its broker has a new incarnation, the replica was seen outside the
ISR after that, and inside it again: then it has everything once more. As long as a damaged replica can still be in the ISR,
another member must be untouched by any fault, lest the ISR shrinks to the one that lost its data. Easy to get wrong: a fault
that is over still touches for a moment, since a change of the ISR that it caused may be on its way to the controller; and a
fault of the controller touches every broker, since they are all fenced if they do not find it again in time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from common.ids import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.storage.meta_properties import MalformedMetaProperties, parse_meta_properties
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.faults import EXCHANGED, KINDS, SWAPPED, Fault, Target, disks_of

LOOK_SECONDS = 0.05
SETTLE_NS = 4_000_000_000

Replica = tuple[TopicId, int, int]
"""Topic, partition, broker."""


@dataclass(slots=True)
class _Damage:
    """What is known of a replica that lost something."""

    epoch: BrokerEpoch | None
    """The broker's epoch when it happened; None when it was not registered."""
    was_out: bool = False
    """Whether a later incarnation was seen with this replica outside the ISR."""


class UntouchedReplicas:
    """Watches the controller's image and keeps the book of damages."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._damaged: dict[Replica, _Damage] = {}
        # With the replicas whose data it costs.
        self._active: dict[Fault, tuple[Replica, ...]] = {}
        # Whole nodes: mending a disk takes a restart.
        self._touched_until: dict[int, int] = {}
        self._directories: dict[bytes, tuple[int, str]] = {}
        self._controller_settled_ns = 0
        # Of the controller that was active last: what it knew counts as long as there is none.
        self._state = MetadataState()

    # --- what the lab tells --------------------------------------------------------------------------------------
    def begin(self, fault: Fault) -> None:
        """The fault happens now."""
        self._active[fault] = tuple(self._replicas_on(fault)) if KINDS[fault.kind].loses_data else ()
        self._damage(self._active[fault])

    def end(self, fault: Fault) -> None:
        """The fault is over. What it replaces or drops is gone by now, and not earlier."""
        hit = self._active.pop(fault, ())
        if KINDS[fault.kind].loses_data:
            self._damage((*hit, *self._replicas_on(fault)))
        for node_id in self._nodes_touched_by(fault):
            self._touched_until[node_id] = self._world.now_ns() + SETTLE_NS

    def _damage(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            self._damaged[replica] = _Damage(self._epoch(replica[2]))

    def why_not(self, fault: Fault) -> str | None:
        """The partition that this fault could cost its last untouched in-sync replica; None when there is none."""
        loses_data = KINDS[fault.kind].loses_data
        if loses_data and self._world.now_ns() < self._controller_settled_ns:
            return "the controller has not settled"
        if any(fault.is_where(other) for other in self._active):
            return "another fault is there"
        if any(self._mixes_up(other, fault) for other in self._active):
            return "a disk is in another broker"
        dangerous = {replica for replica, damage in self._damaged.items() if not damage.was_out}
        if loses_data:
            dangerous.update(self._replicas_on(fault))
        for topic_id, index, part in self._partitions():
            at_risk = {member for member in part.replicas if (topic_id, index, member) in dangerous}
            whole = [member for member in part.isr if member not in at_risk]
            if at_risk and all(self._is_touched(member, fault) for member in whole):
                return f"{self._state.topics[topic_id].name}-{index}"
        return None

    def _mixes_up(self, one: Fault, other: Fault) -> bool:
        """Whether a disk that is in another broker would lose what its own broker's replicas are made of, or its place."""
        if EXCHANGED not in (one.kind, other.kind) or not {one.node, one.peer} & {other.node, other.peer} - {0}:
            return False
        return any(KINDS[fault.kind].loses_data or fault.kind == SWAPPED for fault in (one, other)) or one.kind == other.kind

    # --- watching ------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Takes in the controller's present image. Called again and again."""
        if not self._cluster.is_controller_active():
            self._controller_settled_ns = self._world.now_ns() + SETTLE_NS
            return
        self._state = self._cluster.state
        known = {TopicIdPartition(topic_id, index): part for topic_id, index, part in self._partitions()}
        for replica, damage in list(self._damaged.items()):
            topic_id, index, broker_id = replica
            part = known.get(TopicIdPartition(topic_id, index))
            epoch = self._epoch(broker_id)
            if part is None:
                del self._damaged[replica]
            elif epoch is not None and epoch != damage.epoch and not self._is_hit_now(replica):
                if broker_id not in part.isr:
                    damage.was_out = True
                elif damage.was_out:
                    del self._damaged[replica]

    def _is_hit_now(self, replica: Replica) -> bool:
        return any(replica in hit for hit in self._active.values())

    # --- what is where -------------------------------------------------------------------------------------------
    def _partitions(self) -> Iterator[tuple[TopicId, int, PartitionRegistration]]:
        for topic_id, topic in self._state.topics.items():
            for index, part in topic.partitions.items():
                yield topic_id, index, part

    def _replicas_on(self, fault: Fault) -> Iterator[Replica]:
        """The replicas that are, or may be, on the disks of a fault."""
        self._learn_directories()
        disks = disks_of(fault, self._cluster)
        for topic_id, index, part in self._partitions():
            for member in part.replicas:
                if member == fault.node and self._disk_of(part, member) in (None, *disks):
                    yield topic_id, index, member

    def _disk_of(self, part: PartitionRegistration, member: BrokerId) -> str | None:
        """The disk of a replica; None when the metadata does not say."""
        place = self._directories.get(part.directory(member))
        return place[1] if place is not None and place[0] == member else None

    def _learn_directories(self) -> None:
        for broker_id in self._cluster.broker_ids:
            for number in range(1, self._cluster.disks + 1):
                content = self._cluster.disk(broker_id, number).files().get("meta.properties")
                if content is None:
                    continue
                try:
                    directory_id = parse_meta_properties(content).directory_id
                except MalformedMetaProperties:
                    continue
                if directory_id is not None:
                    self._directories[directory_id] = (broker_id, f"d{number}")

    def _epoch(self, broker_id: int) -> BrokerEpoch | None:
        registration = self._state.brokers.get(BrokerId(broker_id))
        return None if registration is None else registration.epoch

    # --- what is touched -----------------------------------------------------------------------------------------
    def _is_touched(self, member: BrokerId, fault: Fault) -> bool:
        if self._state.brokers[member].fenced or self._cluster.env(member).is_dead:
            return True
        if not self._cluster.is_registered(member, self._state):
            # The image speaks of the life before, which loses its place in the ISR when this one registers.
            return True
        if self._touched_until.get(member, 0) > self._world.now_ns():
            return True
        return any(member in self._nodes_touched_by(touching) for touching in (fault, *self._active))

    def _nodes_touched_by(self, fault: Fault) -> Sequence[int]:
        if fault.node == CONTROLLER_ID and KINDS[fault.kind].target is not Target.LINK:
            return self._cluster.broker_ids
        return (fault.node, fault.peer)
