"""The metadata about one broker, one controller, one topic, or one partition (core).

Counterpart of Kafka's BrokerRegistration and PartitionRegistration. All classes except `Topic` are immutable: a change
creates a new object, so deltas and snapshots in progress can keep the old one. Equal tuples are shared (`MetadataState`
interns them).

`has_online_directory` is the single rule by which elections, AlterPartition and Metadata decide whether a replica is offline
(docs/DESIGN.md, "Which replica is online").
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

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
    """Whether the partition still has to recover from an unclean leader election."""

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
    """The range of levels of one feature that a node supports."""

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
    # The online directories, sorted. Empty if the broker is older than directory assignment and registered no directories.
    # Losing every directory does not empty this list: the loss of the last one fences the broker and leaves the list
    # unchanged.
    directories: tuple[DirectoryId, ...] = ()
    # The directories that this incarnation registered and then lost, sorted. Replaced when a new incarnation registers. If
    # the same incarnation registers again, the directories that were online and are missing from the new registration are
    # added, and the directories that it lists are removed.
    lost_directories: tuple[DirectoryId, ...] = ()
    # Whether the broker still runs in ZooKeeper mode and is to be migrated (KIP-866). Changes with a registration only.
    is_migrating_zk_broker: bool = False
    # The directories that get no new replicas (KIP-1066), sorted. None until a heartbeat of this incarnation names them, and
    # below metadata.version 30.
    cordoned_directories: tuple[DirectoryId, ...] | None = None

    @property
    def is_cordoned(self) -> bool:
        """Whether all directories of the broker are known to be cordoned, so that it gets no new replicas."""
        return bool(self.directories) and {*self.directories}.issubset(self.cordoned_directories or ())

    def has_online_directory(self, directory_id: DirectoryId) -> bool:
        """Whether a replica assigned to this directory of this broker counts as online.

        A broker that registered no directories counts as having every directory online.
        """
        # Check LOST before the directories: a LOST replica is offline even if the broker registered no directories.
        if directory_id in (UNASSIGNED, MIGRATING):
            return True
        if directory_id == LOST:
            return False
        return not self.directories or directory_id in self.directories

    def endpoint(self, listener_name: str) -> BrokerEndpoint | None:
        """Returns the endpoint of the listener, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)

    def feature(self, name: str) -> SupportedFeature | None:
        """Returns the supported levels of the feature, or None if the broker did not register it."""
        return next((feature for feature in self.features if feature.name == name), None)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A registered controller with its endpoints and features."""

    controller_id: int
    incarnation_id: IncarnationId
    zk_migration_ready: bool
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[SupportedFeature, ...]

    def endpoint(self, listener_name: str) -> BrokerEndpoint | None:
        """Returns the endpoint of the listener, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


class PartitionRegistration(NamedTuple):
    """One partition: its replicas, their directories, and its leader.

    Replay guarantees these invariants: there are as many directories as replicas, the ISR is a subset of the replicas, and
    the leader is in the ISR or NO_LEADER. A named tuple, because replay creates one for each record, and a frozen dataclass
    takes several times as long to create.
    """

    replicas: tuple[BrokerId, ...]
    # The directory of each replica: directories[i] is the one that broker replicas[i] last reported, or a reserved id.
    directories: tuple[DirectoryId, ...]
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_recovery_state: int
    # Never decreases. Changes when a record names a leader, even if the leader stays the same.
    leader_epoch: LeaderEpoch
    # Never decreases. Changes with every record that changes the partition.
    partition_epoch: PartitionEpoch
    # Only of partitions of Apache Kafka's controllers (KIP-966): the replicas outside the ISR that have all that is
    # committed, and those that were the last to be in the ISR or among them.
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment has begun and is not completed yet (KIP-455)."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: BrokerId) -> DirectoryId:
        """Returns the directory of the broker's replica. Raises KeyError if the broker has no replica."""
        for replica, directory_id in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory_id
        raise KeyError(broker_id)


@dataclass(slots=True)
class Topic:
    """A topic and its partitions in order of creation. Only replay changes `partitions`."""

    name: str
    id: TopicId
    partitions: dict[int, PartitionRegistration]
