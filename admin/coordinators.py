"""How an AdminClient asks which broker coordinates a group (core)."""

from typing import Final

from common.protocol.errors import ErrorCode
from common.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

# The first version that takes a list of keys. Kafka serves it since release 3.0.
FIND_COORDINATOR_VERSION: Final = 4
_GROUP_KEY: Final = 0


def coordinator_request(group_id: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=[group_id])


def coordinator_error(response: FindCoordinatorResponse) -> tuple[int, str | None]:
    """Returns the error of the only key that was asked for."""
    if len(response.coordinators) != 1:
        return ErrorCode.UNKNOWN_SERVER_ERROR, f"the response names {len(response.coordinators)} coordinators instead of one"
    found = response.coordinators[0]
    # Brokers before Kafka 2.6 fill in "NONE".
    return found.error_code, found.error_message if found.error_code != ErrorCode.NONE else None
