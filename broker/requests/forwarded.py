"""Answers the requests that only the active controller can carry out (shell).

`Forwarding` sends the request (KIP-590). The client is answered only once the change is visible in this broker's image. This
module defines what visible means: the image contains a created topic, and no longer contains a deleted topic or an
unregistered broker; it has the created partitions, the elected leaders and the changed replicas. A request that failed or
only validated has nothing to wait for.
"""

from collections.abc import Iterable, Mapping, Sequence

from broker.controller_link.forwarding import Forwarding
from common.ids import ZERO_UUID, BrokerId, TopicId, Uuid
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from common.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from common.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from common.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from common.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from common.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

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
            ApiKey.CREATE_PARTITIONS: self.handle_create_partitions,
            ApiKey.ELECT_LEADERS: self.handle_elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.handle_alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.handle_list_partition_reassignments,
            ApiKey.UNREGISTER_BROKER: self.handle_unregister_broker,
            ApiKey.UPDATE_FEATURES: self.handle_update_features,
            ApiKey.DESCRIBE_QUORUM: self.handle_describe_quorum,
            ApiKey.ADD_RAFT_VOTER: self.handle_add_raft_voter,
            ApiKey.REMOVE_RAFT_VOTER: self.handle_remove_raft_voter,
            ApiKey.UNREGISTER_CONTROLLER: self.handle_unregister_controller,
        }

    # --- topics ---------------------------------------------------------------------------------------------------

    async def handle_create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Answers once this broker's image contains the created topics."""

        def is_visible(response: CreateTopicsResponse) -> bool:
            created = (result for result in response.topics if result.error_code == ErrorCode.NONE)
            return request.validate_only or all(self._has_topic(result.name, result.topic_id) for result in created)

        response: CreateTopicsResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    def _has_topic(self, name: str, topic_id: Uuid) -> bool:
        if topic_id == ZERO_UUID:
            # Before version 7, the answer has no ids.
            return name in self._state.topic_ids
        # The image may still have an older topic of this name, which was deleted at another broker.
        return TopicId(topic_id) in self._state.topics

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

    # --- partitions -----------------------------------------------------------------------------------------------

    async def handle_create_partitions(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Answers once this broker's image contains the created partitions."""
        counts = {topic.name: topic.count for topic in request.topics}

        def is_visible(response: CreatePartitionsResponse) -> bool:
            extended = (result.name for result in response.results if result.error_code == ErrorCode.NONE)
            return request.validate_only or all(self._has_partitions(name, counts[name]) for name in extended)

        response: CreatePartitionsResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    def _has_partitions(self, name: str, count: int) -> bool:
        topic = self._state.topic_named(name)
        return topic is None or len(topic.partitions) >= count

    async def handle_elect_leaders(self, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Answers once this broker's image contains the elections."""
        if request.topic_partitions is None:
            before = self._present((topic.name, topic.partitions) for topic in self._state.topics.values())
        else:
            before = self._present((topic.topic, topic.partitions) for topic in request.topic_partitions)

        def is_visible(response: ElectLeadersResponse) -> bool:
            elected = (
                (topic.topic, result.partition_id)
                for topic in response.replica_election_results
                for result in topic.partition_result
                if result.error_code == ErrorCode.NONE
            )
            return all(self._has_new_leader(*each, before.get(each)) for each in elected)

        response: ElectLeadersResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    async def handle_alter_partition_reassignments(
        self, context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Answers once this broker's image contains the changed replicas."""
        targets = {
            (topic.name, partition.partition_index): partition.replicas
            for topic in request.topics
            for partition in topic.partitions
        }
        before = self._present((name, [index]) for name, index in targets)

        def is_visible(response: AlterPartitionReassignmentsResponse) -> bool:
            altered = (
                (topic.name, result.partition_index)
                for topic in response.responses
                for result in topic.partitions
                if result.error_code == ErrorCode.NONE
            )
            return all(self._has_new_replicas(*each, before.get(each), targets[each]) for each in altered)

        response: AlterPartitionReassignmentsResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    async def handle_list_partition_reassignments(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Asks the controller, because this broker's image may be behind."""
        response: ListPartitionReassignmentsResponse = await self._forwarding.forward(context, timeout_ms=request.timeout_ms)
        return response

    def _present(self, partitions: Iterable[tuple[str, Iterable[int]]]) -> dict[tuple[str, int], PartitionRegistration]:
        """Returns those of the partitions that this broker's image has, as they are now."""
        return {
            (name, index): partition
            for name, indexes in partitions
            for index in indexes
            if (partition := self._partition(name, index)) is not None
        }

    # A later change may already have replaced the awaited one. So it is enough that the partition has changed at all.

    def _has_new_leader(self, name: str, index: int, before: PartitionRegistration | None) -> bool:
        now = self._partition(name, index)
        return now is None or before is None or now.leader_epoch != before.leader_epoch

    def _has_new_replicas(
        self, name: str, index: int, before: PartitionRegistration | None, target: Sequence[int] | None
    ) -> bool:
        now = self._partition(name, index)
        if now is None or before is None or _assignment(now) != _assignment(before):
            return True
        # If the partition was on its way to these replicas already, there was nothing to change.
        return target is not None and list(target) == [each for each in now.replicas if each not in now.removing_replicas]

    def _partition(self, name: str, index: int) -> PartitionRegistration | None:
        topic = self._state.topic_named(name)
        return None if topic is None else topic.partitions.get(index)

    # --- brokers and controllers ----------------------------------------------------------------------------------

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

    async def handle_update_features(
        self, context: RequestContext, request: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        """Answers once this broker's image has the new levels."""

        def is_visible(response: UpdateFeaturesResponse) -> bool:
            features = self._state.features
            return (
                response.error_code != ErrorCode.NONE
                or request.validate_only
                or all(features.get(each.feature, 0) == each.max_version_level for each in request.feature_updates)
            )

        response: UpdateFeaturesResponse = await self._forwarding.forward(
            context, timeout_ms=request.timeout_ms, is_visible=is_visible
        )
        return response

    async def handle_describe_quorum(
        self, context: RequestContext, _request: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        """Asks the leader of the metadata quorum, which knows the progress of all voters and observers."""
        response: DescribeQuorumResponse = await self._forwarding.forward(context, timeout_ms=TIMEOUT_MS)
        return response

    async def handle_add_raft_voter(self, context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        """Does not wait for the metadata, because a broker does not use the set of voters."""
        response: AddRaftVoterResponse = await self._forwarding.forward(context, timeout_ms=request.timeout_ms)
        return response

    async def handle_remove_raft_voter(
        self, context: RequestContext, _request: RemoveRaftVoterRequest
    ) -> RemoveRaftVoterResponse:
        response: RemoveRaftVoterResponse = await self._forwarding.forward(context, timeout_ms=TIMEOUT_MS)
        return response

    async def handle_unregister_controller(
        self, context: RequestContext, _request: UnregisterControllerRequest
    ) -> UnregisterControllerResponse:
        """Does not wait for the metadata, because a broker does not use the registrations of controllers."""
        response: UnregisterControllerResponse = await self._forwarding.forward(context, timeout_ms=TIMEOUT_MS)
        return response


def _assignment(partition: PartitionRegistration) -> tuple[object, ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas
