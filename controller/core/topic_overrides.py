"""Which values of a topic a request may set (core).

Every node applies them. So where brokers of Apache Kafka may join, they must be valid for these as well: a broker of Apache
Kafka 4 creates no log of a topic whose segment.bytes is too small for it (KIP-1030), and does not start any more.
"""

from collections.abc import Mapping
from typing import Final

from common.configuration.settings import ConfigError
from common.configuration.topic import validate_topic_overrides
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, numbering_of_level
from common.metadata.state import MetadataState
from common.protocol.numbering import Numbering

_SEGMENT_BYTES: Final = "segment.bytes"
_APACHE_SEGMENT_BYTES_MIN: Final = 1024 * 1024


def validate_overrides(state: MetadataState, overrides: Mapping[str, str | None], before: Mapping[str, str]) -> None:
    """Validates what a topic is to have after a request. `before` is what it has. Raises ConfigError."""
    validate_topic_overrides(overrides)
    size = overrides.get(_SEGMENT_BYTES)
    if size is None or size == before.get(_SEGMENT_BYTES):
        return
    if int(size) < _APACHE_SEGMENT_BYTES_MIN and _may_have_apache_brokers(state):
        raise ConfigError(
            f"{_SEGMENT_BYTES}={size} is not valid; brokers of Apache Kafka may join this cluster, and take at least "
            f"{_APACHE_SEGMENT_BYTES_MIN}"
        )


def _may_have_apache_brokers(state: MetadataState) -> bool:
    return numbering_of_level(state.features.get(DIRECTORY_NUMBERING_FEATURE, 0)) is Numbering.APACHE
