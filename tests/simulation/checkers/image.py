"""Checks the committed metadata after every batch of the metadata log: I4, I5, I6, I7, I9, I10, I12, I16, I17, I21, I29.

Shell of the tests. `ImageModel` replays the records with its own code, which shares nothing with the production replay. So a
bug in the production replay shows up as a difference at the end. `ImageChecker` receives every committed batch from every
node. The same offset must hold the same records on all nodes, and each new batch must lead from one valid image to the next.
A batch is one operation, so the image is checked between batches only, and never in the middle of a metadata transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.ids import NO_LEADER, TopicId, TopicIdPartition, Uuid, uuid_text
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED, is_reserved
from common.metadata.metadata_version import METADATA_VERSION_FEATURE, MINIMUM_LEVEL, is_directory_assignment_supported
from common.records.metadata_records import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tests.simulation.cluster import CONTROLLER_ID
from tests.simulation.violations import InvariantViolated

# Values of resource_type in a ConfigRecord.
TOPIC, BROKER = 2, 4
UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ModelBroker:
    epoch: int
    incarnation_id: Uuid
    fenced: bool
    shutting_down: bool
    directories: frozenset[Uuid]
    lost: frozenset[Uuid] = frozenset()
    # The offset of the record that registered this incarnation. A snapshot does not say it.
    registered_at: int = -1
    # Whether this incarnation has registered first at a level at which replicas are assigned to directories. A snapshot has
    # only the latest level and registration.
    knows_assignments: bool = True
    cordoned: frozenset[Uuid] = frozenset()

    @property
    def is_cordoned(self) -> bool:
        return bool(self.directories) and self.directories <= self.cordoned

    def has_online(self, directory_id: Uuid) -> bool:
        if not self.directories:
            return directory_id != LOST
        return directory_id in (UNASSIGNED, MIGRATING) or directory_id in self.directories

    def may_lead(self, directory_id: Uuid) -> bool:
        return not self.fenced and not self.shutting_down and self.has_online(directory_id)


@dataclass(frozen=True, slots=True)
class ModelPartition:
    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    is_recovering: bool
    # The offset of the record that created the partition.
    created_at: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def directory(self, broker_id: int) -> Uuid:
        return self.directories[self.replicas.index(broker_id)]


@dataclass(slots=True)
class ImageModel:
    """The cluster as the metadata records describe it. A record that contradicts the image raises InvariantViolated."""

    brokers: dict[int, ModelBroker] = field(default_factory=dict)
    topics: dict[TopicId, str] = field(default_factory=dict)
    partitions: dict[TopicIdPartition, ModelPartition] = field(default_factory=dict)
    # The values of each resource, by resource type and name. A resource without configuration has no entry.
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    # All producer ids below are taken.
    next_producer_id: int = 0
    # The level of metadata.version.
    level: int = MINIMUM_LEVEL

    def copy(self) -> "ImageModel":
        return replace(
            self,
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            partitions=dict(self.partitions),
            configs={resource: dict(values) for resource, values in self.configs.items()},
        )

    @property
    def has_assignments(self) -> bool:
        """Whether replicas are assigned to directories. Below this level, brokers register no directories."""
        return is_directory_assignment_supported(self.level)

    def is_assigned(self, directory_id: Uuid) -> bool:
        """Whether a replica's directory names one. Before the level of assignments, no replica has one."""
        return self.has_assignments or directory_id != MIGRATING

    def setting(self, topic: str, topic_key: str, broker_id: int, broker_key: str) -> str | None:
        """Returns the value that is set for a topic on a broker: the topic's, else the broker's, else that of all brokers,
        else None."""
        places = (((TOPIC, topic), topic_key), ((BROKER, str(broker_id)), broker_key), ((BROKER, ""), broker_key))
        return next((self.configs[place][key] for place, key in places if key in self.configs.get(place, {})), None)

    def is_unclean_allowed(self, topic: str) -> bool:
        """Whether the controller may elect a leader from outside the ISR."""
        return self.setting(topic, UNCLEAN, CONTROLLER_ID, UNCLEAN) == "true"

    def take_over_history(self, older: "ImageModel") -> None:
        """Adds to this image of a snapshot what only an older image knows about the incarnations that live in both."""
        for broker_id, broker in self.brokers.items():
            known = older.brokers.get(broker_id)
            if known is not None and known.incarnation_id == broker.incarnation_id:
                self.brokers[broker_id] = replace(
                    broker, registered_at=known.registered_at, knows_assignments=known.knows_assignments
                )

    def name(self, key: TopicIdPartition) -> str:
        return f"{self.topics.get(key.topic_id, uuid_text(key.topic_id))}-{key.partition}"

    def replay(self, record: KnownRecord, offset: int) -> None:
        match record:
            case RegisterBrokerRecord():
                self._register(record, offset)
            case UnregisterBrokerRecord():
                self._known_broker(record.broker_id, record.broker_epoch, offset)
                del self.brokers[record.broker_id]
            case BrokerRegistrationChangeRecord():
                self._change_broker(record, offset)
            case TopicRecord():
                if record.name in self.topics.values():
                    raise InvariantViolated("I5", f"offset {offset} creates {record.name} once more")
                self.topics[TopicId(record.topic_id)] = record.name
            case RemoveTopicRecord():
                self._remove_topic(TopicId(record.topic_id))
            case PartitionRecord():
                self._create_partition(record, offset)
            case PartitionChangeRecord():
                self._change_partition(record, offset)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                if record.next_producer_id <= self.next_producer_id:
                    raise InvariantViolated("I5", f"offset {offset} takes producer ids once more: {record}")
                self.next_producer_id = record.next_producer_id
            case FeatureLevelRecord(name=name) if name == METADATA_VERSION_FEATURE:
                self.level = record.feature_level
            case _:
                pass

    def _configure(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(resource, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[resource]

    # --- brokers -------------------------------------------------------------------------------------------------

    def _register(self, record: RegisterBrokerRecord, offset: int) -> None:
        before = self.brokers.get(record.broker_id)
        same = before is not None and before.incarnation_id == record.incarnation_id
        if before is not None and record.broker_epoch < before.epoch + (0 if same else 1):
            raise InvariantViolated(
                "I17", f"broker {record.broker_id}: epoch {before.epoch} is followed by {record.broker_epoch} at {offset}"
            )
        directories = frozenset(record.log_dirs)
        lost = frozenset(record.lost_log_dirs)
        if before is not None and same and (directories or self.has_assignments):
            lost |= (before.lost | before.directories) - directories
        self.brokers[record.broker_id] = ModelBroker(
            record.broker_epoch,
            record.incarnation_id,
            record.fenced,
            record.in_controlled_shutdown,
            directories,
            lost,
            before.registered_at if before is not None and same else offset,
            before.knows_assignments if before is not None and same else self.has_assignments,
            frozenset(record.cordoned_log_dirs or ()),
        )

    def _change_broker(self, record: BrokerRegistrationChangeRecord, offset: int) -> None:
        before = self._known_broker(record.broker_id, record.broker_epoch, offset)
        online = frozenset(record.log_dirs) or before.directories
        if not online <= before.directories:
            raise InvariantViolated(
                "I16",
                f"broker {record.broker_id}: {_texts(online - before.directories)} came online without a registration, "
                f"at offset {offset}",
            )
        self.brokers[record.broker_id] = replace(
            before,
            fenced=before.fenced if record.fenced == 0 else record.fenced > 0,
            shutting_down=before.shutting_down or record.in_controlled_shutdown > 0,
            directories=online,
            lost=before.lost | (before.directories - online),
            cordoned=before.cordoned if record.cordoned_log_dirs is None else frozenset(record.cordoned_log_dirs),
        )

    def _known_broker(self, broker_id: int, epoch: int, offset: int) -> ModelBroker:
        before = self.brokers.get(broker_id)
        if before is None or before.epoch != epoch:
            known = None if before is None else before.epoch
            raise InvariantViolated("I17", f"offset {offset} is about broker {broker_id} in epoch {epoch}, not {known}")
        return before

    # --- partitions ----------------------------------------------------------------------------------------------

    def _remove_topic(self, topic_id: TopicId) -> None:
        name = self.topics.pop(topic_id)
        self.configs.pop((TOPIC, name), None)
        for key in [key for key in self.partitions if key.topic_id == topic_id]:
            del self.partitions[key]

    def _create_partition(self, record: PartitionRecord, offset: int) -> None:
        key = TopicIdPartition(TopicId(record.topic_id), record.partition_id)
        self.partitions[key] = ModelPartition(
            tuple(record.replicas),
            tuple(record.directories) or (MIGRATING,) * len(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.leader_recovery_state == 1,
            offset,
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
        )

    def _change_partition(self, record: PartitionChangeRecord, offset: int) -> None:
        key = TopicIdPartition(TopicId(record.topic_id), record.partition_id)
        before = self.partitions.get(key)
        if before is None:
            raise InvariantViolated("I5", f"offset {offset} changes {self.name(key)}, which is not there")
        replicas = before.replicas if record.replicas is None else tuple(record.replicas)
        is_election = record.leader != NO_LEADER_CHANGE
        keeps_recovery = record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        self.partitions[key] = ModelPartition(
            replicas,
            _kept_directories(before, replicas) if record.directories is None else tuple(record.directories),
            before.isr if record.isr is None else tuple(record.isr),
            record.leader if is_election else before.leader,
            before.leader_epoch + is_election,
            before.partition_epoch + 1,
            before.is_recovering if keeps_recovery else record.leader_recovery_state == 1,
            before.created_at,
            before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        )


def _kept_directories(before: ModelPartition, replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    """Below the level of assignments, a record names no directories, also when it changes the replicas."""
    known = dict(zip(before.replicas, before.directories, strict=True))
    return tuple(known.get(replica, MIGRATING) for replica in replicas)


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A committed batch, as the first node delivered it."""

    node: str
    last_offset: int
    epoch: int
    records: tuple[KnownRecord, ...]


class ImageChecker:
    """See the module docstring. `image` contains everything that any node has delivered as committed."""

    def __init__(self, now_ns: Callable[[], int] = lambda: 0) -> None:
        self._now_ns = now_ns
        self.image = ImageModel()
        # For each partition, the times at which its ISR changed, each with the size of the new ISR. The key contains the
        # topic's name, because producers know no topic ids.
        self.isr_sizes: dict[tuple[str, int], list[tuple[int, int]]] = {}
        # Invariant: the image covers all offsets below this one.
        self.next_offset = 0
        self.batches: dict[int, SeenBatch] = {}
        # The topic name of each partition, including partitions of deleted topics.
        self.names: dict[TopicIdPartition, str] = {}
        # The broker that was elected in each leader epoch.
        self.elections: dict[tuple[TopicIdPartition, int], int] = {}
        # The offset of the record that fenced a broker last.
        self.fenced_at: dict[int, int] = {}
        self._epoch = -1
        self._directory_owners: dict[Uuid, int] = {}
        self._lawful = self.image.copy()
        # The offset ranges that a snapshot skipped. A slower node may still deliver batches in these ranges.
        self._unheard: list[tuple[int, int]] = []
        self._is_in_transaction = False
        self._since_lawful: list[KnownRecord] = []

    def committed(self, node: str, base_offset: int, last_offset: int, epoch: int, records: Sequence[KnownRecord]) -> bool:
        """Receives a batch that a node delivered as committed. Returns whether it was new. Raises InvariantViolated."""
        batch = SeenBatch(node, last_offset, epoch, tuple(records))
        known = self.batches.setdefault(base_offset, batch)
        if (known.last_offset, known.epoch, known.records) != (last_offset, epoch, batch.records):
            raise InvariantViolated(
                "I5",
                f"at offset {base_offset} {node} has committed {batch.records} (epoch {epoch}), "
                f"{known.node} {known.records} (epoch {known.epoch})",
            )
        if base_offset < self.next_offset:
            if known is batch and not any(begin <= base_offset and last_offset < end for begin, end in self._unheard):
                raise InvariantViolated("I5", f"{node} has committed offset {base_offset} in the middle of another batch")
            return False
        if epoch < self._epoch:
            raise InvariantViolated("I5", f"{node}: offset {base_offset} is of epoch {epoch}, before it came {self._epoch}")
        self._epoch = epoch
        if base_offset > self.next_offset:
            raise InvariantViolated("I5", f"{node} continues at {base_offset}; committed so far: below {self.next_offset}")
        self.next_offset = last_offset + 1
        for number, record in enumerate(records):
            self._apply(record, base_offset + number)
        if not self._is_in_transaction and self._since_lawful:
            self._check_step(last_offset)
        return True

    def loaded(self, node: str, end_offset: int, records: Iterable[KnownRecord]) -> None:
        """Receives a snapshot that a node loaded. A snapshot that ends at the same offset as the image must equal it. A
        newer one replaces the image, and an older one cannot be compared."""
        image = ImageModel()
        for record in records:
            image.replay(record, end_offset - 1)
        if end_offset > self.next_offset:
            # The batches that the snapshot replaces were committed while no listener was registered.
            image.take_over_history(self.image)
            self.image = image
            self._lawful = image.copy()
            self._unheard.append((self.next_offset, end_offset))
            self.next_offset = end_offset
            self._note_names()
        elif end_offset == self.next_offset:
            compare_images(self.image, image, f"the snapshot of {node} at {end_offset}")

    def _apply(self, record: KnownRecord, offset: int) -> None:
        if isinstance(record, BeginTransactionRecord):
            self._is_in_transaction = True
        elif isinstance(record, EndTransactionRecord):
            self._is_in_transaction = False
        elif isinstance(record, AbortTransactionRecord):
            self._is_in_transaction = False
            self.image = self._lawful.copy()
            self._since_lawful.clear()
        else:
            self.image.replay(record, offset)
            self._since_lawful.append(record)

    def _check_step(self, offset: int) -> None:
        before, after, records = self._lawful, self.image, self._since_lawful
        self._since_lawful = []
        self._lawful = after.copy()
        self._note_names()
        changed = [key for key, part in after.partitions.items() if before.partitions.get(key) is not part]
        brokers = [id_ for id_, broker in after.brokers.items() if before.brokers.get(id_) is not broker]
        for broker_id in brokers:
            self._check_broker(broker_id, before.brokers.get(broker_id), after.brokers[broker_id], offset)
        for key, part in after.partitions.items():
            check_partition(after, key, part, offset)
        for key in changed:
            _check_change(before, after, key, offset)
            check_placed(before, after, key, offset)
            sizes = self.isr_sizes.setdefault((after.topics[key.topic_id], key.partition), [])
            sizes.append((self._now_ns(), len(after.partitions[key].isr)))
        check_directory_failure(before, after, records, offset)

    def _note_names(self) -> None:
        for key, part in self.image.partitions.items():
            self.names.setdefault(key, self.image.name(key))
            self.elections.setdefault((key, part.leader_epoch), part.leader)

    def _check_broker(self, broker_id: int, before: ModelBroker | None, after: ModelBroker, offset: int) -> None:
        if after.fenced and (before is None or not before.fenced):
            self.fenced_at[broker_id] = offset
        for directory_id in after.directories:
            if is_reserved(directory_id):
                raise InvariantViolated("I9", f"broker {broker_id} has the reserved directory id {_texts([directory_id])}")
            owner = self._directory_owners.setdefault(directory_id, broker_id)
            if owner != broker_id:
                raise InvariantViolated(
                    "I9", f"directory {_texts([directory_id])} of broker {owner} is broker {broker_id}'s at offset {offset}"
                )
        if before is not None and before.incarnation_id == after.incarnation_id and after.directories & before.lost:
            raise InvariantViolated(
                "I16", f"broker {broker_id}: {_texts(after.directories & before.lost)} is online again at offset {offset}"
            )


def check_partition(image: ImageModel, key: TopicIdPartition, part: ModelPartition, offset: int) -> None:
    """Checks I6, I7 and I10 for one partition. Raises InvariantViolated."""
    where = f"{image.name(key)} at offset {offset}: {_text(part)}"
    if len(part.directories) != len(part.replicas) or len(set(part.replicas)) != len(part.replicas) or not part.replicas:
        raise InvariantViolated("I10", where)
    if not part.isr or len(set(part.isr)) != len(part.isr) or not set(part.isr) <= set(part.replicas):
        raise InvariantViolated("I6", where)
    if part.leader != NO_LEADER:
        if part.leader not in part.isr:
            raise InvariantViolated("I6", f"{where}; the leader is not in the ISR")
        _check_may_serve(image, part, part.leader, f"{where}; leader")
    if len(part.isr) > 1:
        for member in part.isr:
            _check_may_serve(image, part, member, f"{where}; ISR member")


def _check_may_serve(image: ImageModel, part: ModelPartition, broker_id: int, where: str) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced or broker.shutting_down:
        state = "not registered" if broker is None else "fenced" if broker.fenced else "shutting down"
        raise InvariantViolated("I6", f"{where} {broker_id} is {state}")
    if not broker.has_online(part.directory(broker_id)):
        raise InvariantViolated("I7", f"{where} {broker_id} is in a directory that is not online")


def _check_change(before: ImageModel, after: ImageModel, key: TopicIdPartition, offset: int) -> None:
    """Checks I4, I1 and I12 for one change of one partition."""
    old, new = before.partitions.get(key), after.partitions[key]
    if old is None:
        return
    where = f"{after.name(key)} at offset {offset}: {_text(old)} became {_text(new)}"
    check_reassignment(where, old, new)
    if new.leader_epoch < old.leader_epoch or new.partition_epoch <= old.partition_epoch:
        raise InvariantViolated("I4", f"{where}; an epoch went back")
    if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
        raise InvariantViolated("I4", f"{where}; two leaders in one epoch")
    if new.leader_epoch == old.leader_epoch and _starts_empty(old, new):
        raise InvariantViolated("I4", f"{where}; the leader starts with an empty log in an epoch that had another")
    # The ISR change that completes a reassignment may remove the leader that sent it, and elect a replica that joins the ISR
    # by the same change.
    is_completion = old.is_reassigning and not new.is_reassigning and old.leader in set(old.isr) - set(new.replicas)
    is_unclean = new.leader != NO_LEADER and new.leader not in old.isr and not is_completion
    if is_unclean and not after.is_unclean_allowed(after.topics[key.topic_id]):
        raise InvariantViolated("I1", f"{where}; a leader from outside the ISR")
    if old.leader != NO_LEADER and new.leader != old.leader and new.leader != new.replicas[0]:
        broker = after.brokers.get(old.leader)
        if broker is not None and old.leader in new.replicas and broker.may_lead(new.directory(old.leader)):
            raise InvariantViolated("I12", f"{where}; broker {old.leader} could have gone on leading")


def check_placed(before: ImageModel, after: ImageModel, key: TopicIdPartition, offset: int) -> None:
    """I29: a broker whose directories are all cordoned gets no new replica."""
    old = before.partitions.get(key)
    for broker_id in set(after.partitions[key].replicas) - set(() if old is None else old.replicas):
        broker = before.brokers.get(broker_id)
        if broker is not None and broker.is_cordoned:
            raise InvariantViolated(
                "I29", f"{after.name(key)} at offset {offset} gets a replica on broker {broker_id}, which is cordoned"
            )


def check_reassignment(where: str, old: ModelPartition, new: ModelPartition) -> None:
    """I21: a replica may be removed in two cases. Either every replica that was added is in the ISR, and every one that is
    left if there are fewer than before. Or the removal reverts the reassignment that added the replica."""
    changing = (*new.adding, *new.removing)
    if not set(changing) <= set(new.replicas) or not set(new.replicas) - set(new.removing):
        raise InvariantViolated("I21", f"{where}; it changes {changing} of {new.replicas}")
    if set(old.replicas) <= set(new.replicas):
        return
    original = set(old.replicas) - set(old.adding)
    awaited = set(new.replicas) - original
    if len(new.replicas) < len(original):
        awaited = set(new.replicas)
    if set(new.replicas) != original and not awaited <= set(new.isr):
        raise InvariantViolated("I21", f"{where}; replicas are removed while others are not in sync")


def _starts_empty(old: ModelPartition, new: ModelPartition) -> bool:
    """Whether an unclean election has just chosen this leader: the partition starts to recover, or the leader's directory
    became UNASSIGNED."""
    if new.leader == NO_LEADER:
        return False
    is_new_replica = new.directory(new.leader) == UNASSIGNED != old.directory(new.leader)
    return is_new_replica or (new.is_recovering and not old.is_recovering)


def check_directory_failure(before: ImageModel, after: ImageModel, records: Iterable[KnownRecord], offset: int) -> None:
    """I12: a batch that reports failed directories of a broker changes none of the broker's replicas in other
    directories."""
    for record in records:
        if not isinstance(record, BrokerRegistrationChangeRecord) or not record.log_dirs:
            continue
        broker_id = record.broker_id
        broker = after.brokers[broker_id]
        if broker.fenced or broker.shutting_down:
            continue
        for key, new in after.partitions.items():
            old = before.partitions.get(key)
            if old is None or old is new or broker_id not in old.replicas:
                continue
            is_hit = old.directory(broker_id) in broker.lost or old.directory(broker_id) == LOST
            left_isr = broker_id in old.isr and broker_id not in new.isr
            if not is_hit and (left_isr or (old.leader == broker_id != new.leader)):
                raise InvariantViolated(
                    "I12",
                    f"{after.name(key)} at offset {offset}: {_text(old)} became {_text(new)} because broker {broker_id} "
                    f"lost {_texts(broker.lost)}, where this replica is not",
                )


def compare_images(expected: ImageModel, found: ImageModel, what: str) -> None:
    """Checks I5. Raises InvariantViolated for the first difference."""
    _compare_maps("topic", expected.topics, found.topics, what)
    if expected.configs != found.configs:
        raise InvariantViolated("I5", f"{what}: the configuration is {found.configs}, not {expected.configs}")
    if expected.next_producer_id != found.next_producer_id:
        ids = f"{found.next_producer_id}, not {expected.next_producer_id}"
        raise InvariantViolated("I5", f"{what}: the next producer id is {ids}")
    for broker_id in expected.brokers.keys() | found.brokers.keys():
        pair = [image.brokers.get(broker_id) for image in (expected, found)]
        one, other = (None if each is None else replace(each, registered_at=-1, knows_assignments=True) for each in pair)
        if one != other:
            raise InvariantViolated("I5", f"{what}: broker {broker_id} is {other}, not {one}")
    for key in expected.partitions.keys() | found.partitions.keys():
        pair_of = [image.partitions.get(key) for image in (expected, found)]
        first, second = (None if each is None else replace(each, created_at=-1) for each in pair_of)
        if first != second:
            raise InvariantViolated("I5", f"{what}: {expected.name(key)} is {_text(second)}, not {_text(first)}")


def _compare_maps(kind: str, expected: Mapping[TopicId, str], found: Mapping[TopicId, str], what: str) -> None:
    for id_ in expected.keys() | found.keys():
        if expected.get(id_) != found.get(id_):
            raise InvariantViolated("I5", f"{what}: {kind} {uuid_text(id_)} is {found.get(id_)}, not {expected.get(id_)}")


def _text(part: ModelPartition | None) -> str:
    if part is None:
        return "absent"
    return (
        f"replicas {list(part.replicas)} in {_texts(part.directories)}, ISR {list(part.isr)}, leader {part.leader}, "
        f"leader epoch {part.leader_epoch}, partition epoch {part.partition_epoch}"
    )


def _texts(ids: Iterable[Uuid]) -> str:
    ordered = sorted(ids) if isinstance(ids, frozenset) else ids
    return "[" + ", ".join(uuid_text(id_)[:6] for id_ in ordered) + "]"
