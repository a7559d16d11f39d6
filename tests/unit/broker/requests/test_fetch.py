"""Fetch requests of consumers: which are answered at once, which wait and for how long, limits, and every error."""

import asyncio
import gc
from typing import Any

import pytest

from broker.core.partition_replica import NO_BROKER_EPOCH
from broker.requests import fetch, fetch_session, fetched_partitions
from broker.requests.fetched_partitions import FetchedPartition
from common.ids import BrokerId, Offset, TopicId, Uuid
from common.light_tasks import LightTask
from common.parts import FileRegion
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.log import Log
from common.storage.log_segments import LogRead
from tests.counted import result_and_turns
from tests.unit.broker.cluster import TOPIC, Cluster, batch, path, run, values
from tests.unit.broker.requests.contexts import context


async def one_broker(cluster: Cluster, partitions: int = 1) -> None:
    await cluster.start(1)
    cluster.controller.create_topic(*([[1]] * partitions))
    for index in range(partitions):
        await cluster.started(index)


async def two_brokers(cluster: Cluster) -> None:
    """Broker 1 leads two partitions with a record each, and broker 2 follows."""
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    cluster.controller.create_topic([1, 2], [1, 2])
    for index in (0, 1):
        await cluster.started(index)
        await cluster.produce(1, "a", index=index)


def request(*partitions: FetchPartition, **fields: Any) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic="t", topic_id=TOPIC, partitions=list(partitions))], **fields)


def wanted(index: int = 0, offset: int = 0, *, max_bytes: int = 1 << 20, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def texts(response: FetchResponse) -> list[list[str]]:
    return [values(data.records) for topic in response.responses for data in topic.partitions]


# --- waiting -----------------------------------------------------------------------------------------------------


def test_a_waiting_fetch_is_answered_when_a_record_is_committed() -> None:
    """Long polling: the fetch waits for a second, and is answered a few milliseconds after a record is produced."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        fetching = asyncio.ensure_future(cluster.fetch(1, max_wait_ms=30_000))
        await cluster.world.sleep(1)
        assert not fetching.done()
        begun_ns = cluster.world.now_ns()
        await cluster.produce(1, "a")
        assert values((await fetching).records) == ["a"]
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


@pytest.mark.parametrize("has_session", [False, True])
def test_a_fetch_of_records_in_memory_needs_no_task(has_session: bool) -> None:
    """If nothing has to be awaited, the handler returns the response itself. A fetch that waits is a light task."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a")
        handle = cluster[1].server.handlers[ApiKey.FETCH]
        epoch = 0 if has_session else -1
        at_once = handle(context(ApiKey.FETCH, 17), request(wanted(), session_epoch=epoch))
        assert isinstance(at_once, FetchResponse)
        [region] = at_once.responses[0].partitions[0].records or []
        assert isinstance(region, FileRegion)
        assert len(region) == len(batch("a"))
        assert bool(at_once.session_id) == has_session
        later = handle(context(ApiKey.FETCH, 17), request(wanted(offset=1), session_epoch=epoch, min_bytes=1, max_wait_ms=9))
        assert isinstance(later, LightTask)
        assert not (await later).responses[0].partitions[0].records

    run(scenario)


@pytest.mark.parametrize("slots", [1, 0])
def test_a_fetch_leaves_no_work_for_the_garbage_collector(slots: int) -> None:
    """A fetch that is answered at once, one that waits, and one whose session ends while it waits, or that gets no session
    although it asks for one. None leaves objects that only a collection could free: there are thousands of fetches a second,
    and a collection stops the event loop."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=2)
        await cluster.produce(1, "a")
        handle = cluster[1].server.handlers[ApiKey.FETCH]

        def fetch(*partitions: FetchPartition, **fields: Any) -> Any:
            return handle(context(ApiKey.FETCH, 17), request(*partitions, max_wait_ms=9, **fields))

        async def all_three() -> None:
            # The second partition is empty, the third does not exist.
            fetch(wanted(), wanted(1), wanted(2), session_epoch=-1)
            await fetch(wanted(offset=1), wanted(1), min_bytes=1, session_epoch=-1)
            session_id = fetch(wanted(), wanted(1), session_epoch=0).session_id
            if not slots:
                assert not session_id
                return
            waiting = asyncio.ensure_future(fetch(wanted(), min_bytes=9_999, session_id=session_id, session_epoch=1))
            await cluster.world.sleep(0.001)
            fetch(session_id=session_id, session_epoch=-1)
            await waiting

        def in_memory() -> int:
            return sum(isinstance(each, FetchedPartition) for each in gc.get_objects())

        gc.collect()
        before = in_memory()
        gc.disable()
        try:
            await all_three()
            assert in_memory() == before
        finally:
            gc.enable()

    run(scenario, max_incremental_fetch_session_cache_slots=str(slots))


def test_a_fetch_without_news_is_answered_empty_at_its_deadline() -> None:
    """The empty answer comes after max_wait_ms, not much later, and has the high watermark."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a")
        begun_ns = cluster.world.now_ns()
        data = await cluster.fetch(1, 1, max_wait_ms=700)
        assert (data.error_code, data.high_watermark, values(data.records)) == (ErrorCode.NONE, 1, [])
        assert 700_000_000 <= cluster.world.now_ns() - begun_ns < 720_000_000
        assert len(cluster[1].partition().fetch_watchers) == 0

    run(scenario)


def test_a_client_that_waits_for_weeks_and_goes_away_is_forgotten() -> None:
    """The client disconnects while its fetch waits. The fetch ends after a minute at most, and the broker keeps nothing of
    it."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        with pytest.raises(ExceptionGroup, match="unhandled"):
            # This client gives up after 40 seconds.
            await cluster.fetch(1, max_wait_ms=0x7FFF_FFFF)
        assert len(cluster[1].partition().fetch_watchers) == 1
        await cluster.world.sleep(25)
        assert len(cluster[1].partition().fetch_watchers) == 0
        assert cluster[1].server.memory.used_bytes == 0

    run(scenario)


def test_min_bytes_counts_over_all_partitions_and_what_was_there() -> None:
    """min.bytes is only reached by three batches together. One is written before the fetch and two after it, each to another
    partition."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=3)
        await cluster.produce(1, "aaaaa", index=0)
        size = cluster[1].partition(0).log.size_bytes
        message = request(wanted(0), wanted(1), wanted(2), max_wait_ms=30_000, min_bytes=3 * size)
        fetching = asyncio.ensure_future(cluster.request(1, message))
        await cluster.produce(1, "bbbbb", index=1)
        await cluster.world.sleep(1)
        assert not fetching.done()
        await cluster.produce(1, "ccccc", index=2)
        assert texts(await fetching) == [["aaaaa"], ["bbbbb"], ["ccccc"]]

    run(scenario)


def test_min_bytes_counts_batches_that_are_written_at_once() -> None:
    """The disk finishes two batches in one step, and only together they reach min.bytes. No other replica has to confirm
    them, so the first moves the high watermark to the end of both."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "aaaaa")
        size = cluster[1].partition().log.size_bytes
        disk = cluster.world.disk(path(1, "a"))
        disk.hang({"append"})
        message = request(wanted(offset=1), max_wait_ms=30_000, min_bytes=2 * size)
        fetching = asyncio.ensure_future(cluster.request(1, message))
        producing = [asyncio.ensure_future(cluster.produce(1, value)) for value in ("bbbbb", "ccccc")]
        await cluster.until(lambda: cluster[1].partition().log.log_end_offset == 3)
        disk.thaw()
        assert {(await each).error_code for each in producing} == {ErrorCode.NONE}
        await cluster.world.sleep(1)
        assert fetching.done()
        assert len(texts(await fetching)[0]) == 2

    run(scenario)


def test_a_waiting_fetch_is_answered_when_a_part_of_what_the_log_held_is_committed() -> None:
    """The leader's log was loaded again with two batches that are not committed, so it counts them as one. The follower
    confirms the first one and then stops."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.world.network.cut("broker-2", "broker-1")
        for value in ("a", "b"):
            await cluster.produce(1, value, acks=1)
        partition = cluster[1].partition()
        partition.begin_restructuring()
        partition.end_restructuring()
        fetching = asyncio.ensure_future(cluster.fetch(1, max_wait_ms=30_000, min_bytes=len(batch("a"))))
        await cluster.world.sleep(0.1)
        assert not fetching.done()
        partition.follower_fetched(
            BrokerId(2), fetch_offset=Offset(1), log_start_offset=Offset(0), broker_epoch=NO_BROKER_EPOCH, clock=None
        )
        await cluster.world.sleep(0.1)
        assert fetching.done()
        assert values((await fetching).records) == ["a"]

    run(scenario)


@pytest.mark.parametrize(
    ("read_first", "error"),
    [(0, None), (1, None), (1, OffsetOutOfRange(Offset(0), Offset(0), Offset(0))), (1, LogClosed("closed"))],
)
def test_a_leader_that_is_deposed_during_a_read_answers_with_an_error(
    read_first: int, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader of partition 1 changes while the fetch waits for the disk, to read partition 1 itself or another one before
    it. By the time of the answer the log may hold records of the new leader, or lack those that were asked for: a client
    that is told so would reset its offset."""
    read = Log.read

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)

        async def read_and_lose(log: Log, *arguments: Any, **options: Any) -> LogRead:
            result = await read(log, *arguments, **options)
            if log is cluster[1].partition(read_first).log and cluster[1].leads(1):
                cluster.controller.change(1, leader=2)
                await cluster.until(lambda: cluster[1].follows(1))
                if error is not None:
                    raise error
            return result

        # Nothing is found without the disk.
        monkeypatch.setattr(Log, "read_at_once", lambda *_, **__: None)
        monkeypatch.setattr(Log, "read", read_and_lose)
        response = await cluster.request(1, request(wanted(0), wanted(1, current_leader_epoch=0), max_wait_ms=0))
        kept, lost = response.responses[0].partitions
        assert (kept.error_code, values(kept.records)) == (ErrorCode.NONE, ["a"])
        assert (lost.error_code, values(lost.records)) == (ErrorCode.FENCED_LEADER_EPOCH, [])

    run(scenario)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_leader_that_is_deposed_between_two_slices_answers_with_an_error(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With slices of one partition, the loop turns between the two look-ups and between the two reads. The leader of the
    first partition changes after its look-up, or that of the second one after the read of the first."""
    pauses = 0

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)

        async def pause_and_lose() -> None:
            nonlocal pauses
            if pauses == lost:
                cluster.controller.change(lost, leader=2)
                await cluster.until(lambda: cluster[1].follows(lost))
            pauses += 1

        # The fetches of the follower would be answered in slices as well.
        cluster.world.network.cut("broker-2", "broker-1")
        monkeypatch.setattr(fetched_partitions, "ELEMENTS_PER_SLICE", 1)
        monkeypatch.setattr(fetched_partitions, "pause", pause_and_lose)
        asked = [wanted(index, current_leader_epoch=0) for index in (0, 1)]
        response = await cluster.request(1, request(*asked, max_wait_ms=0))
        answers = {
            data.partition_index: (data.error_code, values(data.records)) for data in response.responses[0].partitions
        }
        assert answers == {lost: (ErrorCode.FENCED_LEADER_EPOCH, []), 1 - lost: (ErrorCode.NONE, ["a"])}

    run(scenario)


@pytest.mark.parametrize("has_session", [False, True])
def test_many_partitions_are_answered_in_slices(has_session: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop turns four times for each of four things: to note what is wanted, to look it up, to read it, and to
    answer. After the first answer of a session there is next to nothing left to do."""
    for module in (fetch, fetch_session, fetched_partitions):
        monkeypatch.setattr(module, "ELEMENTS_PER_SLICE", 10)

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=41)
        await cluster.produce(1, "a", index=33)
        handle = cluster[1].server.handlers[ApiKey.FETCH]
        everything = request(*map(wanted, range(41)), max_wait_ms=0, session_epoch=0 if has_session else -1)
        result = handle(context(ApiKey.FETCH, 17), everything)
        assert isinstance(result, LightTask)
        response, turns = await result_and_turns(result)
        assert turns >= 16
        [topic] = response.responses
        assert [data.partition_index for data in topic.partitions] == [*range(41)]
        assert [data.partition_index for data in topic.partitions if data.records] == [33]
        if has_session:
            later = request(max_wait_ms=0, session_id=response.session_id, session_epoch=1)
            assert isinstance(handle(context(ApiKey.FETCH, 17), later), FetchResponse)

    run(scenario)


@pytest.mark.parametrize("has_session", [False, True])
def test_a_leader_of_a_new_epoch_reads_again_at_once(has_session: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader gets another epoch while the fetch of a consumer, which names none, waits for the disk. The records are
    still there, so the consumer need not wait for new ones."""
    read = Log.read

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a")

        async def read_and_change(log: Log, *arguments: Any, **options: Any) -> LogRead:
            result = await read(log, *arguments, **options)
            if cluster[1].partition().replica.leader_epoch == 0:
                cluster.controller.change(leader=1)
                await cluster.until(lambda: cluster[1].partition().replica.leader_epoch == 1)
            return result

        monkeypatch.setattr(Log, "read_at_once", lambda *_, **__: None)
        monkeypatch.setattr(Log, "read", read_and_change)
        message = request(wanted(), session_epoch=0 if has_session else -1, max_wait_ms=30_000, min_bytes=1)
        begun_ns = cluster.world.now_ns()
        assert texts(await cluster.request(1, message)) == [["a"]]
        assert cluster.world.now_ns() - begun_ns < 1_000_000_000

    run(scenario)


BATCHES = 10


@pytest.mark.parametrize("partition_limit", [True, False])
def test_a_fetch_that_its_own_limit_cut_short_does_not_wait(partition_limit: bool) -> None:
    """The log has more records than a limit allows, and the batches within the limit have fewer than min.bytes. Waiting
    cannot add any bytes, so the fetch is answered at once."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        for number in range(BATCHES):
            await cluster.produce(1, str(number))
        limit = cluster[1].partition().log.size_bytes // BATCHES * 4 + 1
        if partition_limit:
            message = request(wanted(max_bytes=limit), max_wait_ms=5_000, min_bytes=limit)
        else:
            message = request(wanted(), max_wait_ms=5_000, min_bytes=1 << 20, max_bytes=limit)
        begun_ns = cluster.world.now_ns()
        assert texts(await cluster.request(1, message)) == [["0", "1", "2", "3"]]
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_a_fetch_that_left_a_whole_partition_out_does_not_wait() -> None:
    """The second partition has records too, but they are left out because of its limit of 0 bytes. Waiting cannot change
    that."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=2)
        for index in (0, 1):
            await cluster.produce(1, str(index), index=index)
        message = request(wanted(0), wanted(1, max_bytes=0), max_wait_ms=5_000, min_bytes=1 << 20)
        begun_ns = cluster.world.now_ns()
        assert texts(await cluster.request(1, message)) == [["0"], []]
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_no_more_is_waited_for_than_a_response_can_hold() -> None:
    """The request's min.bytes is above its max.bytes. The fetch is answered when the response is full."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a")
        limit = 2 * cluster[1].partition().log.size_bytes
        message = request(wanted(), max_wait_ms=5_000, min_bytes=10 * limit, max_bytes=limit)
        fetching = asyncio.ensure_future(cluster.request(1, message))
        await cluster.world.sleep(1)
        assert not fetching.done()
        begun_ns = cluster.world.now_ns()
        await cluster.produce(1, "b")
        assert texts(await fetching) == [["a", "b"]]
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_a_fetch_that_the_end_of_a_segment_cut_short_does_not_wait() -> None:
    """A read ends at the end of its segment. The next segment has more records, and the client gets them with its next
    fetch."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"segment.bytes": "300"})
        await cluster.started()
        for number in range(BATCHES):
            await cluster.produce(1, str(number))
        begun_ns = cluster.world.now_ns()
        (found,) = texts(await cluster.request(1, request(wanted(), max_wait_ms=5_000, min_bytes=1 << 20)))
        assert 0 < len(found) < BATCHES
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_a_fetch_waits_where_the_high_watermark_is_inside_a_batch() -> None:
    """A follower's fetch from the middle of a batch moves the high watermark into that batch. A consumer's fetch must wait
    then. If it got an empty answer at once, the consumer would fetch in a tight loop."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        state = ReplicaState(replica_id=2, replica_epoch=cluster[2].epoch or 0)
        cluster.crash(2)
        await cluster.produce(1, "a", "b", acks=1)
        await cluster.request(1, request(wanted(offset=1), replica_state=state))
        assert cluster[1].partition().high_watermark == 1
        begun_ns = cluster.world.now_ns()
        assert values((await cluster.fetch(1, max_wait_ms=700)).records) == []
        assert cluster.world.now_ns() - begun_ns >= 700_000_000

    run(scenario)


def test_an_error_in_one_partition_answers_at_once() -> None:
    """If one partition of a fetch has an error, the client gets the answer without waiting."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        begun_ns = cluster.world.now_ns()
        response = await cluster.request(1, request(wanted(0), wanted(7), max_wait_ms=30_000, min_bytes=1))
        codes = [data.error_code for data in response.responses[0].partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_a_deleted_topic_answers_a_waiting_fetch() -> None:
    """A deleted topic gets no more records, so the waiting fetch is answered with UNKNOWN_TOPIC_ID."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        fetching = asyncio.ensure_future(cluster.fetch(1, max_wait_ms=30_000))
        await cluster.world.sleep(1)
        cluster.controller.remove_topic()
        assert (await fetching).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario)


# --- limits ------------------------------------------------------------------------------------------------------


def test_limits_of_partition_and_response() -> None:
    """A response has whole batches, as many as fit into the limits. Only its first batch may exceed a limit."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=2)
        for index in (0, 1):
            for number in range(3):
                await cluster.produce(1, f"{index}{number}", index=index)
        size = cluster[1].partition(0).log.size_bytes // 3
        two = await cluster.request(1, request(wanted(0, max_bytes=2 * size + 5), wanted(1, max_bytes=size)))
        assert texts(two) == [["00", "01"], ["10"]]
        tiny = await cluster.request(1, request(wanted(0, max_bytes=1), wanted(1, max_bytes=1)))
        assert texts(tiny) == [["00"], []]
        whole = await cluster.request(1, request(wanted(0), wanted(1), max_bytes=4 * size))
        assert texts(whole) == [["00", "01", "02"], ["10"]]
        nothing_in_the_first = await cluster.request(1, request(wanted(0, 3), wanted(1, max_bytes=1)))
        assert texts(nothing_in_the_first) == [[], ["10"]]

    run(scenario)


@pytest.mark.parametrize("has_session", [False, True])
def test_partitions_are_answered_in_the_order_of_the_request(has_session: bool) -> None:
    """The first ones get the bytes, and consumers process the records in this order. Clients name a topic several times if
    its partitions are not next to each other, and so does the response."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=2)
        other = TopicId(Uuid(b"U" * 16))
        cluster.controller.create_topic([1], name="u", topic_id=other)
        await cluster.world.until(lambda: cluster[1].leads(0, other))
        for topic, index in (("t", 0), ("t", 1), ("u", 0)):
            await cluster.produce(1, f"{topic}{index}", topic=topic, index=index)
        topics = [
            FetchTopic(topic="t", topic_id=TOPIC, partitions=[wanted(1)]),
            FetchTopic(topic="u", topic_id=other, partitions=[wanted(0)]),
            FetchTopic(topic="t", topic_id=TOPIC, partitions=[wanted(0), wanted(2)]),
        ]
        response = await cluster.request(1, FetchRequest(topics=topics, session_epoch=0 if has_session else -1))
        answered = [(topic.topic_id, [data.partition_index for data in topic.partitions]) for topic in response.responses]
        assert answered == [(TOPIC, [1]), (other, [0]), (TOPIC, [0, 2])]
        assert texts(response) == [["t1"], ["u0"], ["t0"], []]

    run(scenario)


def test_a_fetch_from_the_middle_of_a_batch_gives_the_whole_batch() -> None:
    """The client skips the records it already has; the broker never cuts a batch."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a", "b", "c")
        assert await cluster.read_all(1, offset=2) == ["a", "b", "c"]

    run(scenario)


# --- errors ------------------------------------------------------------------------------------------------------


def test_offsets_outside_the_log() -> None:
    """Offsets below the log's start and above its end are errors. The end itself is valid: the next record will be there."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a")
        assert (await cluster.fetch(1, 1)).error_code == ErrorCode.NONE
        assert (await cluster.fetch(1, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await cluster.fetch(1, -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_leader_epochs_of_clients_are_compared() -> None:
    """If the client's epoch is older than the broker's, the client must refresh its metadata. If the client's epoch is
    newer, the broker's metadata is old."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        cluster.controller.change(leader=1)
        assert (await cluster.fetch(1, current_leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await cluster.fetch(1, current_leader_epoch=1)).error_code == ErrorCode.NONE
        assert (await cluster.fetch(1, current_leader_epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario)


def test_an_unknown_topic_is_refused_by_id_and_by_name() -> None:
    """Version 13 and later name topics by id, earlier versions by name."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        other = TopicId(Uuid(b"?" * 16))
        assert (await cluster.fetch(1, topic_id=other)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        message = FetchRequest(topics=[FetchTopic(topic="nowhere", partitions=[wanted()])])
        response = await cluster.request(1, message, version=12)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_stranger_cannot_fetch_as_a_follower() -> None:
    """A replica id that is not among the replicas, or an incarnation that was replaced, gets an error, and no uncommitted
    records."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        epoch = cluster[2].epoch or 0
        for state in (ReplicaState(replica_id=9), ReplicaState(replica_id=2, replica_epoch=epoch - 1)):
            response = await cluster.request(1, request(wanted(), replica_state=state))
            assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_can_be_answered(version: int) -> None:
    """In every version, the answer can be encoded with records and errors, for both isolation levels."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1], [2])
        await cluster.started(0)
        await cluster.started(1)
        await cluster.produce(1, "a")
        for level in (0, 1):
            message = request(wanted(0), wanted(1), wanted(0, 5), isolation_level=level)
            response = await cluster.request(1, message, version=version)
            good, moved, beyond = response.responses[0].partitions
            assert values(good.records) == ["a"]
            assert (good.high_watermark, good.last_stable_offset) == (1, 1)
            assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert moved.current_leader.leader_id == (2 if version >= 16 else -1)
            assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)
