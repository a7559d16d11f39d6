"""Produce, fetch and replication between brokers, through real servers and channels on the simulated network."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import pytest

from broker.core.fetcher_session import FetcherSession, SessionRequest
from broker.core.partition_replica import REFUSAL_PAUSE_FIRST_NS, REFUSAL_PAUSE_MAX_NS
from broker.hosting import replica_fetcher
from broker.hosting.partition import Partition
from broker.hosting.replica_fetcher import ReplicaFetcher
from broker.requests.fetch import FetchHandler
from common.ids import NO_LEADER, Offset, TopicId, TopicIdPartition, Uuid
from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from common.protocol.messages.produce import PartitionProduceResponse
from common.records.batch import BatchHeader
from common.records.metadata_records import PartitionChangeRecord
from common.storage.log_syncs import ROLLED_AHEAD_MAX
from common.time_units import NS_PER_MS
from tests.simulation.disk_store import FileNode
from tests.unit.broker.cluster import PORT, TOPIC, Cluster, at_once, path, run, values
from tests.unit.common.storage.batches import append_fetched, batch


async def three_brokers(cluster: Cluster, letters: str = "a") -> None:
    """Starts brokers 1 to 3 and creates topic t with one partition, led by broker 1."""
    for broker_id in (1, 2, 3):
        await cluster.start(broker_id, letters)
    cluster.controller.create_topic([1, 2, 3], configs={"min.insync.replicas": "2"})
    await cluster.started()


def isolate(cluster: Cluster, broker_id: int) -> None:
    """Cuts a broker off from the other brokers, both ways; the client and the controller still reach it."""
    for other in {1, 2, 3} - {broker_id}:
        cluster.world.network.cut(f"broker-{broker_id}", f"broker-{other}")


def test_produce_with_acks_all_is_acknowledged_when_the_isr_has_it() -> None:
    """One partition is on three brokers. A batch is acknowledged when all three have written it, and consumers then see
    it."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        answer = await cluster.produce(1, "a", "b")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert [cluster[each].partition().log.written_offset for each in (1, 2, 3)] == [2, 2, 2]
        assert await cluster.read_all(1) == ["a", "b"]

    run(scenario)


def test_acks_all_needs_no_more_than_a_few_round_trips() -> None:
    """No step waits for a timer. The leader's write, the follower's fetch and write, and its next fetch take at most a
    millisecond or two each. If one of them waited for a fetch to time out, that would take 500 ms."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        await cluster.world.sleep(2)
        begun_ns = cluster.world.now_ns()
        await cluster.produce(1, "a")
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_partitions_that_are_added_all_the_time_do_not_hold_up_the_others() -> None:
    """Topics are created faster than a fetch takes to the leader and back. A batch of another topic still needs only a few
    round trips."""

    async def scenario(cluster: Cluster) -> None:
        cluster.world.network.set_latency(4_000_000, 4_000_000)
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()

        async def create_topics() -> None:
            for number in range(100):
                cluster.controller.create_topic([1, 2], name=f"new-{number}", topic_id=TopicId(Uuid(b"%016d" % number)))
                await cluster.world.sleep(0.006)

        creating = asyncio.ensure_future(create_topics())
        done = 0
        while not creating.done():
            begun_ns = cluster.world.now_ns()
            await cluster.produce(1, "a")
            assert cluster.world.now_ns() - begun_ns < 150_000_000
            done += 1
        assert done >= 4

    run(scenario)


def test_without_a_session_a_new_partition_waits_for_one_poll_at_most() -> None:
    """The leader has no slot for the follower's session, so nothing can overtake its polls. A partition that is added to a
    waiting poll is fetched with the next one, and a written record still ends a poll at once."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        await cluster.produce(1, "a")
        await cluster.world.sleep(1)
        poll_ns = cluster[1].config.replica_fetch_wait_max_ms * NS_PER_MS
        for number in range(20):
            topic_id = TopicId(Uuid(b"%016d" % number))
            cluster.controller.create_topic([1, 2], name=f"new-{number}", topic_id=topic_id)
            await cluster.started(0, topic_id)
            begun_ns = cluster.world.now_ns()
            await cluster.produce(1, "a", topic=f"new-{number}")
            added_ns = cluster.world.now_ns()
            assert added_ns - begun_ns < poll_ns + 50_000_000
            await cluster.produce(1, "a")
            assert cluster.world.now_ns() - added_ns < 50_000_000

    run(scenario, max_incremental_fetch_session_cache_slots="0")


def test_a_fetcher_that_stops_while_a_request_overtakes_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new partition makes the fetcher begin a request while a poll waits. Before that is sent, the fetcher stops, because
    its directory has failed or there is another leader. It must not connect again, as nothing would end the connection."""
    fetchers: list[ReplicaFetcher] = []
    add, next_request = ReplicaFetcher.add, FetcherSession.next_request

    def noted(self: ReplicaFetcher, partition: Partition) -> None:
        fetchers.append(self)
        add(self, partition)

    def stopped(self: FetcherSession) -> SessionRequest:
        if self.is_established and len(self) == 2:
            asyncio.get_running_loop().call_soon(fetchers[-1].stop)
        return next_request(self)

    monkeypatch.setattr(ReplicaFetcher, "add", noted)
    monkeypatch.setattr(FetcherSession, "next_request", stopped)

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        await cluster.world.sleep(2)
        assert cluster[1].server.connection_count == 1
        cluster.controller.create_topic([1, 2], name="new", topic_id=TopicId(Uuid(b"N" * 16)))
        await cluster.world.sleep(2)
        assert len(fetchers[-1]) == 0
        assert cluster[1].server.connection_count == 0

    run(scenario, replica_fetch_wait_max_ms="5000")


def test_a_follower_adds_many_partitions_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker dies that led 35 partitions. A request to the new leader names ten of them at most, and no request waits
    before all are named."""
    monkeypatch.setattr(replica_fetcher, "PARTITIONS_ADDED_MAX", 10)
    named: list[int] = []
    handle = FetchHandler.handle

    def counted(
        self: FetchHandler, context: RequestContext, request: FetchRequest
    ) -> FetchResponse | Awaitable[FetchResponse]:
        named.append(sum(len(topic.partitions) for topic in request.topics))
        return handle(self, context, request)

    monkeypatch.setattr(FetchHandler, "handle", counted)

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        cluster.controller.create_topic(*([[1, 2, 3]] * 35))
        for index in range(35):
            await cluster.started(index)
        await cluster.world.sleep(2)
        cluster.crash(1)
        named.clear()
        begun_ns = cluster.world.now_ns()
        cluster.controller.commit(
            *(PartitionChangeRecord(partition_id=index, topic_id=TOPIC, isr=[2, 3], leader=2) for index in range(35))
        )
        for index in (34, 0, 17):
            assert (await cluster.produce(2, "a", index=index)).error_code == ErrorCode.NONE
        assert cluster.world.now_ns() - begun_ns < 100_000_000
        await cluster.world.sleep(2)
        # The three with a record are named once more, to confirm it.
        assert sum(named) == 35 + 3
        assert 10 <= max(named) <= 10 + 3

    run(scenario)


def test_a_follower_may_ask_for_0_bytes_of_each_partition() -> None:
    """With replica.fetch.max.bytes=0 a follower gets a single batch at a time. The leader does not take that for the notice
    of a disk that hangs."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], [1, 2])
        await cluster.started(1)
        for index in (0, 1, 0):
            assert (await cluster.produce(1, "v", index=index)).error_code == ErrorCode.NONE

    run(scenario, replica_fetch_max_bytes="0")


def test_many_batches_are_equal_on_all_replicas() -> None:
    """After forty produce requests at the same time, all replicas have the same bytes."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        answers = await asyncio.gather(*(cluster.produce(1, f"v{number}") for number in range(40)))
        assert sorted(answer.base_offset for answer in answers) == list(range(40))
        assert cluster.log_bytes(1) == cluster.log_bytes(2) == cluster.log_bytes(3)
        assert sorted(await cluster.read_all(1)) == sorted(f"v{number}" for number in range(40))

    run(scenario)


def test_every_replica_reads_the_header_of_a_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader when the client sends the batch, and each follower when it checks the batch. The logs do not read it
    again."""
    offsets: list[int] = []
    make = BatchHeader._make

    def counted(fields: Iterable[Any]) -> BatchHeader:
        header = make(fields)
        offsets.append(header.base_offset)
        return header

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        await cluster.produce(1, "a")
        monkeypatch.setattr(BatchHeader, "_make", counted)
        answer = await cluster.produce(1, "b")
        # The client's batch begins at 0, and has its offset on the followers.
        assert (answer.base_offset, sorted(offsets)) == (1, [0, 1, 1])

    run(scenario)


def test_a_consumer_never_reads_beyond_the_high_watermark() -> None:
    """While a follower is cut off, the record is uncommitted. The leader has the record, but consumers see it only when that
    follower has it too."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        isolate(cluster, 3)
        waiting = asyncio.ensure_future(cluster.produce(1, "a"))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 1)
        await cluster.until(lambda: cluster[2].partition().log.written_offset == 1)
        for _ in range(20):
            data = await cluster.fetch(1, max_wait_ms=20)
            assert (data.high_watermark, values(data.records)) == (0, [])
        assert not waiting.done()
        cluster.world.network.mend()
        assert (await waiting).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["a"]

    run(scenario)


def test_a_leader_that_is_away_for_long_is_logged_once() -> None:
    """Not with each attempt, of which there is one a second. The next outage is logged again."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        for number in (1, 2):
            begun = len(cluster.world.events_named("replica_fetch_failed", "broker-3"))
            isolate(cluster, 3)
            assert (await cluster.produce(1, "a")).error_code == ErrorCode.NONE
            await cluster.world.sleep(60)
            # The poll that is under way, and then the attempts to connect.
            assert 1 <= len(cluster.world.events_named("replica_fetch_failed", "broker-3")) - begun <= 2, number
            cluster.world.network.mend()
            await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))

    run(scenario)


def test_isr_shrinks_and_expands() -> None:
    """A follower that is cut off leaves the ISR after replica.lag.time.max.ms, and writing continues without it. It rejoins
    when it has caught up."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        isolate(cluster, 3)
        # The record is acknowledged without broker 3, which has left the ISR by then.
        assert (await cluster.produce(1, "a")).error_code == ErrorCode.NONE
        assert cluster.controller.partition().isr == (1, 2)
        assert cluster[1].replicas.descriptions.gauges().under_replicated_partitions == 1
        for number in range(5):
            assert (await cluster.produce(1, f"v{number}")).error_code == ErrorCode.NONE
        cluster.world.network.mend()
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))
        assert cluster.log_bytes(3) == cluster.log_bytes(1)
        assert (cluster[1].replicas.isr_counts.shrinks, cluster[1].replicas.isr_counts.expands) == (1, 1)
        assert cluster[1].replicas.descriptions.gauges().under_replicated_partitions == 0

    run(scenario)


def test_a_fenced_follower_stays_out_of_the_isr() -> None:
    """KIP-841: a fenced follower keeps fetching and has all records, but the leader proposes it for the ISR only when it is
    unfenced. Meanwhile acks=all does not wait for it."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.controller.register(3, "a", fenced=True)
        cluster.controller.change(isr=[1, 2])
        for number in range(5):
            assert (await cluster.produce(1, f"v{number}")).error_code == ErrorCode.NONE
        await cluster.until(lambda: cluster[3].partition().log.written_offset == 5)
        await cluster.world.sleep(2)
        assert cluster.controller.requests == []
        cluster.controller.register(3, "a")
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))

    run(scenario)


def test_a_leader_that_loaded_a_snapshot_judges_followers_by_the_new_image() -> None:
    """A running broker that fell behind gets a snapshot, which replaces its whole image. The partitions that it already
    leads must look brokers up in the new image. With the old image, a fenced follower could rejoin the ISR too early, and an
    unfenced one might never rejoin."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        fresh = MetadataState()
        for offset, record in enumerate(cluster.controller.records):
            fresh.replay(record, offset=Offset(offset))
        before = cluster[1].state.replace_with(fresh)
        at_once(cluster[1].replicas.apply(cluster[1].state.delta_since(before)))
        cluster.controller.register(3, "a", fenced=True)
        cluster.controller.change(isr=[1, 2])
        assert (await cluster.produce(1, "a")).error_code == ErrorCode.NONE
        await cluster.world.sleep(2)
        assert cluster.controller.requests == []
        cluster.controller.register(3, "a")
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))

    run(scenario)


def test_too_few_in_sync_replicas_refuse_acks_all() -> None:
    """Below min.insync.replicas, acks=all appends nothing, and acks=1 is still served."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.crash(2)
        cluster.crash(3)
        cluster.controller.change(isr=[1])
        assert (await cluster.produce(1, "a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster[1].partition().log.log_end_offset == 0
        assert (await cluster.produce(1, "b", acks=1)).error_code == ErrorCode.NONE
        assert cluster[1].replicas.descriptions.gauges().under_min_isr_partition_count == 1

    run(scenario)


def test_an_isr_that_shrinks_below_the_minimum_while_a_record_waits() -> None:
    """The record is in the logs of all remaining ISR members, but they are too few to commit it. As in Apache Kafka, it
    waits for the ISR to grow, or times out."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.crash(2)
        cluster.crash(3)
        waiting = []
        for end_offset, (value, timeout_ms) in enumerate((("a", 3_000), ("b", 30_000)), start=1):
            waiting.append(asyncio.ensure_future(cluster.produce(1, value, timeout_ms=timeout_ms)))
            await cluster.until(lambda end=end_offset: cluster[1].partition().log.written_offset == end)
        cluster.controller.fence(2)
        cluster.controller.fence(3)
        cluster.controller.change(isr=[1])
        assert (await waiting[0]).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster[1].partition().high_watermark == 0
        await cluster.start(2)
        assert (await waiting[1]).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["a", "b"]

    run(scenario)


async def below_min_isr(cluster: Cluster) -> asyncio.Task[PartitionData]:
    """Starts three brokers and crashes two of them. Returns a consumer's fetch that waits, because a record written with
    acks=1 is not committed."""
    await three_brokers(cluster)
    cluster.crash(2)
    cluster.crash(3)
    cluster.controller.fence(2)
    cluster.controller.fence(3)
    cluster.controller.change(isr=[1])
    assert (await cluster.produce(1, "a", acks=1)).error_code == ErrorCode.NONE
    fetching = asyncio.ensure_future(cluster.fetch(1, max_wait_ms=60_000))
    await cluster.world.sleep(10)
    assert not fetching.done()
    assert cluster[1].partition().high_watermark == 0
    assert await cluster.read_all(1) == []
    return fetching


def test_what_too_few_replicas_hold_is_not_committed() -> None:
    """Below min.insync.replicas, acks=1 is served, but consumers do not see the record. When the ISR has grown again, they
    see it at once, and the follower that came back learns of the commit as well."""

    async def scenario(cluster: Cluster) -> None:
        fetching = await below_min_isr(cluster)
        await cluster.start(2)
        await cluster.world.event("isr_changed")
        isr_changed_ns = cluster.world.now_ns()
        fetched = await fetching
        assert (fetched.high_watermark, values(fetched.records)) == (1, ["a"])
        assert cluster.world.now_ns() - isr_changed_ns < 50_000_000
        await cluster.until(lambda: cluster[2].partition().high_watermark == 1)

    run(scenario)


def test_a_lower_min_insync_replicas_commits_at_once() -> None:
    """When min.insync.replicas is lowered to 1, the record on the only ISR member is committed at once."""

    async def scenario(cluster: Cluster) -> None:
        fetching = await below_min_isr(cluster)
        changed_ns = cluster.world.now_ns()
        cluster.controller.configure("min.insync.replicas", "1")
        fetched = await fetching
        assert (fetched.high_watermark, values(fetched.records)) == (1, ["a"])
        assert cluster.world.now_ns() - changed_ns < 50_000_000

    run(scenario)


def test_a_record_that_is_not_replicated_in_time_times_out() -> None:
    """The request's own timeout ends the wait, although the crashed follower is still in the ISR."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.crash(3)
        answer = await cluster.produce(1, "a", timeout_ms=300)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_losing_the_leadership_answers_what_waits() -> None:
    """A produce request that waits for replication and a fetch that waits for data are answered as soon as the metadata
    names another leader. Both answers name that leader (KIP-951)."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        isolate(cluster, 1)
        producing = asyncio.ensure_future(cluster.produce(1, "a"))
        fetching = asyncio.ensure_future(cluster.fetch(1, max_wait_ms=30_000))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 1)
        begun_ns = cluster.world.now_ns()
        cluster.controller.change(isr=[2, 3], leader=2)
        produced = await producing
        assert produced.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (produced.current_leader.leader_id, produced.current_leader.leader_epoch) == (2, 1)
        fetched = await fetching
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched.current_leader.leader_id == 2
        assert cluster.world.now_ns() - begun_ns < 50_000_000

    run(scenario)


def test_a_new_leader_acknowledges_soon_after_its_election() -> None:
    """The old leader dies while it holds the followers' fetches. The followers abandon these fetches at the election, so the
    new leader's first record is acknowledged long before replica.fetch.wait.max.ms has passed."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        await cluster.produce(1, "a")
        cluster.crash(1)
        await cluster.world.sleep(1)
        begun_ns = cluster.world.now_ns()
        cluster.controller.change(isr=[2, 3], leader=2)
        assert (await cluster.produce(2, "b")).error_code == ErrorCode.NONE
        assert cluster.world.now_ns() - begun_ns < 100_000_000
        assert await cluster.read_all(2) == ["a", "b"]

    run(scenario)


def test_a_partition_that_was_refused_is_asked_again_soon() -> None:
    """The follower learns of the election before the new leader itself does, so its fetch is refused. It retries within
    milliseconds, although its fetch for other partitions may wait much longer."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], [2, 1])
        await cluster.started(0)
        await cluster.started(1)
        await cluster.world.sleep(1)
        leader = cluster.brokers.pop(cluster[1].broker_id)
        cluster.controller.change(1, leader=1)
        await cluster.world.event("replica_fetch_delayed", node="broker-2")
        cluster.brokers[leader.broker_id] = leader
        leader.follow(cluster.controller.records[-1:], len(cluster.controller.records) - 1)
        begun_ns = cluster.world.now_ns()
        assert (await cluster.produce(1, "a", index=1)).error_code == ErrorCode.NONE
        assert cluster.world.now_ns() - begun_ns < 60_000_000

    run(scenario)


def test_a_partition_that_is_refused_for_long_is_logged_once() -> None:
    """The follower hears of an election of which the leader does not hear, and is refused for many seconds. It logs that
    once, not with each attempt: there may be thousands of partitions, as when a disk dies and no controller is there."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], [2, 1])
        for index in (0, 1):
            await cluster.started(index)
        await cluster.world.sleep(1)
        cluster.controller.change(1, leader=1)
        leader = cluster.brokers.pop(cluster[1].broker_id)
        cluster.controller.change(1, leader=1)
        await cluster.world.event("replica_fetch_delayed", node="broker-2")
        await cluster.world.sleep(20)
        assert len(cluster.world.events_named("replica_fetch_delayed", "broker-2")) == 1
        cluster.brokers[leader.broker_id] = leader

    run(scenario)


def test_diverged_follower_is_truncated() -> None:
    """A leader that was cut off has unacknowledged records, and the new leader has other records at the same offsets. When
    the old leader becomes a follower, it truncates its own records and copies the new leader's, byte for byte."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        await cluster.produce(1, "a", "b")
        isolate(cluster, 1)
        lost = asyncio.ensure_future(cluster.produce(1, "x", "y", "z"))
        await cluster.until(lambda: cluster[1].partition().log.written_offset == 5)
        # The election takes the old leader out of the ISR. The old leader learns of both now.
        cluster.controller.change(isr=[2, 3], leader=2)
        assert (await lost).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await cluster.produce(2, "c")).error_code == ErrorCode.NONE
        assert (await cluster.produce(2, "d")).error_code == ErrorCode.NONE
        cluster.world.network.mend()
        await cluster.until(lambda: cluster.controller.partition().isr == (2, 3, 1))
        assert [event.fields["offset"] for event in cluster.world.events_named("replica_truncated")] == [2]
        assert cluster.log_bytes(1) == cluster.log_bytes(2)
        assert cluster[1].partition().log.leader_epochs.entries == [(0, 0), (1, 2)]
        # When broker 1 leads again, its log is the common history.
        cluster.controller.change(leader=1)
        assert (await cluster.produce(1, "e")).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["a", "b", "c", "d", "e"]

    run(scenario)


def test_a_new_leader_whose_appends_are_still_queued_costs_its_follower_nothing() -> None:
    """A broker becomes leader while its disk has not yet written the newest record, which the other follower has. That one
    waits for the new leader's disk; it does not truncate the record, and the high watermark reaches it in the end."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        await cluster.produce(1, "committed")
        cluster.world.disk(path(2, "a")).hang({"append"})
        tail = asyncio.ensure_future(cluster.produce(1, "tail"))
        await cluster.until(lambda: cluster[2].partition().log.log_end_offset == 2)
        await cluster.until(lambda: cluster[3].partition().log.written_offset == 2)
        cluster.crash(1)
        cluster.controller.fence(1)
        cluster.controller.change(leader=2, isr=[2, 3])
        await cluster.until(lambda: cluster[2].partition().is_leader)
        await cluster.world.sleep(1)
        assert cluster[2].partition().log.written_offset == 1
        assert cluster[3].partition().log.log_end_offset == 2
        cluster.world.disk(path(2, "a")).thaw()
        await cluster.until(lambda: cluster[2].partition().high_watermark == 2)
        assert cluster.world.events_named("replica_truncated") == []
        assert await cluster.read_all(2) == ["committed", "tail"]
        tail.cancel()

    run(scenario)


@pytest.mark.parametrize("has_epochs", [True, False])
def test_a_follower_that_loses_its_whole_log_begins_where_the_leader_does(*, has_epochs: bool) -> None:
    """After an unclean election the leader's log ends before the follower's starts. The follower joins the ISR with all of
    the leader's records: it could be elected next."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        for value in ("one", "two"):
            await cluster.produce(1, value)
        cluster.crash(1)
        cluster.controller.change(leader=2, isr=[2])
        await cluster.until(cluster[2].leads)
        for number in range(5):
            await cluster.produce(2, f"gone-{number}")
        cluster[2].partition().raise_log_start(Offset(6))
        if not has_epochs:
            cluster[2].partition().log.leader_epochs.clear()
        await cluster.start(1)
        cluster.controller.change(leader=1, isr=[1])
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        cluster.controller.change(leader=2)
        await cluster.until(lambda: cluster[2].leads() and cluster[2].partition().high_watermark == 2)
        assert await cluster.read_all(2) == ["one", "two"]

    run(scenario)


def test_divergence_over_several_epochs_takes_several_rounds() -> None:
    """Each log has epochs that the other does not know. The follower goes back epoch by epoch until the logs agree
    (KIP-279)."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        await cluster.produce(1, "a")
        cluster.world.network.cut("broker-1", "broker-2")
        # Broker 1 writes in leader epochs 1 and 3, broker 2 in 2 and 4, and nothing is replicated.
        for number, leader in enumerate((1, 2, 1, 2), 1):
            cluster.controller.change(isr=[leader], leader=leader)
            assert (await cluster.produce(leader, f"{leader}-{number}", acks=1)).error_code == ErrorCode.NONE
        cluster.world.network.mend()
        await cluster.until(lambda: cluster.controller.partition().isr == (2, 1))
        assert cluster.log_bytes(1) == cluster.log_bytes(2)
        assert await cluster.read_all(2) == ["a", "2-2", "2-4"]

    run(scenario)


def test_a_leader_that_never_wrote_follows_the_next_one_at_once() -> None:
    """A leader records the start of its epoch before it writes. If it loses the leadership without having written anything,
    the next leader reports a divergence at the end of the old leader's log. The old leader then drops the epoch, truncates
    no record, and does not loop."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        await cluster.produce(1, "a", "b")
        await cluster.until(lambda: cluster[2].partition().replica.high_watermark == 2)
        for leader in (2, 3, 1):
            cluster.controller.change(leader=leader)
        assert (await cluster.produce(1, "c")).error_code == ErrorCode.NONE
        await cluster.world.sleep(2)
        for broker_id in (2, 3):
            assert cluster[broker_id].partition().log.leader_epochs.entries == [(0, 0), (3, 2)]
            assert len(cluster.world.events_named("replica_truncated", f"broker-{broker_id}")) <= 1

    run(scenario)


def test_a_follower_behind_the_leaders_log_starts_where_the_leader_does() -> None:
    """The leader's retention has deleted records that the follower lacks. The follower empties its log and begins at the
    leader's log start. A kill in between leaves an empty log, so the recovery point on the disk is lowered first."""
    recovery_points: list[str] = []

    async def scenario(cluster: Cluster) -> None:
        def look(disk: str, kind: str, name: str) -> None:
            if (disk, kind) == (path(2, "a"), "rename") and name.startswith("t-0/"):
                recovery_points.append(cluster.world.disk(disk).files()["recovery-point-offset-checkpoint"].decode())

        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic(
            [1, 2], configs={"segment.bytes": "200", "retention.bytes": "400", "retention.ms": "-1"}
        )
        await cluster.started()
        await cluster.produce(1, "first")
        await cluster.stop(2)
        cluster.controller.change(isr=[1])
        for number in range(20):
            await cluster.produce(1, f"value-{number:03}")
        await cluster.until(lambda: cluster[1].partition().log.log_start_offset > 1)
        cluster.world.operation_watchers.append(look)
        await cluster.start(2)
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        start = cluster[1].partition().log.log_start_offset
        assert cluster[2].partition().log.log_start_offset == start
        assert cluster[2].partition().log.written_offset == 21
        assert cluster.world.events_named("replica_restarted", "broker-2")[0].fields["offset"] == start
        assert recovery_points == ["0\n1\nt 0 0\n"]

    run(scenario, log_retention_check_interval_ms="500")


def test_a_follower_removes_the_segments_below_its_leaders_log_start() -> None:
    """With its next check of retention, like the leader, even if retention keeps everything. The log start rises once more
    before the segments below the first one are gone."""

    async def scenario(cluster: Cluster) -> None:
        def segments(broker_id: int) -> list[int]:
            return list(cluster[broker_id].partition().log.segment_base_offsets)

        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], configs={"segment.bytes": "200", "retention.ms": "-1"})
        await cluster.started()
        for number in range(20):
            await cluster.produce(1, f"value-{number:03}")
        await cluster.until(lambda: cluster[2].partition().replica.high_watermark == 20)
        for start in (6, 15):
            cluster[1].partition().raise_log_start(Offset(start))
            await cluster.until(lambda start=start: cluster[2].partition().log.log_start_offset == start)
        assert segments(2)[0] == 0
        await cluster.until(lambda: segments(2)[0] > 10)
        await cluster.until(lambda: segments(1) == segments(2))

    run(scenario, log_retention_check_interval_ms="3000")


def test_a_log_is_emptied_once_if_two_answers_say_that_it_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's retention has deleted records that the follower lacks. The leader answers late, so another request is
    under way by then, and its answer says the same. What the follower gets after it has emptied its log stays."""
    errors: list[PartitionData] = []
    handle = FetchHandler.handle

    async def late(self: FetchHandler, context: RequestContext, request: FetchRequest) -> FetchResponse:
        answer = handle(self, context, request)
        response = answer if isinstance(answer, FetchResponse) else await answer
        if not errors and (found := [data for each in response.responses for data in each.partitions if data.error_code]):
            errors.extend(found)
            await asyncio.sleep(0.1)
        return response

    monkeypatch.setattr(FetchHandler, "handle", late)

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        cluster.controller.create_topic([1, 2], name="other", topic_id=TopicId(Uuid(b"O" * 16)))
        await cluster.started()
        await cluster.produce(1, "first")
        await cluster.stop(2)
        cluster.controller.change(isr=[1])
        for number in range(5):
            await cluster.produce(1, f"value-{number}")
        cluster[1].partition().raise_log_start(Offset(3))
        cluster.controller.change(leader=NO_LEADER)
        await cluster.start(2)
        await cluster.world.sleep(2)
        cluster.world.network.set_latency(4_000_000, 4_000_000)
        cluster.controller.change(leader=1)
        await cluster.world.sleep(0.05)
        cluster.controller.create_topic([1, 2], name="new", topic_id=TopicId(Uuid(b"N" * 16)))
        await cluster.until(lambda: cluster.world.events_named("replica_restarted", "broker-2"))
        producing: list[asyncio.Task[PartitionProduceResponse]] = []
        for number in range(100):
            producing.append(asyncio.ensure_future(cluster.produce(1, f"later-{number}")))
            await cluster.world.sleep(0.002)
        await asyncio.gather(*producing)
        assert cluster.controller.partition().isr == (1, 2)
        assert len(cluster.world.events_named("replica_restarted", "broker-2")) == 1
        assert not cluster.world.events_named("replica_truncated", "broker-2")
        assert not cluster.world.events_named("replica_fetch_delayed", "broker-2")

    run(scenario)


def test_a_new_follower_joins_a_leader_that_was_cut_in_a_gap() -> None:
    """The leader was a follower whose log was truncated in a gap that compaction had left. A new replica fetches all of its
    records and joins the ISR, although nothing is produced."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.start(2)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert (await cluster.produce(1, "one")).error_code == ErrorCode.NONE
        partition = cluster[1].partition()
        await append_fetched(partition.log, batch(offset=10, epoch=0)[1]).written
        partition.begin_restructuring()
        await partition.log.truncate_to(Offset(6))
        partition.end_restructuring()
        cluster.controller.change(leader=1)
        cluster.controller.change(replicas=[1, 2], adding_replicas=[2])
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        assert cluster[2].partition().log.log_end_offset == partition.log.log_end_offset

    run(scenario)


def test_a_new_follower_begins_within_a_batch() -> None:
    """DeleteRecords has moved the leader's log start into a batch. The follower needs the whole batch."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.start(2)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert (await cluster.produce(1, "deleted", "kept")).error_code == ErrorCode.NONE
        cluster[1].partition().raise_log_start(Offset(1))
        cluster.controller.change(replicas=[1, 2], adding_replicas=[2])
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        assert cluster[2].partition().log.log_start_offset == 1
        assert cluster.log_bytes(2) == cluster.log_bytes(1)

    run(scenario)


def test_torn_tail_after_a_crash_is_cut_off_and_replicated_again() -> None:
    """A follower dies in the middle of a write. When it starts again, it truncates its log to the last complete batch and
    fetches the rest again. Then the logs are equal."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        for number in range(5):
            await cluster.produce(1, f"v{number}")
        whole = cluster.log_bytes(3)
        cluster.crash(3)
        cluster.controller.change(isr=[1, 2])
        disk = cluster.world.disk(path(3, "a"))
        name = "t-0/00000000000000000000.log"
        # The last batch is cut in half, and the bytes after it are not a batch.
        disk.write(name, whole[: len(whole) - 30] + b"\xff" * 11)
        await cluster.produce(1, "v5")
        await cluster.start(3)
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))
        recovered = cluster.world.events_named("log_recovered", "broker-3")
        assert [event.fields["log_end_offset"] for event in recovered] == [4]
        assert cluster.log_bytes(3) == cluster.log_bytes(1)
        assert len(values(cluster.log_bytes(3))) == 6

    run(scenario)


def test_a_crashed_leader_keeps_what_it_acknowledged() -> None:
    """All brokers are killed with kill -9. No acknowledged record is lost, because the kernel already had the bytes."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        assert (await cluster.produce(1, "a")).error_code == ErrorCode.NONE
        for broker_id in (1, 2, 3):
            cluster.crash(broker_id)
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        cluster.controller.change(leader=1)
        assert (await cluster.produce(1, "b")).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["a", "b"]

    run(scenario)


def test_a_restarted_leader_is_found_at_its_new_address() -> None:
    """After the leader has registered with a new port, its followers connect to that port."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.crash(1)
        await cluster.world.sleep(1)
        await cluster.start(1, port=PORT + 1)
        assert (await cluster.produce(1, "a")).error_code == ErrorCode.NONE

    run(scenario)


def test_isr_changes_reach_a_controller_that_was_away() -> None:
    """The leader repeats its ISR proposal until the controller answers. Until then no record is acknowledged that the
    lagging member lacks."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.controller.is_reachable = False
        cluster.crash(3)
        waiting = asyncio.ensure_future(cluster.produce(1, "a", timeout_ms=30_000))
        await cluster.world.sleep(12)
        assert not waiting.done()
        assert cluster[1].partition().replica.maximal_isr == (1, 2, 3)
        cluster.controller.is_reachable = True
        assert (await waiting).error_code == ErrorCode.NONE
        assert cluster.controller.partition().isr == (1, 2)

    run(scenario)


def test_an_unknown_server_error_of_the_controller_is_tried_again() -> None:
    """UNKNOWN_SERVER_ERROR says nothing about the partition, so the leader changes nothing and sends the request again."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.controller.next_errors = [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
        cluster.crash(3)
        assert (await cluster.produce(1, "a")).error_code == ErrorCode.NONE
        assert len(cluster.controller.requests) == 4

    run(scenario)


def test_a_follower_that_is_refused_for_a_while_joins_the_isr_of_a_quiet_partition() -> None:
    """The controller refuses the follower time after time, as if the leader's metadata were behind. The follower has fetched
    everything, and its session does not name the partition any more. It is proposed again after each pause, and no more
    often."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.controller.next_errors = [ErrorCode.INELIGIBLE_REPLICA] * 6
        asked = len(cluster.controller.requests)
        begun_ns = cluster.world.now_ns()
        cluster.controller.change(isr=[1, 2])
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2, 3))
        assert len(cluster.controller.requests) - asked == 7
        pauses_ns = sum(min(REFUSAL_PAUSE_FIRST_NS << number, REFUSAL_PAUSE_MAX_NS) for number in range(6))
        assert cluster.world.now_ns() - begun_ns >= pauses_ns

    run(scenario)


def test_a_corrupt_batch_from_the_leader_is_not_appended() -> None:
    """A bit flips on the leader's disk. The follower detects that by the checksum, does not append the batch, and keeps
    fetching, more and more slowly. It logs that once."""

    async def scenario(cluster: Cluster) -> None:
        await three_brokers(cluster)
        cluster.crash(3)
        cluster.controller.change(isr=[1, 2])
        await cluster.produce(1, "aaaa")
        content = bytearray(cluster.log_bytes(1))
        node = cluster.world.disk(path(1, "a")).find("t-0/00000000000000000000.log")
        assert isinstance(node, FileNode)
        node.corrupt(len(node.content) - 3, 1)
        await cluster.start(3)
        await cluster.world.event("replica_fetch_delayed", node="broker-3")
        answers = cluster[1].replicas.traffic.all.total_fetch_requests
        await cluster.world.sleep(10)
        assert cluster[3].partition().log.log_end_offset == 0
        assert cluster[1].replicas.traffic.all.total_fetch_requests - answers < 100, "each answer has the whole batch"
        assert len(cluster.world.events_named("replica_fetch_delayed", "broker-3")) == 1
        node.rewrite(content)
        await cluster.until(lambda: cluster[3].partition().log.written_offset == 1)

    run(scenario)


def test_replication_of_many_partitions() -> None:
    """Forty partitions on three brokers with three directories each all get leaders and followers, and acknowledge
    records."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id, "abc")
        replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        cluster.controller.create_topic(*(replicas[index % 3] for index in range(40)))
        for index in range(40):
            await cluster.started(index)
        answers = await asyncio.gather(*(cluster.produce(replicas[index % 3][0], "x", index=index) for index in range(40)))
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        # The partitions are spread evenly, because placement takes the directory with the fewest logs.
        counts = [cluster[1].replicas.descriptions.count_in(each) for each in cluster[1].directories.online]
        assert sorted(counts) == [13, 13, 14]
        assert cluster[1].replicas.find(TopicIdPartition(TOPIC, 40)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


async def with_many_segments_ahead(cluster: Cluster) -> Partition:
    """Returns broker 2's replica, which is out of the ISR and lacks many small segments. No sync of its disk ends."""
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    cluster.controller.create_topic([1, 2], configs={"segment.bytes": "200"})
    await cluster.started()
    cluster.world.network.cut("broker-2", "broker-1")
    cluster.controller.change(isr=[1])
    for number in range(40):
        assert (await cluster.produce(1, f"record {number}" * 5)).error_code == ErrorCode.NONE
    assert len(cluster[1].partition().log.segment_base_offsets) > 30
    cluster.world.disk(path(2, "a")).hang({"fsync"})
    return cluster[2].partition()


def test_a_follower_that_catches_up_does_not_run_ahead_of_its_syncs() -> None:
    """Creations and deletions of logs in the directory wait behind these syncs. The follower goes on when they have ended,
    and joins the ISR."""

    async def scenario(cluster: Cluster) -> None:
        follower = await with_many_segments_ahead(cluster)
        cluster.world.network.mend("broker-2", "broker-1")
        await cluster.until(lambda: follower.log.outruns_syncs)
        await cluster.world.sleep(1)
        assert len(follower.log.segment_base_offsets) <= ROLLED_AHEAD_MAX + 3
        cluster.world.disk(path(2, "a")).thaw()
        await cluster.until(lambda: cluster.controller.partition().isr == (1, 2))
        assert follower.log.log_end_offset == 40

    run(scenario, replica_fetch_max_bytes="150")


def test_a_member_of_the_isr_does_not_wait_for_its_syncs() -> None:
    """Clients wait for it: acks=all needs it. The follower waits at first, and then the metadata names it in the ISR."""

    async def scenario(cluster: Cluster) -> None:
        follower = await with_many_segments_ahead(cluster)
        cluster.world.network.mend("broker-2", "broker-1")
        await cluster.until(lambda: follower.log.outruns_syncs)
        await cluster.world.sleep(1)
        cluster.controller.change(isr=[1, 2])
        await cluster.until(lambda: follower.log.log_end_offset == 40)
        for number in range(20):
            assert (await cluster.produce(1, f"more {number}" * 5)).error_code == ErrorCode.NONE
        assert follower.log.outruns_syncs
        cluster.world.disk(path(2, "a")).thaw()

    run(scenario, replica_fetch_max_bytes="150")


def test_the_series_of_a_topic_vanish_with_its_last_replica_here() -> None:
    """Reassignments take the replicas of a topic to the other broker. Otherwise a broker would show topics that it has not
    had for months."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], [1, 2])
        for index in (0, 1):
            await cluster.started(index)
        await cluster.produce(1, "a")
        traffic, descriptions = cluster[1].replicas.traffic, cluster[1].replicas.descriptions

        def shown() -> set[str]:
            return {dict(sample.labels)["topic"] for sample in traffic.samples(descriptions.topics)}

        assert shown() == {"", "t"}
        cluster.controller.change(1, replicas=[2], isr=[2], leader=2)
        await cluster.until(lambda: descriptions.count() == 1)
        assert shown() == {"", "t"}
        cluster.controller.change(0, replicas=[2], isr=[2], leader=2)
        await cluster.until(lambda: not descriptions.count())
        assert shown() == {""}
        assert traffic.all.messages_in == 1

    run(scenario)
