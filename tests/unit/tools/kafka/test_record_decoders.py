"""The records of internal topics as kafka-dump-log prints them. The expected lines are those of Kafka 4.1."""

import pytest

from common.protocol.codec import encode_with_version
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from common.records.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    encode_consumer_key,
    encode_consumer_value,
)
from common.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group,
    encode_key,
    encode_offset,
)
from common.records.record import Record
from common.records.transaction_records import (
    PartitionsSchema,
    TransactionLogValue,
    encode_transaction,
    encode_transaction_key,
)
from tools.errors import ToolError
from tools.kafka.record_decoders import offsets, plain, transactions

GROUP = encode_key(GroupMetadataKey(group="g"))
OFFSET = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
SUBSCRIPTION = encode_with_version(ConsumerProtocolSubscription(topics=["t"]), 1)
ASSIGNMENT = encode_with_version(
    ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[0])]), 1
)
GROUP_TEXT = '{"type":"2","data":{"group":"g"}}'
OFFSET_TEXT = '{"type":"1","data":{"group":"g","topic":"t","partition":0}}'


def group_value(protocol_type: str, subscription: bytes = SUBSCRIPTION) -> bytes:
    member = MemberMetadata(member_id="m", client_id="c", client_host="/h", subscription=subscription, assignment=ASSIGNMENT)
    return encode_group(
        GroupMetadataValue(protocol_type=protocol_type, generation=1, protocol="range", leader="m", members=[member])
    )


def group_text(protocol_type: str, subscription: str, assignment: str) -> str:
    return (
        f'{{"version":"3","data":{{"protocolType":"{protocol_type}","generation":1,"protocol":"range","leader":"m",'
        '"currentStateTimestamp":-1,"members":[{"memberId":"m","groupInstanceId":null,"clientId":"c","clientHost":"/h",'
        f'"rebalanceTimeout":-1,"sessionTimeout":0,"subscription":{subscription},"assignment":{assignment}}}]}}}}'
    )


ASSIGNMENT_TEXT = '{"assignedPartitions":[{"topic":"t","partitions":[0]}],"userData":null}'


@pytest.mark.parametrize(
    ("key", "value", "key_text", "payload"),
    [
        (
            GROUP,
            group_value("consumer"),
            GROUP_TEXT,
            group_text("consumer", '{"topics":["t"],"userData":null,"ownedPartitions":[]}', ASSIGNMENT_TEXT),
        ),
        (
            GROUP,
            group_value("connect", b"\0"),
            GROUP_TEXT,
            group_text("connect", '"AA=="', '"AAEAAAABAAF0AAAAAQAAAAD/////"'),
        ),
        (GROUP, group_value("consumer", b"\0"), GROUP_TEXT, group_text("consumer", '"AA=="', ASSIGNMENT_TEXT)),
        (GROUP, None, GROUP_TEXT, "<DELETE>"),
        (
            OFFSET,
            encode_offset(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=8)),
            OFFSET_TEXT,
            '{"version":"4","data":{"offset":5,"leaderEpoch":-1,"metadata":"m","commitTimestamp":8}}',
        ),
        (
            encode_consumer_key(ConsumerGroupMetadataKey(group_id="g")),
            encode_consumer_value(ConsumerGroupMetadataValue(epoch=3, metadata_hash=1)),
            '{"type":"3","data":{"groupId":"g"}}',
            '{"version":"0","data":{"epoch":3,"metadataHash":1}}',
        ),
        (b"\0\x63xx", b"x", "Unknown record type 99 at offset 7, skipping.", None),
        (b"\0", b"x", "Error at offset 7, skipping. the record ends in its version", None),
        (b"\0\1\0", b"x", "Error at offset 7, skipping. OffsetCommitKey version 1 ends early", None),
        (OFFSET, b"\0", "Error at offset 7, skipping. the record ends in its version", None),
    ],
)
def test_records_of_groups(key: bytes, value: bytes | None, key_text: str, payload: str | None) -> None:
    """What the consumers of a group hand over to each other is decoded too, if it can be."""
    assert offsets(Record(key, value, 1, offset=7)) == (key_text, payload)


def test_records_of_transactions() -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
    )
    key_text = '{"type":"0","data":{"transactionalId":"tx"}}'
    assert transactions(Record(encode_transaction_key("tx"), encode_transaction(value), 1)) == (
        key_text,
        '{"version":"0","data":{"producerId":7,"producerEpoch":2,"transactionTimeoutMs":60000,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"t","partitionIds":[0,2]}],"transactionLastUpdateTimestampMs":5,'
        '"transactionStartTimestampMs":4}}',
    )
    assert transactions(Record(encode_transaction_key("tx"), None, 1)) == (key_text, "<DELETE>")
    unknown = "Unknown record type 9 at offset 3, skipping."
    assert transactions(Record(b"\0\x09xx", b"x", 1, offset=3)) == (unknown, None)


def test_records_of_another_topic() -> None:
    """A record without a key cannot be one of an internal topic."""
    with pytest.raises(ToolError, match=r"offset 3 using offset topic decoder \(message had a missing key\)"):
        offsets(Record(None, b"x", 1, offset=3))
    with pytest.raises(ToolError, match="using transaction log topic decoder"):
        transactions(Record(None, b"x", 1, offset=3))


def test_plain_text() -> None:
    assert plain(Record(b"\xff", None, 1)) == ("\N{REPLACEMENT CHARACTER}", None)
