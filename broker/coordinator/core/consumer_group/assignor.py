"""What the server-side assignors of consumer groups work on (core). Counterpart of Kafka's GroupSpec.

An assignor is a function of the members and the topics: equal arguments give equal assignments. Topics that do not exist are
in no subscription.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.coordinator.core.consumer_group.assignment import Assignment
from common.ids import TopicId


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows of a member."""

    instance_id: str | None
    topics: frozenset[TopicId]
    current: Assignment
    """The target assignment that it has so far."""


# The members by id, and how many partitions each topic of their subscriptions has.
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[TopicId, int]], dict[str, Assignment]]


def is_homogeneous(members: Mapping[str, MemberSpec]) -> bool:
    """Whether all members are subscribed to the same topics."""
    return len({member.topics for member in members.values()}) <= 1
