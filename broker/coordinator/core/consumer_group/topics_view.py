"""What consumer groups know about the topics of the cluster (core).

Counterpart of the metadata image that Kafka hands to its shards. The broker's MetadataState is such a view. It contains all
changes that the shard has been notified of, and perhaps later ones. Racks are not in it: neither assignor looks at them.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Protocol

from common.ids import TopicId


class TopicView(Protocol):
    """One topic."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> TopicId: ...

    @property
    def partitions(self) -> Collection[int]:
        """The indexes from 0 on."""


class TopicsView(Protocol):
    """All topics, by id and by name."""

    @property
    def topics(self) -> Mapping[TopicId, TopicView]: ...

    @property
    def topic_ids(self) -> Mapping[str, TopicId]: ...


class NoTopics:
    """The view of a cluster without topics."""

    topics: Mapping[TopicId, TopicView] = MappingProxyType({})
    topic_ids: Mapping[str, TopicId] = MappingProxyType({})
