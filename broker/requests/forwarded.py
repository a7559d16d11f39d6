"""Answers CreateTopics, DeleteTopics, UnregisterBroker and DescribeQuorum through the active controller (shell).

`Forwarding` sends the request (KIP-590). The client is answered only once the change is visible in this broker's image. This
module defines what visible means: the image contains a created topic, and no longer contains a deleted topic or an
unregistered broker. A request that failed or only validated has nothing to wait for.
"""

from collections.abc import Mapping

from broker.controller_link.forwarding import Forwarding
from common.ids import ZERO_UUID, BrokerId, TopicId
from common.metadata.state import MetadataState
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

# The timeout of requests that have no timeout field.
TIMEOUT_MS = 30_000


class ForwardedRequests:
    """Handles the requests that only the controller can carry out."""

    def __init__(self, state: MetadataState, forwarding: Forwarding) -> None:
        self._state = state
        self._forwarding = forwarding

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CREATE_TOPICS: self.handle_create_topics,
            ApiKey.DELETE_TOPICS: self.handle_delete_topics,
            ApiKey.UNREGISTER_BROKER: self.handle_unregister_broker,
            ApiKey.DESCRIBE_QUORUM: self.handle_describe_quorum,
        }

    async def handle_create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Answers once this broker's image contains the created topics."""

        def is_visible(response: CreateTopicsResponse) -> bool:
            created = (result.name for result in response.topics if result.error_code == ErrorCode.NONE)
            return request.validate_only or all(name in self._state.topic_ids for name in created)

        response: CreateTopicsResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    async def handle_delete_topics(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Answers once the deleted topics are gone from this broker's image."""
        ids = {result_name: self._state.topic_ids[result_name] for result_name in self._names(request)}

        def is_visible(response: DeleteTopicsResponse) -> bool:
            deleted = [result for result in response.responses if result.error_code == ErrorCode.NONE]
            return all(
                (TopicId(result.topic_id) if result.topic_id != ZERO_UUID else ids.get(result.name or ""))
                not in self._state.topics
                for result in deleted
            )

        response: DeleteTopicsResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    def _names(self, request: DeleteTopicsRequest) -> list[str]:
        named = [topic.name for topic in request.topics if topic.name is not None]
        return [name for name in (*named, *request.topic_names) if name in self._state.topic_ids]

    async def handle_unregister_broker(
        self, context: RequestContext, request: UnregisterBrokerRequest
    ) -> UnregisterBrokerResponse:
        """Answers once the unregistered broker is gone from this broker's image."""
        response: UnregisterBrokerResponse = await self._forwarding.forward(
            context,
            timeout_ms=TIMEOUT_MS,
            is_visible=lambda answer: (
                answer.error_code != ErrorCode.NONE or BrokerId(request.broker_id) not in self._state.brokers
            ),
        )
        return response

    async def handle_describe_quorum(
        self, context: RequestContext, _request: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        """Asks the leader of the metadata quorum, which knows the progress of all voters and observers."""
        response: DescribeQuorumResponse = await self._forwarding.forward(context, timeout_ms=TIMEOUT_MS)
        return response
