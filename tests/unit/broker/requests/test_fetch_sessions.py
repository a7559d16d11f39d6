"""Fetch sessions (KIP-227): what an answer names, what it leaves out, and how a session ends."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from broker.core.fetch_session_cache import FetchSessionCache
from broker.core.partition_replica import NO_BROKER_EPOCH
from broker.hosting.replicas import Replicas
from broker.requests import fetched_partitions
from broker.requests.fetch import FetchHandler
from broker.requests.fetch_session import FetchSession, FetchSessions, fetch_sessions
from common.ids import BrokerId, TopicId, TopicIdPartition, Uuid
from common.light_tasks import LightTasks
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from common.slices import ELEMENTS_PER_SLICE
from common.time_units import NS_PER_S
from tests.unit.broker.cluster import TOPIC, Cluster, run, values
from tests.unit.broker.requests.contexts import NoMemory, context

OTHER_TOPIC = TopicId(Uuid(b"O" * 16))


class Client:
    """A client with one connection and one session."""

    def __init__(self, cluster: Cluster, channel: NodeChannel, version: int) -> None:
        self._cluster = cluster
        self._channel = channel
        self._version = version
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, *wanted: FetchPartition, forgotten: tuple[int, ...] = (), **fields: Any) -> FetchResponse:
        """Sends the next request of the session, and takes over the session of the answer."""
        topics = [FetchTopic(topic="t", topic_id=TOPIC, partitions=list(wanted))] if wanted else []
        gone = [ForgottenTopic(topic="t", topic_id=TOPIC, partitions=list(forgotten))] if forgotten else []
        named = {"session_id": self.session_id, "session_epoch": self.epoch, "topics": topics, "forgotten_topics_data": gone}
        self.epoch += 1
        response = await self.send(FetchRequest(**{**named, **fields}))
        self.session_id = response.session_id
        return response

    async def send(self, request: FetchRequest, version: int | None = None) -> FetchResponse:
        deadline_ns = self._cluster.world.now_ns() + 40 * NS_PER_S
        response: FetchResponse = await self._channel.send(
            request, version=self._version if version is None else version, deadline_ns=deadline_ns
        )
        return response


@asynccontextmanager
async def client(cluster: Cluster, version: int = 17) -> AsyncIterator[Client]:
    """A client of this version of Fetch that is connected to broker 1."""
    async with asyncio.TaskGroup() as group:
        node = cluster.world.node("client")
        channel = NodeChannel(node, host="broker-1", port=cluster[1].port, client_id="test", task_group=group)
        yield Client(cluster, channel, version)
        channel.close()


def wanted(index: int = 0, offset: int = 0, *, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)


def in_epoch(leader_epoch: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=1 << 20)


def named(response: FetchResponse) -> dict[int, list[str]]:
    """Returns the records of each partition that the answer names."""
    assert response.error_code == ErrorCode.NONE
    return {data.partition_index: values(data.records) for topic in response.responses for data in topic.partitions}


def errors(response: FetchResponse) -> dict[int, int]:
    return {data.partition_index: data.error_code for topic in response.responses for data in topic.partitions}


async def one_broker(cluster: Cluster, partitions: int = 3) -> None:
    await cluster.start(1)
    cluster.controller.create_topic(*([[1]] * partitions))
    for index in range(partitions):
        await cluster.started(index)


def test_an_answer_names_only_what_has_changed() -> None:
    """The first answer names all partitions. Later ones name the partition with a new record, and none if there is none."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            assert named(await session.fetch(wanted(0), wanted(1), wanted(2))) == {0: [], 1: [], 2: []}
            assert session.session_id > 0
            assert named(await session.fetch(max_wait_ms=100, min_bytes=1)) == {}
            await cluster.produce(1, "a", index=1)
            assert named(await session.fetch()) == {1: ["a"]}
            assert named(await session.fetch(wanted(1, 1), max_wait_ms=100, min_bytes=1)) == {}

    run(scenario)


def test_a_waiting_fetch_of_a_session_is_answered_with_new_records() -> None:
    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(wanted(0), wanted(1), wanted(2))
            fetching = asyncio.ensure_future(session.fetch(max_wait_ms=30_000, min_bytes=1))
            await cluster.world.sleep(1)
            begun_ns = cluster.world.now_ns()
            await cluster.produce(1, "a", index=2)
            assert named(await fetching) == {2: ["a"]}
            assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_what_the_client_does_not_confirm_is_sent_again() -> None:
    """The next request asks for no other offset, so it gets the same records."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        await cluster.produce(1, "a")
        async with client(cluster) as session:
            for _ in range(3):
                assert named(await session.fetch(*([wanted()] if not session.epoch else []))) == {0: ["a"]}

    run(scenario)


def test_partitions_come_and_go() -> None:
    """A partition that the client forgets is not in the next answer, whatever is written. One that it adds is."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(wanted(0), wanted(1))
            for index in range(3):
                await cluster.produce(1, str(index), index=index)
            assert named(await session.fetch(wanted(2), forgotten=(0,))) == {1: ["1"], 2: ["2"]}
            assert len(cluster[1].partition(0).fetch_watchers) == 0
            await session.fetch(wanted(1, 1), wanted(2, 1))
            assert named(await session.fetch(wanted(0))) == {0: ["0"]}

    run(scenario)


def test_a_partition_that_had_no_room_comes_first_the_next_time() -> None:
    """Only one batch fits into an answer. Each partition gets its turn, although the first one has more and more to say."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        for index in range(3):
            await cluster.produce(1, f"{index}a", index=index)
        await cluster.produce(1, "0b")
        async with client(cluster) as session:
            found = [await session.fetch(wanted(0), wanted(1), wanted(2), max_bytes=1)]
            for offsets in ((1, 0, 0), (1, 1, 0)):
                changed = [wanted(index, offset) for index, offset in enumerate(offsets)]
                found.append(await session.fetch(*changed, max_bytes=1))
            records = [{index: texts for index, texts in named(each).items() if texts} for each in found]
            assert records == [{0: ["0a"]}, {1: ["1a"]}, {2: ["2a"]}]

    run(scenario)


def test_an_error_is_repeated_until_it_is_over() -> None:
    """The topic of one partition does not exist yet. Each answer says so, until the topic exists."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        async with client(cluster) as session:
            assert errors(await session.fetch(wanted(0), wanted(1))) == {0: 0, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert errors(await session.fetch()) == {1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            cluster.controller.remove_topic()
            assert errors(await session.fetch()) == {0: ErrorCode.UNKNOWN_TOPIC_ID, 1: ErrorCode.UNKNOWN_TOPIC_ID}

    run(scenario)


def test_a_topic_that_is_created_again_is_another_one() -> None:
    """The client names topics by their names. The session must not answer from the partition that is gone."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        await cluster.produce(1, "a", "b")
        async with client(cluster, version=12) as session:
            assert named(await session.fetch(wanted(0, 1))) == {0: ["a", "b"]}
            assert named(await session.fetch(wanted(0, 2))) == {}
            cluster.controller.remove_topic()
            assert errors(await session.fetch()) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            cluster.controller.create_topic([1], topic_id=OTHER_TOPIC)
            await cluster.started(0, OTHER_TOPIC)
            assert errors(await session.fetch()) == {0: ErrorCode.OFFSET_OUT_OF_RANGE}
            await cluster.produce(1, "c")
            assert named(await session.fetch(wanted(0, 0))) == {0: ["c"]}

    run(scenario)


def test_a_new_leader_epoch_is_told_until_the_client_knows_it() -> None:
    """The client waits in epoch 0. The wait ends with the epoch, and each answer has the error, until the client asks in
    the new epoch."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(in_epoch(0), wanted(1))
            waiting = asyncio.ensure_future(session.fetch(max_wait_ms=30_000, min_bytes=1))
            await cluster.world.sleep(1)
            begun_ns = cluster.world.now_ns()
            cluster.controller.change(leader=1)
            assert errors(await waiting) == {0: ErrorCode.FENCED_LEADER_EPOCH}
            assert cluster.world.now_ns() - begun_ns < 10_000_000
            assert errors(await session.fetch()) == {0: ErrorCode.FENCED_LEADER_EPOCH}
            assert errors(await session.fetch(in_epoch(1))) == {0: 0}
            assert errors(await session.fetch()) == {}

    run(scenario)


def test_the_high_watermark_is_told_again_in_a_new_leader_epoch() -> None:
    """The client may have ignored the answer of the old epoch. In the new epoch nothing is written, so the high watermark is
    unchanged."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a")
        async with client(cluster) as session:
            await session.fetch(in_epoch(0, offset=1), wanted(1))
            cluster.controller.change(leader=1)
            await cluster.world.sleep(1)
            response = await session.fetch(in_epoch(1, offset=1), max_wait_ms=30_000, min_bytes=1)
            assert response.responses[0].partitions[0].high_watermark == 1

    run(scenario)


def test_partitions_with_much_to_read_do_not_hold_up_one_with_little() -> None:
    """Two partitions fill each answer by themselves. One that gets a record now and then has it in the second answer."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        for number in range(20):
            for index in (0, 1):
                await cluster.produce(1, f"{index}-{number}", index=index)
        async with client(cluster) as session:
            offsets = {0: 0, 1: 0, 2: 0}
            answer = named(await session.fetch(wanted(0), wanted(1), wanted(2), max_bytes=1))
            for number in range(10):
                await cluster.produce(1, f"2-{number}", index=2)
                got: list[str] = []
                for _ in range(3):
                    for index, records in answer.items():
                        offsets[index] += len(records)
                        got += records
                    had = [wanted(index, offsets[index]) for index, records in answer.items() if records]
                    answer = named(await session.fetch(*had, max_bytes=1))
                assert f"2-{number}" in got + answer.get(2, []), (number, got, answer)

    run(scenario)


def test_a_change_that_is_not_a_record_is_told() -> None:
    """The log start moves. The next answer names the partition without records."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=2)
        await cluster.produce(1, "a")
        async with client(cluster) as session:
            await session.fetch(wanted(0, 1), wanted(1))
            assert named(await session.fetch()) == {}
            cluster[1].partition().raise_log_start(cluster[1].partition().high_watermark)
            response = await session.fetch()
            assert named(response) == {0: []}
            assert response.responses[0].partitions[0].log_start_offset == 1

    run(scenario)


def test_the_next_request_ends_the_wait_of_the_one_before() -> None:
    """While a fetch waits for half a minute, the client adds a partition. Both requests are answered at once."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        await cluster.produce(1, "a", index=1)
        async with client(cluster) as session:
            await session.fetch(wanted(0))
            waiting = asyncio.ensure_future(session.fetch(max_wait_ms=30_000, min_bytes=1))
            await cluster.world.sleep(1)
            begun_ns = cluster.world.now_ns()
            assert named(await session.fetch(wanted(1), max_wait_ms=30_000, min_bytes=1)) == {1: ["a"]}
            assert waiting.done()
            assert named(await waiting) == {}
            assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_a_fetch_looks_only_at_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100 partitions, a fetch after one write looks one of them up, before and after the wait."""
    looked_up: list[int] = []
    find = Replicas.find

    def counted(self: Replicas, key: TopicIdPartition) -> Any:
        looked_up.append(key.partition)
        return find(self, key)

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=100)
        monkeypatch.setattr(Replicas, "find", counted)
        async with client(cluster) as session:
            await session.fetch(*(wanted(index) for index in range(100)))
            assert sorted(looked_up) == [*range(100)]
            looked_up.clear()
            fetching = asyncio.ensure_future(session.fetch(max_wait_ms=30_000, min_bytes=1))
            await cluster.world.sleep(1)
            assert looked_up == []
            await cluster.produce(1, "a", index=7)
            assert named(await fetching) == {7: ["a"]}
            assert set(looked_up) == {7}

    run(scenario)


# --- the end of a session ----------------------------------------------------------------------------------------


def test_wrong_sessions_are_refused() -> None:
    """An unknown id, an epoch that was used before, and a version that names topics in the other way."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(wanted(0))
            known = session.session_id
            for version, session_id, epoch, error in (
                (17, known + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
                (17, known, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
                (12, known, 1, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
            ):
                response = await session.send(FetchRequest(session_id=session_id, session_epoch=epoch), version)
                assert (response.error_code, response.session_id, response.responses) == (error, 0, [])
            assert named(await session.fetch()) == {}
            assert session.session_id == known

    run(scenario)


def test_a_session_that_leaves_for_another_one_ends_its_wait() -> None:
    """There is one slot, and a follower takes it. The waiting consumer gets an answer without a session, and the record that
    is written after that with its next fetch."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        async with client(cluster) as consumer, client(cluster) as follower:
            await consumer.fetch(wanted())
            waiting = asyncio.ensure_future(consumer.fetch(max_wait_ms=30_000, min_bytes=1))
            await cluster.world.sleep(1)
            begun_ns = cluster.world.now_ns()
            await follower.fetch(wanted(), replica_state=ReplicaState(replica_id=2))
            assert follower.session_id > 0
            await waiting
            assert consumer.session_id == 0
            assert cluster.world.now_ns() - begun_ns < 10_000_000
            await cluster.produce(1, "a")
            assert named(await consumer.fetch(wanted(), session_epoch=0)) == {0: ["a"]}

    run(scenario, max_incremental_fetch_session_cache_slots="1")


async def answer(result: FetchResponse | Awaitable[FetchResponse]) -> FetchResponse:
    """Returns what the handler has returned, at once or later."""
    return result if isinstance(result, FetchResponse) else await result


def test_a_client_that_begins_a_session_with_every_fetch_leaves_nothing_behind() -> None:
    """It names the session before each time, or leaves it to the cache to drop it. The connection remembers the session that
    is left, and no other."""

    class Connection:
        def __init__(self) -> None:
            self.callbacks: list[Callable[[Any], None]] = []

        def done(self) -> bool:
            return False

        def add_done_callback(self, callback: Callable[[Any], None], /) -> None:
            self.callbacks.append(callback)

        def remove_done_callback(self, callback: Callable[[Any], None], /) -> int:
            self.callbacks.remove(callback)
            return 1

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        broker, sessions, connection = cluster[1], fetch_sessions(1), Connection()
        handler = FetchHandler(
            broker.env, broker.replicas, response_bytes_max=1000, sessions=sessions, light_tasks=LightTasks()
        )
        sent = replace(context(ApiKey.FETCH, 17), client_gone=connection)
        session_id = 0
        for _ in range(3):
            topics = [FetchTopic(topic_id=TOPIC, partitions=[wanted()])]
            request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=0, topics=topics)
            await answer(handler.handle(sent, request))
            # The cache drops the session before only after some time.
            await cluster.world.sleep(130)
            session_id = (await answer(handler.handle(sent, replace(request, session_id=0)))).session_id
            assert session_id > 0
            assert (len(sessions), len(connection.callbacks)) == (1, 1)

    run(scenario)


def test_a_session_does_not_keep_the_request_that_began_it() -> None:
    """A session may live for months. The frame of its first request, which is as large as the client likes, must not stay in
    memory so long. Neither must the answer, which keeps the segments' files open."""

    class Kept(bytearray):
        """Memory whose end can be noticed."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        broker, sessions = cluster[1], fetch_sessions(1)
        handler = FetchHandler(
            broker.env, broker.replicas, response_bytes_max=1000, sessions=sessions, light_tasks=LightTasks()
        )
        frame = Kept(b"frame")
        kept = weakref.ref(frame)
        sent = replace(context(ApiKey.FETCH, 17), request_bytes=memoryview(frame))
        topics = [FetchTopic(topic_id=TOPIC, partitions=[wanted()])]
        await answer(handler.handle(sent, FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics)))
        del sent, frame
        assert len(sessions) == 1
        assert kept() is None

    run(scenario)


@pytest.mark.parametrize(
    ("partitions", "replica_id", "expected_bytes"),
    [(ELEMENTS_PER_SLICE, -1, 0), (ELEMENTS_PER_SLICE + 1, -1, 12345), (ELEMENTS_PER_SLICE + 1, 2, 0)],
)
def test_a_request_of_a_large_session_counts_as_what_it_may_answer(
    partitions: int, replica_id: int, expected_bytes: int
) -> None:
    """As if it named all partitions. A consumer that reads no answers may pipeline such requests, a follower does not."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        broker, memory = cluster[1], NoMemory()
        handler = FetchHandler(
            broker.env, broker.replicas, response_bytes_max=1000, sessions=fetch_sessions(1), light_tasks=LightTasks()
        )
        follower = ReplicaState(replica_id=replica_id)
        topics = [FetchTopic(topic_id=TOPIC, partitions=[wanted(index) for index in range(partitions)])]
        first = FetchRequest(max_wait_ms=0, replica_state=follower, session_epoch=0, topics=topics)
        session_id = (await answer(handler.handle(context(ApiKey.FETCH, 17), first))).session_id
        second = FetchRequest(max_wait_ms=0, max_bytes=12345, replica_state=follower, session_id=session_id, session_epoch=1)
        await answer(handler.handle(context(ApiKey.FETCH, 17, memory=memory), second))
        assert memory.expected_bytes == expected_bytes

    run(scenario)


def test_a_session_that_grows_beyond_all_room_is_not_found() -> None:
    """The client starts over, and fetches without a session from then on."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=3)
        broker = cluster[1]
        sessions: FetchSessions = FetchSessionCache(9, on_removed=FetchSession.close, partitions_max=2)
        handler = FetchHandler(
            broker.env, broker.replicas, response_bytes_max=1000, sessions=sessions, light_tasks=LightTasks()
        )

        async def fetch(*indexes: int, session_id: int = 0, session_epoch: int = 0) -> FetchResponse:
            topics = [FetchTopic(topic_id=TOPIC, partitions=[wanted(index) for index in indexes])]
            request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=session_epoch, topics=topics)
            response: FetchResponse = await answer(handler.handle(context(ApiKey.FETCH, 17), request))
            return response

        session_id = (await fetch(0)).session_id
        assert (await fetch(1, session_id=session_id, session_epoch=1)).session_id == session_id
        grown = await fetch(2, session_id=session_id, session_epoch=2)
        assert (grown.error_code, grown.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert (len(sessions), sessions.partitions) == (0, 0)
        assert not any(len(broker.partition(index).fetch_watchers) for index in range(3))
        assert named(await fetch(0, 1, 2)) == {0: [], 1: [], 2: []}
        assert not len(sessions)

    run(scenario)


@pytest.mark.parametrize("last_epoch", [-1, 0])
def test_a_session_ends_at_the_wish_of_the_client(last_epoch: int) -> None:
    """Epoch -1 ends the session without a new one, epoch 0 with a new one. Both get a full answer."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(wanted(0))
            former = session.session_id
            assert named(await session.fetch(wanted(1), session_epoch=last_epoch)) == {1: []}
            assert (session.session_id == 0) == (last_epoch == -1)
            response = await session.send(FetchRequest(session_id=former, session_epoch=1))
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert len(cluster[1].partition(0).fetch_watchers) == 0

    run(scenario)


def test_a_session_ends_with_its_connection() -> None:
    """Nothing of the session is left, also if its fetch waits for a minute."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(wanted(0))
            waiting = asyncio.ensure_future(session.fetch(max_wait_ms=60_000, min_bytes=1))
            await cluster.world.sleep(1)
        with pytest.raises(ChannelError):
            await waiting
        await cluster.world.sleep(1)
        assert len(cluster[1].partition(0).fetch_watchers) == 0
        async with client(cluster) as other:
            response = await other.send(FetchRequest(session_id=session.session_id, session_epoch=1))
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def test_a_session_that_ends_between_two_slices_confirms_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower may have begun another session meanwhile. If the old one counted after it, a follower that has caught up
    would seem to lag."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2], [1, 2])
        for index in (0, 1):
            await cluster.started(index)
        cluster.world.network.cut("broker-2", "broker-1")
        sessions = fetch_sessions(slots=1)
        handler = FetchHandler(
            cluster[1].env, cluster[1].replicas, response_bytes_max=1 << 20, sessions=sessions, light_tasks=LightTasks()
        )
        ended: list[FetchSession] = []

        async def end_the_session() -> None:
            for session in list(sessions):
                ended.append(session)
                sessions.remove(session.session_id)

        monkeypatch.setattr(fetched_partitions, "ELEMENTS_PER_SLICE", 1)
        monkeypatch.setattr(fetched_partitions, "pause", end_the_session)
        topics = [FetchTopic(topic="t", topic_id=TOPIC, partitions=[wanted(0), wanted(1)])]
        replica = ReplicaState(replica_id=2, replica_epoch=NO_BROKER_EPOCH)
        request = FetchRequest(replica_state=replica, session_epoch=0, max_wait_ms=0, topics=topics)
        await answer(handler.handle(context(ApiKey.FETCH, 17), request))
        clocks = [cluster[1].partition(index).replica.followers[BrokerId(2)].clock for index in (0, 1)]
        assert [any(clock is session.clock for session in ended) for clock in clocks] == [True, False]

    run(scenario)


def test_a_session_without_partitions_ends() -> None:
    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster)
        async with client(cluster) as session:
            await session.fetch(wanted(0))
            former = session.session_id
            assert named(await session.fetch(forgotten=(0,), max_wait_ms=30_000, min_bytes=1)) == {}
            assert session.session_id == 0
            response = await session.send(FetchRequest(session_id=former, session_epoch=2))
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def test_without_a_slot_every_answer_is_full() -> None:
    """The second consumer gets no session, and loses nothing by it."""

    async def scenario(cluster: Cluster) -> None:
        await one_broker(cluster, partitions=1)
        await cluster.produce(1, "a")
        async with client(cluster) as first, client(cluster) as second:
            await first.fetch(wanted())
            assert named(await second.fetch(wanted())) == {0: ["a"]}
            assert (first.session_id > 0, second.session_id) == (True, 0)

    run(scenario, max_incremental_fetch_session_cache_slots="1")
