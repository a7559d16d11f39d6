"""The directories that clients prefer for replicas which are still to come."""

from broker.core.preferred_directories import NAMES_MAX, PreferredDirectories
from common.ids import TopicIdPartition
from tests.unit.common.metadata.builders import directory, level, replay, topic, topic_id

A, B = directory(1), directory(2)
P0 = TopicIdPartition(topic_id(1), 0)


def test_the_first_log_of_a_name_uses_the_preference_up() -> None:
    """The topic is created after the preference. What a client prefers for the partition later overrules it."""
    state = replay(level(21))
    preferred = PreferredDirectories(state)
    preferred.prefer_by_name("other", 0, B)
    name = replay(level(21), topic(1)).topics[topic_id(1)].name
    preferred.prefer_by_name(name, 0, A)
    assert preferred.of(P0) is None
    replay(topic(1), into=state)
    assert preferred.of(P0) == A
    preferred.prefer(P0, B)
    assert preferred.of(P0) == B
    preferred.forget(P0)
    assert preferred.of(P0) is None
    preferred.prefer_by_name(name, 0, A)
    preferred.prefer_by_name(name, 0, None)
    assert preferred.of(P0) is None


def test_names_are_bounded() -> None:
    """A client may name partitions that never come. The oldest is forgotten first; naming one again makes it the newest."""
    state = replay(level(21), topic(1))
    name = state.topics[topic_id(1)].name
    preferred = PreferredDirectories(state)
    for index in (0, 1, 0):
        preferred.prefer_by_name(name, index, A)
    for index in range(NAMES_MAX - 1):
        preferred.prefer_by_name("flood", index, B)
    assert preferred.of(P0) == A
    assert preferred.of(TopicIdPartition(topic_id(1), 1)) is None
    preferred.prefer_by_name("flood", NAMES_MAX, B)
    assert preferred.of(P0) is None
