"""Says which directories of this broker are cordoned: they keep their replicas and get no new ones (core, KIP-1066).

Below metadata.version 4.3-IV0 `cordoned.log.dirs` has no effect.
"""

from broker.core.current_configuration import CurrentConfiguration
from common.configuration.server import ALL_LOG_DIRS
from common.metadata.metadata_version import is_cordoning_supported
from common.metadata.state import MetadataState


def is_cordoned(path: str, configuration: CurrentConfiguration, state: MetadataState) -> bool:
    """Whether the directory at this path is cordoned."""
    cordoned = configuration.server.cordoned_log_dirs
    return is_cordoning_supported(state.metadata_version) and (path in cordoned or ALL_LOG_DIRS in cordoned)
