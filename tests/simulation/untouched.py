"""Decides whether a fault may happen now: every partition must keep an untouched in-sync replica (shell of the tests).
Partitions with unclean elections may lose everything.

1. A replica that lost data is *damaged* until its broker has a new incarnation and the replica has since been seen first
   outside the ISR, then inside it. From then on it has all records again.
2. While a damaged replica may still be in the ISR, another ISR member must be untouched by any fault. Otherwise the ISR
   could shrink to the replica that lost its data.
3. A node counts as touched for a while after its fault is over: an ISR change that the fault caused may still be in flight
   to the controller.
4. A fault of the controller touches every broker, because a broker that does not find the controller again in time is
   fenced.
5. A reassignment may remove replicas that were in the ISR a moment ago. So while a reassignment is requested or in progress,
   only the replicas that it keeps count. It may begin only if one of them is untouched and in sync.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from common.ids import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.storage.meta_properties import MalformedMetaProperties, parse_meta_properties
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.faults import EXCHANGED, KINDS, SWAPPED, Fault, Target, disks_of
from tests.simulation.history import is_careless

LOOK_SECONDS = 0.05
# A reassignment that got no answer may still be carried out for this long.
UNANSWERED_NS = 60_000_000_000
SETTLE_NS = 4_000_000_000

Replica = tuple[TopicId, int, int]
"""The topic, the partition and the broker."""


@dataclass(slots=True)
class _Intent:
    """A reassignment for which a client has sent, or is about to send, the request. `target` is None for a cancellation."""

    key: TopicIdPartition
    target: tuple[int, ...] | None
    """The answer may still be on its way, or the request."""
    until_ns: int


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
        self._intents: list[_Intent] = []
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
        dangerous = self._dangerous()
        if loses_data:
            dangerous.update(self._replicas_on(fault))
        for topic_id, index, part in self._partitions():
            if is_careless(self._state.topics[topic_id].name):
                continue
            if self._is_exposed(TopicIdPartition(topic_id, index), part, dangerous, (fault, *self._active)):
                return f"{self._state.topics[topic_id].name}-{index}"
        return None

    def _dangerous(self) -> set[Replica]:
        """Returns the replicas that may have lost data, and those that may lose data while the active faults last."""
        dangerous = {replica for replica, damage in self._damaged.items() if not damage.was_out}
        for fault in self._active:
            if KINDS[fault.kind].loses_data:
                dangerous.update(self._replicas_on(fault))
        return dangerous

    def _is_exposed(
        self, key: TopicIdPartition, part: PartitionRegistration, dangerous: set[Replica], faults: Sequence[Fault]
    ) -> bool:
        """Whether the partition has a replica in danger but no untouched in-sync replica that stays in the partition."""
        staying = self._staying(key, part)
        at_risk = {member for member in self._members(key, part) if (key.topic_id, key.partition, member) in dangerous}
        whole = [member for member in part.isr if member not in at_risk and member in staying]
        return bool(at_risk) and all(self._is_touched(member, faults) for member in whole)

    # --- reassignments -------------------------------------------------------------------------------------------
    def may_move(self, broker_id: int) -> bool:
        """Whether replicas of the broker may move between its disks now. While a fault is going to destroy a disk's data, a
        replica that moved there would be lost although the fault was allowed without it."""
        return not any(KINDS[fault.kind].loses_data and broker_id in (fault.node, fault.peer) for fault in self._active)

    def begin_reassignment(self, topic: str, index: int, target: Sequence[int] | None) -> bool:
        """Returns whether a client may ask for this reassignment now. If so, records that the client is about to ask."""
        topic_id = self._state.topic_ids.get(topic)
        part = None if topic_id is None else self._state.partition(topic_id, index)
        if topic_id is None or part is None or self._world.now_ns() < self._controller_settled_ns:
            return False
        key = TopicIdPartition(topic_id, index)
        intent = _Intent(key, None if target is None else tuple(target), self._world.now_ns() + UNANSWERED_NS)
        self._intents.append(intent)
        if self._is_exposed(key, part, self._dangerous(), tuple(self._active)):
            self._intents.remove(intent)
            return False
        return True

    def end_reassignment(self, topic: str, index: int, *, is_certain: bool) -> None:
        """Records that the client got its answer or gave up waiting. If `is_certain`, the controller's image contains the
        outcome by now."""
        if not is_certain:
            return
        until_ns = self._world.now_ns() + SETTLE_NS
        for intent in self._intents:
            if intent.key.partition == index and self._state.topic_ids.get(topic) == intent.key.topic_id:
                intent.until_ns = min(intent.until_ns, until_ns)

    def _staying(self, key: TopicIdPartition, part: PartitionRegistration) -> set[int]:
        """Returns the replicas that no reassignment in progress or requested removes."""
        staying: set[int] = {member for member in part.replicas if member not in part.removing_replicas}
        for intent in self._intents_of(key):
            staying &= set(part.replicas) - set(part.adding_replicas) if intent.target is None else set(intent.target)
        return staying

    def _members(self, key: TopicIdPartition, part: PartitionRegistration) -> set[int]:
        """Returns the partition's replicas and the replicas that a requested reassignment is about to add."""
        return {*part.replicas, *(member for intent in self._intents_of(key) for member in intent.target or ())}

    def _intents_of(self, key: TopicIdPartition) -> list[_Intent]:
        self._intents = [intent for intent in self._intents if intent.until_ns > self._world.now_ns()]
        return [intent for intent in self._intents if intent.key == key]

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
            member = BrokerId(fault.node)
            if member not in self._members(TopicIdPartition(topic_id, index), part):
                continue
            name = f"{self._state.topics[topic_id].name}-{index}"
            if self._disk_of(part, member) in (None, *disks) or self._moves_on(member, name, disks):
                yield topic_id, index, member

    def _moves_on(self, member: BrokerId, name: str, disks: Collection[str]) -> bool:
        """Whether the replica is moving between directories and one of these disks has its log, in any form. Until the move
        is over, the metadata may name either directory, and a starting broker may need both."""
        folders = {
            f"d{number}": self._cluster.disk(member, number).store.top_folders()
            for number in self._cluster.disk_numbers(member)
        }
        if not any(each.startswith(f"{name}.") and each.endswith("-future") for found in folders.values() for each in found):
            return False
        return any(each == name or each.startswith(f"{name}.") for disk in disks for each in folders.get(disk, ()))

    def _disk_of(self, part: PartitionRegistration, member: BrokerId) -> str | None:
        """Returns the disk of a replica, or None if the metadata does not name a known directory."""
        if member not in part.replicas:
            return None
        place = self._directories.get(part.directory(member))
        return place[1] if place is not None and place[0] == member else None

    def _learn_directories(self) -> None:
        for broker_id in self._cluster.broker_ids:
            for number in self._cluster.disk_numbers(broker_id):
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
    def _is_touched(self, member: BrokerId, faults: Iterable[Fault]) -> bool:
        if self._state.brokers[member].fenced or self._cluster.env(member).is_dead:
            return True
        if not self._cluster.is_registered(member, self._state):
            # The image still has the registration of the broker's previous incarnation. The broker leaves the ISR when its
            # present incarnation registers.
            return True
        if self._touched_until.get(member, 0) > self._world.now_ns():
            return True
        return any(member in self._nodes_touched_by(touching) for touching in faults)

    def _nodes_touched_by(self, fault: Fault) -> Sequence[int]:
        if fault.node == CONTROLLER_ID and KINDS[fault.kind].target is not Target.LINK:
            return self._cluster.broker_ids
        return (fault.node, fault.peer)
