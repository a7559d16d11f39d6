"""Checks the replicas in the brokers while the cluster runs: I3, I4, I8, I11, I13, I14.

Shell of the tests. The brokers are inspected from outside, at a fixed interval and whenever metadata is committed. The
checker compares what one broker believes with the committed image and with the logs of the other brokers, which no broker
can do itself. A broker may know less than the committed image, but never more. An ISR member is checked only while its log
is loaded: a broker that is starting up or has lost the directory has nothing to compare.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.core.lifecycle import BrokerState
from broker.core.partition_replica import IsrProposal, Role
from broker.daemon import BrokerDaemon
from broker.hosting.partition import Partition
from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, TopicId, TopicIdPartition, Uuid, uuid_text
from common.metadata.directory_ids import LOST
from common.protocol.errors import ErrorCode
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FencingChange,
    KnownRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from common.time_units import NS_PER_MS
from tests.simulation.checkers.image import ImageChecker, ModelPartition
from tests.simulation.environment import SimulatedEvent
from tests.simulation.violations import InvariantViolated

# A directory of one incarnation of a broker: broker id, broker epoch, directory.id.
Place = tuple[int, BrokerEpoch, Uuid]

# How long after log.dir.failure.timeout.ms a broker may still lead from a directory it has marked offline.
DIRECTORY_FAILURE_SLACK_NS = 5_000 * NS_PER_MS
# The same limit for a broker that must halt by itself: it knows that it leads from the directory and that the controller has
# not acknowledged the failure.
UNTOLD_FAILURE_SLACK_NS = 1_000 * NS_PER_MS


@dataclass(slots=True)
class _Seen:
    """One replica as it was at the last look."""

    partition: Partition
    facts: "_Facts"


class _Facts(NamedTuple):
    """Everything about one replica that the checks depend on. While it is unchanged, no check needs to run again."""

    high_watermark: int
    leader_epoch: int
    partition_epoch: int
    role: Role
    written_offset: int
    log_start_offset: int
    # Where the first segment begins.
    base_offset: int
    is_restructuring: bool
    committed_isr: tuple[BrokerId, ...]
    proposal: IsrProposal | None
    min_isr: int
    gone: ErrorCode

    def has_been_under_min_isr_since(self, before: "_Facts") -> bool:
        """Whether this leader has had too few replicas in sync ever since `before`. The ISR cannot change without a new
        partition epoch."""
        return (
            before.role is self.role is Role.LEADER
            and (before.leader_epoch, before.partition_epoch) == (self.leader_epoch, self.partition_epoch)
            and len(self.committed_isr) < min(before.min_isr, self.min_isr)
        )

    @property
    def is_empty_follower(self) -> bool:
        """Whether this replica has no record and does not lead. It has begun at the leader's log start, and begins again at
        the start of the leader's first batch, which may be lower (seed 13236). The log start is lowered first (100145)."""
        return self.role is not Role.LEADER and self.written_offset in (self.log_start_offset, self.base_offset)

    def has_risen_as_follower_since(self, before: "_Facts") -> bool:
        """Whether this follower has learned a higher high watermark from the leader of its epoch."""
        return (
            before.role is self.role is Role.FOLLOWER
            and before.leader_epoch == self.leader_epoch
            and self.high_watermark > before.high_watermark
        )


class ReplicaChecker:
    """See the module docstring. `image` checks and holds the committed image."""

    def __init__(self, image: ImageChecker, *, directory_failure_timeout_ns: int) -> None:
        self._image = image
        self._directory_failure_timeout_ns = directory_failure_timeout_ns
        self._seen: dict[tuple[int, TopicIdPartition], _Seen] = {}
        self._seen_offset = -1
        # The followers whose high watermark rose since the last look. Empty between looks.
        self._risen: list[tuple[int, TopicIdPartition]] = []
        self._leaders: dict[tuple[TopicIdPartition, int], int] = {}
        # The highest high watermark that any replica has had. Every offset below it is committed.
        self.committed: dict[TopicIdPartition, int] = {}
        # For each offline directory from which its broker still leads partitions: the time of the look that first found
        # this.
        self._led_offline_since: dict[Place, int] = {}
        # The directories that the metadata named for the replicas of each broker when the broker last registered. None for a
        # replica that has been assigned to another directory since then.
        self._registered_with: dict[int, dict[TopicIdPartition, Uuid | None]] = {}

    def look(self, brokers: Mapping[int, BrokerDaemon], *, is_image_complete: bool = True) -> None:
        """Checks every replica of these live brokers. What the leaders count on is compared with the image only if that has
        everything that is committed; if not, in a later look. Raises InvariantViolated."""
        changed: dict[TopicIdPartition, None] = {}
        for broker_id, broker in brokers.items():
            for key, partition in hosted(broker):
                if self._look_at(broker_id, key, partition):
                    changed[key] = None
        if is_image_complete:
            self._check_isrs(changed, brokers)
        self._check_followers(brokers)

    def _check_isrs(self, changed: dict[TopicIdPartition, None], brokers: Mapping[int, BrokerDaemon]) -> None:
        partitions = self._image.image.partitions
        if self._image.next_offset != self._seen_offset:
            self._seen_offset = self._image.next_offset
            changed = dict.fromkeys(partitions)
        for key in changed:
            part = partitions.get(key)
            if part is not None and part.leader in brokers:
                self._check_isr(key, part, brokers)

    def _check_followers(self, brokers: Mapping[int, BrokerDaemon]) -> None:
        """I3: what a follower has learned from its leader is not above what the leader has. A consumer may read the follower
        up to there (KIP-392)."""
        risen, self._risen = self._risen, []
        for broker_id, key in risen:
            partition = self._seen[broker_id, key].partition
            leader = brokers.get(partition.replica.leader)
            led = None if leader is None else _find(leader, key)
            if led is None or led.replica.role is not Role.LEADER or led.is_restructuring or self._may_lose(key):
                continue
            if led.replica.leader_epoch != partition.replica.leader_epoch:
                continue
            if partition.high_watermark > led.high_watermark:
                raise InvariantViolated(
                    "I3",
                    f"{partition.name} on broker {broker_id}: the follower's high watermark rose to "
                    f"{partition.high_watermark}, that of leader {partition.replica.leader} is {led.high_watermark}",
                )

    # --- one replica ---------------------------------------------------------------------------------------------

    def _look_at(self, broker_id: int, key: TopicIdPartition, partition: Partition) -> bool:
        """Checks one replica. Returns whether it has changed since the last look."""
        facts = _facts(partition)
        seen = self._seen.get((broker_id, key))
        if seen is not None and seen.partition is partition:
            if seen.facts == facts:
                return False
            self._check_progress(f"{partition.name} on broker {broker_id}", key, seen.facts, facts)
            if facts.has_risen_as_follower_since(seen.facts):
                self._risen.append((broker_id, key))
        self._seen[broker_id, key] = _Seen(partition, facts)
        where = f"{partition.name} on broker {broker_id}"
        if facts.gone is ErrorCode.NONE and not facts.is_restructuring:
            self._check_offsets(where, partition)
        if facts.role is Role.LEADER:
            self._check_leader(broker_id, key, facts.leader_epoch, where)
        if facts.high_watermark > self.committed.get(key, 0):
            self.committed[key] = facts.high_watermark
        return True

    def _check_progress(self, where: str, key: TopicIdPartition, before: _Facts, now: _Facts) -> None:
        if now.high_watermark < before.high_watermark and not before.is_empty_follower and not self._may_lose(key):
            raise InvariantViolated(
                "I3", f"{where}: the high watermark fell from {before.high_watermark} to {now.high_watermark}"
            )
        if now.leader_epoch < before.leader_epoch or now.partition_epoch < before.partition_epoch:
            raise InvariantViolated("I4", f"{where}: an epoch of the replica went back")
        if now.high_watermark > before.high_watermark and now.has_been_under_min_isr_since(before):
            raise InvariantViolated(
                "I8",
                f"{where}: the high watermark rose from {before.high_watermark} to {now.high_watermark} with ISR "
                f"{list(now.committed_isr)}, {now.min_isr} must be in sync",
            )

    def _check_offsets(self, where: str, partition: Partition) -> None:
        log, replica = partition.log, partition.replica
        if not log.log_start_offset <= replica.high_watermark <= log.written_offset <= log.log_end_offset:
            raise InvariantViolated(
                "I3",
                f"{where}: start {log.log_start_offset}, high watermark {replica.high_watermark}, written "
                f"{log.written_offset}, end {log.log_end_offset}",
            )

    def _check_leader(self, broker_id: int, key: TopicIdPartition, leader_epoch: int, where: str) -> None:
        other = self._leaders.setdefault((key, leader_epoch), broker_id)
        if other != broker_id:
            raise InvariantViolated("I4", f"{where} leads in epoch {leader_epoch}, in which broker {other} led")
        elected = self._image.elections.get((key, leader_epoch), broker_id)
        if elected != broker_id:
            raise InvariantViolated("I4", f"{where} leads in epoch {leader_epoch}, for which {elected} was elected")

    def _may_lose(self, key: TopicIdPartition) -> bool:
        topic = self._image.image.topics.get(key.topic_id)
        return topic is not None and self._image.image.is_unclean_allowed(topic)

    # --- the ISR -------------------------------------------------------------------------------------------------

    def _check_isr(self, key: TopicIdPartition, part: ModelPartition, brokers: Mapping[int, BrokerDaemon]) -> None:
        leader = _find(brokers[part.leader], key)
        if leader is None or leader.replica.role is not Role.LEADER or leader.replica.leader_epoch != part.leader_epoch:
            return
        maximal = leader.replica.maximal_isr
        if not set(part.isr) <= set(maximal):
            raise InvariantViolated(
                "I8", f"{leader.name}: leader {part.leader} counts on ISR {list(maximal)}, recorded is {list(part.isr)}"
            )
        for member in part.isr:
            follower = _find(brokers[member], key) if member in brokers else None
            if follower is None or follower.is_restructuring or self._may_lose(key):
                continue
            if follower.log.written_offset < leader.replica.high_watermark:
                raise InvariantViolated(
                    "I8",
                    f"{leader.name}: the high watermark of leader {part.leader} is {leader.replica.high_watermark}, ISR "
                    f"member {member} has {follower.log.written_offset}",
                )

    # --- directories ---------------------------------------------------------------------------------------------

    def look_at_offline_directories(self, brokers: Mapping[int, BrokerDaemon], now_ns: int) -> None:
        """Checks I13 for these brokers, which are alive and not paused. Raises InvariantViolated."""
        before, self._led_offline_since = self._led_offline_since, {}
        for broker_id, broker in brokers.items():
            self._look_at_offline_directories(broker_id, broker, before, now_ns)
            self._check_answers_for_offline(broker_id, broker)

    def _check_answers_for_offline(self, broker_id: int, broker: BrokerDaemon) -> None:
        """Clients that ask for a replica in a failed directory must learn of another leader as soon as the broker knows it:
        not all clients look for one after a storage error."""
        for key in broker.replicas._known._went_offline_in:
            part = broker.state.partition(*key)
            if part is None or part.leader in (broker_id, NO_LEADER):
                continue
            if broker.replicas.find(key) is ErrorCode.KAFKA_STORAGE_ERROR:
                raise InvariantViolated(
                    "I13",
                    f"{self._image.image.name(key)}: broker {broker_id} tells clients of its failed directory, and not that "
                    f"broker {part.leader} leads",
                )

    def _look_at_offline_directories(
        self, broker_id: int, broker: BrokerDaemon, before: Mapping[Place, int], now_ns: int
    ) -> None:
        """Within the time limit the broker must stop leading from an offline directory, or halt. A broker that has not
        registered yet serves nothing, and the metadata still names it as leader because of its last incarnation. Nor does
        one serve that is shutting down, for which a slow disk may take long, while the controller is away."""
        if broker.lifecycle.broker_epoch < 0 or broker.lifecycle.state is BrokerState.SHUTTING_DOWN:
            return
        for directory_id in _offline(broker):
            place = (broker_id, broker.lifecycle.broker_epoch, directory_id)
            led = self._led_in(broker_id, broker, directory_id)
            if not led:
                continue
            since_ns = self._led_offline_since[place] = before.get(place, now_ns)
            slack_ns = UNTOLD_FAILURE_SLACK_NS if _is_untold(broker, directory_id) else DIRECTORY_FAILURE_SLACK_NS
            if now_ns - since_ns > self._directory_failure_timeout_ns + slack_ns:
                raise InvariantViolated(
                    "I13",
                    f"{self._image.image.name(led[0])} is led by broker {broker_id} from directory "
                    f"{uuid_text(directory_id)[:6]}, offline there for {(now_ns - since_ns) / 1e9:.1f} s",
                )

    def _led_in(self, broker_id: int, broker: BrokerDaemon, directory_id: Uuid) -> list[TopicIdPartition]:
        """Returns the partitions that the broker leads in this directory according to the committed image. If there are
        none, returns those according to the broker's own image, which is older if the broker no longer receives the metadata
        log."""
        committed = [
            key
            for key, part in self._image.image.partitions.items()
            if part.leader == broker_id and part.directory(broker_id) == directory_id
        ]
        return committed or _led_as_it_knows(broker, BrokerId(broker_id), directory_id)

    # --- events and committed records ----------------------------------------------------------------------------

    def happened(self, event: SimulatedEvent) -> None:
        """I14: an ISR member does not create an empty log of a partition that has committed records. Raises
        InvariantViolated."""
        if event.name != "log_created":
            return
        broker_id = int(event.node.rpartition("-")[2])
        image = self._image.image
        # Look the partition up by topic id: a broker with an older image may be creating the log of an earlier topic of this
        # name.
        topic_id = TopicId(Uuid(bytes.fromhex(event.fields["topic_id"])))
        key = TopicIdPartition(topic_id, int(event.fields["partition"].rpartition("-")[2]))
        if key not in image.partitions:
            return
        part = image.partitions[key]
        if broker_id in part.isr and not part.is_recovering and self.committed.get(key, 0) > 0:
            raise InvariantViolated(
                "I14",
                f"{image.name(key)}: broker {broker_id} is in ISR {list(part.isr)} and begins with an empty log; committed "
                f"are {self.committed[key]} records",
            )

    def committed_batch(self, records: Sequence[KnownRecord], brokers: Mapping[int, BrokerDaemon]) -> None:
        """I11: when a broker is unfenced, the metadata must name the directory of each replica whose partition is older than
        the broker's registration. Only the replicas that the broker hosts now are compared: it cannot report the directory
        of a replica that it no longer has. An assignment that this incarnation has made does not count either: the broker
        may take it back and be unfenced meanwhile, for example when a move is cancelled. This also holds for a replica that
        has come back to the directory that it was in at the registration."""
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                self._registered_with[record.broker_id] = {
                    key: part.directory(BrokerId(record.broker_id))
                    for key, part in self._image.image.partitions.items()
                    if record.broker_id in part.replicas
                }
            elif isinstance(record, PartitionChangeRecord):
                self._note_assigned(TopicIdPartition(TopicId(record.topic_id), record.partition_id))
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FencingChange.UNFENCE:
                broker = brokers.get(record.broker_id)
                if broker is not None and broker.lifecycle.broker_epoch == record.broker_epoch:
                    self._check_unfenced(record.broker_id, broker)

    def _note_assigned(self, key: TopicIdPartition) -> None:
        part = self._image.image.partitions.get(key)
        for broker_id, registered_with in self._registered_with.items():
            if part is not None and broker_id in part.replicas:
                directory_id = part.directory(BrokerId(broker_id))
                if registered_with.get(key, directory_id) != directory_id:
                    registered_with[key] = None

    def _check_unfenced(self, broker_id: int, broker: BrokerDaemon) -> None:
        image = self._image.image
        registered_at = image.brokers[broker_id].registered_at
        if not image.has_assignments or not image.brokers[broker_id].knows_assignments:
            return
        for key, directory_id in broker.replicas.hosted_directories().items():
            part = image.partitions.get(key)
            if part is None or broker_id not in part.replicas or part.created_at > registered_at:
                continue
            if broker_id in part.adding:
                # A reassignment may have placed this replica after the broker registered. The broker may be unfenced before
                # the controller records the directory of such a replica.
                continue
            assigned = part.directory(broker_id)
            if self._registered_with.get(broker_id, {}).get(key, assigned) != assigned:
                continue
            # A replica that is about to switch directories has a full copy in the directory that the broker reports.
            if assigned not in (directory_id, LOST, broker.replicas._known.movement.reported(key)):
                raise InvariantViolated(
                    "I11",
                    f"broker {broker_id} is unfenced, and {image.name(key)} is in {uuid_text(directory_id)[:6]} there, "
                    f"assigned to {uuid_text(assigned)[:6]}",
                )


def _facts(partition: Partition) -> _Facts:
    replica, log = partition.replica, partition.log
    return _Facts(
        replica.high_watermark,
        replica.leader_epoch,
        replica.partition_epoch,
        replica.role,
        log.written_offset,
        log.log_start_offset,
        log.segment_base_offsets[0],
        partition.is_restructuring,
        replica.committed_isr,
        replica.proposal,
        min(partition.config.min_insync_replicas, len(replica.replicas)),
        partition.gone,
    )


def hosted(broker: BrokerDaemon) -> Iterator[tuple[TopicIdPartition, Partition]]:
    """Iterates over the replicas whose logs are loaded in a broker."""
    return iter(broker.replicas._partitions.items())


def _find(broker: BrokerDaemon, key: TopicIdPartition) -> Partition | None:
    found = broker.replicas._partitions.get(key)
    return None if found is None or found.gone is not ErrorCode.NONE else found


def _led_as_it_knows(broker: BrokerDaemon, broker_id: BrokerId, directory_id: Uuid) -> list[TopicIdPartition]:
    return [
        key
        for key in broker.state.partitions_led_by(broker_id)
        if (part := broker.state.partition(*key)) is not None and part.directory(broker_id) == directory_id
    ]


def _is_untold(broker: BrokerDaemon, directory_id: Uuid) -> bool:
    """Whether the broker must halt by itself (KIP-858, log.dir.failure.timeout.ms): it leads in the directory, and the
    controller has not acknowledged the failure."""
    failure = broker.lifecycle._failures.get(DirectoryId(directory_id))
    if failure is None or failure.acknowledged:
        return False
    return bool(_led_as_it_knows(broker, broker._broker_id, directory_id))


def _offline(broker: BrokerDaemon) -> list[Uuid]:
    return [each.directory_id for each in broker._directories.known.offline if each.directory_id is not None]
