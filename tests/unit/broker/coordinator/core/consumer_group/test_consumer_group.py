"""What a change of a member costs its group."""

from dataclasses import replace

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from broker.coordinator.core.consumer_group.topic_subscribers import TopicSubscribers

TOPICS = frozenset(f"topic{number}" for number in range(20))


class CountedSubscribers(TopicSubscribers):
    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, topic: str, group_id: str) -> None:
        self.changes += 1
        super().add(topic, group_id)

    def remove(self, topic: str, group_id: str) -> None:
        self.changes += 1
        super().remove(topic, group_id)


def test_a_member_that_only_owns_something_else_is_not_subscribed_anew() -> None:
    """It may be subscribed to every topic of the cluster, and each heartbeat of a rebalance changes what it owns."""
    subscribers = CountedSubscribers()
    group = ConsumerGroup("g", subscribers)
    group.set_epoch(3, 0)
    member = ConsumerMember(member_id="a", topic_names=frozenset(["t"]), topic_regex="topic.*")
    group.put_member(member)
    group.resolve("topic.*", TOPICS)
    assert subscribers.changes == 21
    for epoch in (1, 2, 3):
        group.put_member(replace(member, epoch=epoch))
    assert subscribers.changes == 21
    group.check()
    group.put_member(replace(member, topic_regex=None))
    assert ({*group.subscribed_topics}, {*group.regexes}) == ({"t"}, set())
    group.remove_member("a")
    assert ({*group.subscribed_topics}, {*group.regexes}) == (set(), set())
