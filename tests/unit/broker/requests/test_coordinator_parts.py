"""Requests about very many groups or transactional ids are answered in slices."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from broker.coordinator.waiting_request import WaitingRequest
from broker.requests.consumer_groups import ConsumerGroupRequests
from broker.requests.coordinator_parts import GROUPS_PER_SLICE
from broker.requests.group_offsets import GroupOffsetsRequests
from broker.requests.groups import GroupRequests
from broker.requests.transactions import TransactionRequests
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from common.protocol.messages.delete_groups import DeleteGroupsRequest
from common.protocol.messages.describe_groups import DescribeGroupsRequest
from common.protocol.messages.describe_transactions import DescribeTransactionsRequest
from common.protocol.messages.list_groups import ListGroupsRequest
from common.protocol.messages.list_transactions import ListTransactionsRequest
from common.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.unit.broker.requests.contexts import context

COUNT = 3 * GROUPS_PER_SLICE + 1
IDS = [f"id-{number}" for number in range(COUNT)]


class Coordinator:
    """Answers at once, that it is not the coordinator. Notes each question, and the turns of the event loop in between."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def perform(self, asked: str, waiting: WaitingRequest, _operation: Any) -> None:
        if not self.asked or self.asked[-1] is None:
            asyncio.get_running_loop().call_soon(self.asked.append, None)
        self.asked.append(asked)
        waiting.refuse(ErrorCode.NOT_COORDINATOR)

    def loaded_and_loading(self) -> list[Any]:
        return [Mock(perform=lambda waiting, operation, each=each: self.perform(each, waiting, operation)) for each in IDS]

    def leads_another(self, _listed: object) -> bool:
        return False

    def slices(self) -> list[list[str]]:
        """Returns what was asked between two turns of the event loop."""
        found: list[list[str]] = [[]]
        for each in self.asked:
            if each is None:
                found.append([])
            else:
                found[-1].append(each)
        return [each for each in found if each]


def groups(coordinator: Any) -> GroupRequests:
    return GroupRequests(Mock(), coordinator)


def offsets(coordinator: Any) -> GroupOffsetsRequests:
    return GroupOffsetsRequests(Mock(), coordinator, Mock())


def transactions(coordinator: Any) -> TransactionRequests:
    return TransactionRequests(Mock(), coordinator, Mock(), Mock(), Mock())


FETCH = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each) for each in IDS])


@pytest.mark.parametrize(
    ("handlers", "api_key", "request_", "version"),
    [
        (groups, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=IDS), 5),
        (groups, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=IDS), 2),
        (groups, ApiKey.LIST_GROUPS, ListGroupsRequest(), 5),
        (lambda each: ConsumerGroupRequests(Mock(), each), ApiKey.CONSUMER_GROUP_DESCRIBE, None, 1),
        (offsets, ApiKey.OFFSET_FETCH, FETCH, 9),
        (offsets, ApiKey.OFFSET_FETCH, FETCH, 10),
        (transactions, ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(transactional_ids=IDS), 0),
        (transactions, ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), 1),
    ],
)
def test_what_is_asked_about_many_is_asked_in_slices(
    handlers: Callable[[Any], Any], api_key: ApiKey, request_: Any, version: int
) -> None:
    """The first slice is asked at once, so that a request that comes later does not overtake it."""
    coordinator = Coordinator()

    async def scenario() -> Any:
        request = request_ or ConsumerGroupDescribeRequest(group_ids=IDS)
        answering = handlers(coordinator).handlers()[api_key](context(api_key, version), request)
        assert coordinator.asked == IDS[:GROUPS_PER_SLICE]
        return await answering

    asyncio.run(scenario())
    slices = coordinator.slices()
    assert [each for part in slices for each in part] == IDS
    assert max(map(len, slices)) <= 2 * GROUPS_PER_SLICE
    assert len(slices) >= 3


@pytest.mark.parametrize(
    ("handlers", "api_key", "request_", "version"),
    [
        (groups, ApiKey.LIST_GROUPS, ListGroupsRequest(states_filter=["Empty"]), 5),
        (transactions, ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(state_filters=["Empty"]), 1),
    ],
)
def test_what_a_list_is_to_have_is_worked_out_once(
    handlers: Callable[[Any], Any], api_key: ApiKey, request_: Any, version: int
) -> None:
    """A request of 4 MB may name 500,000 states. To go through them takes a fifth of a second, and ten seconds if each of 50
    partitions did."""
    coordinator = Mock()
    shard = Mock()

    def perform(waiting: WaitingRequest, operation: Any) -> None:
        operation(shard, Mock())
        waiting.refuse(ErrorCode.NOT_COORDINATOR)

    coordinator.loaded_and_loading.return_value = [Mock(perform=perform)] * 3

    async def scenario() -> None:
        await handlers(coordinator).handlers()[api_key](context(api_key, version), request_)

    asyncio.run(scenario())
    first, *others = [call.args[2] for call in (*shard.list_groups.mock_calls, *shard.list_transactions.mock_calls)]
    assert len(others) == 2
    assert all(asked is first for asked in others)
    assert first is not request_
