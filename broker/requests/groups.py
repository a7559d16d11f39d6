"""Answers the requests about members and groups: join, sync, heartbeat, leave, describe, list, delete (shell).

Counterpart of the group part of Kafka's KafkaApis. Each request goes to the shard of its group. The answer of a join or a
sync may take as long as a rebalance, so it is a future, and the request's frame is released. A member whose client has gone
meanwhile stays in its group until its session ends, as in Kafka.
"""

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.core.group_queries import GroupFilter
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.result import Caller
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.shard import Operation
from broker.coordinator.waiting_request import WaitingRequest
from broker.requests.coordinator_parts import Parts, all_of, list_error
from common.environment.interface import Environment
from common.net.error_responses import error_response
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import GROUP_OPERATIONS
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequest
from common.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from common.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from common.protocol.messages.sync_group import SyncGroupRequest

_SEVERAL_MEMBERS_FIRST_VERSION = 3
_NEW_ID_FIRST_VERSION = 4
# From this version on, SyncGroup must name the protocol.
_NAMED_PROTOCOL_FIRST_VERSION = 5
_MISSING_GROUPS_FIRST_VERSION = 6
_SKIP_ASSIGNMENT_FIRST_VERSION = 9


class GroupRequests:
    """Handles these requests; the request server calls the methods."""

    def __init__(self, env: Environment, coordinator: GroupCoordinator) -> None:
        self._env = env
        self._coordinator = coordinator

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.JOIN_GROUP: self.handle_join,
            ApiKey.SYNC_GROUP: self.handle_sync,
            ApiKey.HEARTBEAT: self.handle_heartbeat,
            ApiKey.LEAVE_GROUP: self.handle_leave,
            ApiKey.DESCRIBE_GROUPS: self.handle_describe,
            ApiKey.LIST_GROUPS: self.handle_list,
            ApiKey.DELETE_GROUPS: self.handle_delete,
        }

    # --- members -------------------------------------------------------------------------------------------------

    def handle_join(self, context: RequestContext, request: JoinGroupRequest) -> Any:
        """Answers once the rebalance is complete."""
        caller = Caller(
            client_id=context.client_id or "",
            # Java's InetAddress, whose text Kafka shows, begins with a slash.
            client_host=f"/{context.peer_host}",
            can_join_with_new_id=context.api_version >= _NEW_ID_FIRST_VERSION,
            can_skip_assignment=context.api_version >= _SKIP_ASSIGNMENT_FIRST_VERSION,
        )
        fresh_id = str(uuid.UUID(bytes=bytes(self._env.uuid())))
        waiting = waiting_for(context, request)
        self._perform(request, waiting, lambda shard, now: shard.join_group(now, waiting, caller, request, fresh_id))
        return response_of(context, waiting)

    def handle_sync(self, context: RequestContext, request: SyncGroupRequest) -> Any:
        """Answers once the leader of the group has handed in the assignment. While the group is being loaded, the member is
        to join again. Apache Kafka answers COORDINATOR_LOAD_IN_PROGRESS here since 4.0, which not even its own consumer
        expects of SyncGroup."""
        waiting = waiting_for(context, request, while_loading=ErrorCode.REBALANCE_IN_PROGRESS)
        if context.api_version >= _NAMED_PROTOCOL_FIRST_VERSION and None in (request.protocol_type, request.protocol_name):
            waiting.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            self._perform(request, waiting, lambda shard, now: [shard.sync_group(now, waiting, request)])
        return response_of(context, waiting)

    def handle_heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        """While the group is being loaded, the answer is NONE, as in Apache Kafka: COORDINATOR_LOAD_IN_PROGRESS ends some
        clients (aiokafka). When the load ends, every member has its whole session timeout again."""
        waiting = waiting_for(context, request, while_loading=ErrorCode.NONE)
        self._perform(request, waiting, lambda shard, now: shard.heartbeat(now, waiting, request))
        return response_of(context, waiting)

    def handle_leave(self, context: RequestContext, request: LeaveGroupRequest) -> Any:
        """The request of older versions has one member in place of a list, and the answer has no list either."""
        is_single = context.api_version < _SEVERAL_MEMBERS_FIRST_VERSION
        if is_single:
            request.members = [MemberIdentity(member_id=request.member_id)]
        waiting = waiting_for(context, request)
        self._perform(request, waiting, lambda shard, now: shard.leave_group(now, waiting, request))
        return _left_alone(waiting) if is_single else response_of(context, waiting)

    def _perform(
        self,
        request: JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest,
        waiting: WaitingRequest,
        operation: Operation[GroupShard],
    ) -> None:
        if request.group_id:
            self._coordinator.perform(request.group_id, waiting, operation)
        else:
            waiting.refuse(ErrorCode.INVALID_GROUP_ID)

    # --- groups --------------------------------------------------------------------------------------------------

    def handle_describe(self, context: RequestContext, request: DescribeGroupsRequest) -> Any:
        """Describes each group that is named, once."""
        caller = Caller("", "", knows_missing_groups=context.api_version >= _MISSING_GROUPS_FIRST_VERSION)
        parts = Parts(partial(self._describe, caller), dict.fromkeys(request.groups))
        return _described(parts, include_operations=request.include_authorized_operations)

    def _describe(self, caller: Caller, group_id: str) -> WaitingRequest:
        waiting = WaitingRequest(ApiKey.DESCRIBE_GROUPS, lambda error: DescribedGroup(group_id=group_id, error_code=error))
        self._coordinator.perform(
            group_id, waiting, lambda shard, now: [shard.describe_group(now, waiting, caller, group_id)]
        )
        return waiting

    def handle_delete(self, _context: RequestContext, request: DeleteGroupsRequest) -> Any:
        """Deletes each group that is named, if it is empty."""
        return _deleted(Parts(self._delete, dict.fromkeys(request.groups_names)))

    def _delete(self, group_id: str) -> WaitingRequest:
        waiting = WaitingRequest(
            ApiKey.DELETE_GROUPS, lambda error: DeletableGroupResult(group_id=group_id, error_code=error)
        )
        self._coordinator.perform(group_id, waiting, lambda shard, now: shard.delete_group(now, waiting, group_id))
        return waiting

    def handle_list(self, _context: RequestContext, request: ListGroupsRequest) -> Any:
        """Lists the groups of all shards of this broker. If one cannot be listed now, the client is to ask again."""
        partitions = self._coordinator.loaded_and_loading()
        return self._listed(partitions, Parts(partial(_list, GroupFilter(request)), partitions))

    async def _listed(
        self, partitions: Sequence[CoordinatorPartition[GroupShard]], parts: Parts[WaitingRequest]
    ) -> ListGroupsResponse:
        answers = await all_of(parts)
        if error := list_error(self._coordinator, partitions, answers):
            return ListGroupsResponse(error_code=error)
        return ListGroupsResponse(groups=[group for answer in answers for group in answer.groups])


def _list(asked: GroupFilter, partition: CoordinatorPartition[GroupShard]) -> WaitingRequest:
    waiting = WaitingRequest(ApiKey.LIST_GROUPS, lambda error: ListGroupsResponse(error_code=error))
    partition.perform(waiting, lambda shard, now: [shard.list_groups(now, waiting, asked)])
    return waiting


async def _left_alone(waiting: WaitingRequest) -> LeaveGroupResponse:
    response: LeaveGroupResponse = await waiting.future
    for member in response.members:
        response.error_code = response.error_code or member.error_code
    response.members = []
    return response


async def _described(parts: Parts[WaitingRequest], *, include_operations: bool) -> DescribeGroupsResponse:
    groups = await all_of(parts)
    for group in groups:
        if include_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


async def _deleted(parts: Parts[WaitingRequest]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=await all_of(parts))


# --- for all requests to the coordinator -----------------------------------------------------------------------------


def waiting_for(
    context: RequestContext, request: Any, *, while_loading: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
) -> WaitingRequest:
    """Returns the waiter of a request that is answered as a whole. `while_loading` is the answer for a group that is being
    loaded."""
    api_key = context.api_key

    def refusal(error: ErrorCode) -> Any:
        found = while_loading if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        return error_response(request, api_key, found)

    return WaitingRequest(api_key, refusal)


def response_of(context: RequestContext, waiting: WaitingRequest) -> Any:
    """Returns the response if there is one already. Otherwise releases the request's frame and returns the future."""
    if waiting.future.done():
        return waiting.future.result()
    context.memory.release()
    return waiting.future
