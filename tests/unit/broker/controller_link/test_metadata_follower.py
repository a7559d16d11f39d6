"""The broker's metadata image: when records are replayed, what is published as one delta, and when an offset counts as
applied."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import pytest

from broker.controller_link import metadata_follower
from broker.controller_link.metadata_follower import REPLAY_SLICE, MetadataFollower
from common.ids import BrokerId, IncarnationId, LeaderEpoch, Offset, TopicIdPartition
from common.metadata.delta import MetadataDelta
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState, ReplayError
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.listener import LoadedSnapshot
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    KnownRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from tests.simulation.environment import WALL_BASE_MS, SimulatedWorld
from tests.unit.common.metadata.builders import directory, level, partition, register, replay, topic, topic_id, uuid
from tests.unit.common.metadata.invariants import check_indexes

INCARNATION = 5
D1, D2, D3 = directory(1), directory(2), directory(3)


class Follower:
    """A MetadataFollower without a log: the test passes the batches to it. `published` has the deltas passed to `publish`,
    `told` the arguments of each call of `on_published`, and `removed` the names passed to `on_topics_removed`."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.state = MetadataState()
        self.published: list[MetadataDelta] = []
        self.told: list[tuple[int, bool]] = []
        self.removed: list[str] = []
        self.next_offset = 0
        # The test may clear it, as if the broker had much to do with a delta.
        self.may_end_publishing = asyncio.Event()
        self.may_end_publishing.set()
        self.follower = MetadataFollower(
            world.node("broker-1"),
            self.state,
            broker_id=BrokerId(1),
            incarnation_id=IncarnationId(uuid(1_000_000 + INCARNATION)),
            publish=self._publish,
            on_published=lambda offset, is_first: self.told.append((offset, is_first)),
            on_topics_removed=self._note_removed,
        )

    def commit(self, *records: KnownRecord) -> None:
        """Passes one committed batch to the follower. Without records, it is a control batch of one offset."""
        assert self.begin_commit(*records) is None

    def begin_commit(self, *records: KnownRecord) -> Coroutine[Any, Any, None] | None:
        """Like `commit`, but the follower may return the rest of its work."""
        last_offset = self.next_offset + max(len(records), 1) - 1
        rest = self.follower.handle_commit(
            CommittedBatch(
                Offset(self.next_offset), Offset(last_offset), LeaderEpoch(1), self.world.node("broker-1").wall_ms(), records
            )
        )
        self.next_offset = last_offset + 1
        return rest

    def _note_removed(self, names: Sequence[str]) -> None:
        assert self.state.topic_ids.keys().isdisjoint(names), "the image shows what is reported"
        self.removed += names

    async def _publish(self, delta: MetadataDelta) -> None:
        self.published.append(delta)
        await self.may_end_publishing.wait()

    async def load(self, records: Iterable[KnownRecord], *, end_offset: int, timestamp: int = WALL_BASE_MS) -> None:
        await self.follower.handle_load_snapshot(LoadedSnapshot(Offset(end_offset), LeaderEpoch(1), timestamp, records))
        self.next_offset = end_offset

    async def publish(self) -> MetadataDelta | None:
        """Lets the follower's publishing task run. Returns the delta that it published, or None."""
        before = len(self.published)
        await self.world.sleep(0.001)
        assert len(self.published) <= before + 1
        return self.published[-1] if len(self.published) > before else None


def run(scenario: Callable[[Follower], Coroutine[Any, Any, None]], *, publishing: bool = True) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        follower = Follower(world)
        task = world.loop.create_task(follower.follower.run()) if publishing else None
        await scenario(follower)
        if task is not None:
            task.cancel()

    SimulatedWorld(seed=1).run(in_world)


def snapshot_of(state: MetadataState) -> list[KnownRecord]:
    return [entry.record for entry in generate_snapshot_records(state)]


def test_the_image_is_replayed_at_once_and_published_as_one_delta() -> None:
    """Requests see a commit at once. The replicas get it later, in one delta with everything else committed in between."""

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1), partition(1, 0, [1]))
        follower.commit(partition(1, 1, [2]))
        assert follower.state.partition_count == 2
        assert follower.published == []
        assert follower.follower.applied_offset == -1
        delta = await follower.publish()
        assert delta is not None
        assert list(delta.changed_partitions) == [TopicIdPartition(topic_id(1), 0), TopicIdPartition(topic_id(1), 1)]
        assert delta.created_partitions == {TopicIdPartition(topic_id(1), 0): 1, TopicIdPartition(topic_id(1), 1): 2}
        assert follower.follower.applied_offset == 2
        assert follower.told == [(2, True)]

    run(scenario)


def test_what_is_committed_while_a_delta_is_published_is_in_the_next_one() -> None:
    """Publishing takes several turns of the loop. The image goes on meanwhile, and the applied offset stays until the
    replicas have what it promises."""

    async def scenario(follower: Follower) -> None:
        follower.may_end_publishing.clear()
        follower.commit(topic(1), partition(1, 0, [1]))
        await follower.publish()
        follower.commit(partition(1, 1, [1]))
        assert follower.state.partition_count == 2
        assert await follower.publish() is None
        assert follower.follower.applied_offset == -1
        follower.may_end_publishing.set()
        delta = await follower.publish()
        assert delta is not None
        assert list(delta.changed_partitions) == [TopicIdPartition(topic_id(1), 1)]
        assert follower.told == [(1, True), (2, False)]

    run(scenario)


def test_the_applied_offset_moves_with_records_that_change_nothing() -> None:
    """After a NoOp record or a control batch there is nothing to publish. The applied offset must still advance, or the
    broker would never count as caught up."""

    async def scenario(follower: Follower) -> None:
        follower.commit(NoOpRecord())
        assert await follower.publish() is None
        follower.commit()
        assert await follower.publish() is None
        assert follower.told == [(0, True), (1, False)]
        assert follower.follower.applied_offset == 1

    run(scenario)


def test_a_transaction_becomes_visible_as_a_whole() -> None:
    """Until the transaction ends, the image has none of its records, and the applied offset stays below the transaction's
    first offset."""

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1))
        follower.commit(BeginTransactionRecord(name="big"), partition(1, 0, [1]))
        follower.commit(partition(1, 1, [1]))
        await follower.publish()
        assert follower.state.partition_count == 0
        assert follower.follower.applied_offset == 0
        follower.commit(EndTransactionRecord())
        delta = await follower.publish()
        assert delta is not None
        assert delta.created_partitions == {TopicIdPartition(topic_id(1), 0): 2, TopicIdPartition(topic_id(1), 1): 3}
        assert follower.follower.applied_offset == 4

    run(scenario)


def test_an_aborted_transaction_leaves_nothing() -> None:
    """A new controller aborts the transaction that the old one began. A control batch in between does not end the
    transaction."""

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1))
        follower.commit(BeginTransactionRecord(name="big"), partition(1, 0, [1]))
        follower.commit()
        await follower.publish()
        assert follower.follower.applied_offset == 0
        follower.commit(AbortTransactionRecord(reason="new leader"))
        assert await follower.publish() is None
        assert follower.state.partition_count == 0
        assert follower.follower.applied_offset == 4

    run(scenario)


def test_a_record_that_contradicts_the_image_is_fatal() -> None:
    """A broker that continued after the error would serve a wrong image of the cluster."""

    async def scenario(follower: Follower) -> None:
        with pytest.raises(ReplayError):
            follower.commit(partition(1, 0, [1]))

    run(scenario, publishing=False)


def test_the_registration_of_this_incarnation_is_waited_for() -> None:
    """A registration of another broker, or of an earlier incarnation of this broker, does not count."""

    async def scenario(follower: Follower) -> None:
        waiting = follower.world.loop.create_task(follower.follower.wait_until_registered())
        follower.commit(register(2, directories=[D3], incarnation=2))
        follower.commit(register(1, directories=[D1, D2], lost=[D3], incarnation=4))
        await follower.world.sleep(0.1)
        assert not waiting.done()
        follower.commit(register(1, directories=[D1], incarnation=INCARNATION, epoch=200))
        await waiting
        assert follower.follower.previous_directories == (D1, D2, D3)
        # A second registration of the same incarnation does not change the directories of the previous incarnation.
        follower.commit(register(1, directories=[D2], incarnation=INCARNATION, epoch=200))
        assert follower.follower.previous_directories == (D1, D2, D3)

    run(scenario, publishing=False)


def test_the_directories_before_an_unregistration_are_unknown() -> None:
    """The registration is found, but it may not be the broker's first one, so it must not conclude that it had no other
    directories."""

    async def scenario(follower: Follower) -> None:
        follower.commit(register(1, directories=[D1], incarnation=4, epoch=100))
        follower.commit(UnregisterBrokerRecord(broker_id=1, broker_epoch=100))
        follower.commit(register(1, directories=[D1], incarnation=INCARNATION))
        await follower.follower.wait_until_registered()
        assert follower.follower.previous_directories is None

    run(scenario, publishing=False)


def test_a_snapshot_that_holds_the_registration_hides_what_was_before() -> None:
    """The registration is found, but the previous directories stay unknown: None, not empty. So the broker must conclude
    nothing from them."""

    async def scenario(follower: Follower) -> None:
        waiting = follower.world.loop.create_task(follower.follower.wait_until_registered())
        await follower.load([register(1, directories=[D1], incarnation=INCARNATION)], end_offset=50)
        await waiting
        assert follower.follower.previous_directories is None
        # A later registration of the same incarnation does not reveal the previous directories either.
        follower.commit(register(1, directories=[D1], incarnation=INCARNATION))
        assert follower.follower.previous_directories is None

    run(scenario, publishing=False)


def test_a_first_snapshot_is_published_like_commits() -> None:
    """When a broker starts from a snapshot, the delta has everything in the snapshot as new, and the snapshot's last offset
    counts as applied."""

    async def scenario(follower: Follower) -> None:
        image = replay(level(21), register(1, directories=[D1]), topic(1), partition(1, 0, [1], directories=[D1]))
        await follower.load(snapshot_of(image), end_offset=20)
        assert follower.state == image
        delta = await follower.publish()
        assert delta is not None
        assert delta.changed_partitions == {TopicIdPartition(topic_id(1), 0): None}
        assert list(delta.created_topics) == [topic_id(1)]
        assert delta.changed_brokers == {BrokerId(1): None}
        assert follower.told == [(19, True)]

    run(scenario)


def test_a_snapshot_that_replaces_an_image_publishes_the_difference_to_what_was_published() -> None:
    """A snapshot arrives after commits that are not published yet. One delta leads from the last published image to the
    snapshot."""

    async def scenario(follower: Follower) -> None:
        follower.commit(
            register(1), topic(1), partition(1, 0, [1]), partition(1, 1, [1]), topic(2), partition(2, 0, [1]), topic(3)
        )
        await follower.publish()
        published = replay(*snapshot_of(follower.state))
        # Not published yet: a change, a topic that is created and deleted, a deleted topic, and a new topic.
        follower.commit(
            PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, leader=-1),
            topic(4),
            partition(4, 0, [1]),
            RemoveTopicRecord(topic_id=topic_id(2)),
            topic(5),
            partition(5, 0, [1]),
        )
        changed = TopicIdPartition(topic_id(1), 0)
        assert follower.state.topics[topic_id(1)].partitions[0].leader == -1
        after = replay(*snapshot_of(follower.state))
        replay(
            PartitionChangeRecord(topic_id=topic_id(1), partition_id=1, leader=-1),
            RemoveTopicRecord(topic_id=topic_id(3)),
            RemoveTopicRecord(topic_id=topic_id(4)),
            topic(6),
            partition(6, 0, [1]),
            into=after,
        )
        await follower.load(snapshot_of(after), end_offset=100)
        assert follower.removed == ["topic-2", "topic-3", "topic-4"]
        delta = await follower.publish()
        assert delta is not None
        assert follower.state == after
        assert set(delta.changed_partitions) == {
            changed,
            TopicIdPartition(topic_id(1), 1),
            TopicIdPartition(topic_id(5), 0),
            TopicIdPartition(topic_id(6), 0),
        }
        for key, before in delta.changed_partitions.items():
            assert before == published.partition(*key)
        assert set(delta.removed_topics) == {topic_id(2), topic_id(3)}
        assert set(delta.created_topics) == {topic_id(5), topic_id(6)}
        assert delta.created_partitions == {TopicIdPartition(topic_id(5), 0): 12, TopicIdPartition(topic_id(6), 0): 13}
        # The delta must refer to the topic in the new image. The object of the old image would miss all later changes.
        assert delta.created_topics[topic_id(5)] is follower.state.topics[topic_id(5)]

    run(scenario)


def test_a_snapshot_takes_an_open_transaction_with_it() -> None:
    """The snapshot replaces the open transaction, so records after the snapshot take effect without an end record."""

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1), BeginTransactionRecord(name="big"), partition(1, 0, [1]))
        await follower.load(snapshot_of(replay(topic(1))), end_offset=10)
        await follower.publish()
        assert follower.state.partition_count == 0
        assert follower.follower.applied_offset == 9
        follower.commit(partition(1, 0, [1]))
        assert follower.state.partition_count == 1

    run(scenario)


@pytest.mark.slow
def test_a_large_snapshot_does_not_stop_the_loop() -> None:
    """The snapshot is replayed in slices. Between slices, other tasks run and still see the old image. The new image then
    appears as a whole."""

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1))
        records: list[KnownRecord] = [topic(2), *(partition(2, index, [1]) for index in range(3 * REPLAY_SLICE))]
        loading = follower.world.loop.create_task(follower.load(records, end_offset=10_000))
        seen: list[int] = []
        while not loading.done():
            seen.append(follower.state.partition_count)
            await follower.world.sleep(0)
        assert len(seen) >= 3
        assert set(seen) == {0}
        assert follower.state.partition_count == 3 * REPLAY_SLICE
        assert topic_id(1) not in follower.state.topics

    run(scenario, publishing=False)


@pytest.mark.parametrize("is_image_large", [False, True])
def test_a_batch_of_many_records_does_not_stop_the_loop(is_image_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is replayed in slices, and becomes visible at once, as a transaction does. If the image is so large that it
    would take longer to copy it, the batch is replayed in one step."""
    monkeypatch.setattr(metadata_follower, "REPLAY_SLICE", 2)

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1), partition(1, 0, [1]))
        await follower.publish()
        if is_image_large:
            monkeypatch.setattr(metadata_follower, "COPIED_PARTITIONS_PER_RECORD", 0)
        before = dict(follower.state.topics)
        rest = follower.begin_commit(topic(2), *(partition(2, index, [1]) for index in range(5)))
        assert (rest is None) == is_image_large
        if rest is not None:
            replaying = follower.world.loop.create_task(rest)
            rounds = 0
            while not replaying.done():
                assert follower.state.topics == before
                rounds += 1
                await follower.world.sleep(0)
            assert rounds >= 3
        assert follower.state.partition_count == 6
        check_indexes(follower.state)
        await follower.publish()
        assert len(follower.published[-1].changed_partitions) == 5
        assert follower.follower.applied_offset == follower.next_offset - 1

    run(scenario)


def test_the_removal_of_large_topics_does_not_stop_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three records remove nine partitions. They are replayed in three slices, and the topics disappear at once. A single
    record cannot be divided, so it is replayed in one step, without a copy of the image."""
    monkeypatch.setattr(metadata_follower, "REPLAY_SLICE", 3)

    async def scenario(follower: Follower) -> None:
        for number in range(1, 5):
            follower.commit(topic(number))
            for index in range(3):
                follower.commit(partition(number, index, [1]))
        follower.commit(RemoveTopicRecord(topic_id=topic_id(4)))
        await follower.publish()
        rest = follower.begin_commit(*(RemoveTopicRecord(topic_id=topic_id(number)) for number in (1, 2, 3)))
        assert rest is not None
        replaying = follower.world.loop.create_task(rest)
        rounds = 0
        while not replaying.done():
            assert follower.state.partition_count == 9
            rounds += 1
            await follower.world.sleep(0)
        assert rounds >= 3
        assert follower.state.partition_count == 0
        assert follower.removed == ["topic-4", "topic-1", "topic-2", "topic-3"]
        await follower.publish()
        assert len(follower.published[-1].removed_topics) == 3

    run(scenario)


@pytest.mark.parametrize("is_long", [False, True])
def test_a_long_transaction_does_not_stop_the_loop(is_long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are replayed in slices. Between slices, other tasks run and still see the image before the transaction,
    and the applied offset stays before it. The image, the delta and the previous directories are the same as after a short
    transaction."""
    monkeypatch.setattr(metadata_follower, "REPLAY_SLICE", 3 if is_long else 100)

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1), partition(1, 0, [1]), register(1, directories=[D1]))
        await follower.publish()
        # Committed, and not published before the transaction.
        follower.commit(topic(2), partition(2, 0, [1]))
        follower.commit(BeginTransactionRecord(name="big"), *(partition(1, index, [1, 2]) for index in range(1, 5)))
        follower.commit(
            partition(2, 1, [2]),
            RemoveTopicRecord(topic_id=topic_id(2)),
            topic(3),
            partition(3, 0, [2]),
            PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=-1),
            register(1, directories=[D2], epoch=200, incarnation=INCARNATION),
        )
        before = dict(follower.state.topics)
        rest = follower.begin_commit(EndTransactionRecord(), topic(4))
        assert (rest is not None) == is_long
        if rest is not None:
            replaying = follower.world.loop.create_task(rest)
            rounds = 0
            while not replaying.done():
                assert follower.state.topics == before
                assert follower.removed == []
                assert follower.follower.applied_offset in (2, 4)
                rounds += 1
                await follower.world.sleep(0)
            assert rounds > 5
        assert [each.name for each in follower.state.topics.values()] == ["topic-1", "topic-3", "topic-4"]
        assert follower.removed == ["topic-2"]
        assert follower.state.partition_count == 6
        check_indexes(follower.state)
        await follower.publish()
        changed = {key for delta in follower.published[1:] for key in delta.changed_partitions}
        assert {TopicIdPartition(topic_id(1), index) for index in range(5)} | {TopicIdPartition(topic_id(3), 0)} <= changed
        created = follower.published[-1].created_topics
        assert all(follower.state.topics[each] is topic for each, topic in created.items())
        assert {topic_id(3), topic_id(4)} <= created.keys()
        assert follower.follower.applied_offset == follower.next_offset - 1
        assert follower.follower.previous_directories == (D1,)
        # The next records find what the transaction has left.
        follower.commit(partition(4, 0, [1]), PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=1))
        check_indexes(follower.state)

    run(scenario)


def test_configs_and_brokers_of_a_snapshot_keep_their_earliest_value() -> None:
    """Commits that are not published yet change a value, and a snapshot changes it again. The delta has the change once,
    with the value that was published last as the old value."""
    resource = (int(ConfigResourceType.TOPIC), "topic-1")

    def config(value: str) -> ConfigRecord:
        return ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="topic-1", name="k", value=value)

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1), config("a"), register(1, directories=[D1], epoch=100))
        await follower.publish()
        follower.commit(config("b"), register(1, directories=[D2], epoch=200, incarnation=2))
        await follower.load([topic(1), config("c"), register(1, directories=[D3], epoch=300, incarnation=3)], end_offset=10)
        delta = await follower.publish()
        assert delta is not None
        assert delta.changed_configs == {resource: {"k": "a"}}
        before = delta.changed_brokers[BrokerId(1)]
        assert before is not None
        assert before.directories == (D1,)

    run(scenario)


def test_waiting_for_the_image() -> None:
    """Waits for three conditions: one holds already, one holds after a commit, and one does not hold before the deadline."""

    async def scenario(follower: Follower) -> None:
        env = follower.world.node("broker-1")

        def exists(number: int) -> Callable[[], bool]:
            return lambda: topic_id(number) in follower.state.topics

        follower.commit(topic(1))
        assert await follower.follower.wait_until(exists(1), deadline_ns=env.now_ns())
        waiting = follower.world.loop.create_task(follower.follower.wait_until(exists(2), deadline_ns=env.now_ns() + 10**9))
        await follower.world.sleep(0.5)
        follower.commit(topic(3))
        await follower.world.sleep(0.1)
        assert not waiting.done()
        follower.commit(topic(2))
        assert await waiting
        started_ns = env.now_ns()
        assert not await follower.follower.wait_until(exists(4), deadline_ns=started_ns + 10**9)
        assert env.now_ns() - started_ns == 10**9
        # The wait that timed out must not disturb the next commit.
        follower.commit(topic(4))

    run(scenario, publishing=False)


def test_the_lag_is_the_age_of_the_newest_record() -> None:
    """The lag is the time on the broker's wall clock minus the record's timestamp, which comes from the controller. If the
    broker's clock is slow, the lag is 0, not negative."""

    async def scenario(follower: Follower) -> None:
        follower.commit(NoOpRecord())
        await follower.world.sleep(2)
        assert follower.follower.lag_ms == 2000
        await follower.load([], end_offset=10, timestamp=WALL_BASE_MS + 60_000)
        assert follower.follower.lag_ms == 0

    run(scenario, publishing=False)


def test_a_change_of_controller_is_told() -> None:
    """A new controller is logged once, for operators who trace a failure."""

    async def scenario(follower: Follower) -> None:
        follower.follower.handle_leader_change(LeaderAndEpoch(BrokerId(100), LeaderEpoch(3)))
        (event,) = follower.world.events_named("controller_changed")
        assert event.fields == {"leader_id": 100, "epoch": 3}

    run(scenario, publishing=False)


KEY: TopicIdPartition = TopicIdPartition(topic_id(1), 0)


def test_a_partition_created_and_changed_before_its_first_publishing_was_nothing_before() -> None:
    """A commit creates a topic and a snapshot changes it, before anything is published. In the delta, the topic is simply
    new."""

    async def scenario(follower: Follower) -> None:
        follower.commit(topic(1), partition(1, 0, [1, 2]))
        await follower.load(
            snapshot_of(replay(topic(1), partition(1, 0, [1, 2], isr=[2], leader=2, leader_epoch=1, partition_epoch=1))),
            end_offset=9,
        )
        delta = await follower.publish()
        assert delta is not None
        assert delta.changed_partitions == {KEY: None}
        assert delta.created_partitions == {KEY: 1}

    run(scenario)
