"""The records of consumer groups, byte for byte as Apache Kafka 4.1 writes them."""

import pytest

from common.ids import TopicId
from common.protocol.errors import ProtocolError
from common.protocol.schema import Struct, Uuid
from common.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OwnedTopicPartitions,
    TopicMetadata,
    TopicPartitions,
    decode_consumer_value,
    encode_consumer_key,
    encode_consumer_value,
)
from common.records.group_records import decode_key

TOPIC = TopicId(Uuid(bytes(range(16))))
TOPIC_HEX = "000102030405060708090a0b0c0d0e0f"
PARTITIONS = [TopicPartitions(topic_id=TOPIC, partitions=[1, 2])]
PARTITIONS_HEX = f"02 {TOPIC_HEX} 03 00000001 00000002 00"

# Keys have the old encoding of texts, with two bytes for the length; values the compact one, with the length plus one in
# a varint, and end with the number of their tagged fields.
GOLDEN: list[tuple[ConsumerGroupKey, str, Struct, str]] = [
    (
        ConsumerGroupMetadataKey(group_id="g"),
        "0003 0001 67",
        ConsumerGroupMetadataValue(epoch=5),
        "0000 00000005 00",
    ),
    (
        ConsumerGroupMetadataKey(group_id="g"),
        "0003 0001 67",
        ConsumerGroupMetadataValue(epoch=5, metadata_hash=-2),
        "0000 00000005 01 00 08 fffffffffffffffe",
    ),
    (
        ConsumerGroupPartitionMetadataKey(group_id="g"),
        "0004 0001 67",
        ConsumerGroupPartitionMetadataValue(topics=[TopicMetadata(topic_id=TOPIC, topic_name="t", num_partitions=3)]),
        f"0000 02 {TOPIC_HEX} 02 74 00000003 01 00 00",
    ),
    (
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        "0005 0001 67 0001 6d",
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=300_000,
            server_assignor="range",
            classic_member_metadata=None,
        ),
        "0000 00 02 72 02 63 03 2f68 02 02 74 00 000493e0 06 72616e6765 01 00 01 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        "0006 0001 67",
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=5),
        "0000 00000005 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        "0006 0001 67",
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=5, assignment_timestamp=7),
        "0000 00000005 01 00 08 0000000000000007",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        "0007 0001 67 0001 6d",
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=PARTITIONS),
        f"0000 {PARTITIONS_HEX} 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        "0008 0001 67 0001 6d",
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=1,
            assigned_partitions=[OwnedTopicPartitions(topic_id=TOPIC, partitions=[1, 2], assignment_epochs=[5, 3])],
            partitions_pending_revocation=[OwnedTopicPartitions(topic_id=TOPIC, partitions=[1, 2])],
        ),
        # The epochs are tagged field 0. An older release leaves them out.
        f"0000 00000005 00000004 01 02 {TOPIC.hex()} 03 00000001 00000002 01 00 09 03 00000005 00000003 {PARTITIONS_HEX} 00",
    ),
    (
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"),
        "0010 0001 67 0003 742e2a",
        ConsumerGroupRegularExpressionValue(topics=["t"], version=7, timestamp=1),
        "0000 02 02 74 0000000000000007 0000000000000001 00",
    ),
]


@pytest.mark.parametrize(("key", "key_hex", "value", "value_hex"), GOLDEN)
def test_golden_bytes(key: ConsumerGroupKey, key_hex: str, value: Struct, value_hex: str) -> None:
    """Worked out by hand from the definitions of Kafka's records."""
    key_bytes, value_bytes = bytes.fromhex(key_hex), bytes.fromhex(value_hex)
    assert encode_consumer_key(key) == key_bytes
    assert encode_consumer_value(value) == value_bytes
    assert decode_key(key_bytes) == key
    assert decode_consumer_value(key, value_bytes) == value


@pytest.mark.parametrize(("key", "key_hex", "value", "value_hex"), GOLDEN)
def test_malformed_records_are_errors(key: ConsumerGroupKey, key_hex: str, value: Struct, value_hex: str) -> None:
    for cut in range(2, len(bytes.fromhex(key_hex))):
        with pytest.raises(ProtocolError):
            decode_key(bytes.fromhex(key_hex)[:cut])
    for cut in range(len(bytes.fromhex(value_hex))):
        with pytest.raises(ProtocolError):
            decode_consumer_value(key, bytes.fromhex(value_hex)[:cut])
