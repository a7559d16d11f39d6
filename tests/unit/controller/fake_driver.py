"""A single-node quorum driver without a disk. The test decides when scheduled records are committed."""

from collections.abc import Sequence

from common.ids import BrokerId, LeaderEpoch, Offset
from common.raft.bootstrap import bootstrap_records
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch, RecordsTooLarge
from common.raft.errors import NotLeader
from common.raft.listener import MetadataListener
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import KnownRecord

NODE_ID = 1
OTHER_NODE = BrokerId(2)


class FakeDriver:
    """Keeps the whole log in memory and replays its committed part to every listener that registers."""

    def __init__(self, log: Sequence[KnownRecord] = (), *, records_max: int = 10_000) -> None:
        self.log: list[KnownRecord | None] = list(log)
        self.committed = len(self.log)
        self.epoch: LeaderEpoch | None = None
        self.last_epoch = 0
        self.listeners: list[MetadataListener] = []
        self.atomic_appends: list[bool] = []
        self.records_max = records_max
        self.bootstrap = bootstrap_records()

    # --- what the controller calls ------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.log))

    def register(self, listener: MetadataListener) -> None:
        self.listeners.append(listener)
        for offset in range(self.committed):
            listener.handle_commit(self._batch(offset))
        if self.epoch is not None:
            listener.handle_leader_change(LeaderAndEpoch(BrokerId(NODE_ID), self.epoch))

    def unregister(self, listener: MetadataListener) -> None:
        self.listeners.remove(listener)

    def schedule_append(self, records: Sequence[ApiMessageAndVersion], *, epoch: int, atomic: bool = True) -> Offset:
        if epoch != self.epoch:
            raise NotLeader(LeaderEpoch(self.last_epoch), None)
        if atomic and len(records) > self.records_max:
            raise RecordsTooLarge
        self.log += [written.record for written in records]
        self.atomic_appends.append(atomic)
        return Offset(len(self.log) - 1)

    def resign(self, epoch: int) -> None:
        """Gives up the leadership. As with the real driver, the sole voter is elected again at once."""
        assert epoch == self.epoch
        self.lose()
        self.lead()

    def load_bootstrap_records(self) -> list[ApiMessageAndVersion]:
        return self.bootstrap

    # --- what the test does -------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Makes this node the leader of a new epoch and commits the epoch's first batch."""
        self.last_epoch += 1
        self.epoch = LeaderEpoch(self.last_epoch)
        self.log.append(None)
        self.commit()
        self._announce(LeaderAndEpoch(BrokerId(NODE_ID), self.epoch))

    def lose(self, *, to: BrokerId | None = None) -> None:
        """Ends this node's leadership and discards everything uncommitted."""
        self.epoch = None
        del self.log[self.committed :]
        self._announce(LeaderAndEpoch(to, LeaderEpoch(self.last_epoch)))

    def commit(self, count: int | None = None) -> None:
        """Commits the next `count` records, or all of them."""
        end = len(self.log) if count is None else self.committed + count
        while self.committed < end:
            self.committed += 1
            for listener in list(self.listeners):
                listener.handle_commit(self._batch(self.committed - 1))

    def _announce(self, leader: LeaderAndEpoch) -> None:
        for listener in list(self.listeners):
            listener.handle_leader_change(leader)

    def _batch(self, offset: int) -> CommittedBatch:
        record = self.log[offset]
        records = () if record is None else (record,)
        return CommittedBatch(Offset(offset), Offset(offset), LeaderEpoch(self.last_epoch), 1_000 + offset, records)

    @property
    def records(self) -> list[KnownRecord]:
        """Returns all records of the log except control batches."""
        return [record for record in self.log if record is not None]
