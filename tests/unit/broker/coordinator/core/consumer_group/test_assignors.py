"""The server-side assignors: whole assignments by table, and what must hold for any group."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.core.consumer_group import uniform_assignor
from broker.coordinator.core.consumer_group.assignment import NOTHING
from broker.coordinator.core.consumer_group.assignor import MemberSpec
from broker.coordinator.core.consumer_group.assignors import ASSIGNORS
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import numbers, topic_id

Shown = dict[str, dict[int, list[int]]]


def spec(*topics: int, instance: str | None = None, current: Mapping[int, list[int]] | None = None) -> MemberSpec:
    now = {topic_id(number): frozenset(partitions) for number, partitions in (current or {}).items()}
    return MemberSpec(instance, frozenset(map(topic_id, topics)), now or NOTHING)


def assigned(name: str, members: Mapping[str, MemberSpec], *counts: int) -> Shown:
    """The nth topic has the nth count of partitions."""
    found = ASSIGNORS[name](members, {topic_id(number): count for number, count in enumerate(counts, 1)})
    return {member_id: numbers(each) for member_id, each in sorted(found.items())}


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
    [
        ({}, (), {}),
        ({"a": spec()}, (), {"a": {}}),
        # The remainder goes to the first members, for each topic alike, so equal topics are co-partitioned.
        (
            {"a": spec(1, 2), "b": spec(1, 2)},
            (3, 3),
            {"a": {1: [0, 1], 2: [0, 1]}, "b": {1: [2], 2: [2]}},
        ),
        ({"a": spec(1), "b": spec(1), "c": spec(1)}, (2,), {"a": {1: [0]}, "b": {1: [1]}, "c": {}}),
        # Static members come first, in the order of their instance ids.
        (
            {"a": spec(1), "b": spec(1, instance="2"), "c": spec(1, instance="1")},
            (3,),
            {"a": {1: [2]}, "b": {1: [1]}, "c": {1: [0]}},
        ),
        # Of a topic, only its subscribers get partitions.
        (
            {"a": spec(1), "b": spec(1, 2), "c": spec(2)},
            (3, 3),
            {"a": {1: [0, 1]}, "b": {1: [2], 2: [0, 1]}, "c": {2: [2]}},
        ),
        # What a member has does not matter.
        ({"a": spec(1, current={1: [1]}), "b": spec(1, current={1: [0]})}, (2,), {"a": {1: [0]}, "b": {1: [1]}}),
    ],
)
def test_range(members: Mapping[str, MemberSpec], counts: tuple[int, ...], expected: Shown) -> None:
    assert assigned("range", members, *counts) == expected


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
    [
        ({}, (), {}),
        ({"a": spec(), "b": spec()}, (), {"a": {}, "b": {}}),
        ({"a": spec(1, 2), "b": spec(1, 2)}, (2, 3), {"a": {1: [0, 1], 2: [0]}, "b": {2: [1, 2]}}),
        # A new member gets its share, and nothing else moves.
        ({"a": spec(1), "b": spec(1, current={1: [0, 1, 2]})}, (3,), {"a": {1: [2]}, "b": {1: [0, 1]}}),
        # The partitions of a member that is gone are shared out.
        ({"a": spec(1, current={1: [0]}), "c": spec(1, current={1: [2]})}, (4,), {"a": {1: [0, 1]}, "c": {1: [2, 3]}}),
        # A topic that is no longer subscribed to, and partitions that are no more.
        ({"a": spec(1, current={1: [0, 7], 2: [0]})}, (2,), {"a": {1: [0, 1]}}),
        # Different subscriptions: the topic with one subscriber only goes first, the other evens it out.
        (
            {"a": spec(1), "b": spec(1, 2)},
            (2, 2),
            {"a": {1: [0, 1]}, "b": {2: [0, 1]}},
        ),
        # An imbalance is taken away with as few moves as it takes.
        (
            {"a": spec(1, 2, current={1: [0, 1, 2, 3], 2: [0]}), "b": spec(1)},
            (4, 1),
            {"a": {1: [0, 1], 2: [0]}, "b": {1: [2, 3]}},
        ),
        # Two members with the same partitions, of which each is kept by one.
        (
            {"a": spec(1, current={1: [0, 1, 2, 3]}), "b": spec(1, current={1: [2, 3]})},
            (6,),
            {"a": {1: [0, 1, 2]}, "b": {1: [3, 4, 5]}},
        ),
        (
            {"a": spec(1, 2, current={1: [0, 1, 2, 3]}), "b": spec(1, current={1: [2, 3]})},
            (6, 0),
            {"a": {1: [0, 1, 4]}, "b": {1: [2, 3, 5]}},
        ),
    ],
)
def test_uniform(members: Mapping[str, MemberSpec], counts: tuple[int, ...], expected: Shown) -> None:
    assert assigned("uniform", members, *counts) == expected


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], tuple[int, ...]]:
    """Some members with any subscriptions, and a current assignment in which a few partitions have two owners."""
    counts = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)))
    member_ids = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    topics = range(1, len(counts) + 1)
    is_homogeneous = draw(st.booleans())
    common = draw(st.sets(st.sampled_from(topics)))
    current: dict[str, dict[int, list[int]]] = {member_id: {} for member_id in member_ids}
    for topic in topics:
        for index in range(counts[topic - 1] + draw(st.integers(0, 1))):
            owner = draw(st.sampled_from([None, *member_ids]))
            # In a log that ends within an assignment.
            other = draw(st.sampled_from([*[None] * 9, *member_ids]))
            for each in {owner, other}:
                if each is not None:
                    current[each].setdefault(topic, []).append(index)
    return {
        member_id: spec(
            *(common if is_homogeneous else draw(st.sets(st.sampled_from(topics)))),
            instance=draw(st.sampled_from([None, member_id.upper()])),
            current=current[member_id],
        )
        for member_id in member_ids
    }, counts


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(group=groups())
def test_every_partition_has_one_subscriber(name: str, group: tuple[dict[str, MemberSpec], tuple[int, ...]]) -> None:
    members, counts = group
    found = assigned(name, members, *counts)
    assert found.keys() == members.keys()
    owned = sorted((topic, index) for each in found.values() for topic, part in each.items() for index in part)
    subscribed = {topic for member in members.values() for topic in numbers(dict.fromkeys(member.topics, frozenset()))}
    assert owned == [(topic, index) for topic in sorted(subscribed) for index in range(counts[topic - 1])]
    for member_id, each in found.items():
        assert set(map(topic_id, each)) <= members[member_id].topics


@pytest.mark.slow
@given(group=groups())
def test_uniform_is_balanced_and_stays_as_it_is(group: tuple[dict[str, MemberSpec], tuple[int, ...]]) -> None:
    """No partition could go from a member to a subscriber with two less. Assigning again moves nothing."""
    members, counts = group
    found = assigned("uniform", members, *counts)
    loads = {member_id: sum(map(len, each.values())) for member_id, each in found.items()}
    for member_id, each in found.items():
        for topic in each:
            others = [loads[other] for other, member in members.items() if topic_id(topic) in member.topics]
            assert loads[member_id] - min(others) <= 1
    again = {
        member_id: MemberSpec(
            member.instance_id,
            member.topics,
            {topic_id(topic): frozenset(part) for topic, part in found[member_id].items()},
        )
        for member_id, member in members.items()
    }
    assert assigned("uniform", again, *counts) == found


def test_subscribers_are_sorted_only_for_what_can_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions differ. When a member joins, most topics have no partition that is free, and most are balanced. To sort
    hundreds of subscribers for each of hundreds of topics would take tenths of a second."""
    counts = (10,) * 40
    topics = range(1, len(counts) + 1)
    members = {f"m{number}": spec(*topics[number % 3 :]) for number in range(50)}
    found = assigned("uniform", members, *counts)
    heaps: list[list[object]] = []
    monkeypatch.setattr(uniform_assignor, "heapify", heaps.append)
    again = {member_id: spec(*topics[number % 3 :], current=found[member_id]) for number, member_id in enumerate(members)}
    assert assigned("uniform", again, *counts) == found
    assert heaps == []
