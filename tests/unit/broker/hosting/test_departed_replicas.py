"""What a replica that has left keeps in memory. Full garbage collections are rare by design (common/environment/entry.py),
so nothing of it may be part of a reference cycle."""

import errno
import gc
import weakref
from collections.abc import Iterator

import pytest

from common.protocol.errors import ErrorCode
from common.records.metadata_records import FeatureLevelRecord
from tests.unit.broker.cluster import Cluster, directory, path, run

VALUES_PER_PARTITION = 6
# Longer than file.delete.delay.ms, whose timers may hold a log.
REMOVAL_SECONDS = 90


@pytest.fixture(autouse=True)
def without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def parts_of(cluster: Cluster, *replicas: tuple[int, int]) -> dict[str, weakref.ref[object]]:
    """Returns weak references to the partition and the log of each replica, given as broker and index."""
    parts: dict[str, weakref.ref[object]] = {}
    for broker_id, index in replicas:
        partition = cluster[broker_id].partition(index)
        parts[f"partition {index} of broker {broker_id}"] = weakref.ref(partition)
        parts[f"log {index} of broker {broker_id}"] = weakref.ref(partition.log)
    return parts


def remaining(parts: dict[str, weakref.ref[object]]) -> list[str]:
    return [name for name, part in parts.items() if part() is not None]


async def replicated_topic(cluster: Cluster) -> None:
    """Starts two brokers and a topic of two partitions, one led by each. Both have several segments, and were produced to,
    replicated and read."""
    for broker_id in (1, 2):
        await cluster.start(broker_id, "ab")
    cluster.controller.create_topic([1, 2], [2, 1], configs={"segment.bytes": "200"})
    for index in (0, 1):
        await cluster.started(index)
        for number in range(VALUES_PER_PARTITION):
            assert (await cluster.produce(1 + index, f"v{number}", index=index)).error_code == ErrorCode.NONE
        assert await cluster.read_all(1 + index, index=index) == ["v0", "v1"]


async def all_freed(cluster: Cluster, parts: dict[str, weakref.ref[object]]) -> None:
    await cluster.world.sleep(REMOVAL_SECONDS)
    assert remaining(parts) == []


def test_a_deleted_topic_leaves_no_reference_cycles() -> None:
    """The partitions and logs of leaders and followers are freed as soon as the deletion is done."""

    async def scenario(cluster: Cluster) -> None:
        await replicated_topic(cluster)
        parts = parts_of(cluster, (1, 0), (1, 1), (2, 0), (2, 1))
        cluster.controller.remove_topic()
        await all_freed(cluster, parts)

    run(scenario)


def test_a_reassigned_replica_leaves_no_reference_cycles() -> None:
    """The partition stays on the other broker, which goes on serving it."""

    async def scenario(cluster: Cluster) -> None:
        await replicated_topic(cluster)
        parts = parts_of(cluster, (2, 0))
        cluster.controller.change(0, replicas=[1], isr=[1])
        await all_freed(cluster, parts)
        assert cluster[1].leads(0)

    run(scenario)


def test_deleted_segments_leave_no_reference_cycles() -> None:
    """The timers that remove the files of deleted segments hold the log no longer than they wait."""

    async def scenario(cluster: Cluster) -> None:
        await replicated_topic(cluster)
        parts = parts_of(cluster, (1, 0), (2, 0))
        leader = cluster[1].partition(0)
        leader.raise_log_start(leader.high_watermark)
        await leader.delete_expired()
        assert len(leader.log.segment_base_offsets) == 1
        del leader
        cluster.controller.remove_topic()
        await all_freed(cluster, parts)

    run(scenario)


def test_the_former_log_of_a_moved_replica_leaves_no_reference_cycles() -> None:
    """The log goes alone; its partition stays and has another one."""

    async def scenario(cluster: Cluster) -> None:
        cluster.controller.commit(FeatureLevelRecord(name="metadata.version", feature_level=21))
        await replicated_topic(cluster)
        partition = cluster[1].partition(0)
        source, follower = partition.directory_id, cluster[2].partition(0).directory_id
        letter = "b" if source == directory(1, "a") else "a"
        target = directory(1, letter)
        cluster.controller.change(0, directories=[source, follower])
        former = weakref.ref(partition.log)
        assert cluster[1].replicas.log_dir_alteration.alter("t", 0, path(1, letter)) is ErrorCode.NONE
        await cluster.until(lambda: cluster[1].replicas.wished_assignments().get(partition.key) == target)
        cluster.controller.change(0, directories=[target, follower])
        await cluster.until(lambda: partition.directory_id == target)
        await cluster.world.sleep(REMOVAL_SECONDS)
        assert former() is None

    run(scenario)


def test_replicas_of_a_failed_directory_leave_no_reference_cycles() -> None:
    """Their logs are not closed, because nothing can be written any more."""

    async def scenario(cluster: Cluster) -> None:
        await replicated_topic(cluster)
        where = cluster[1].partition(0).directory_id
        indexes = [index for index in (0, 1) if cluster[1].partition(index).directory_id == where]
        parts = parts_of(cluster, *((1, index) for index in indexes))
        letter = "a" if where == directory(1, "a") else "b"
        cluster.world.disk(path(1, letter)).fail_with(errno.EIO)
        assert (await cluster.produce(1, "lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await all_freed(cluster, parts)

    run(scenario)
