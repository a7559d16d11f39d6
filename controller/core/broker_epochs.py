"""Checks the broker epoch before a request from a broker is handled (core).

Every request from a broker belongs to one incarnation of the broker. A request with another epoch was sent by an earlier
process of the broker, and was perhaps delayed in the network. It must change nothing. Counterpart of Kafka's
checkBrokerEpoch.
"""

from common.ids import BrokerId
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode


def registration_of(state: MetadataState, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """Returns the broker's registration. Raises ApiError(STALE_BROKER_EPOCH) if the broker is not registered with this
    epoch."""
    registration = state.brokers.get(BrokerId(broker_id))
    if registration is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if registration.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {registration.epoch}, not {broker_epoch}",
        )
    return registration
