"""Answers InitProducerId: an id for an idempotent producer (shell).

Counterpart of KafkaApis.handleInitProducerIdRequest. A producer without a transactional id gets a new id with epoch 0, also
if it names the id that it had (KIP-360): the broker does not know which producer has which id, so it cannot raise an epoch.
A producer with a transactional id gets its answer from the transaction coordinator.
"""

from collections.abc import Awaitable, Callable

from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from common.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_EPOCH = 0


class InitProducerIdRequests:
    """Handles InitProducerId. `take_id` returns an id that no other producer has, or raises ApiError. `init_transactional`
    answers the requests with a transactional id."""

    def __init__(
        self,
        take_id: Callable[[], Awaitable[int]],
        init_transactional: Callable[[RequestContext, InitProducerIdRequest], Awaitable[InitProducerIdResponse]],
    ) -> None:
        self._take_id = take_id
        self._init_transactional = init_transactional

    async def handle(self, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.transactional_id:
            return await self._init_transactional(context, request)
        error = _error(request)
        if error is not ErrorCode.NONE:
            return InitProducerIdResponse(error_code=error, producer_epoch=NO_PRODUCER_EPOCH)
        return InitProducerIdResponse(producer_id=await self._take_id(), producer_epoch=FIRST_EPOCH)


def _error(request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id is not None:
        return ErrorCode.INVALID_REQUEST
    # A producer has both an id and an epoch, or neither.
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
