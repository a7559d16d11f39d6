"""AllocateProducerIds: consecutive blocks, each for one broker, and none for a broker with another epoch."""

import pytest

from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from common.records.metadata_records import ProducerIdsRecord
from controller.core.allocate_producer_ids import BLOCK_SIZE, allocate_producer_ids
from tests.unit.controller.core.context import ControllerContext


def allocate(controller: ControllerContext, broker_id: int, epoch: int | None = None) -> tuple[int, int]:
    """Returns the first id of the block, and how many ids it has."""
    request = AllocateProducerIdsRequest(
        broker_id=broker_id, broker_epoch=controller.epoch(broker_id) if epoch is None else epoch
    )
    response = controller.apply(allocate_producer_ids(controller.turn(), request))
    assert response.error_code == ErrorCode.NONE
    return response.producer_id_start, response.producer_id_len


def test_every_block_begins_where_the_one_before_it_ended() -> None:
    """The record says who got the block and which id is the next one. Fenced brokers get blocks, too."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.register(2, ["b"])
    assert [allocate(controller, broker_id) for broker_id in (1, 2, 1)] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert controller.records == [
        ProducerIdsRecord(broker_id=1, broker_epoch=controller.epoch(1), next_producer_id=3 * BLOCK_SIZE)
    ]
    assert controller.state.next_producer_id == 3000
    assert controller.event("producer_ids_allocated") == {"broker_id": 1, "first_id": 2000}


@pytest.mark.parametrize(("broker_id", "difference"), [(1, -1), (1, 1), (9, 0)])
def test_a_stale_broker_epoch_gets_no_block(broker_id: int, difference: int) -> None:
    """The request of an earlier incarnation, or of a broker that is not registered, is refused and takes no ids."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    with pytest.raises(ApiError) as refused:
        allocate(controller, broker_id, controller.epoch(1) + difference)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert allocate(controller, 1) == (0, 1000)


def test_ids_run_out_without_overflow() -> None:
    """The last whole block below 2**63 is allocated, and no block after it."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.state.next_producer_id = 2**63 - 1 - BLOCK_SIZE
    assert allocate(controller, 1) == (2**63 - 1 - BLOCK_SIZE, BLOCK_SIZE)
    with pytest.raises(ApiError) as refused:
        allocate(controller, 1)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
