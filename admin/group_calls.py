"""The calls of an AdminClient about consumer groups and their committed offsets (shell).

Counterpart of listGroups, describeConsumerGroups, listConsumerGroupOffsets, alterConsumerGroupOffsets,
deleteConsumerGroupOffsets and deleteConsumerGroups in Kafka's Admin. A group is asked for at its coordinator. While that
moves or still loads its groups, the calls wait and ask again until their timeout.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from admin import groups
from admin.coordinators import FIND_COORDINATOR_VERSION, coordinator_error, coordinator_request
from admin.errors import AdminError, RequestFailed, UnsupportedRequest, check, failure
from admin.known_nodes import Destination, GroupCoordinator, Role
from admin.partitions import TopicPartition
from admin.response_errors import ErrorOf, code_only, top_level
from common.configuration.endpoints import HostPort
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from common.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from common.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from common.protocol.messages.find_coordinator import FindCoordinatorResponse
from common.protocol.messages.list_groups import ListGroupsResponse
from common.protocol.messages.offset_commit import OffsetCommitResponse
from common.protocol.messages.offset_delete import OffsetDeleteResponse
from common.protocol.messages.offset_fetch import OffsetFetchResponse
from common.protocol.schema import Struct

DEAD = "Dead"


class Send(Protocol):
    """AdminClient's way to send one request."""

    async def __call__(
        self,
        name: str,
        request: Struct,
        destination: Destination,
        *,
        timeout_ms: int | None,
        error_of: ErrorOf = ...,
        version: int | None = None,
    ) -> Any: ...


class GroupCalls:
    """See the module docstring. All methods raise AdminError. `timeout_ms` limits each request with its attempts."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: int | None = None
    ) -> list[groups.GroupListing]:
        """Returns the groups of all brokers, sorted by id. Empty filters let every group through."""
        cluster: DescribeClusterResponse = await self._send(
            "listNodes", DescribeClusterRequest(), Role.ANY_BROKER, timeout_ms=timeout_ms, error_of=top_level
        )
        check(cluster.error_code, cluster.error_message)
        request = groups.list_request(states, types)
        found: list[groups.GroupListing] = []
        for broker in cluster.brokers:
            response: ListGroupsResponse = await self._send(
                "listGroups", request, broker.broker_id, timeout_ms=timeout_ms, error_of=code_only
            )
            check(response.error_code)
            found += map(groups.group_listing, response.groups)
        return sorted(found, key=lambda each: each.group_id)

    async def describe(self, group_id: str, *, timeout_ms: int | None = None) -> groups.GroupDescription:
        """Returns a group with its members. The error of a group that does not exist is GROUP_ID_NOT_FOUND."""
        coordinator = await self._coordinator(group_id, timeout_ms)
        try:
            response: ConsumerGroupDescribeResponse = await self._ask(
                "describeConsumerGroups",
                ConsumerGroupDescribeRequest(group_ids=[group_id]),
                group_id,
                timeout_ms,
                _described_error,
            )
        except UnsupportedRequest:
            return await self._describe_classic(group_id, coordinator, timeout_ms)
        described = _only(response.groups)
        if described.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return await self._describe_classic(group_id, coordinator, timeout_ms)
        check(described.error_code, described.error_message)
        return groups.consumer_description(described, *coordinator)

    async def _describe_classic(
        self, group_id: str, coordinator: tuple[int, HostPort], timeout_ms: int | None
    ) -> groups.GroupDescription:
        response: DescribeGroupsResponse = await self._ask(
            "describeConsumerGroups", DescribeGroupsRequest(groups=[group_id]), group_id, timeout_ms, _described_error
        )
        described = _only(response.groups)
        if described.error_code == ErrorCode.NONE and described.group_state == DEAD:
            # Up to version 5, brokers say it so.
            raise failure(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        check(described.error_code, described.error_message)
        return groups.classic_description(described, *coordinator)

    async def offsets(self, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, groups.CommittedOffset]:
        """Returns every committed offset of the group. A group that does not exist has none."""
        response: OffsetFetchResponse = await self._ask(
            "listConsumerGroupOffsets",
            groups.fetch_request(group_id),
            group_id,
            timeout_ms,
            _fetched_error,
            version=groups.OFFSET_FETCH_VERSION,
        )
        fetched = _only(response.groups)
        check(fetched.error_code)
        return groups.committed_offsets(fetched)

    async def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, groups.CommittedOffset],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits these offsets. The group must have no members; its other offsets stay as they are. Raises the first error
        of a partition; the others may have been committed."""
        response: OffsetCommitResponse = await self._ask(
            "alterConsumerGroupOffsets",
            groups.commit_request(group_id, offsets),
            group_id,
            timeout_ms,
            _first_partition_error,
            version=groups.OFFSET_COMMIT_VERSION,
        )
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, AdminError | None]:
        """Deletes committed offsets. Returns the error of each partition, None where the offset is gone. An error of the
        group as a whole is raised."""
        asked = list(partitions)
        response: OffsetDeleteResponse = await self._ask(
            "deleteConsumerGroupOffsets",
            groups.delete_offsets_request(group_id, asked),
            group_id,
            timeout_ms,
            code_only,
        )
        check(response.error_code)
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        missing = RequestFailed(ErrorCode.UNKNOWN_SERVER_ERROR, "the response has no result for this partition")
        return {
            each: missing if each not in codes else failure(codes[each]) if codes[each] != ErrorCode.NONE else None
            for each in asked
        }

    async def delete(self, group_id: str, *, timeout_ms: int | None = None) -> None:
        """Deletes a group without members, with its offsets."""
        response: DeleteGroupsResponse = await self._ask(
            "deleteConsumerGroups",
            DeleteGroupsRequest(groups_names=[group_id]),
            group_id,
            timeout_ms,
            lambda answer: (_only(answer.results).error_code, _only(answer.results).error_message),
        )
        result = _only(response.results)
        check(result.error_code, result.error_message)

    async def _ask(
        self,
        name: str,
        request: Struct,
        group_id: str,
        timeout_ms: int | None,
        error_of: ErrorOf,
        *,
        version: int | None = None,
    ) -> Any:
        """Sends a request to the group's coordinator."""
        return await self._send(
            name, request, GroupCoordinator(group_id), timeout_ms=timeout_ms, error_of=error_of, version=version
        )

    async def _coordinator(self, group_id: str, timeout_ms: int | None) -> tuple[int, HostPort]:
        response: FindCoordinatorResponse = await self._send(
            "findCoordinator",
            coordinator_request(group_id),
            Role.ANY_BROKER,
            timeout_ms=timeout_ms,
            error_of=coordinator_error,
            version=FIND_COORDINATOR_VERSION,
        )
        check(*coordinator_error(response))
        found = response.coordinators[0]
        return found.node_id, HostPort(found.host, found.port)


def _only(results: Any) -> Any:
    """Returns the result of the only group that a request named."""
    if len(results) != 1:
        raise failure(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response has {len(results)} results instead of one")
    return results[0]


def _described_error(response: ConsumerGroupDescribeResponse | DescribeGroupsResponse) -> tuple[int, str | None]:
    described = _only(response.groups)
    return described.error_code, described.error_message


def _fetched_error(response: OffsetFetchResponse) -> tuple[int, str | None]:
    return _only(response.groups).error_code, None


def _first_partition_error(response: OffsetCommitResponse) -> tuple[int, str | None]:
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code != ErrorCode.NONE:
                return each.error_code, None
    return ErrorCode.NONE, None
