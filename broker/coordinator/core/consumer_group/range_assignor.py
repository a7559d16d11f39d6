"""The assignor `range`: of each topic, each subscriber gets partitions that follow one another (core).

Counterpart of Kafka's server-side RangeAssignor. Members are taken in one order for all topics: static members by their
instance ids, then the others by their member ids. So topics with the same subscribers and equally many partitions are
co-partitioned, and a static member that comes back under a new id keeps its ranges.
"""

from collections.abc import Mapping

from broker.coordinator.core.consumer_group.assignment import Assignment
from broker.coordinator.core.consumer_group.assignor import MemberSpec
from common.ids import TopicId


def assign_ranges(members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    """See Assignor."""
    ranges: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in members}
    subscribers: dict[TopicId, list[str]] = {}
    for member_id in sorted(members, key=lambda each: _rank(each, members[each])):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, member_ids in subscribers.items():
        each_gets, with_one_more = divmod(partition_counts[topic_id], len(member_ids))
        begin = 0
        for position, member_id in enumerate(member_ids):
            end = begin + each_gets + (position < with_one_more)
            if end > begin:
                ranges[member_id][topic_id] = frozenset(range(begin, end))
            begin = end
    return dict(ranges)


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member_id if member.instance_id is None else member.instance_id
