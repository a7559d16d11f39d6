"""The assignor `uniform`: every member gets equally many partitions, and keeps what it has where that allows it (core).

Counterpart of Kafka's UniformAssignor. Balance comes before stickiness.

* All members have the same subscription: the loads differ by one at most. The members with the greatest loads are those that
  keep one more, so no partition moves only because of the order of the members. Kafka takes them in no particular order.
* Subscriptions differ: each unassigned partition goes to its least loaded subscriber, topics with the fewest
  alternatives first. Then partitions move from a topic's most loaded subscriber to its least loaded one, until no move makes
  the two more even, or the topics have been gone through ROUNDS_MAX times.

Two members may have the same partition so far: the log of an assignment may end between its batches, with the new target of
the one and the old target of the other. Only one of them keeps it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from broker.coordinator.core.consumer_group.assignment import Assignment
from broker.coordinator.core.consumer_group.assignor import MemberSpec, is_homogeneous
from common.ids import TopicId

# Where subscriptions overlap without being equal, a move for one topic may unbalance another. Each round roughly halves what
# is left. Kafka has the same limit.
ROUNDS_MAX: Final = 16

_Partition = tuple[TopicId, int]


def assign_uniformly(members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    """See Assignor."""
    if not members:
        return {}
    if is_homogeneous(members):
        return _assign_equally(members, partition_counts)
    return _Balancing(members, partition_counts).assignment()


def _assign_equally(members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    topics = sorted(next(iter(members.values())).topics, key=bytes)
    kept = _kept_by_all(members, partition_counts)
    each_gets, with_one_more = divmod(sum(partition_counts[each] for each in topics), len(members))
    quotas = {}
    for position, member_id in enumerate(sorted(members, key=lambda each: (-len(kept[each]), each))):
        quotas[member_id] = each_gets + (position < with_one_more)
        del kept[member_id][quotas[member_id] :]
    taken = {partition for partitions in kept.values() for partition in partitions}
    free = iter(
        [(topic, index) for topic in topics for index in range(partition_counts[topic]) if (topic, index) not in taken]
    )
    for member_id in sorted(members):
        partitions = kept[member_id]
        while len(partitions) < quotas[member_id]:
            partitions.append(next(free))
    assert next(free, None) is None
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


class _Balancing:
    """One assignment to members whose subscriptions differ."""

    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]) -> None:
        self._counts = partition_counts
        self._subscribers: defaultdict[TopicId, list[str]] = defaultdict(list)
        self._loads = dict.fromkeys(sorted(members), 0)
        for member_id in self._loads:
            for topic_id in members[member_id].topics:
                self._subscribers[topic_id].append(member_id)
        # The owner of each partition.
        self._owners: dict[TopicId, dict[int, str]] = {topic_id: {} for topic_id in self._subscribers}
        for member_id in self._loads:
            for topic_id, index in _kept(members[member_id], partition_counts):
                self._give(topic_id, index, member_id)

    def assignment(self) -> dict[str, Assignment]:
        topics = sorted(self._subscribers, key=self._rank)
        for topic_id in topics:
            self._assign_free(topic_id)
        contested = [each for each in topics if len(self._subscribers[each]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum([self._balance(each) for each in contested]):
                break
        partitions: dict[str, list[_Partition]] = {member_id: [] for member_id in self._loads}
        for topic_id, owners in self._owners.items():
            for index, member_id in owners.items():
                partitions[member_id].append((topic_id, index))
        return {member_id: _by_topic(each) for member_id, each in partitions.items()}

    def _rank(self, topic_id: TopicId) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscribers, subscribers, bytes(topic_id)

    def _give(self, topic_id: TopicId, index: int, member_id: str) -> None:
        former = self._owners[topic_id].get(index)
        if former is not None:
            self._loads[former] -= 1
        self._owners[topic_id][index] = member_id
        self._loads[member_id] += 1

    def _assign_free(self, topic_id: TopicId) -> None:
        if len(self._owners[topic_id]) == self._counts[topic_id]:
            return
        least = self._heap(topic_id)
        for index in range(self._counts[topic_id]):
            if index not in self._owners[topic_id]:
                load, member_id = heappop(least)
                self._give(topic_id, index, member_id)
                heappush(least, (load + 1, member_id))

    def _balance(self, topic_id: TopicId) -> int:
        """Moves partitions of one topic, and returns how many."""
        moves = 0
        if self._is_balanced(topic_id):
            # In the end nearly every topic is balanced. This check takes a tenth of the time of sorting all its subscribers.
            return moves
        owned: dict[str, list[int]] = {}
        for index, member_id in sorted(self._owners[topic_id].items()):
            owned.setdefault(member_id, []).append(index)
        least = self._heap(topic_id)
        most = [(-self._loads[member_id], member_id) for member_id in owned]
        heapify(most)
        while most:
            load, giver = -most[0][0], most[0][1]
            if load != self._loads[giver] or not owned[giver]:
                # The entry is of before a move, or the member has nothing of this topic left to give.
                heappop(most)
                continue
            while least[0][0] != self._loads[least[0][1]]:
                heappop(least)
            taker = least[0][1]
            if load - self._loads[taker] <= 1:
                break
            self._give(topic_id, owned[giver].pop(), taker)
            moves += 1
            heappush(least, (self._loads[giver], giver))
            heappush(least, (self._loads[taker], taker))
            heappush(most, (-self._loads[giver], giver))
        return moves

    def _is_balanced(self, topic_id: TopicId) -> bool:
        loads = self._loads
        least = min([loads[member_id] for member_id in self._subscribers[topic_id]])
        return all(loads[member_id] <= least + 1 for member_id in self._owners[topic_id].values())

    def _heap(self, topic_id: TopicId) -> list[tuple[int, str]]:
        heap = [(self._loads[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapify(heap)
        return heap


def _kept_by_all(members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, list[_Partition]]:
    """Returns what each member has. Of a partition that several have, the first member counts."""
    taken: set[_Partition] = set()
    kept = {}
    for member_id in sorted(members):
        kept[member_id] = [each for each in _kept(members[member_id], partition_counts) if each not in taken]
        taken.update(kept[member_id])
    return kept


def _kept(member: MemberSpec, partition_counts: Mapping[TopicId, int]) -> list[_Partition]:
    """Returns what the member has of its topics, in a fixed order."""
    return [
        (topic_id, index)
        for topic_id in sorted(member.current, key=bytes)
        if topic_id in member.topics
        for index in sorted(member.current[topic_id])
        if index < partition_counts[topic_id]
    ]


def _by_topic(partitions: Iterable[_Partition]) -> Assignment:
    found: dict[TopicId, set[int]] = {}
    for topic_id, index in partitions:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
