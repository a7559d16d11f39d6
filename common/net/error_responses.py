"""Builds the response to a request that failed as a whole, for every declared API (core).

Counterpart of Kafka's `AbstractRequest.getErrorResponse`. A handler raises ApiError, and this module turns the error into a
response of the requested API. If the response has a top-level error code, the error goes there. Otherwise it is repeated for
every requested topic or partition. A Produce with acks=0 has no response, so the result is None and the caller closes the
connection.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages import alter_configs, incremental_alter_configs
from common.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from common.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from common.protocol.messages.add_raft_voter import AddRaftVoterResponse
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from common.protocol.messages.alter_partition import AlterPartitionResponse
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from common.protocol.messages.api_versions import ApiVersionsResponse
from common.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationResponse
from common.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from common.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from common.protocol.messages.controller_registration import ControllerRegistrationResponse
from common.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from common.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from common.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from common.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_acls import DescribeAclsResponse
from common.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from common.protocol.messages.describe_cluster import DescribeClusterResponse
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from common.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from common.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from common.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from common.protocol.messages.describe_quorum import DescribeQuorumResponse
from common.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from common.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from common.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from common.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from common.protocol.messages.end_txn import EndTxnResponse
from common.protocol.messages.envelope import EnvelopeResponse
from common.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from common.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from common.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from common.protocol.messages.heartbeat import HeartbeatResponse
from common.protocol.messages.init_producer_id import InitProducerIdResponse
from common.protocol.messages.join_group import JoinGroupResponse
from common.protocol.messages.leave_group import LeaveGroupResponse
from common.protocol.messages.list_config_resources import ListConfigResourcesResponse
from common.protocol.messages.list_groups import ListGroupsResponse
from common.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from common.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from common.protocol.messages.list_transactions import ListTransactionsResponse
from common.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from common.protocol.messages.offset_delete import OffsetDeleteResponse
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from common.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from common.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from common.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from common.protocol.messages.sasl_handshake import SaslHandshakeResponse
from common.protocol.messages.sync_group import SyncGroupResponse
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from common.protocol.messages.unregister_broker import UnregisterBrokerResponse
from common.protocol.messages.unregister_controller import UnregisterControllerResponse
from common.protocol.messages.update_features import UpdateFeaturesResponse
from common.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Build = Callable[[Any, ErrorCode, str | None], Any]


def error_response(request: Any, api_key: ApiKey, code: ErrorCode, message: str | None = None) -> Any:
    """Builds a response that reports `code` for the whole request, or returns None if the request expects no response."""
    return _BUILDERS[api_key](request, code, message)


def _produce(request: ProduceRequest, code: ErrorCode, message: str | None) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=partition.index, error_code=code, base_offset=-1, error_message=message)
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: FetchRequest, code: ErrorCode, message: str | None) -> FetchResponse:
    # Versions below 7 have no top-level code, so every partition carries the error as well.
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=partition.partition, error_code=code, high_watermark=-1, records=b"")
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_offsets(request: ListOffsetsRequest, code: ErrorCode, message: str | None) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: MetadataRequest, code: ErrorCode, message: str | None) -> MetadataResponse:
    # Topics can be named by id alone since version 10, but a response's name may be null only since version 12. So an absent
    # name is sent as an empty string.
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


def _delete_records(request: DeleteRecordsRequest, code: ErrorCode, message: str | None) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, code: ErrorCode, message: str | None
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=partition.partition, error_code=code) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_topics(request: CreateTopicsRequest, code: ErrorCode, message: str | None) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    )


def _delete_topics(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> DeleteTopicsResponse:
    by_name = [DeletableTopicResult(name=name, error_code=code, error_message=message) for name in request.topic_names]
    by_name_or_id = [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
        for topic in request.topics
    ]
    return DeleteTopicsResponse(responses=by_name + by_name_or_id)


def _create_partitions(request: CreatePartitionsRequest, code: ErrorCode, message: str | None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, code: ErrorCode, message: str | None) -> ElectLeadersResponse:
    # Version 0 has no top-level code, so every partition carries the error as well.
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None
) -> AlterPartitionReassignmentsResponse:
    # Without an entry for every partition, Java's admin client reports UNKNOWN_SERVER_ERROR instead of the error.
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _describe_configs(request: DescribeConfigsRequest, code: ErrorCode, message: str | None) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(
    request: alter_configs.AlterConfigsRequest, code: ErrorCode, message: str | None
) -> alter_configs.AlterConfigsResponse:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, message: str | None
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for log_dir in request.dirs
            for topic in log_dir.topics
        ]
    )


def _describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, message: str | None
) -> DescribeTopicPartitionsResponse:
    # There is no top-level code. A request for all topics names none, so the topic of its cursor has to carry the error.
    names = [topic.name for topic in request.topics]
    if not names and request.cursor is not None:
        names.append(request.cursor.topic_name)
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names]
    )


def _describe_producers(
    request: DescribeProducersRequest, code: ErrorCode, message: str | None
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_commit(request: OffsetCommitRequest, code: ErrorCode, message: str | None) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_client_quotas(
    request: DescribeClientQuotasRequest, code: ErrorCode, message: str | None
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _offset_fetch(request: OffsetFetchRequest, code: ErrorCode, message: str | None) -> OffsetFetchResponse:
    # Version 1 has no top-level code, so every partition carries the error as well. From version 8 on, every group does.
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
        groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups],
    )


def _write_txn_markers(request: WriteTxnMarkersRequest, code: ErrorCode, message: str | None) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _find_coordinator(request: FindCoordinatorRequest, code: ErrorCode, message: str | None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=-1,
        port=-1,
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )


def _describe_groups(request: DescribeGroupsRequest, code: ErrorCode, message: str | None) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code, error_message=message) for group_id in request.groups]
    )


def _consumer_group_describe(
    request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str | None
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedConsumerGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.group_ids
        ]
    )


def _delete_groups(request: DeleteGroupsRequest, code: ErrorCode, message: str | None) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.groups_names
        ]
    )


def _add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, code: ErrorCode, message: str | None
) -> AddPartitionsToTxnResponse:
    # From version 4 on there is a top-level code, and the transactions are not repeated, as in Kafka.
    return AddPartitionsToTxnResponse(
        error_code=code, results_by_topic_v3_and_below=_not_added(request.v3_and_below_topics, code)
    )


def _not_added(topics: list[AddPartitionsToTxnTopic], code: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _txn_offset_commit(request: TxnOffsetCommitRequest, code: ErrorCode, message: str | None) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(
    request: DescribeTransactionsRequest, code: ErrorCode, message: str | None
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=code, transactional_id=transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


def _create_acls(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations])


def _delete_acls(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )


def _top_level(response_class: Callable[..., Any]) -> Build:
    """Makes a builder for responses with a top-level code but no message."""
    return lambda request, code, message: response_class(error_code=code)


def _top_level_with_text(response_class: Callable[..., Any]) -> Build:
    """Makes a builder for responses with a top-level code and message."""
    return lambda request, code, message: response_class(error_code=code, error_message=message)


_BUILDERS: Mapping[ApiKey, Build] = MappingProxyType(
    {
        ApiKey.PRODUCE: _produce,
        ApiKey.FETCH: _fetch,
        ApiKey.LIST_OFFSETS: _list_offsets,
        ApiKey.METADATA: _metadata,
        ApiKey.OFFSET_COMMIT: _offset_commit,
        ApiKey.OFFSET_FETCH: _offset_fetch,
        ApiKey.FIND_COORDINATOR: _find_coordinator,
        ApiKey.JOIN_GROUP: _top_level(JoinGroupResponse),
        ApiKey.HEARTBEAT: _top_level(HeartbeatResponse),
        ApiKey.LEAVE_GROUP: _top_level(LeaveGroupResponse),
        ApiKey.SYNC_GROUP: _top_level(SyncGroupResponse),
        ApiKey.DESCRIBE_GROUPS: _describe_groups,
        ApiKey.LIST_GROUPS: _top_level(ListGroupsResponse),
        ApiKey.SASL_HANDSHAKE: _top_level(SaslHandshakeResponse),
        ApiKey.DELETE_GROUPS: _delete_groups,
        ApiKey.OFFSET_DELETE: _top_level(OffsetDeleteResponse),
        ApiKey.API_VERSIONS: _top_level(ApiVersionsResponse),
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.DELETE_TOPICS: _delete_topics,
        ApiKey.DELETE_RECORDS: _delete_records,
        ApiKey.INIT_PRODUCER_ID: lambda request, code, message: InitProducerIdResponse(error_code=code, producer_epoch=-1),
        ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: _top_level(AddOffsetsToTxnResponse),
        ApiKey.END_TXN: _top_level(EndTxnResponse),
        ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
        ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
        ApiKey.LIST_TRANSACTIONS: _top_level(ListTransactionsResponse),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
        ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
        ApiKey.DESCRIBE_ACLS: _top_level_with_text(DescribeAclsResponse),
        ApiKey.CREATE_ACLS: _create_acls,
        ApiKey.DELETE_ACLS: _delete_acls,
        ApiKey.DESCRIBE_CONFIGS: _describe_configs,
        ApiKey.ALTER_CONFIGS: _alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
        # Versions 0 to 2 of DescribeLogDirs have no top-level code. They report an error as an empty list, as in Kafka.
        ApiKey.DESCRIBE_LOG_DIRS: _top_level(DescribeLogDirsResponse),
        ApiKey.CREATE_PARTITIONS: _create_partitions,
        ApiKey.ELECT_LEADERS: _elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _top_level_with_text(ListPartitionReassignmentsResponse),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _top_level_with_text(DescribeUserScramCredentialsResponse),
        ApiKey.DESCRIBE_QUORUM: _top_level_with_text(DescribeQuorumResponse),
        ApiKey.ALTER_PARTITION: _top_level(AlterPartitionResponse),
        ApiKey.UPDATE_FEATURES: _top_level_with_text(UpdateFeaturesResponse),
        ApiKey.ENVELOPE: _top_level(EnvelopeResponse),
        ApiKey.FETCH_SNAPSHOT: _top_level(FetchSnapshotResponse),
        ApiKey.DESCRIBE_CLUSTER: _top_level_with_text(DescribeClusterResponse),
        ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _top_level_with_text(ConsumerGroupHeartbeatResponse),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
        ApiKey.BROKER_REGISTRATION: _top_level(BrokerRegistrationResponse),
        ApiKey.BROKER_HEARTBEAT: _top_level(BrokerHeartbeatResponse),
        ApiKey.UNREGISTER_BROKER: _top_level_with_text(UnregisterBrokerResponse),
        ApiKey.ALLOCATE_PRODUCER_IDS: _top_level(AllocateProducerIdsResponse),
        ApiKey.CONTROLLER_REGISTRATION: _top_level_with_text(ControllerRegistrationResponse),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: _top_level(AssignReplicasToDirsResponse),
        ApiKey.LIST_CONFIG_RESOURCES: _top_level(ListConfigResourcesResponse),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
        ApiKey.ADD_RAFT_VOTER: _top_level_with_text(AddRaftVoterResponse),
        ApiKey.REMOVE_RAFT_VOTER: _top_level_with_text(RemoveRaftVoterResponse),
        ApiKey.UNREGISTER_CONTROLLER: _top_level_with_text(UnregisterControllerResponse),
    }
)
