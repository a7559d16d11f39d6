"""The topic settings that the controller needs (core).

A setting comes from the topic's own ConfigRecord, else from the cluster-wide broker default (a ConfigRecord for the broker
with the empty name), else from server.properties. Topic configuration is stored by topic *name*, as in Kafka's records.
"""

from common.metadata.state import MetadataState
from common.records.metadata_records import ConfigResourceType
from controller.core.settings import ControllerSettings

CLUSTER_DEFAULT_NAME = ""

UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


def is_unclean_election_enabled(state: MetadataState, topic_name: str, settings: ControllerSettings) -> bool:
    """Whether a replica outside the ISR may lead this topic's partitions when no ISR member can."""
    for resource in ((ConfigResourceType.TOPIC, topic_name), (ConfigResourceType.BROKER, CLUSTER_DEFAULT_NAME)):
        value = state.configs.get(resource, {}).get(UNCLEAN_LEADER_ELECTION_ENABLE)
        if value is not None:
            return value.strip().lower() == "true"
    return settings.topic_defaults.unclean_leader_election_enable
