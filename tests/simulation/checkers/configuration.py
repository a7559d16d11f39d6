"""I22: every replica uses the configuration that the metadata gives it.

Shell of the tests. For a few keys that need no parsing, this module repeats the order of precedence in its own code: the
topic, then the broker, then all brokers, then the broker's static configuration.
"""

from collections.abc import Iterator

from broker.daemon import BrokerDaemon
from common.configuration.topic import default_topic_config
from tests.simulation.checkers.image import ImageModel
from tests.simulation.checkers.replicas import hosted

# The key of a topic, the broker key that gives its default, and the field of the configuration.
KEYS = (
    ("max.message.bytes", "message.max.bytes", "max_message_bytes"),
    ("min.insync.replicas", "min.insync.replicas", "min_insync_replicas"),
    ("retention.ms", "log.retention.ms", "retention_ms"),
    ("segment.bytes", "log.segment.bytes", "segment_bytes"),
)


def misconfigured(broker_id: int, broker: BrokerDaemon, image: ImageModel) -> Iterator[str]:
    """Yields a text for every replica or log of the broker whose value differs from what the metadata says."""
    static = default_topic_config(broker._config)
    for _, partition in hosted(broker):
        for topic_key, broker_key, field in KEYS:
            set_value = image.setting(partition.topic, topic_key, broker_id, broker_key)
            expected = getattr(static, field) if set_value is None else int(set_value)
            for who, config in (("replica", partition.config), ("log", partition.log.config)):
                found = getattr(config, field)
                if found != expected:
                    yield f"{partition.name} on broker {broker_id}: the {who} has {topic_key}={found}, not {expected}"
        if partition.replica.min_insync_replicas != partition.config.min_insync_replicas:
            yield f"{partition.name} on broker {broker_id} counts with another min.insync.replicas than it is given"
