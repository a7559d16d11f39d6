"""Removes a broker for good (core).

Counterpart of unregisterBroker in Kafka's controller. The broker leaves every leadership and every ISR that has another
member. It stays in the replica lists, since only a reassignment changes those. The partition changes come first, so that
replaying the records in order never shows an unregistered broker as a leader.
"""

from common.ids import BrokerId
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import UnregisterBrokerRecord
from controller.core.eligibility import Eligibility
from controller.core.fencing import generate_removal_records
from controller.core.long_decisions import Sliced
from controller.core.partition_change import PartitionChanges
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn


def handle_unregister_broker(
    turn: Turn, request: UnregisterBrokerRequest
) -> Sliced[ControllerResult[UnregisterBrokerResponse]]:
    """Unregisters the broker. Raises ApiError(BROKER_ID_NOT_REGISTERED)."""
    state = turn.state
    registration = state.brokers.get(BrokerId(request.broker_id))
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    broker_id = registration.broker_id
    changes = PartitionChanges(state, turn.settings, Eligibility(state, subject=broker_id, after=None))
    records = yield from generate_removal_records(state, changes, broker_id)
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch)
    records.append(ApiMessageAndVersion(gone, 0))
    turn.sessions.remove(broker_id)
    event = ControllerEvent("broker_unregistered", {"broker_id": broker_id, "broker_epoch": registration.epoch})
    return ControllerResult(records, UnregisterBrokerResponse(), events=[event])
