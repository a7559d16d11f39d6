"""Answers ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol, KIP-848 (shell).

Both are served unless `group.coordinator.rebalance.protocols` leaves the protocol out. ApiVersions then does not list them,
and a client says so when it is started.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from broker.coordinator.core.result import Caller
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.waiting_request import WaitingRequest
from broker.requests.coordinator_parts import Parts, all_of
from broker.requests.groups import response_of, waiting_for
from common.environment.interface import Environment
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import GROUP_OPERATIONS
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_OWN_MEMBER_ID_FIRST_VERSION = 1


class ConsumerGroupRequests:
    """Handles these requests; the request server calls the methods."""

    def __init__(self, env: Environment, coordinator: GroupCoordinator) -> None:
        self._env = env
        self._coordinator = coordinator

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.handle_heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.handle_describe,
        }

    def handle_heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Any:
        """Answers once the records that the heartbeat has written are committed."""
        caller = Caller(
            client_id=context.client_id or "",
            client_host=f"/{context.peer_host}",
            brings_member_id=context.api_version >= _OWN_MEMBER_ID_FIRST_VERSION,
        )
        fresh_id = str(uuid.UUID(bytes=bytes(self._env.uuid())))
        waiting = waiting_for(context, request)
        if not request.group_id:
            return ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message="GroupId can't be empty."
            )
        self._coordinator.perform(
            request.group_id,
            waiting,
            lambda shard, now: shard.consumer_group_heartbeat(now, waiting, caller, request, fresh_id),
        )
        return response_of(context, waiting)

    def handle_describe(self, _context: RequestContext, request: ConsumerGroupDescribeRequest) -> Any:
        """Describes each group that is named, once."""
        parts = Parts(self._describe, dict.fromkeys(request.group_ids))
        return _described(parts, include_operations=request.include_authorized_operations)

    def _describe(self, group_id: str) -> WaitingRequest:
        waiting = WaitingRequest(
            ApiKey.CONSUMER_GROUP_DESCRIBE, lambda error: DescribedConsumerGroup(group_id=group_id, error_code=error)
        )
        self._coordinator.perform(
            group_id, waiting, lambda shard, now: [shard.describe_consumer_group(now, waiting, group_id)]
        )
        return waiting


async def _described(parts: Parts[WaitingRequest], *, include_operations: bool) -> ConsumerGroupDescribeResponse:
    groups = await all_of(parts)
    for group in groups:
        if include_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)
