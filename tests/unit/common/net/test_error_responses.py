"""error_response: every declared API can report in all its versions that a request failed as a whole."""

from typing import Any

import pytest

from common.ids import Uuid
from common.net.error_responses import error_response
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode, encode
from common.protocol.errors import ErrorCode
from common.protocol.messages import alter_configs, incremental_alter_configs
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from common.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from common.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from common.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from common.protocol.messages.delete_groups import DeleteGroupsRequest
from common.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from common.protocol.messages.describe_groups import DescribeGroupsRequest
from common.protocol.messages.describe_producers import DescribeProducersRequest
from common.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from common.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from common.protocol.messages.describe_transactions import DescribeTransactionsRequest
from common.protocol.messages.elect_leaders import ElectLeadersRequest, PartitionResult, TopicPartitions
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from common.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from common.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from common.protocol.registry import APIS

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID = Uuid(b"0123456789abcdef")

# APIs whose response repeats the error for each requested entry: a request with one entry, and a function that returns the
# name and the entry from the response.
PER_ENTRY: dict[ApiKey, tuple[Any, Any]] = {
    ApiKey.PRODUCE: (
        ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3)])]),
        lambda response: [(response.responses[0].name, entry) for entry in response.responses[0].partition_responses],
    ),
    ApiKey.FETCH: (
        FetchRequest(topics=[FetchTopic(topic="t", topic_id=ID, partitions=[FetchPartition(partition=3)])]),
        lambda response: [("t", entry) for entry in response.responses[0].partitions],
    ),
    ApiKey.LIST_OFFSETS: (
        ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=3)])]),
        lambda response: [(response.topics[0].name, entry) for entry in response.topics[0].partitions],
    ),
    ApiKey.METADATA: (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        lambda response: [(entry.name, entry) for entry in response.topics],
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=3)])]
        ),
        lambda response: [(response.topics[0].topic, entry) for entry in response.topics[0].partitions],
    ),
    ApiKey.OFFSET_COMMIT: (
        OffsetCommitRequest(
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=3)])]
        ),
        lambda response: [(response.topics[0].name, entry) for entry in response.topics[0].partitions],
    ),
    ApiKey.DESCRIBE_GROUPS: (
        DescribeGroupsRequest(groups=["t"]),
        lambda response: [(entry.group_id, entry) for entry in response.groups],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        ConsumerGroupDescribeRequest(group_ids=["t"]),
        lambda response: [(entry.group_id, entry) for entry in response.groups],
    ),
    ApiKey.DELETE_GROUPS: (
        DeleteGroupsRequest(groups_names=["t"]),
        lambda response: [(entry.group_id, entry) for entry in response.results],
    ),
    ApiKey.CREATE_TOPICS: (
        CreateTopicsRequest(topics=[CreatableTopic(name="t")]),
        lambda response: [(entry.name, entry) for entry in response.topics],
    ),
    ApiKey.DELETE_TOPICS: (
        DeleteTopicsRequest(topic_names=["t"]),
        lambda response: [(entry.name, entry) for entry in response.responses],
    ),
    ApiKey.DELETE_RECORDS: (
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=3)])]),
        lambda response: [(response.topics[0].name, entry) for entry in response.topics[0].partitions],
    ),
    ApiKey.CREATE_PARTITIONS: (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t")]),
        lambda response: [(entry.name, entry) for entry in response.results],
    ),
    # These entries have no names.
    ApiKey.CREATE_ACLS: (
        CreateAclsRequest(creations=[AclCreation()]),
        lambda response: [("t", entry) for entry in response.results],
    ),
    ApiKey.DELETE_ACLS: (
        DeleteAclsRequest(filters=[DeleteAclsFilter()]),
        lambda response: [("t", entry) for entry in response.filter_results],
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")]),
        lambda response: [(entry.resource_name, entry) for entry in response.results],
    ),
    ApiKey.ALTER_CONFIGS: (
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
        lambda response: [(entry.resource_name, entry) for entry in response.responses],
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
        lambda response: [(entry.resource_name, entry) for entry in response.responses],
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        DescribeProducersRequest(topics=[ProducersTopic(name="t", partition_indexes=[3])]),
        lambda response: [(response.topics[0].name, entry) for entry in response.topics[0].partitions],
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]),
        lambda response: [(entry.name, entry) for entry in response.topics],
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        WriteTxnMarkersRequest(
            markers=[WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[3])])]
        ),
        lambda response: [(topic.name, entry) for topic in response.markers[0].topics for entry in topic.partitions],
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        TxnOffsetCommitRequest(
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=3)])]
        ),
        lambda response: [(response.topics[0].name, entry) for entry in response.topics[0].partitions],
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        DescribeTransactionsRequest(transactional_ids=["t"]),
        lambda response: [(entry.transactional_id, entry) for entry in response.transaction_states],
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/d1", topics=[AlterReplicaLogDirTopic(name="t", partitions=[3])])]
        ),
        lambda response: [(response.results[0].topic_name, entry) for entry in response.results[0].partitions],
    ),
}


@pytest.mark.parametrize("api_key", list(APIS), ids=lambda key: key.name)
def test_every_api_has_an_error_response_in_every_version(api_key: ApiKey) -> None:
    # The error is where clients look for it: at the top level if there is such a field, otherwise in every requested entry.
    api = APIS[api_key]
    request, entries_of = PER_ENTRY.get(api_key, (api.request(), None))
    response = error_response(request, api_key, CODE, "not allowed")
    response_class: Any = api.response
    assert type(response) is response_class
    if entries_of is None:
        assert response.error_code == CODE
    else:
        assert [(name, entry.error_code) for name, entry in entries_of(response)] == [("t", CODE)]
    for version in api.versions:
        decoded: Any = decode(api.response, encode(response, version), version)
        assert encode(decoded, version) == encode(response, version)


def test_the_text_goes_where_there_is_room_for_it() -> None:
    # APIs with a message field also report the reason.
    for api_key in (
        ApiKey.PRODUCE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    ):
        request, entries_of = PER_ENTRY[api_key]
        ((_, entry),) = entries_of(error_response(request, api_key, CODE, "because"))
        assert entry.error_message == "because"
    for api_key in (
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ):
        assert error_response(APIS[api_key].request(), api_key, CODE, "because").error_message == "because"


def test_a_failed_election_is_reported_where_every_version_looks() -> None:
    # Version 0 of ElectLeaders has no top-level error code, so its clients look for the error in the partitions.
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[3])])
    response = error_response(request, ApiKey.ELECT_LEADERS, CODE, "because")
    (topic,) = response.replica_election_results
    assert (response.error_code, topic.topic) == (CODE, "t")
    assert topic.partition_result == [PartitionResult(partition_id=3, error_code=CODE, error_message="because")]


def test_failed_reassignments_are_reported_for_every_partition() -> None:
    # Java's admin client counts the entries although there is a top-level error code.
    partitions = [ReassignablePartition(partition_index=3, replicas=[1])]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    response = error_response(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, CODE, "because")
    (topic,) = response.responses
    assert (response.error_code, topic.name) == (CODE, "t")
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.error_code, partition.error_message) == (3, CODE, "because")


def test_a_failed_description_of_all_topics_is_reported_at_the_cursor() -> None:
    # The request names no topic, and the response has no other place for an error.
    request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=-1))
    (topic,) = error_response(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, CODE, "because").topics
    assert (topic.name, topic.error_code) == ("t", CODE)


def test_produce_without_acknowledgement_has_no_response() -> None:
    # A Produce with acks=0 gets no response, not even an error.
    assert error_response(ProduceRequest(acks=0), ApiKey.PRODUCE, CODE) is None


def test_topics_by_id_are_answered_by_id() -> None:
    # Topics requested only by id are returned by that id.
    deleted = error_response(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=ID)]), ApiKey.DELETE_TOPICS, CODE)
    assert (deleted.responses[0].name, deleted.responses[0].topic_id) == (None, ID)
    fetched = error_response(PER_ENTRY[ApiKey.FETCH][0], ApiKey.FETCH, CODE)
    assert fetched.responses[0].topic_id == ID
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ID)])
    assert error_response(request, ApiKey.METADATA, CODE).topics[0].topic_id == ID
    # Without a topic that could have the error, only version 13 tells it.
    answer = error_response(MetadataRequest(topics=None), ApiKey.METADATA, CODE)
    assert (answer.topics, answer.error_code) == ([], CODE)


def test_an_error_of_several_groups_or_keys_is_in_every_entry() -> None:
    # The batched forms of OffsetFetch and FindCoordinator, and version 1 of OffsetFetch, have no top-level error.
    batched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="a"), OffsetFetchRequestGroup(group_id="b")])
    fetched = decode_again(ApiKey.OFFSET_FETCH, error_response(batched, ApiKey.OFFSET_FETCH, CODE), 8)
    assert [(group.group_id, group.error_code) for group in fetched.groups] == [("a", CODE), ("b", CODE)]
    single = OffsetFetchRequest(group_id="a", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[3])])
    fetched = decode_again(ApiKey.OFFSET_FETCH, error_response(single, ApiKey.OFFSET_FETCH, CODE), 1)
    assert [(entry.partition_index, entry.error_code) for entry in fetched.topics[0].partitions] == [(3, CODE)]
    keys = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    found = decode_again(ApiKey.FIND_COORDINATOR, error_response(keys, ApiKey.FIND_COORDINATOR, CODE), 4)
    assert [(entry.key, entry.error_code) for entry in found.coordinators] == [("a", CODE), ("b", CODE)]


def decode_again(api_key: ApiKey, response: Any, version: int) -> Any:
    return decode(APIS[api_key].response, encode(response, version), version)
