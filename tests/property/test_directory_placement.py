"""Whatever replicas the controller places, and in whatever order, no directory gets more than its share of them.

Method: the controller's real placement draws the replicas of some topics, and each broker puts its own replicas into
directories, one at a time in a random order.
"""

import random

from hypothesis import given
from hypothesis import strategies as st

from broker.core.placement import DirectoryLoad, PlacedReplicas, ReplicaKind, choose_directory, replica_kind
from common.ids import BrokerId, DirectoryId, TopicId, TopicIdPartition, Uuid
from controller.core.placement import PlacementBroker, place_replicas


class Directories:
    """The directories of one broker, each with enough free space for any replica."""

    def __init__(self, broker_id: BrokerId, usable_bytes: list[int]) -> None:
        self._broker_id = broker_id
        self._loads = [
            DirectoryLoad(
                directory_id=DirectoryId(Uuid(number.to_bytes(16))),
                replicas=PlacedReplicas(),
                usable_bytes=usable,
                free_inodes=0,
            )
            for number, usable in enumerate(usable_bytes)
        ]

    def place(self, topic_id: TopicId, index: int, replicas: tuple[BrokerId, ...]) -> None:
        kind = replica_kind(self._broker_id, replicas)
        chosen = choose_directory(self._loads, kind, usable_bytes_min=0, free_inodes_min=100)
        [load] = [load for load in self._loads if load.directory_id == chosen]
        load.replicas.place(TopicIdPartition(topic_id, index), kind)

    def counts(self, kind: ReplicaKind) -> list[int]:
        return [load.replicas.count(kind) for load in self._loads]


BROKERS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
    min_size=1,
    max_size=6,
)


@given(brokers=BROKERS, topics=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 6)), max_size=4), rng=st.randoms())
def test_each_kind_of_replica_is_spread_evenly(
    brokers: list[tuple[str | None, list[int]]], topics: list[tuple[int, int]], rng: random.Random
) -> None:
    """After each topic, the directories of a broker differ by at most one preferred leader and by at most one follower."""
    registered = [PlacementBroker(BrokerId(number), rack, is_usable=True) for number, (rack, _) in enumerate(brokers)]
    hosts = [Directories(BrokerId(number), usable_bytes) for number, (_, usable_bytes) in enumerate(brokers)]
    for number, (partitions, factor) in enumerate(topics):
        placed = place_replicas(registered, partitions=partitions, replication_factor=min(factor, len(brokers)), rng=rng)
        assignments = [(index, broker_id) for index, replicas in enumerate(placed) for broker_id in replicas]
        rng.shuffle(assignments)
        for index, broker_id in assignments:
            hosts[broker_id].place(TopicId(Uuid(number.to_bytes(16))), index, placed[index])
        for host in hosts:
            for kind in ReplicaKind:
                counts = host.counts(kind)
                assert max(counts) - min(counts) <= 1, (kind, counts)
