"""Decides whether a fault may happen now: every partition must keep an untouched in-sync replica (shell of the tests).

1. A replica that lost data is *damaged* until its broker has a new incarnation and the replica has since been seen first
   outside the ISR, then inside it. From then on it has all records again.
2. While a damaged replica may still be in the ISR, another ISR member must be untouched by any fault. Otherwise the ISR
   could shrink to the replica that lost its data.
3. A node counts as touched for a while after its fault is over: an ISR change that the fault caused may still be in flight
   to the controller.
4. A fault of the controller touches every broker, because a broker that does not find the controller again in time is
   fenced.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
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
"""The topic, the partition and the broker."""


@dataclass(slots=True)
class _Damage:
    """The state of a replica that lost data."""

    epoch: BrokerEpoch | None
    """The broker's epoch when it happened, or None if it was not registered."""
    was_out: bool = False
    """Whether this replica was seen outside the ISR in a later incarnation of its broker."""


class UntouchedReplicas:
    """Watches the controller's image and tracks the damaged replicas."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._damaged: dict[Replica, _Damage] = {}
        # The active faults, each with the replicas whose data it may destroy.
        self._active: dict[Fault, tuple[Replica, ...]] = {}
        # The time until which each node counts as touched. A fault of a disk touches the whole node, because mending it
        # needs a restart.
        self._touched_until: dict[int, int] = {}
        self._directories: dict[bytes, tuple[int, str]] = {}
        self._controller_settled_ns = 0
        # The image of the last active controller. It stays valid while there is none.
        self._state = MetadataState()

    # --- what the lab tells --------------------------------------------------------------------------------------
    def begin(self, fault: Fault) -> None:
        """Records that the fault happens now."""
        self._active[fault] = tuple(self._replicas_on(fault)) if KINDS[fault.kind].loses_data else ()
        self._damage(self._active[fault])

    def end(self, fault: Fault) -> None:
        """Records that the fault is over. By now all data that the fault destroys is gone."""
        hit = self._active.pop(fault, ())
        if KINDS[fault.kind].loses_data:
            self._damage((*hit, *self._replicas_on(fault)))
        for node_id in self._nodes_touched_by(fault):
            self._touched_until[node_id] = self._world.now_ns() + SETTLE_NS

    def _damage(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            self._damaged[replica] = _Damage(self._epoch(replica[2]))

    def why_not(self, fault: Fault) -> str | None:
        """Returns why the fault must not happen now, for example the partition that could lose its last untouched in-sync
        replica. Returns None if it may happen."""
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
        """Whether one fault has exchanged disks between two brokers, and the other one would destroy or move their data."""
        if EXCHANGED not in (one.kind, other.kind) or not {one.node, one.peer} & {other.node, other.peer} - {0}:
            return False
        return any(KINDS[fault.kind].loses_data or fault.kind == SWAPPED for fault in (one, other)) or one.kind == other.kind

    # --- watching ------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Updates the damaged replicas from the controller's present image. Call it periodically."""
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
        """Yields the replicas that are, or may be, on the disks of a fault."""
        self._learn_directories()
        disks = disks_of(fault, self._cluster)
        for topic_id, index, part in self._partitions():
            for member in part.replicas:
                if member != fault.node:
                    continue
                name = f"{self._state.topics[topic_id].name}-{index}"
                if self._disk_of(part, member) in (None, *disks) or self._moves_on(member, name, disks):
                    yield topic_id, index, member

    def _moves_on(self, member: BrokerId, name: str, disks: Collection[str]) -> bool:
        """Whether the replica is moving and one of these disks has some form of its log. Until a move is over, the metadata
        may name either disk, and a start may need both."""
        folders = {
            f"d{number}": [each for each in self._cluster.disk(member, number).folders() if "/" not in each]
            for number in range(1, self._cluster.disks + 1)
        }
        if not any(each.startswith(f"{name}.") and each.endswith("-future") for found in folders.values() for each in found):
            return False
        return any(each == name or each.startswith(f"{name}.") for disk in disks for each in folders.get(disk, ()))

    def _disk_of(self, part: PartitionRegistration, member: BrokerId) -> str | None:
        """Returns the disk of a replica, or None if the metadata does not name a known directory."""
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
            # The image still has the registration of the broker's previous incarnation. The broker leaves the ISR when its
            # present incarnation registers.
            return True
        if self._touched_until.get(member, 0) > self._world.now_ns():
            return True
        return any(member in self._nodes_touched_by(touching) for touching in (fault, *self._active))

    def _nodes_touched_by(self, fault: Fault) -> Sequence[int]:
        if fault.node == CONTROLLER_ID and KINDS[fault.kind].target is not Target.LINK:
            return self._cluster.broker_ids
        return (fault.node, fault.peer)
