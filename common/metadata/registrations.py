"""What the metadata knows of one broker, one controller, one topic, one partition (core).

Answers to Kafka's BrokerRegistration and PartitionRegistration. All but `Topic` are immutable: a change makes a new one, so
that a delta or a snapshot in progress may keep what it holds. Equal tuples are shared (`MetadataState` interns them).

Easy to get wrong: `has_online_directory` is the one rule by which elections, AlterPartition and Metadata decide whether a
replica is offline (docs/DESIGN.md, "Which replica is online"). A registration that names no directory at all comes from a
broker older than directory assignment and counts as having every directory.
"""

from dataclasses import dataclass
from enum import IntEnum

from common.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and has not yet recovered from it."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """One listener of a broker or controller; `security_protocol` is Kafka's number (0 PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """The levels of one feature that a node can work with."""

    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker, fenced or not."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    incarnation_id: IncarnationId
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    # Sorted. Empty: the broker registered without directories, not "all are gone" (the last one to go fences the broker).
    directories: tuple[DirectoryId, ...] = ()
    # Sorted. What this incarnation registered once and lost since; emptied by a new incarnation only.
    lost_directories: tuple[DirectoryId, ...] = ()

    def has_online_directory(self, directory_id: DirectoryId) -> bool:
        """Whether a replica that the metadata puts in this directory of this broker counts as online."""
        # The order matters: LOST stays offline even where no directory is registered.
        if directory_id in (UNASSIGNED, MIGRATING):
            return True
        if directory_id == LOST:
            return False
        return not self.directories or directory_id in self.directories

    def endpoint(self, listener_name: str) -> BrokerEndpoint | None:
        """The endpoint of that listener, if the broker has one."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)

    def feature(self, name: str) -> SupportedFeature | None:
        """The levels that the broker supports of that feature, if it names it."""
        return next((feature for feature in self.features if feature.name == name), None)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A registered controller: where it listens and what it supports."""

    controller_id: int
    incarnation_id: IncarnationId
    zk_migration_ready: bool
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[SupportedFeature, ...]


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition: its replicas, where they are, and who leads.

    Invariants, kept by replay: as many directories as replicas, the ISR within the replicas, the leader in the ISR or none.
    """

    replicas: tuple[BrokerId, ...]
    # directories[i] is where replicas[i] is, as far as its broker has told.
    directories: tuple[DirectoryId, ...]
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_recovery_state: int
    # Changes when: a leader is named, the same one included. Never goes back.
    leader_epoch: LeaderEpoch
    # Changes when: any record changes the partition. Never goes back.
    partition_epoch: PartitionEpoch

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    def directory(self, broker_id: BrokerId) -> DirectoryId:
        """Where that broker's replica is. Raises KeyError if the broker has none."""
        for replica, directory_id in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory_id
        raise KeyError(broker_id)


@dataclass(slots=True)
class Topic:
    """A topic and its partitions, in the order in which they were created. Only replay changes `partitions`."""

    name: str
    id: TopicId
    partitions: dict[int, PartitionRegistration]
