"""Produce, fetch and replication between brokers, through real servers and channels on the simulated network."""

from common.protocol.errors import ErrorCode
from tests.unit.broker.cluster import Cluster, run


def test_produce_with_acks_all_is_acknowledged_when_the_isr_has_it() -> None:
    """Three brokers, one partition: the acknowledgement comes when all have written the batch, and consumers see it."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2, 3])
        await cluster.started()
        answer = await cluster.produce(1, "a", "b")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert [cluster[each].partition().log.written_offset for each in (1, 2, 3)] == [2, 2, 2]
        assert await cluster.read_all(1) == ["a", "b"]

    run(scenario)
