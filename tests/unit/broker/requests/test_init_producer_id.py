"""InitProducerId: an id for every producer without a transactional id. The others are the transaction coordinator's."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from broker.requests.init_producer_id import InitProducerIdRequests
from common.net.request_context import RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.broker.requests.contexts import context, over_the_wire, versions

NEWEST = versions(ApiKey.INIT_PRODUCER_ID)[-1]


def handler(ids: Iterator[int]) -> InitProducerIdRequests:
    async def take() -> int:
        return next(ids)

    async def init_transactional(_context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)

    return InitProducerIdRequests(take, init_transactional)


def ask(
    requests: InitProducerIdRequests,
    *,
    version: int = NEWEST,
    transactional_id: str | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> tuple[int, int, int]:
    """Returns error, id and epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch
    )
    assert over_the_wire(request, version) == request
    handled = requests.handle(context(ApiKey.INIT_PRODUCER_ID, version), request)
    response = over_the_wire(asyncio.run(handled), version)
    assert isinstance(response, InitProducerIdResponse)
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    """In every version the epoch is 0."""
    requests = handler(itertools.count(1000))
    assert [ask(requests, version=version) for _ in range(2)] == [(0, 1000, 0), (0, 1001, 0)]


def test_a_producer_that_names_its_id_gets_another_one() -> None:
    """A producer whose state was lost wants to start over (KIP-360). A new id does that, even from the highest epoch."""
    requests = handler(itertools.count(1000))
    for epoch in (0, 5, 32767):
        error, producer_id, producer_epoch = ask(requests, producer_id=7, producer_epoch=epoch)
        assert (error, producer_epoch) == (ErrorCode.NONE, 0)
        assert producer_id >= 1000


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "producer_epoch", "error"),
    [
        ("t", -1, -1, ErrorCode.CONCURRENT_TRANSACTIONS),
        ("t", 7, 0, ErrorCode.CONCURRENT_TRANSACTIONS),
        ("", -1, -1, ErrorCode.INVALID_REQUEST),
        (None, 7, -1, ErrorCode.INVALID_REQUEST),
        (None, -1, 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_served_is_refused(
    transactional_id: str | None, producer_id: int, producer_epoch: int, error: ErrorCode
) -> None:
    """A transactional id gets what the transaction coordinator answers. No id is taken."""
    ids = itertools.count(1000)
    requests = handler(ids)
    answer = ask(requests, transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch)
    assert answer == (error, -1, -1)
    assert next(ids) == 1000
