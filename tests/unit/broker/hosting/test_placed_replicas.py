"""Which directory a broker chooses for each replica. Its counts of replicas must stay correct whatever happens to a
replica."""

import errno
import random
from collections import Counter

import pytest

from common.ids import BrokerId, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import UNASSIGNED
from controller.core.placement import PlacementBroker, place_replicas
from tests.simulation.checkers.placement import miscounts
from tests.unit.broker.cluster import TOPIC, Cluster, directory, path, run

OTHER = TopicId(Uuid(b"O" * 16))


def assert_counted(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        assert list(miscounts(broker.replicas)) == []


def leaders_by_disk(cluster: Cluster, broker_id: int, topic_id: TopicId = TOPIC) -> list[int]:
    """Returns how many partitions with this broker as preferred leader are in each of its directories."""
    partitions = cluster.controller.state.topics[topic_id].partitions
    found = Counter(
        directory_id
        for (topic, index), directory_id in cluster[broker_id].replicas.hosted_directories().items()
        if topic == topic_id and partitions[index].replicas[0] == broker_id
    )
    return [found[directory(broker_id, letter)] for letter in cluster[broker_id].letters]


@pytest.mark.parametrize("seed", range(3))
def test_leaders_are_spread_over_the_disks(seed: int) -> None:
    """30 partitions are on three brokers with three disks each, so each broker leads ten. It must not put all ten on the
    same disk, as it once did."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id, "abc")
        brokers = [PlacementBroker(BrokerId(broker_id), None, is_usable=True) for broker_id in (1, 2, 3)]
        placed = place_replicas(brokers, partitions=30, replication_factor=3, rng=random.Random(seed))
        cluster.controller.create_topic(*placed)
        for index in range(30):
            await cluster.started(index)
        for broker_id in (1, 2, 3):
            assert sorted(leaders_by_disk(cluster, broker_id)) == [3, 3, 4]
            assert set(Counter(cluster[broker_id].replicas.hosted_directories().values()).values()) == {10}
        assert_counted(cluster)

    run(scenario)


def test_logs_that_are_being_created_count() -> None:
    """A disk hangs during its first creation of a log. It still gets its fair share of the topic's replicas, and no more,
    although it holds no log yet."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        cluster.world.disk(path(1, "a")).hang()
        cluster.controller.create_topic(*[[1]] * 6)
        await cluster.until(lambda: leaders_by_disk(cluster, 1) == [0, 2, 2])
        assert_counted(cluster)
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.until(lambda: leaders_by_disk(cluster, 1) == [2, 2, 2])
        assert_counted(cluster)

    run(scenario)


def test_deleted_and_moved_replicas_no_longer_count() -> None:
    """The next topic's replicas take the places of those deleted or moved, although the files are still on the disk."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        await cluster.start(2)
        cluster.controller.create_topic(*[[1]] * 3, name="other", topic_id=OTHER)
        cluster.controller.create_topic(*[[1, 2]] * 6)
        for index in range(6):
            await cluster.started(index)
        assert leaders_by_disk(cluster, 1) == [2, 2, 2]
        cluster.controller.remove_topic(OTHER)
        for index in (0, 3):
            cluster.controller.change(index, replicas=[2], isr=[2], leader=2, directories=[UNASSIGNED])
        assert_counted(cluster)
        assert leaders_by_disk(cluster, 1) == [0, 2, 2]
        cluster.controller.create_topic([1], [1], name="other", topic_id=OTHER)
        await cluster.started(0, OTHER)
        await cluster.started(1, OTHER)
        assert leaders_by_disk(cluster, 1, OTHER) == [2, 0, 0]
        assert_counted(cluster)

    run(scenario)


def test_another_first_replica_makes_it_another_kind() -> None:
    """Only the order of the replicas changes, not the leader. Still, one disk then counts one preferred leader more, and the
    other disk one less."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        await cluster.start(2)
        cluster.controller.create_topic([1, 2], [2, 1])
        for index in (0, 1):
            await cluster.started(index)
        hosted = cluster[1].replicas.hosted_directories()
        assert [hosted[TopicIdPartition(TOPIC, index)] for index in (0, 1)] == [directory(1, letter) for letter in "ab"]
        cluster.controller.change(0, replicas=[2, 1], directories=[UNASSIGNED] * 2)
        cluster.controller.change(1, replicas=[1, 2], directories=[UNASSIGNED] * 2)
        assert_counted(cluster)
        cluster.controller.create_topic([1], [2, 1], name="other", topic_id=OTHER)
        await cluster.started(0, OTHER)
        await cluster.started(1, OTHER)
        hosted = cluster[1].replicas.hosted_directories()
        assert [hosted[TopicIdPartition(OTHER, index)] for index in (0, 1)] == [directory(1, letter) for letter in "ab"]

    run(scenario)


def test_another_first_replica_while_the_log_is_being_created() -> None:
    """The replica loses the first place in the list while its log is being created. Before and after the creation ends, the
    replica must count as what the newest metadata says: not as a preferred leader."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        await cluster.start(2)
        cluster.world.disk(path(1, "a")).hang()
        cluster.controller.create_topic([1, 2])
        cluster.controller.change(replicas=[2, 1], directories=[UNASSIGNED] * 2)
        assert cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0))
        assert_counted(cluster)
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.until(lambda: not cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0)))
        assert_counted(cluster)

    run(scenario)


@pytest.mark.parametrize("is_topic_removed", [False, True])
def test_a_creation_that_fails_no_longer_counts(is_topic_removed: bool) -> None:
    """A creation fails for lack of file descriptors. It is tried again in the same directory, and the replica counts again.
    If the topic is removed first, there is no other attempt."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.world.disk(path(1, "a")).fail_next("open", errno.EMFILE)
        cluster.controller.create_topic([1])
        await cluster.until(lambda: not cluster[1].replicas.is_being_created(TopicIdPartition(TOPIC, 0)))
        assert cluster[1].replicas.hosted_directories() == {}
        assert_counted(cluster)
        if is_topic_removed:
            cluster.controller.remove_topic()
            await cluster.world.sleep(2)
        else:
            await cluster.started()
        assert_counted(cluster)

    run(scenario)


def test_a_topic_that_is_removed_while_its_log_is_being_created_no_longer_counts() -> None:
    """The creation ends after the topic was removed, so the log exists for a moment and is then deleted."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        disk = cluster.world.disk(path(1, "a"))
        cluster.controller.create_topic([1], [1])
        await cluster.until(lambda: "t-0" in disk.folders())
        disk.hang()
        cluster.controller.remove_topic()
        disk.thaw()
        await cluster.world.sleep(1)
        assert cluster[1].replicas.hosted_directories() == {}
        assert_counted(cluster)

    run(scenario)


def test_what_was_on_a_lost_disk_counts_nowhere() -> None:
    """No replica on a lost disk counts, neither a loaded one nor one whose log is being created. The latter go to the other
    disks and are spread evenly there."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        cluster.controller.create_topic(*[[1]] * 3, name="other", topic_id=OTHER)
        for index in range(3):
            await cluster.started(index, OTHER)
        cluster.world.disk(path(1, "a")).hang()
        cluster.controller.create_topic(*[[1]] * 6)
        await cluster.until(lambda: leaders_by_disk(cluster, 1) == [0, 2, 2])
        cluster.controller.fence(1, still="bc")
        await cluster.until(lambda: leaders_by_disk(cluster, 1) == [0, 3, 3])
        assert leaders_by_disk(cluster, 1, OTHER) == [0, 1, 1]
        assert_counted(cluster)

    run(scenario)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_loaded_logs_count(is_orderly: bool) -> None:
    """The logs loaded at a restart count, so the next leaders go to the disks with the fewest."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "abc")
        await cluster.start(2)
        cluster.controller.create_topic([1], [2, 1], [2, 1], [1])
        for index in range(4):
            await cluster.started(index)
        if is_orderly:
            await cluster.stop(1)
        else:
            cluster.crash(1)
        await cluster.start(1, "abc")
        assert_counted(cluster)
        before = leaders_by_disk(cluster, 1)
        cluster.controller.create_topic(*[[1]] * 4, name="other", topic_id=OTHER)
        for index in range(4):
            await cluster.started(index, OTHER)
        after = leaders_by_disk(cluster, 1, OTHER)
        assert [one + other for one, other in zip(before, after, strict=True)] == [2, 2, 2]
        assert_counted(cluster)

    run(scenario)
