"""Keeps the assignment queue in line with where replicas really are, and opens the unfence gate (shell, KIP-858).

A *wish* is the directory to report to the controller for a replica. `Replicas` computes it again whenever it reconciles the
replica. A *comparison* finds the wishes that have changed since the previous comparison, and passes them to the queue.

1. A wish that the controller has confirmed, or refused for good, is not queued again until that replica's metadata changes.
2. When a broker creates thousands of logs, `wishes_changed` is called for each of them, but every comparison takes time
   proportional to the number of replicas. So a burst of changes is handled with at most one comparison per LOOK_INTERVAL_NS.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from broker.controller_link.assignments_sender import AssignmentsSender
from broker.core.hosted_replicas import ReplicaPlace
from broker.core.unfence_gate import UnfenceGate
from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.metadata.metadata_version import DIRECTORY_ASSIGNMENT_LEVEL, is_directory_assignment_supported, level_name
from common.metadata.state import MetadataState
from common.time_units import NS_PER_MS

# The minimum time between two comparisons in a burst of changes. A single change is handled at once.
LOOK_INTERVAL_NS = 100 * NS_PER_MS
# The number of replicas that a log event names.
_NAMES_MAX = 10


class PlacedReplicas(Protocol):
    """The part of `Replicas` that says where replicas are."""

    def hosted_directories(self) -> Mapping[TopicIdPartition, DirectoryId]: ...

    def wished_assignments(self) -> Mapping[TopicIdPartition, DirectoryId]: ...

    def is_being_created(self, key: TopicIdPartition) -> bool: ...

    def is_unplaceable(self, key: TopicIdPartition) -> bool: ...

    def reported_copy(self, key: TopicIdPartition) -> DirectoryId | None: ...

    def is_missing(self, key: TopicIdPartition) -> bool: ...


class Assignments:
    """Sits between `Replicas` and `AssignmentsSender`. `on_open` is called once, when the gate opens."""

    def __init__(
        self,
        state: MetadataState,
        *,
        broker_id: BrokerId,
        replicas: PlacedReplicas,
        sender: AssignmentsSender,
        gate: UnfenceGate,
        on_open: Callable[[], None],
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._replicas = replicas
        self._sender = sender
        self._gate = gate
        self._on_open = on_open
        self._known: dict[TopicIdPartition, DirectoryId] = {}
        self._is_scheduled = False
        self._next_look_ns = 0
        self._was_open = False

    def wishes_changed(self) -> None:
        """Notes that wishes or places changed, and schedules a comparison."""
        if not self._is_scheduled:
            self._is_scheduled = True
            env = self._sender.env
            env.call_at(max(env.now_ns(), self._next_look_ns), self._look_at_changes)

    def published(self, moved: Collection[TopicIdPartition]) -> None:
        """Runs a comparison, because the broker has applied a metadata change of the replicas in `moved`. The wishes of
        these replicas are queued even if unchanged (rule 1)."""
        self._compare(moved)

    def fix_gate(self) -> None:
        """Fixes the set of replicas that the gate waits for. Call it when the first image that contains this broker's
        registration has been applied."""
        hosted = self._replicas.hosted_directories()
        self._gate.fix(self._perhaps_unsettled(hosted), self._places(hosted))
        if not self._is_supported() and self._gate.waiting:
            topics = self._state.topics
            names = [f"{topics[topic_id].name}-{index}" for topic_id, index in self._gate.waiting[:_NAMES_MAX]]
            advice = (
                f"put the directories that held them back into log.dirs, or raise metadata.version to "
                f"{level_name(DIRECTORY_ASSIGNMENT_LEVEL)} or later"
            )
            count = len(self._gate.waiting)
            self._sender.env.log.error("replicas_without_directory", count=count, partitions=names, advice=advice)
        self._look_at_gate()

    def _look_at_changes(self) -> None:
        self._is_scheduled = False
        self._next_look_ns = self._sender.env.now_ns() + LOOK_INTERVAL_NS
        self._compare(())

    def _compare(self, moved: Collection[TopicIdPartition]) -> None:
        if not self._is_supported():
            # If the level has just fallen, everything has to be reported again once it rises.
            self._sender.settle(list(self._known))
            self._known = {}
            self._look_at_gate()
            return
        wishes = self._replicas.wished_assignments()
        self._sender.settle([key for key in self._known if key not in wishes])
        fresh = {key: wish for key, wish in wishes.items() if key in moved or self._known.get(key) != wish}
        self._known = dict(wishes)
        self._sender.wish(fresh)
        self._look_at_gate()

    def _look_at_gate(self) -> None:
        if self._was_open or not self._gate.is_fixed:
            return
        if not self._gate.is_open:
            self._gate.update(self._places(self._replicas.hosted_directories()))
        if self._gate.is_open:
            self._was_open = True
            self._on_open()

    def _perhaps_unsettled(self, hosted: Mapping[TopicIdPartition, DirectoryId]) -> list[TopicIdPartition]:
        """Returns this broker's replicas without those that are settled at first sight, which are nearly all: to collect the
        places of thousands takes long."""
        every = self._state.partitions_of_broker(self._broker_id)
        if not self._is_supported():
            wishes = self._replicas.wished_assignments()
            return [key for key in every if key in wishes]
        settled = {
            key
            for directory_id in {*hosted.values()}
            for key in self._state.partitions_in_directory(self._broker_id, directory_id)
            if hosted.get(key) == directory_id and self._replicas.reported_copy(key) is None
        }
        return [key for key in every if key not in settled]

    def _places(self, hosted: Mapping[TopicIdPartition, DirectoryId]) -> Callable[[TopicIdPartition], ReplicaPlace]:
        """Returns a function that says where a replica is right now."""
        wishes = self._replicas.wished_assignments()

        def place_of(key: TopicIdPartition) -> ReplicaPlace:
            assigned = self._assigned(key)
            return ReplicaPlace(
                assigned=assigned,
                assigned_is_online=assigned is not None and self._state.is_replica_online(self._broker_id, assigned),
                hosted=self._replicas.reported_copy(key) or hosted.get(key),
                has_wish=key in wishes,
                is_being_created=self._replicas.is_being_created(key),
                is_unplaceable=self._replicas.is_unplaceable(key),
                is_reportable=self._is_supported(),
                is_missing=self._replicas.is_missing(key),
            )

        return place_of

    def _is_supported(self) -> bool:
        return is_directory_assignment_supported(self._state.metadata_version)

    def _assigned(self, key: TopicIdPartition) -> DirectoryId | None:
        registration = self._state.partition(*key)
        if registration is None or self._broker_id not in registration.replicas:
            return None
        return registration.directory(self._broker_id)
