"""Random histories of a partition's life: a fetch session (KIP-227) tells its client all that fetches without one would."""

import asyncio
from random import Random

import pytest

from broker.requests import fetch, fetch_session, fetched_partitions
from common.ids import TopicId, TopicIdPartition, Uuid
from common.net.node_channel import NodeChannel
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from common.time_units import NS_PER_S
from tests.unit.broker.cluster import Cluster, run, values

PARTITIONS = 4
STEPS = 40


class Consumer:
    """Keeps what the answers of one session have told it of each partition."""

    def __init__(self, cluster: Cluster, channel: NodeChannel, rng: Random) -> None:
        self._cluster = cluster
        self._channel = channel
        self._rng = rng
        self._session_id = 0
        self._epoch = 0
        self.topic_id = TopicId(Uuid(b"%016d" % 0))
        # What it fetches, and where.
        self.offsets: dict[int, int] = {}
        self._told: dict[int, PartitionData] = {}
        # What the next request has to name.
        self._named: dict[int, None] = {}
        self._forgotten: dict[int, None] = {}

    def begin_again(self) -> None:
        """Leaves the session, as after a lost connection."""
        self._epoch = 0
        self._told.clear()

    def seek(self, index: int, offset: int) -> None:
        self.offsets[index] = offset
        self._named[index] = None
        self._forgotten.pop(index, None)

    def forget(self, index: int) -> None:
        if self.offsets.pop(index, None) is not None:
            self._named.pop(index, None)
            self._forgotten[index] = None

    async def fetch(self) -> None:
        """Fetches in the session, and compares with a fetch outside of it."""
        named = list(self.offsets if self._epoch == 0 else self._named)
        request = FetchRequest(
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=self._topics(named),
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=[*self._forgotten])]
            if self._forgotten and self._epoch
            else [],
        )
        for index in self._forgotten:
            self._told.pop(index, None)
        self._named.clear()
        self._forgotten.clear()
        response = await self._send(request)
        assert response.error_code == ErrorCode.NONE
        answers = {data.partition_index: data for topic in response.responses for data in topic.partitions}
        assert answers.keys() <= self.offsets.keys()
        self._session_id, self._epoch = response.session_id, self._epoch + 1 if response.session_id else 0
        self._told |= answers
        full = await self._send(FetchRequest(session_epoch=-1, topics=self._topics(list(self.offsets))))
        expected = {data.partition_index: data for topic in full.responses for data in topic.partitions}
        assert self._told.keys() == expected.keys()
        for index, data in expected.items():
            told = self._told[index]
            assert (told.error_code, told.high_watermark, told.last_stable_offset, told.log_start_offset) == (
                data.error_code,
                data.high_watermark,
                data.last_stable_offset,
                data.log_start_offset,
            )
            # Errors and records are repeated as long as the client does nothing about them.
            now = answers.get(index)
            assert values(now.records if now is not None else b"") == values(data.records)
            assert (ErrorCode.NONE if now is None else now.error_code) == data.error_code
            if now is not None and data.records and self._rng.random() < 0.7:
                self.seek(index, self.offsets[index] + len(values(data.records)))

    def _topics(self, indexes: list[int]) -> list[FetchTopic]:
        wanted = [
            FetchPartition(partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1 << 20)
            for index in indexes
        ]
        return [FetchTopic(topic_id=self.topic_id, partitions=wanted)] if wanted else []

    async def _send(self, request: FetchRequest) -> FetchResponse:
        deadline_ns = self._cluster.world.now_ns() + 40 * NS_PER_S
        response: FetchResponse = await self._channel.send(request, version=17, deadline_ns=deadline_ns)
        return response


async def change_something(cluster: Cluster, consumer: Consumer, rng: Random) -> None:
    """Lets something happen to one of the partitions, or to what the client wants of it."""
    index, topic_id = rng.randrange(PARTITIONS), consumer.topic_id
    partition = cluster[1].replicas.find(TopicIdPartition(topic_id, index))
    match rng.randrange(9):
        case 0 | 1 | 2:
            # Without the follower, the record stays above the high watermark until the follower is back.
            await cluster.produce(1, f"r{rng.random()}", index=index, acks=1)
        case 3:
            consumer.seek(index, rng.randrange(4))
        case 4:
            consumer.forget(index)
        case 5:
            consumer.begin_again()
        case 6 if not isinstance(partition, ErrorCode):
            partition.raise_log_start(partition.high_watermark)
        case 7:
            in_sync = cluster.controller.partition(index, topic_id).isr
            cluster.controller.change(index, topic_id=topic_id, leader=rng.choice(in_sync))
        case 8:
            is_cut = rng.random() < 0.5
            change = cluster.world.network.cut if is_cut else cluster.world.network.mend
            change("broker-1", "broker-2")
            change("broker-2", "broker-1")
        case _:
            pass


@pytest.mark.parametrize("in_slices", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_session_tells_all_that_a_fetch_without_one_would(
    seed: int, in_slices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are written and deleted, leaders change, the high watermark stops and goes on, partitions come and go. After
    each step, what the client knows from its session is what a fetch of everything answers. In slices, other things may
    happen after each partition."""
    rng = Random(seed)
    if in_slices:
        for module in (fetch, fetch_session, fetched_partitions):
            monkeypatch.setattr(module, "ELEMENTS_PER_SLICE", 1)

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        async with asyncio.TaskGroup() as group:
            node = cluster.world.node("client")
            channel = NodeChannel(node, host="broker-1", port=cluster[1].port, client_id="test", task_group=group)
            consumer = Consumer(cluster, channel, rng)
            cluster.controller.create_topic(*([[1, 2]] * PARTITIONS), topic_id=consumer.topic_id)
            for index in range(PARTITIONS):
                await cluster.started(index, consumer.topic_id)
                consumer.seek(index, 0)
            for _ in range(STEPS):
                await change_something(cluster, consumer, rng)
                if rng.random() < 0.5:
                    # The replicas agree, so that nothing changes between the two fetches.
                    await cluster.world.sleep(1)
                    await consumer.fetch()
            channel.close()

    run(scenario, seed=seed)
