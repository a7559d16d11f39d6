"""The broker's image of the cluster: replays committed records, then brings the replicas in line (shell).

Counterpart of Kafka's BrokerMetadataPublisher and MetadataLoader. Records are replayed in the same step in which they are
committed, so requests always see the newest image. A long transaction is the exception: it is replayed in slices into a copy
of the image, and requests see the image before it until the copy takes its place. A separate task publishes one delta at a
time; changes that arrive meanwhile, also while it works, are joined into the next delta. The *applied* offset, which
heartbeats report and the unfence gate waits for, advances only after the change was published to the replicas.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from broker.core.previous_directories import PreviousDirectories
from common.environment.interface import Environment
from common.ids import BrokerId, DirectoryId, IncarnationId, Offset, TopicId, TopicIdPartition
from common.metadata.delta import MetadataDelta
from common.metadata.metadata_version import BROKER_FEATURES
from common.metadata.state import MetadataState
from common.metadata.transactions import RecordAndOffset, TransactionBuffer
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.listener import LoadedSnapshot
from common.records.metadata_records import RemoveTopicRecord

# The number of records replayed without a pause while a snapshot or a long transaction is applied. The pauses let the event
# loop send heartbeats. The removal of a topic counts as one record for each of its partitions.
REPLAY_SLICE = 2_000
# So many partitions of the image are copied in the time that it takes to replay a record.
COPIED_PARTITIONS_PER_RECORD = 5


class MetadataFollower:
    """A MetadataListener. `publish(delta)` brings the broker in line with the image. Afterwards, or if nothing has changed,
    `on_published(offset, is_first)` is called. `on_topics_removed(names)` is called in the step in which the topics leave
    the image: a new topic of the same name may be used from the next record on.

    `broker_id` and `incarnation_id` are this broker's own: startup waits until the image contains its registration."""

    def __init__(
        self,
        env: Environment,
        state: MetadataState,
        *,
        broker_id: BrokerId,
        incarnation_id: IncarnationId,
        publish: Callable[[MetadataDelta], Awaitable[None]],
        on_published: Callable[[Offset, bool], None],
        on_topics_removed: Callable[[Sequence[str]], None] = lambda _names: None,
    ) -> None:
        self._env = env
        self._state = state
        self._publish = publish
        self._on_published = on_published
        self._on_topics_removed = on_topics_removed
        self._transactions = TransactionBuffer()
        # The image has every record up to this offset.
        self._replayed_offset = Offset(-1)
        self._delta = MetadataDelta()
        # The names of the topics that have left the image with the batch or snapshot that is being applied. Empty between
        # two of these.
        self._removed: list[str] = []
        self._committed = asyncio.Event()
        self._changed: list[asyncio.Future[None]] = []
        self._unapplied: list[asyncio.Future[None]] = []
        self._last_wall_ms = 0
        # From this offset on, every feature must be at a level that this node supports. None until the end of the log is
        # known: a later record may lower an unsupported level.
        self._levels_count_from: Offset | None = None
        self._previous = PreviousDirectories(broker_id, incarnation_id)
        self.applied_offset = Offset(-1)
        """The last offset whose changes this broker has published to its replicas."""

    @property
    def replayed_offset(self) -> Offset:
        """The last offset that the image has. What its changes bring about at the replicas may still be to come."""
        return self._replayed_offset

    @property
    def lag_ms(self) -> int:
        """The age of the newest replayed record."""
        return max(0, self._env.wall_ms() - self._last_wall_ms)

    @property
    def previous_directories(self) -> tuple[DirectoryId, ...] | None:
        """The directories that may hold logs that the controller does not know of; None if unknown."""
        return self._previous.directories

    # --- MetadataListener -----------------------------------------------------------------------------------------

    def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
        """Replays the batch. Records of an open transaction wait until the transaction ends. If the batch ends a long one,
        the returned coroutine replays it."""
        ready: list[RecordAndOffset] = []
        offset = batch.base_offset
        for record in batch.records:
            ready += self._transactions.feed(record, offset)
            offset = Offset(offset + 1)
        if not batch.records and not self._transactions.is_open:
            # A control batch has no records but must advance the offset. Otherwise the broker would never appear to have
            # caught up with it.
            self._transactions.reset(batch.last_offset)
        if self._is_long(ready, batch):
            return self._replay_in_slices(batch, ready)
        self._replay(ready, self._state, self._delta)
        self._end_batch(batch)
        return None

    def _is_long(self, ready: Sequence[RecordAndOffset], batch: CommittedBatch) -> bool:
        """Whether the records are too many for one step. The end of a transaction may release any number of them. Those of
        one batch are at most 10,000: to copy a far larger image for them would only make them wait."""
        cost = sum(self._state.replay_cost(record) for record, _ in ready)
        if cost <= REPLAY_SLICE or len(ready) == 1:
            return False
        return len(ready) > len(batch.records) or self._state.partition_count <= COPIED_PARTITIONS_PER_RECORD * cost

    async def _replay_in_slices(self, batch: CommittedBatch, ready: Sequence[RecordAndOffset]) -> None:
        image = await self._copied_image()
        delta = MetadataDelta()
        for piece in _pieces(ready, image):
            self._replay(piece, image, delta)
            await self._pause()
        self._state.replace_with(image)
        self._join(delta)
        self._end_batch(batch)

    async def _copied_image(self) -> MetadataState:
        copying = self._state.copy_in_slices()
        while True:
            try:
                next(copying)
            except StopIteration as end:
                copy: MetadataState = end.value
                return copy
            await self._pause()

    def _replay(self, ready: Sequence[RecordAndOffset], image: MetadataState, delta: MetadataDelta) -> None:
        for record, offset in ready:
            self._previous.note_record(record, image)
            if isinstance(record, RemoveTopicRecord) and (topic := image.topics.get(TopicId(record.topic_id))) is not None:
                self._removed.append(topic.name)
            image.replay(record, offset=offset, delta=delta)

    def _end_batch(self, batch: CommittedBatch) -> None:
        self._replayed_offset = self._transactions.stable_offset
        self._last_wall_ms = batch.append_time_ms
        self._check_levels()
        self._report_removed()
        self._wake()

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> Coroutine[Any, Any, None]:
        """Replaces the image with the snapshot's. The delta is the difference from the previous image."""
        return self._load(snapshot)

    async def _load(self, snapshot: LoadedSnapshot) -> None:
        # Requests are answered from the old image until the new one is complete.
        fresh = MetadataState()
        last_offset = Offset(snapshot.end_offset - 1)
        for number, record in enumerate(snapshot.records, start=1):
            fresh.replay(record, offset=last_offset)
            if number % REPLAY_SLICE == 0:
                await self._pause()
        self._previous.note_snapshot(fresh)
        before = self._state.replace_with(fresh)
        # The difference from the previous image does not contain the changes that are still unpublished, so join the two.
        delta = self._state.delta_since(before)
        self._removed += [topic.name for topic in delta.removed_topics.values()]
        self._join(delta)
        self._transactions.reset(last_offset)
        self._replayed_offset = last_offset
        self._last_wall_ms = snapshot.last_contained_timestamp
        self._check_levels()
        self._env.log.info("metadata_snapshot_loaded", end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        self._report_removed()
        self._wake()

    def _join(self, delta: MetadataDelta) -> None:
        """Adds the changes from the previous image to the new one."""
        self._delta = _joined(self._delta, delta)
        for topic_id in self._delta.created_topics:
            # A topic object of the previous image no longer receives updates. Use the topic object of the new image.
            self._delta.created_topics[topic_id] = self._state.topics[topic_id]

    def _report_removed(self) -> None:
        removed, self._removed = self._removed, []
        if removed:
            self._on_topics_removed(removed)

    async def _pause(self) -> None:
        await self._env.sleep_until(self._env.now_ns())

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Logs a change of the active controller."""
        self._env.log.info("controller_changed", leader_id=leader.leader_id, epoch=leader.epoch)

    # --- publishing -----------------------------------------------------------------------------------------------

    async def wait_until_registered(self) -> None:
        """Waits until the image contains this incarnation's registration."""
        while not self._previous.is_registered:
            await self._next_change()

    async def run(self) -> None:
        """Publishes deltas until cancelled."""
        is_first = True
        while True:
            await self._committed.wait()
            self._committed.clear()
            delta, self._delta = self._delta, MetadataDelta()
            offset = self._replayed_offset
            if not delta.is_empty:
                await self._publish(delta)
            self.applied_offset = offset
            self._on_published(offset, is_first)
            is_first = False
            waiting, self._unapplied = self._unapplied, []
            _wake_all(waiting)

    async def wait_until_applied(self, offset: Offset) -> None:
        """Waits until everything up to and including `offset` has been applied."""
        while self.applied_offset < offset:
            applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._unapplied.append(applied)
            await applied

    async def wait_until(self, condition: Callable[[], bool], *, deadline_ns: int) -> bool:
        """Waits until `condition` holds, checking it after every change of the image. Returns False at the deadline."""
        try:
            async with self._env.timeout_at(deadline_ns):
                while not condition():
                    await self._next_change()
        except TimeoutError:
            return False
        return True

    def _next_change(self) -> "asyncio.Future[None]":
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(changed)
        return changed

    def require_supported_levels(self, offset: Offset) -> None:
        """Requires the levels of all features to be supported from this offset on. Until then the image may be an old one.
        Raises UnsupportedFeatureLevel if the image has the offset, otherwise the driver gets the error."""
        self._levels_count_from = offset
        self._check_levels()

    def _check_levels(self) -> None:
        start = self._levels_count_from
        if self._previous.is_registered or (start is not None and start <= self._replayed_offset):
            self._state.require_supported_levels(BROKER_FEATURES)

    def _wake(self) -> None:
        self._committed.set()
        waiting, self._changed = self._changed, []
        _wake_all(waiting)


def _pieces(ready: Sequence[RecordAndOffset], image: MetadataState) -> Iterator[Sequence[RecordAndOffset]]:
    """Cuts the records into pieces. The caller replays each into the image before it takes the next."""
    start = cost = 0
    for number, (record, _) in enumerate(ready, start=1):
        cost += image.replay_cost(record)
        if cost >= REPLAY_SLICE or number == len(ready):
            yield ready[start:number]
            start, cost = number, 0


def _wake_all(waiting: "list[asyncio.Future[None]]") -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _joined(first: MetadataDelta, second: MetadataDelta) -> MetadataDelta:
    """Joins two consecutive deltas into one. Each changed key keeps its earliest old value."""
    joined = MetadataDelta()
    for delta in (second, first):
        joined.changed_partitions.update(delta.changed_partitions)
        joined.created_partitions.update(delta.created_partitions)
        joined.created_topics.update(delta.created_topics)
        joined.removed_topics.update(delta.removed_topics)
        joined.changed_brokers.update(delta.changed_brokers)
        joined.changed_configs.update(delta.changed_configs)
        joined.changed_features.update(delta.changed_features)
    for topic_id, topic in second.removed_topics.items():
        for partition in topic.partitions:
            key = TopicIdPartition(topic_id, partition)
            joined.changed_partitions.pop(key, None)
            joined.created_partitions.pop(key, None)
        if joined.created_topics.pop(topic_id, None) is not None and topic_id not in first.removed_topics:
            joined.removed_topics.pop(topic_id, None)
    return joined
