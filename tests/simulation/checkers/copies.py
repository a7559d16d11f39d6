"""Counts the copies of committed records: I1 for acks=all, and I8 for replicas that join the ISR.

Shell of the tests. When a batch is acknowledged, min.insync.replicas replicas must have written it. When a leader proposes a
new ISR member, that member must have written everything below the high watermark. A replica that died or lost its directory
while the batch was in flight is counted as a copy, because it may have had the batch. So is one that was taken away
meanwhile, for example because a reassignment was cancelled.
"""

from collections.abc import Mapping

from broker.daemon import BrokerDaemon
from broker.hosting.partition import Partition
from common.ids import TopicIdPartition
from tests.simulation.checkers.image import ImageModel
from tests.simulation.environment import SimulatedEvent
from tests.simulation.history import History, Outcome, Produce, is_careless
from tests.simulation.violations import InvariantViolated

ALL = -1
# If a broker was last seen alive more than this time before a batch was sent, it cannot have a copy of the batch.
MARGIN_NS = 100_000_000


class CopiesChecker:
    """See the module docstring."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._taken = 0
        # The produce requests that had no response yet at the last look.
        self._open: list[Produce] = []
        # When each broker was last seen alive.
        self._alive_at: dict[int, int] = {}
        # The replicas of each partition, each time with the look from which on they were these.
        self._replicas: dict[TopicIdPartition, list[tuple[int, tuple[int, ...]]]] = {}

    def look(self, brokers: Mapping[int, BrokerDaemon], image: ImageModel, now_ns: int) -> None:
        """Checks the batches that were acknowledged since the last look. Raises InvariantViolated."""
        self._alive_at.update(dict.fromkeys(brokers, now_ns))
        for key, part in image.partitions.items():
            known = self._replicas.setdefault(key, [])
            if not known or known[-1][1] != part.replicas:
                known.append((now_ns, part.replicas))
        self._open += self._history.produces[self._taken :]
        self._taken = len(self._history.produces)
        ended = [produce for produce in self._open if produce.end_ns is not None]
        if not ended:
            return
        self._open = [produce for produce in self._open if produce.end_ns is None]
        for produce in ended:
            if produce.outcome is Outcome.OK and produce.acks == ALL:
                self._check_copies(produce, brokers, image)

    def _check_copies(self, produce: Produce, brokers: Mapping[int, BrokerDaemon], image: ImageModel) -> None:
        key = TopicIdPartition(produce.topic_id, produce.index)
        part = image.partitions.get(key)
        if part is None or is_careless(produce.topic):
            return
        end_offset = produce.offset + len(produce.values)
        replicas = self._replicas_since(key, produce.begin_ns)
        copies = sum(self._may_have(broker_id, key, produce, brokers.get(broker_id)) for broker_id in replicas)
        hosted = [broker.replicas._partitions.get(key) for broker in brokers.values()]
        wanted = min((each.config.min_insync_replicas for each in hosted if each is not None), default=0)
        if copies < min(wanted, len(part.replicas)):
            raise InvariantViolated(
                "I1",
                f"{produce.topic}-{produce.index}: offsets below {end_offset} are acknowledged with acks=all and have "
                f"{copies} copies, min.insync.replicas is {wanted}",
            )

    def _replicas_since(self, key: TopicIdPartition, begin_ns: int) -> set[int]:
        """Returns the brokers that had a replica at this time or have got one since."""
        known = self._replicas[key]
        first = max((number for number, (at_ns, _) in enumerate(known) if at_ns <= begin_ns), default=0)
        return {broker_id for _, replicas in known[first:] for broker_id in replicas}

    def _may_have(self, broker_id: int, key: TopicIdPartition, produce: Produce, broker: BrokerDaemon | None) -> bool:
        if broker is None:
            return self._alive_at.get(broker_id, 0) > produce.begin_ns - MARGIN_NS
        partition = broker.replicas._partitions.get(key)
        return partition is None or partition.log.written_offset >= produce.offset + len(produce.values)


def check_proposal(event: SimulatedEvent, brokers: Mapping[int, BrokerDaemon]) -> None:
    """I8: a broker that a leader proposes for the ISR has every committed record. Call this while the event is being logged:
    later the follower may have caught up."""
    if event.name != "isr_change_proposed":
        return
    leader_id = int(event.node.rpartition("-")[2])
    leader = _named(brokers.get(leader_id), event.fields["partition"])
    if leader is None:
        return
    for member in event.fields["isr"]:
        follower = _named(brokers.get(member), leader.name)
        if member in event.fields["committed_isr"] or follower is None or follower.topic_id != leader.topic_id:
            continue
        if follower.log.written_offset < leader.high_watermark:
            raise InvariantViolated(
                "I8",
                f"{leader.name}: leader {leader_id} proposes broker {member}, which has {follower.log.written_offset} of "
                f"{leader.high_watermark} committed records",
            )


def _named(broker: BrokerDaemon | None, name: str) -> Partition | None:
    if broker is None:
        return None
    return next((each for each in broker.replicas._partitions.values() if each.name == name), None)
