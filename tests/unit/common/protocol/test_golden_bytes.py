"""Messages whose bytes were derived by hand from the protocol's rules."""

import pytest

from common.ids import Uuid
from common.protocol.codec import decode, decode_with_version, encode, encode_with_version
from common.protocol.messages import alter_partition
from common.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, BrokerState
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.messages.default_principal_data import DefaultPrincipalData
from common.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from common.protocol.messages.metadata import MetadataRequest
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from common.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from common.protocol.numbering import Numbering

UNASSIGNED, LOST, MIGRATING = (Uuid(number.to_bytes(16, "big")) for number in range(3))
# The versions that no oracle has, see the tests below.
CASES = [
    *((each, version) for each in (AlterPartitionRequest, AlterPartitionResponse) for version in (0, 1)),
    (ApiVersionsRequest, 5),
    (ApiVersionsResponse, 5),
    (DeleteGroupsRequest, 3),
    (DeleteGroupsResponse, 3),
    (TxnOffsetCommitRequest, 6),
    (TxnOffsetCommitResponse, 6),
    (UnregisterControllerRequest, 0),
    (UnregisterControllerResponse, 0),
]
DIRECTORY = Uuid(bytes.fromhex("0102030405060708090a0b0c0d0e0f10"))
TOPIC = Uuid(bytes.fromhex("a0" * 16))


def wire(annotated: str) -> bytes:
    """Decodes hex text. Everything after a '#' is a comment."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in annotated.splitlines()))


def test_heartbeat_with_offline_directories() -> None:
    """In a BrokerHeartbeat request, OfflineLogDirs is tagged field 0, a compact array of uuids."""
    message = BrokerHeartbeatRequest(
        broker_id=5, broker_epoch=300, current_metadata_offset=1000, want_shut_down=True, offline_log_dirs=[DIRECTORY, LOST]
    )
    expected = wire(
        """
        00000005          # broker id
        000000000000012c  # broker epoch
        00000000000003e8  # current metadata offset
        00 01             # want fence, want shut down
        01                # one tagged field
        00 21             # tag 0, 33 bytes
        03                # two elements, plus one
        0102030405060708090a0b0c0d0e0f10
        00000000000000000000000000000001  # a plain uuid is never renumbered, though it looks like LOST
        """
    )
    for numbering in Numbering:
        assert encode(message, 1, numbering=numbering) == expected
        assert decode(BrokerHeartbeatRequest, expected, 1, numbering=numbering) == message


def test_heartbeat_without_offline_directories() -> None:
    """An empty tagged array takes no bytes, so version 1 is as long as version 0."""
    message = BrokerHeartbeatRequest(broker_id=5, broker_epoch=300)
    assert encode(message, 1) == encode(message, 0) == wire("00000005 000000000000012c 0000000000000000 0000 00")


def test_api_versions_of_a_certain_node() -> None:
    """From version 5 on, ApiVersions names the cluster and the node that the client wants to reach (KIP-1242). The response
    of version 5 is that of version 4."""
    message = ApiVersionsRequest(client_software_name="go", client_software_version="1", cluster_id="abc", node_id=258)
    expected = wire(
        """
        03 676f      # software name, with its length plus one
        02 31        # software version
        04 616263    # cluster id
        00000102     # node id
        00           # no tagged fields
        """
    )
    assert encode(message, 5) == expected
    assert decode(ApiVersionsRequest, expected, 5) == message
    unknown = ApiVersionsRequest(client_software_name="go", client_software_version="1")
    assert encode(unknown, 5) == wire("03 676f 02 31 00 ffffffff 00")
    assert encode(message, 4) == wire("03 676f 02 31 00")
    response = ApiVersionsResponse(error_code=129, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=5)])
    assert encode(response, 5) == encode(response, 4) == wire("0081 02 0012 0000 0005 00 00000000 00")
    assert decode(ApiVersionsResponse, encode(response, 5), 5) == response


def assignments_to(*directory_ids: Uuid) -> AssignReplicasToDirsRequest:
    partitions = [RequestPartitionData(partition_index=index) for index in (7, 258)]
    return AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=2,
        directories=[
            RequestDirectoryData(id=each, topics=[RequestTopicData(topic_id=TOPIC, partitions=partitions)])
            for each in directory_ids
        ],
    )


def assignments_on_the_wire(*directory_ids: str) -> bytes:
    start = "00000001 0000000000000002" + f"{len(directory_ids) + 1:02x}"  # broker id, broker epoch, directories + 1
    topics = """
        02                                # one topic
        a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0  # its id
        03 00000007 00 00000102 00        # two partitions, each with no tagged fields
        00 00                             # none in the topic, none in the directory
        """
    return wire(start) + b"".join(wire(each + topics) for each in directory_ids) + wire("00")


def test_assigned_directories_in_the_seeds_numbering() -> None:
    """The default numbering of reserved directory ids is KIP-858's: UNASSIGNED 0, LOST 1, MIGRATING 2."""
    message = assignments_to(DIRECTORY, UNASSIGNED, LOST, MIGRATING)
    expected = assignments_on_the_wire(DIRECTORY.hex(), "00" * 16, "00" * 15 + "01", "00" * 15 + "02")
    assert encode(message, 0) == expected
    assert decode(AssignReplicasToDirsRequest, expected, 0) == message


def test_assigned_directories_in_apaches_numbering() -> None:
    """Apache Kafka numbers the reserved directory ids MIGRATING 0, UNASSIGNED 1, LOST 2. In memory the numbers are always
    those of KIP-858."""
    message = assignments_to(DIRECTORY, UNASSIGNED, LOST, MIGRATING)
    expected = assignments_on_the_wire(DIRECTORY.hex(), "00" * 15 + "01", "00" * 15 + "02", "00" * 16)
    assert encode(message, 0, numbering=Numbering.APACHE) == expected
    assert decode(AssignReplicasToDirsRequest, expected, 0, numbering=Numbering.APACHE) == message


def test_many_partitions_take_the_columns_path() -> None:
    """A thousand partitions encoded together, column by column, get the same bytes as a thousand encoded one by one."""
    topic = RequestTopicData(
        topic_id=TOPIC, partitions=[RequestPartitionData(partition_index=index * 3) for index in range(1000)]
    )
    message = AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=2, directories=[RequestDirectoryData(id=DIRECTORY, topics=[topic])]
    )
    # 1001 is the varint e9 07.
    expected = wire(f"00000001 0000000000000002 02 {DIRECTORY.hex()} 02 {TOPIC.hex()} e907") + b"".join(
        (index * 3).to_bytes(4, "big") + b"\x00" for index in range(1000)
    )
    assert encode(message, 0) == expected + b"\x00\x00\x00"
    assert decode(AssignReplicasToDirsRequest, expected + b"\x00\x00\x00", 0) == message


def test_one_partition_with_an_unknown_tag_among_many() -> None:
    """If an element has tagged fields, the array is encoded and decoded element by element, not column by column."""
    partitions = [RequestPartitionData(partition_index=index) for index in range(20)]
    partitions[13].unknown_tagged_fields = {9: b"later"}
    message = AssignReplicasToDirsRequest(
        directories=[RequestDirectoryData(id=DIRECTORY, topics=[RequestTopicData(partitions=partitions)])]
    )
    encoded = encode(message, 0)
    assert wire("0000000d 01 09 05") + b"later" in encoded
    assert decode(AssignReplicasToDirsRequest, encoded, 0) == message


def test_fetch_response_with_a_tagged_leader() -> None:
    """A tagged struct is sent if one of its fields is not the default. Known and unknown tags are in ascending order."""
    partition = PartitionData(
        partition_index=1,
        error_code=6,
        high_watermark=-1,
        aborted_transactions=None,
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=9),
        unknown_tagged_fields={0x4000: b"\x2a"},
        records=b"abc",
    )
    message = FetchResponse(session_id=0, responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[partition])])
    expected = wire(
        """
        00000000 0000 00000000            # throttle time, error code, session id
        02                                # one topic
        a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0
        02                                # one partition
        00000001 0006 ffffffffffffffff    # index, NOT_LEADER_OR_FOLLOWER, high watermark
        ffffffffffffffff ffffffffffffffff # last stable offset, log start offset
        00                                # aborted transactions: null
        ffffffff                          # preferred read replica
        04 616263                         # records
        02                                # two tagged fields
        01 09 00000003 00000009 00        # tag 1, 9 bytes: leader id, leader epoch, no tags
        808001 01 2a                      # tag 16384, 1 byte
        00 00                             # no tags of the topic, none of the response
        """
    )
    assert encode(message, 17) == expected
    assert decode(FetchResponse, expected, 17) == message


def test_all_topics_of_a_metadata_request() -> None:
    """A null array has the count -1 in the older versions and the count 0 in the compact form."""
    assert encode(MetadataRequest(topics=None), 1) == wire("ffffffff")
    assert encode(MetadataRequest(topics=None), 12) == wire("00 01 00 00")


def test_a_principal_carries_its_version() -> None:
    """The principal in an Envelope starts with a two-byte version."""
    principal = DefaultPrincipalData(type="User", name="ANONYMOUS")
    expected = wire("0000 05") + b"User" + wire("0a") + b"ANONYMOUS" + wire("00 00")
    assert encode_with_version(principal, 0) == expected
    assert decode_with_version(DefaultPrincipalData, memoryview(expected)) == principal


@pytest.mark.parametrize(("version", "recovery_state"), [(0, ""), (1, "01")])
def test_an_isr_change_below_version_2(version: int, recovery_state: str) -> None:
    """AlterPartition names topics, and has the members without their epochs. LeaderRecoveryState begins with version 1. What
    only later versions have is left out."""
    partition = alter_partition.RequestPartitionData(
        partition_index=7,
        leader_epoch=5,
        new_isr=[1, 258],
        new_isr_with_epochs=[BrokerState(broker_id=1)],
        leader_recovery_state=version,
        partition_epoch=9,
    )
    topic = alter_partition.RequestTopicData(topic_name="abc", topic_id=TOPIC, partitions=[partition])
    encoded = encode(AlterPartitionRequest(broker_id=1, broker_epoch=2, topics=[topic]), version)
    assert encoded == wire(
        f"""
        00000001 0000000000000002          # broker id, broker epoch
        02 04 616263                       # one topic, its name
        02 00000007 00000005               # one partition, its index, leader epoch
        03 00000001 00000102               # two members
        {recovery_state} 00000009          # partition epoch
        00 00 00                           # no tagged fields in the partition, the topic, the request
        """
    )
    read = decode(AlterPartitionRequest, encoded, version).topics[0]
    assert (read.topic_name, read.topic_id) == ("abc", bytes(16))
    assert (read.partitions[0].new_isr, read.partitions[0].new_isr_with_epochs) == ([1, 258], [])


@pytest.mark.parametrize(("version", "recovery_state"), [(0, ""), (1, "01")])
def test_the_answer_to_an_isr_change_below_version_2(version: int, recovery_state: str) -> None:
    """The response names topics, too, and has no LeaderRecoveryState in version 0."""
    partition = alter_partition.ResponsePartitionData(
        partition_index=7, error_code=74, leader_id=1, leader_epoch=5, isr=[1], leader_recovery_state=1, partition_epoch=9
    )
    topic = alter_partition.ResponseTopicData(topic_name="abc", topic_id=TOPIC, partitions=[partition])
    encoded = encode(AlterPartitionResponse(error_code=77, topics=[topic]), version)
    assert encoded == wire(
        f"""
        00000000 004d                      # throttle time, error code
        02 04 616263                       # one topic, its name
        02 00000007 004a 00000001 00000005 # one partition, its index, error code, leader, leader epoch
        02 00000001                        # one member
        {recovery_state} 00000009          # partition epoch
        00 00 00                           # no tagged fields in the partition, the topic, the response
        """
    )
    assert decode(AlterPartitionResponse, encoded, version).topics[0].topic_name == "abc"


def test_offsets_of_a_transaction_name_topics_by_id() -> None:
    """KIP-1319: from version 6 of TxnOffsetCommit on."""
    partition = TxnOffsetCommitRequestPartition(partition_index=2, committed_offset=7, committed_metadata="m")
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1000,
        producer_epoch=3,
        generation_id=5,
        member_id="a",
        topics=[TxnOffsetCommitRequestTopic(topic_id=TOPIC, partitions=[partition])],
    )
    expected = wire(
        f"""
        0278              # transactional id
        0267              # group id
        00000000000003e8  # producer id
        0003              # producer epoch
        00000005          # member epoch
        0261              # member id
        00                # no instance id
        02 {TOPIC.hex()}
        02 00000002       # one partition, number 2
        0000000000000007  # offset
        ffffffff          # no leader epoch
        026d 00           # metadata, no tagged fields
        00 00             # nor of the topic or the request
        """
    )
    assert encode(request, 6) == expected
    assert decode(TxnOffsetCommitRequest, expected, 6) == request
    response = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic_id=TOPIC, partitions=[TxnOffsetCommitResponsePartition(partition_index=2, error_code=113)]
            )
        ]
    )
    answered = wire(
        f"""
        00000000          # throttle time
        02 {TOPIC.hex()}
        02 00000002 0071  # STALE_MEMBER_EPOCH for partition 2
        00 00 00
        """
    )
    assert encode(response, 6) == answered
    assert decode(TxnOffsetCommitResponse, answered, 6) == response


def test_a_group_that_stays_is_answered_with_the_reason() -> None:
    """From version 3 of DeleteGroups on. The request is that of version 2."""
    request = DeleteGroupsRequest(groups_names=["g"])
    assert encode(request, 3) == encode(request, 2) == wire("02 0267 00")
    assert decode(DeleteGroupsRequest, wire("02 0267 00"), 3) == request
    response = DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id="g", error_code=68, error_message="why"), DeletableGroupResult(group_id="h")]
    )
    expected = wire(
        """
        00000000          # throttle time
        03                # two groups
        0267 0044         # NON_EMPTY_GROUP
        04 776879 00      # "why"
        0268 0000 00 00   # deleted, no message
        00
        """
    )
    assert encode(response, 3) == expected
    assert decode(DeleteGroupsResponse, expected, 3) == response


def test_a_controller_that_is_unregistered() -> None:
    request = UnregisterControllerRequest(controller_id=102)
    assert encode(request, 0) == wire("00000066 00")
    assert decode(UnregisterControllerRequest, wire("00000066 00"), 0) == request
    response = UnregisterControllerResponse(error_code=42, error_message="why")
    expected = wire(
        """
        00000000          # throttle time
        002a              # INVALID_REQUEST
        04 776879 00      # "why"
        """
    )
    assert encode(response, 0) == expected
    assert decode(UnregisterControllerResponse, expected, 0) == response
