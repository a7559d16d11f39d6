"""A slow disk holds up its own producers, and no others: memory for requests is budgeted per directory."""

import asyncio

import pytest

from common.protocol.errors import ErrorCode
from tests.unit.broker.cluster import Cluster, path, run
from tests.unit.broker.test_directory_failure import on_disk, two_disks

LIMIT = 4_000_000
PRODUCERS = 60
BATCH = "x" * 190_000


async def produce_to_a_slow_disk(cluster: Cluster) -> None:
    """60 producers send more to a slow disk than the memory for requests holds. Meanwhile a producer of the healthy disk is
    served as fast as ever, the memory stays bounded, and the slow disk stores what it acknowledges. At the end all memory is
    free."""
    await two_disks(cluster, partitions=2)
    [slow], [healthy] = on_disk(cluster, "a"), on_disk(cluster, "b")
    world, memory = cluster.world, cluster[1].server.memory
    memory._limit_bytes = LIMIT
    cluster.world.disk(path(1, "a")).slow_down(5000)
    codes: list[int] = []
    used_bytes: list[int] = []

    async def produce_slowly() -> None:
        codes.extend([(await cluster.produce(1, BATCH, index=slow, acks=1)).error_code for _ in range(3)])

    producers = [asyncio.ensure_future(produce_slowly()) for _ in range(PRODUCERS)]
    await world.until(lambda: memory.used_bytes > LIMIT // 2)
    for number in range(40):
        before_ns = world.now_ns()
        assert (await cluster.produce(1, f"v{number}", index=healthy, acks=1)).error_code == ErrorCode.NONE
        assert world.now_ns() - before_ns < 50_000_000, "a producer of the healthy disk was held up"
        used_bytes.append(memory.used_bytes)
    assert not all(producer.done() for producer in producers), "the slow disk was too fast for this test"
    # The limit for all requests holds as well, apart from one frame and one receive window.
    assert max(used_bytes) < LIMIT + len(BATCH) + 128 * 1024
    await asyncio.gather(*producers)
    assert set(codes) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert cluster[1].partition(slow).log.written_offset == codes.count(ErrorCode.NONE) > 0
    assert world.events_named("log_dir_suspected") == []
    await world.until(lambda: memory.used_bytes == 0)
    assert memory._waiting_bytes == {}


@pytest.mark.slow
def test_a_slow_disk_does_not_hold_up_the_producers_of_the_others() -> None:
    run(produce_to_a_slow_disk, diskraft_log_dir_operation_timeout_ms="30000")
