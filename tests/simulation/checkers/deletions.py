"""I30: DeleteRecords deletes what it names and nothing else, and what is deleted does not come back (KIP-107).

Shell of the tests. A leader must not begin before what an acknowledgement said is deleted, unless it has crashed since: log
starts are written only now and then, as in Kafka. What was asked for bounds the log starts of topics without retention. A
deletion without an answer may be carried out, so it counts from the moment when it is sent. A log start never falls in one
life of a broker, also when the replica moves to another directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.core.partition_replica import Role
from broker.daemon import BrokerDaemon
from broker.hosting.partition import Partition
from common.ids import TopicIdPartition
from tests.simulation.checkers.image import ImageModel
from tests.simulation.checkers.replicas import hosted
from tests.simulation.history import History, Outcome, RecordDeletion, is_trimmed
from tests.simulation.violations import InvariantViolated


@dataclass(slots=True)
class _Deleted:
    """The deletions of one partition."""

    requested: int = 0
    acknowledged: int = 0
    # The lives of brokers that have been running since before the request.
    witnesses: frozenset[BrokerDaemon] = frozenset()


class DeletionChecker:
    """See the module docstring."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._next = 0
        self._open: list[RecordDeletion] = []
        self._deleted: dict[TopicIdPartition, _Deleted] = {}
        # The log start of each replica that has records. Without records, a follower may begin again at the start of the
        # leader's first batch.
        self._starts: dict[Partition, int] = {}
        # When each life of a broker was first seen.
        self._seen: dict[BrokerDaemon, int] = {}

    def look(self, brokers: Mapping[int, BrokerDaemon], image: ImageModel, now_ns: int) -> None:
        """Looks at the log starts of all replicas. Raises InvariantViolated."""
        self._seen = {broker: self._seen.get(broker, now_ns) for broker in brokers.values()}
        self._note_deletions()
        before, self._starts = self._starts, {}
        for broker_id, broker in brokers.items():
            for key, partition in hosted(broker):
                start = partition.log.log_start_offset
                where = f"{partition.name} on broker {broker_id}"
                if start < before.get(partition, 0):
                    raise InvariantViolated("I30", f"{where} begins at {start}, it began at {before[partition]}")
                if partition.log.written_offset > start:
                    self._starts[partition] = start
                if is_trimmed(partition.name):
                    deleted = self._deleted.get(key, _Deleted())
                    if start > deleted.requested:
                        raise InvariantViolated(
                            "I30", f"{where} begins at {start}, no deletion goes beyond {deleted.requested}"
                        )
                # A deposed leader that does not know it yet has not heard of the deletions since (seed 13546).
                newest = image.partitions.get(key)
                if newest is not None and newest.leader_epoch == partition.replica.leader_epoch:
                    _check_leader(where, broker, partition, self._deleted.get(key))

    def _note_deletions(self) -> None:
        news = self._history.deletions[self._next :]
        self._next = len(self._history.deletions)
        self._open += news
        for each in news:
            deleted = self._of(each)
            deleted.requested = max(deleted.requested, each.offset)
        still_open = []
        for each in self._open:
            if each.end_ns is None:
                still_open.append(each)
            elif each.outcome is Outcome.OK:
                deleted = self._of(each)
                if each.low_watermark < each.offset:
                    raise InvariantViolated(
                        "I30", f"{each.topic}-{each.index}: deleted up to {each.low_watermark} only, not {each.offset}"
                    )
                if each.low_watermark >= deleted.acknowledged:
                    deleted.acknowledged = each.low_watermark
                    deleted.witnesses = frozenset(broker for broker in self._seen if self._seen[broker] <= each.begin_ns)
        self._open = still_open

    def _of(self, deletion: RecordDeletion) -> _Deleted:
        return self._deleted.setdefault(TopicIdPartition(deletion.topic_id, deletion.index), _Deleted())


def _check_leader(where: str, broker: BrokerDaemon, partition: Partition, deleted: _Deleted | None) -> None:
    if deleted is None or partition.replica.role is not Role.LEADER or broker not in deleted.witnesses:
        return
    if partition.log.log_start_offset < deleted.acknowledged:
        raise InvariantViolated(
            "I30",
            f"{where} leads from {partition.log.log_start_offset} on, deleted were the records below {deleted.acknowledged}",
        )
