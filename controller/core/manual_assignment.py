"""Validates the replicas that a request specifies for a partition (core).

A broker whose directories are all cordoned is refused even if it has a replica already, as in Kafka 4.4. Counterpart of
validateManualPartitionAssignment in Kafka's ReplicationControlManager, with its messages.
"""

from collections.abc import Sequence

from common.ids import BrokerId
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode


def validate_manual_assignment(
    state: MetadataState, broker_ids: Sequence[int], replication_factor: int | None = None
) -> tuple[BrokerId, ...]:
    """Returns the replicas. They must be registered brokers that are not cordoned, without duplicates and, if
    `replication_factor` is given, as many as it says. Raises ApiError(INVALID_REPLICA_ASSIGNMENT)."""
    if not broker_ids:
        raise _invalid("an empty replica list.")
    seen: set[int] = set()
    for broker_id in sorted(broker_ids):
        if broker_id not in state.brokers:
            raise _invalid(f"broker {broker_id}, but no such broker is registered.")
        if state.brokers[BrokerId(broker_id)].is_cordoned:
            raise _invalid(f"broker {broker_id}, but all its log directories are cordoned.")
        if broker_id in seen:
            raise _invalid(f"the broker {broker_id} more than once.")
        seen.add(broker_id)
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise _invalid(
            f"a partition with {len(broker_ids)} replica(s), but this is not consistent with previous partitions, which "
            f"have {replication_factor} replica(s)."
        )
    return tuple(map(BrokerId, broker_ids))


def _invalid(what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {what}")
