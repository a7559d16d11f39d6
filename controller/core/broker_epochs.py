"""The check that stands before every request of a broker (core).

A request is the word of one incarnation of a broker. One that carries another epoch comes from a process that is gone, or
from before a restart of the network's memory, and must change nothing. Answers to Kafka's checkBrokerEpoch.
"""

from common.ids import BrokerId
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode


def registration_of(state: MetadataState, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration of that broker with that epoch. Raises ApiError(STALE_BROKER_EPOCH) if there is none."""
    registration = state.brokers.get(BrokerId(broker_id))
    if registration is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if registration.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {registration.epoch}, not {broker_epoch}",
        )
    return registration
