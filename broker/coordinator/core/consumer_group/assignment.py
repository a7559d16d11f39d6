"""Sets of partitions by topic, and their form in messages and records (core)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from common.ids import TopicId
from common.protocol.schema import Uuid

# Invariant: no set is empty.
Assignment = Mapping[TopicId, frozenset[int]]

NOTHING: Assignment = {}

# An epoch for each of some partitions.
Epochs = Mapping[TopicId, Mapping[int, int]]


class _TopicPartitions(Protocol):
    topic_id: Uuid
    partitions: list[int]


_Wire = TypeVar("_Wire")


def from_wire(topics: Iterable[_TopicPartitions]) -> Assignment:
    """Reads a list of topics from a message or a record."""
    found: dict[TopicId, frozenset[int]] = {}
    for each in topics:
        if each.partitions:
            topic_id = TopicId(each.topic_id)
            found[topic_id] = found.get(topic_id, frozenset()).union(each.partitions)
    return found


def to_wire(assignment: Assignment, struct: Callable[..., _Wire]) -> list[_Wire]:
    """Returns one `struct` for each topic, in the order of their ids."""
    return [
        struct(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(assignment.items(), key=lambda item: bytes(item[0]))
    ]


def epochs_of(assignment: Assignment, epoch: int, known: Epochs | None = None) -> Epochs:
    """Returns the epoch of each partition: the one that is known, or else `epoch`."""
    known = known or {}
    return {
        topic_id: {index: known.get(topic_id, {}).get(index, epoch) for index in partitions}
        for topic_id, partitions in assignment.items()
    }


def is_subset(owned: Assignment, of: Assignment) -> bool:
    return all(partitions <= of.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def union(one: Assignment, other: Assignment) -> Assignment:
    return {topic_id: one.get(topic_id, frozenset()) | other.get(topic_id, frozenset()) for topic_id in {**one, **other}}


def overlap(one: Assignment, other: Assignment) -> bool:
    return any(not partitions.isdisjoint(other.get(topic_id, ())) for topic_id, partitions in one.items())
