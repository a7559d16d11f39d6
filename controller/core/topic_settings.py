"""The topic settings that the controller needs (core).

The resolver gives them as this node sees them: a topic's own setting, else the dynamic configuration of this node or of all
brokers, else this node's server.properties. Topic configuration is stored by topic *name*, as in Kafka's records.
"""

from common.metadata.state import MetadataState
from common.records.metadata_records import ConfigResourceType
from controller.core.settings import ControllerSettings

UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


def is_unclean_election_enabled(state: MetadataState, topic_name: str, settings: ControllerSettings) -> bool:
    """Whether a replica outside the ISR may lead this topic's partitions when no ISR member can."""
    overrides = state.config(ConfigResourceType.TOPIC, topic_name)
    value = settings.resolver.topic_synonyms(state, overrides, UNCLEAN_LEADER_ELECTION_ENABLE)[0].value
    return value is not None and value.strip().lower() == "true"
