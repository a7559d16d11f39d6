"""Gives blocks of producer ids to brokers (core).

Counterpart of Kafka's ProducerIdControlManager. A block is taken once its record is committed, and the response is held back
until then. So no id is given out twice, whatever happens to the controller or to the broker. A block whose response is lost
is never used.
"""

from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import ProducerIdsRecord
from controller.core.broker_epochs import registration_of
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(turn: Turn, request: AllocateProducerIdsRequest) -> ControllerResult[AllocateProducerIdsResponse]:
    """Allocates the next block to the broker. Raises ApiError(STALE_BROKER_EPOCH), and UNKNOWN_SERVER_ERROR if there are no
    ids left."""
    registration_of(turn.state, request.broker_id, request.broker_epoch)
    first = turn.state.next_producer_id
    if first > _PRODUCER_ID_MAX - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are taken")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    event = ControllerEvent("producer_ids_allocated", {"broker_id": request.broker_id, "first_id": first})
    return ControllerResult([ApiMessageAndVersion(record, 0)], response, events=[event])
