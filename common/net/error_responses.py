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
from common.protocol.messages.alter_partition import AlterPartitionResponse
from common.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
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
from common.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_cluster import DescribeClusterResponse
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from common.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from common.protocol.messages.describe_quorum import DescribeQuorumResponse
from common.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from common.protocol.messages.envelope import EnvelopeResponse
from common.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from common.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from common.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from common.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from common.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
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
from common.protocol.messages.unregister_broker import UnregisterBrokerResponse

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
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
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
        ApiKey.API_VERSIONS: _top_level(ApiVersionsResponse),
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.DELETE_TOPICS: _delete_topics,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
        ApiKey.DESCRIBE_CONFIGS: _describe_configs,
        ApiKey.ALTER_CONFIGS: _alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
        # Versions 0 to 2 of DescribeLogDirs have no top-level code. They report an error as an empty list, as in Kafka.
        ApiKey.DESCRIBE_LOG_DIRS: _top_level(DescribeLogDirsResponse),
        ApiKey.CREATE_PARTITIONS: _create_partitions,
        ApiKey.ELECT_LEADERS: _elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _top_level_with_text(AlterPartitionReassignmentsResponse),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _top_level_with_text(ListPartitionReassignmentsResponse),
        ApiKey.DESCRIBE_QUORUM: _top_level_with_text(DescribeQuorumResponse),
        ApiKey.ALTER_PARTITION: _top_level(AlterPartitionResponse),
        ApiKey.ENVELOPE: _top_level(EnvelopeResponse),
        ApiKey.FETCH_SNAPSHOT: _top_level(FetchSnapshotResponse),
        ApiKey.DESCRIBE_CLUSTER: _top_level_with_text(DescribeClusterResponse),
        ApiKey.BROKER_REGISTRATION: _top_level(BrokerRegistrationResponse),
        ApiKey.BROKER_HEARTBEAT: _top_level(BrokerHeartbeatResponse),
        ApiKey.UNREGISTER_BROKER: _top_level_with_text(UnregisterBrokerResponse),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: _top_level(AssignReplicasToDirsResponse),
    }
)
