"""What keeps a broker fenced until its directory assignments are known (core; KIP-858, "Broker registration").

A broker with several directories stays fenced while a replica that was placed on it before its registration is UNASSIGNED
or MIGRATING: the controller could not relate a failed directory to that replica. Diskraft's brokers do not ask to be
unfenced before that (`broker/core/unfence_gate.py`), those of Apache Kafka do. The rules:

1. The set is fixed when a new incarnation registers, and only shrinks from then on: a replica leaves it once its directory
   is known or it is no longer placed on the broker. Replicas that are placed later never count.
2. Once unfenced, an incarnation is never kept fenced again for this reason.
3. A broker that asks to be unfenced for UNFENCING_PATIENCE_NS while the set does not shrink is unfenced. In the same batch
   what is left becomes LOST, so that no replica leads from an unknown directory. A broker in ZooKeeper mode is
   not unfenced: it serves there meanwhile, and its replicas are MIGRATING until it has been restarted.

This is soft state of the active controller. A new one derives it from the metadata: there a fenced broker is one that was
not unfenced yet, and whatever is UNASSIGNED or MIGRATING on it was there before. This can only keep a broker fenced longer.

The set follows the replayed records, so a heartbeat costs the same however many replicas its broker has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final

from common.ids import BrokerId, IncarnationId, TopicId, TopicIdPartition
from common.metadata.directory_ids import MIGRATING, UNASSIGNED
from common.metadata.metadata_version import METADATA_VERSION_FEATURE, is_directory_assignment_supported
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    KnownRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from common.time_units import NS_PER_S

# How long a broker may ask in vain, without progress, before it is unfenced.
UNFENCING_PATIENCE_NS: Final = 30 * NS_PER_S
_UNKNOWN: Final = (UNASSIGNED, MIGRATING)


class Unfencing(Enum):
    """The controller's answer to a fenced broker that asks to be unfenced."""

    ALLOWED = auto()
    REFUSED = auto()
    # Rule 3: the replicas that are left become LOST.
    WITH_LOSSES = auto()


@dataclass(slots=True)
class _Awaited:
    """What one fenced broker waits for."""

    # The partitions of each topic. Invariant: none is empty, and each replica is UNASSIGNED or MIGRATING. Only shrinks, once
    # it is filled.
    partitions: dict[TopicId, dict[int, None]] = field(default_factory=dict)
    # How many partitions these are, counted because every heartbeat asks.
    count: int = 0
    # When the broker began to ask in vain; None if it has not asked since the set last shrank.
    asking_since_ns: int | None = None
    last_asked_ns: int = 0

    def add(self, replica: TopicIdPartition) -> None:
        self.partitions.setdefault(replica.topic_id, {})[replica.partition] = None
        self.count += 1

    def drop(self, topic_id: TopicId, indexes: Sequence[int]) -> None:
        """Takes these partitions out, which are in the set. That is progress."""
        partitions = self.partitions[topic_id]
        for index in indexes:
            del partitions[index]
        if not partitions:
            del self.partitions[topic_id]
        self.count -= len(indexes)
        self.asking_since_ns = None


class AwaitedReplicas:
    """Keeps for each broker the replicas of rule 1. `note` must be called for every record after its replay."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state
        # The brokers that are kept fenced. Invariant: each of them is registered and fenced.
        self._awaited: dict[BrokerId, _Awaited] = {}
        # The incarnation of every registered broker: the registration that replaced another one does not show whether it is
        # a new incarnation.
        self._incarnations: dict[BrokerId, IncarnationId] = {}
        for registration in state.brokers.values():
            self._incarnations[registration.broker_id] = registration.incarnation_id
            self._fix(registration)

    def count(self, broker_id: BrokerId) -> int:
        """Returns how many replicas keep this broker fenced."""
        awaited = self._awaited.get(broker_id)
        return 0 if awaited is None else awaited.count

    @property
    def total(self) -> int:
        """How many replicas keep any broker fenced."""
        return sum(awaited.count for awaited in self._awaited.values())

    def of_broker(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        """Returns the replicas that keep this broker fenced."""
        awaited = self._awaited.get(broker_id)
        if awaited is None:
            return []
        return [TopicIdPartition(topic_id, index) for topic_id, indexes in awaited.partitions.items() for index in indexes]

    def is_first_question(self, broker_id: BrokerId) -> bool:
        """Whether the broker has not asked in vain since the set last shrank."""
        awaited = self._awaited.get(broker_id)
        return awaited is not None and awaited.asking_since_ns is None

    def ask(self, broker_id: BrokerId, now_ns: int, *, silence_max_ns: int) -> Unfencing:
        """Decides about a fenced broker that asks to be unfenced. A broker that was silent for longer than `silence_max_ns`
        starts over."""
        awaited = self._awaited.get(broker_id)
        if awaited is None:
            return Unfencing.ALLOWED
        if awaited.asking_since_ns is None or now_ns - awaited.last_asked_ns > silence_max_ns:
            awaited.asking_since_ns = now_ns
        awaited.last_asked_ns = now_ns
        is_patient = now_ns - awaited.asking_since_ns < UNFENCING_PATIENCE_NS
        if is_patient or self._state.brokers[broker_id].is_migrating_zk_broker:
            return Unfencing.REFUSED
        return Unfencing.WITH_LOSSES

    def note(self, record: KnownRecord) -> None:
        """Follows a record that the state has just replayed."""
        note = _NOTES.get(type(record))
        if note is not None:
            note(self, record)

    # --- records --------------------------------------------------------------------------------------------------

    def _note_registration(self, record: RegisterBrokerRecord) -> None:
        registration = self._state.brokers[BrokerId(record.broker_id)]
        if self._incarnations.get(registration.broker_id) != registration.incarnation_id:
            self._incarnations[registration.broker_id] = registration.incarnation_id
            self._awaited.pop(registration.broker_id, None)
            self._fix(registration)

    def _note_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker_id = BrokerId(record.broker_id)
        if not self._state.brokers[broker_id].fenced:
            self._awaited.pop(broker_id, None)

    def _note_end(self, record: UnregisterBrokerRecord) -> None:
        self._awaited.pop(BrokerId(record.broker_id), None)
        self._incarnations.pop(BrokerId(record.broker_id), None)

    def _note_partition_change(self, record: PartitionChangeRecord) -> None:
        if record.directories is None and record.replicas is None:
            return
        topic_id = TopicId(record.topic_id)
        for broker_id, awaited in list(self._awaited.items()):
            is_awaited = record.partition_id in awaited.partitions.get(topic_id, ())
            if is_awaited and not self._is_unknown(broker_id, topic_id, record.partition_id):
                self._drop(broker_id, topic_id, [record.partition_id])

    def _note_removed_topic(self, record: RemoveTopicRecord) -> None:
        topic_id = TopicId(record.topic_id)
        for broker_id, awaited in list(self._awaited.items()):
            if topic_id in awaited.partitions:
                self._drop(broker_id, topic_id, list(awaited.partitions[topic_id]))

    def _note_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION_FEATURE and not is_directory_assignment_supported(self._state.metadata_version):
            self._awaited.clear()

    def _fix(self, registration: BrokerRegistration) -> None:
        has_several = len(registration.directories) + len(registration.lost_directories) > 1
        if registration.fenced and has_several:
            broker_id = registration.broker_id
            replicas = [
                key for directory_id in _UNKNOWN for key in self._state.partitions_in_directory(broker_id, directory_id)
            ]
            for key in replicas:
                self._awaited.setdefault(broker_id, _Awaited()).add(key)

    def _drop(self, broker_id: BrokerId, topic_id: TopicId, indexes: Sequence[int]) -> None:
        awaited = self._awaited[broker_id]
        awaited.drop(topic_id, indexes)
        if not awaited.partitions:
            del self._awaited[broker_id]

    def _is_unknown(self, broker_id: BrokerId, topic_id: TopicId, index: int) -> bool:
        partition = self._state.partition(topic_id, index)
        return partition is not None and broker_id in partition.replicas and partition.directory(broker_id) in _UNKNOWN


_NOTES: Final = MappingProxyType[type, Callable[[AwaitedReplicas, Any], None]](
    {
        RegisterBrokerRecord: AwaitedReplicas._note_registration,
        BrokerRegistrationChangeRecord: AwaitedReplicas._note_registration_change,
        UnregisterBrokerRecord: AwaitedReplicas._note_end,
        PartitionChangeRecord: AwaitedReplicas._note_partition_change,
        RemoveTopicRecord: AwaitedReplicas._note_removed_topic,
        FeatureLevelRecord: AwaitedReplicas._note_feature_level,
    }
)
