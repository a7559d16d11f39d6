"""Which consumer groups of a shard are subscribed to a topic (core).

With it, a change of a topic costs work only for the groups that read it.
"""

from collections.abc import Set


class TopicSubscribers:
    """The ids of the groups by the name of the topic, which need not exist."""

    def __init__(self) -> None:
        # Invariant: no set is empty.
        self._groups: dict[str, set[str]] = {}

    def of_topic(self, topic: str) -> Set[str]:
        return self._groups.get(topic, frozenset())

    def has(self, topic: str, group_id: str) -> bool:
        return group_id in self.of_topic(topic)

    def add(self, topic: str, group_id: str) -> None:
        self._groups.setdefault(topic, set()).add(group_id)

    def remove(self, topic: str, group_id: str) -> None:
        groups = self._groups[topic]
        groups.remove(group_id)
        if not groups:
            del self._groups[topic]
