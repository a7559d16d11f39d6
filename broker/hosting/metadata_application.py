"""Brings the replicas in line with the newest metadata (shell).

Counterpart of Kafka's BrokerMetadataPublisher and ReplicaManager.applyDelta, as far as replicas are concerned. A delta only
says which replicas to look at: each of them is decided about by the newest metadata (`Reconciliation.reconcile`), or takes
over what has changed of its topic's configuration or of the brokers. All of this is done in slices, and replicas may come
and go in between (`Hosted.each_served`).
"""

from collections.abc import Callable, Iterator

from broker.core.current_configuration import CurrentConfiguration
from broker.core.hosted_replicas import HostedReplicas
from broker.core.partition_replica import Role
from broker.hosting.hosted import Hosted
from broker.hosting.partition import Partition
from common.ids import BrokerEpoch, TopicIdPartition
from common.metadata.delta import MetadataDelta
from common.metadata.state import MetadataState
from common.records.metadata_records import ConfigResourceType


class MetadataApplication:
    """See the module docstring. `reconcile` decides about one replica, `follow` finds the address of its leader again."""

    def __init__(
        self,
        state: MetadataState,
        configuration: CurrentConfiguration,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        known: HostedReplicas,
        hosted: Hosted,
        reconcile: Callable[[TopicIdPartition], None],
        follow: Callable[[Partition], None],
    ) -> None:
        self._state = state
        self._configuration = configuration
        self._broker_epoch = broker_epoch
        self._known = known
        self._hosted = hosted
        self._reconcile = reconcile
        self._follow = follow
        # Whether a delta was applied. Set once.
        self._has_applied = False
        # Whether the defaults of topics have changed since the last delta was applied.
        self._have_defaults_changed = False
        configuration.subscribe(self._topic_defaults_changed)

    def logs_loaded(self) -> None:
        """Notes that all replicas here have the newest configuration."""
        self._have_defaults_changed = False

    def apply(self, delta: MetadataDelta) -> Iterator[None]:
        """Brings the replicas in line with the state, and yields after each. `delta` holds what has changed since the last
        call. The state may change further before the end; a later delta holds that."""
        self._known.metadata_changed(delta, broker_epoch=self._broker_epoch(), hosted=self._hosted.partitions)
        if self._have_defaults_changed:
            self._have_defaults_changed = False
            yield from self._take_over_defaults()
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC:
                yield from self._topic_config_changed(name)
        # What goes comes first: a new topic may have the name of an old one, and a log is renamed by the name of its folder.
        for topic_id, topic in delta.removed_topics.items():
            for index in topic.partitions:
                self._reconcile(TopicIdPartition(topic_id, index))
                yield
        if not self._has_applied:
            self._has_applied = True
            yield from self._forget_topics_that_went_during_the_start()
        for key in delta.changed_partitions:
            self._reconcile(key)
            yield
        if delta.changed_brokers:
            yield from self._brokers_changed(delta)

    def _forget_topics_that_went_during_the_start(self) -> Iterator[None]:
        """Deletes the replicas that the metadata no longer places here, even if the first delta does not mention them. A
        topic deleted after its logs were loaded is missing from that delta if the delta also contains its creation."""
        for key in [key for key in self._hosted.partitions if self._known.placed_here(key) is None]:
            self._reconcile(key)
            yield

    def _brokers_changed(self, delta: MetadataDelta) -> Iterator[None]:
        for partition in self._hosted.each_served(list(self._hosted.partitions.values())):
            partition.brokers_changed()
            if partition.replica.role is Role.FOLLOWER and partition.replica.leader in delta.changed_brokers:
                self._follow(partition)
            yield

    def _topic_config_changed(self, topic: str) -> Iterator[None]:
        topic_id = self._state.topic_ids.get(topic)
        if topic_id is None:
            return
        # Only the replicas of this topic are looked up: the first delta after a start names all topics.
        keys = [TopicIdPartition(topic_id, index) for index in self._state.topics[topic_id].partitions]
        config = self._configuration.topic(topic)
        partitions = self._hosted.partitions
        for partition in self._hosted.each_served([partitions[key] for key in keys if key in partitions]):
            partition.set_config(config)
            yield

    def _topic_defaults_changed(self) -> None:
        """Notes that every replica needs its configuration again. The change of the metadata is about to be applied."""
        self._have_defaults_changed = True

    def _take_over_defaults(self) -> Iterator[None]:
        partitions = list(self._hosted.partitions.values())
        configs = {topic: self._configuration.topic(topic) for topic in {each.topic for each in partitions}}
        for partition in self._hosted.each_served(partitions):
            partition.set_config(configs[partition.topic])
            yield
