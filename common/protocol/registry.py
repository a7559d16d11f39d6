"""The messages of each api key and the versions we speak (core).

Counterpart of Kafka's `ApiKeys`. This module only declares what can be encoded and decoded; each daemon decides which APIs
its listener serves. Produce is advertised from version 0 on but served only from version 3 on: librdkafka concludes from a
higher first version that the broker is too old for compression. Apache Kafka does the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from common.protocol.api_keys import ApiKey
from common.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from common.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from common.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from common.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from common.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from common.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from common.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from common.protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from common.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from common.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from common.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from common.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from common.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from common.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from common.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from common.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from common.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from common.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from common.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from common.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from common.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from common.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from common.protocol.messages.fetch import FetchRequest, FetchResponse
from common.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from common.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from common.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from common.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from common.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from common.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from common.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from common.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from common.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from common.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from common.protocol.messages.metadata import MetadataRequest, MetadataResponse
from common.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from common.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from common.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from common.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from common.protocol.messages.produce import ProduceRequest, ProduceResponse
from common.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from common.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from common.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from common.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from common.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from common.protocol.schema import SchemaError, Struct, VersionRange, message_schema


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its request, its response, and the versions in which both exist."""

    key: ApiKey
    request: type[Struct]
    response: type[Struct]
    versions: VersionRange
    advertised: VersionRange
    """The range that ApiVersions reports; wider than `versions` for Produce only."""
    flexible: Mapping[int, bool]
    """Whether requests and their headers have tagged fields, for each of `versions`."""


def _api(request: type[Struct], response: type[Struct]) -> Api:
    asked, answered = message_schema(request), message_schema(response)
    if asked.api_key is None or asked.api_key != answered.api_key or asked.versions != answered.versions:
        raise SchemaError(f"{asked.name} and {answered.name} do not belong together")
    key = ApiKey(asked.api_key)
    first = 0 if key is ApiKey.PRODUCE else asked.versions.first
    flexible = {version: version in asked.flexible for version in asked.versions}
    return Api(key, request, response, asked.versions, VersionRange(first, asked.versions.last), flexible)


_ALL = (
    _api(ProduceRequest, ProduceResponse),
    _api(FetchRequest, FetchResponse),
    _api(ListOffsetsRequest, ListOffsetsResponse),
    _api(MetadataRequest, MetadataResponse),
    _api(OffsetCommitRequest, OffsetCommitResponse),
    _api(OffsetFetchRequest, OffsetFetchResponse),
    _api(FindCoordinatorRequest, FindCoordinatorResponse),
    _api(JoinGroupRequest, JoinGroupResponse),
    _api(HeartbeatRequest, HeartbeatResponse),
    _api(LeaveGroupRequest, LeaveGroupResponse),
    _api(SyncGroupRequest, SyncGroupResponse),
    _api(DescribeGroupsRequest, DescribeGroupsResponse),
    _api(ListGroupsRequest, ListGroupsResponse),
    _api(SaslHandshakeRequest, SaslHandshakeResponse),
    _api(ApiVersionsRequest, ApiVersionsResponse),
    _api(CreateTopicsRequest, CreateTopicsResponse),
    _api(DeleteTopicsRequest, DeleteTopicsResponse),
    _api(DeleteRecordsRequest, DeleteRecordsResponse),
    _api(InitProducerIdRequest, InitProducerIdResponse),
    _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    _api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    _api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    _api(EndTxnRequest, EndTxnResponse),
    _api(WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    _api(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    _api(DescribeAclsRequest, DescribeAclsResponse),
    _api(CreateAclsRequest, CreateAclsResponse),
    _api(DeleteAclsRequest, DeleteAclsResponse),
    _api(DescribeConfigsRequest, DescribeConfigsResponse),
    _api(AlterConfigsRequest, AlterConfigsResponse),
    _api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
    _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    _api(CreatePartitionsRequest, CreatePartitionsResponse),
    _api(DeleteGroupsRequest, DeleteGroupsResponse),
    _api(ElectLeadersRequest, ElectLeadersResponse),
    _api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    _api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    _api(OffsetDeleteRequest, OffsetDeleteResponse),
    _api(DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    _api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    _api(DescribeQuorumRequest, DescribeQuorumResponse),
    _api(AlterPartitionRequest, AlterPartitionResponse),
    _api(EnvelopeRequest, EnvelopeResponse),
    _api(FetchSnapshotRequest, FetchSnapshotResponse),
    _api(DescribeClusterRequest, DescribeClusterResponse),
    _api(DescribeProducersRequest, DescribeProducersResponse),
    _api(BrokerRegistrationRequest, BrokerRegistrationResponse),
    _api(BrokerHeartbeatRequest, BrokerHeartbeatResponse),
    _api(UnregisterBrokerRequest, UnregisterBrokerResponse),
    _api(AddRaftVoterRequest, AddRaftVoterResponse),
    _api(RemoveRaftVoterRequest, RemoveRaftVoterResponse),
    _api(UnregisterControllerRequest, UnregisterControllerResponse),
    _api(UpdateFeaturesRequest, UpdateFeaturesResponse),
    _api(DescribeTransactionsRequest, DescribeTransactionsResponse),
    _api(ListTransactionsRequest, ListTransactionsResponse),
    _api(AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    _api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    _api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    _api(ControllerRegistrationRequest, ControllerRegistrationResponse),
    _api(AssignReplicasToDirsRequest, AssignReplicasToDirsResponse),
    _api(ListConfigResourcesRequest, ListConfigResourcesResponse),
    _api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

# Every declared API, in api key order.
APIS: Mapping[ApiKey, Api] = MappingProxyType({each.key: each for each in _ALL})
API_OF_REQUEST: Mapping[type[Struct], Api] = MappingProxyType({each.request: each for each in _ALL})
