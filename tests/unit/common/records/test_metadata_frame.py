"""The records of the metadata log: golden bytes of every type and version, both numberings, damage."""

import pytest

from common.ids import Uuid
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.protocol.schema import message_schema
from common.records.metadata_frame import (
    ApiMessageAndVersion,
    MalformedRecord,
    UnknownRecord,
    UnknownRecordType,
    decode_any_record,
    decode_record,
    encode_record,
)
from common.records.metadata_records import (
    RECORD_CLASSES,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    KnownRecord,
    MetadataRecordType,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationRecord,
)
from tests.unit.common.records.hexadecimal import from_annotated

ID_1, ID_2, ID_3, ID_4 = (Uuid(bytes([number]) * 16) for number in (0x11, 0x22, 0x33, 0x44))


def register_broker(*, in_controlled_shutdown: bool = False, log_dirs: tuple[Uuid, ...] = ()) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=ID_1,
        broker_epoch=100,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[BrokerFeature(name="metadata.version", min_supported_version=1, max_supported_version=22)],
        rack="r",
        fenced=True,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(log_dirs),
    )


def partition(**more: object) -> PartitionRecord:
    record = PartitionRecord(
        partition_id=3,
        topic_id=ID_1,
        replicas=[1, 2],
        isr=[2],
        adding_replicas=[1],
        leader=2,
        leader_epoch=5,
        partition_epoch=6,
    )
    for name, value in more.items():
        setattr(record, name, value)
    return record


BROKER_BODY = """
    11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # incarnation id
    00 00 00 00 00 00 00 64                           # broker epoch 100
    02                                                # one endpoint
      0a 50 4c 41 49 4e 54 45 58 54                   #   name "PLAINTEXT"
      02 68                                           #   host "h"
      23 84                                           #   port 9092
      00 00                                           #   security protocol 0
      00                                              #   no tagged fields
    02                                                # one feature
      11 6d 65 74 61 64 61 74 61 2e 76 65 72 73 69 6f 6e   # name "metadata.version"
      00 01 00 16                                     #   levels 1 to 22
      00                                              #   no tagged fields
    02 72                                             # rack "r"
    01                                                # fenced
"""

PARTITION_BODY = """
    00 00 00 03                                       # partition 3
    11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # topic id
    03 00 00 00 01 00 00 00 02                        # replicas 1 and 2
    02 00 00 00 02                                    # ISR 2
    01                                                # nothing is removed
    02 00 00 00 01                                    # 1 is added
    00 00 00 02                                       # leader 2
    00 00 00 05                                       # leader epoch
    00 00 00 06                                       # partition epoch
"""

CHANGE_HEAD = """
    00 00 00 03                                       # partition 3
    11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # topic id
"""

GOLDEN: list[tuple[str, KnownRecord, int, str]] = [
    (
        "RegisterBroker v0",
        register_broker(),
        0,
        f"""
        01 00 00              # frame version, type 0, version 0
        00 00 00 01           # broker 1
        {BROKER_BODY}
        00                    # no tagged fields
        """,
    ),
    (
        "RegisterBroker v1",
        register_broker(in_controlled_shutdown=True),
        1,
        f"""
        01 00 01              # frame version, type 0, version 1
        00 00 00 01           # broker 1
        {BROKER_BODY}
        01                    # in controlled shutdown
        00                    # no tagged fields
        """,
    ),
    (
        "RegisterBroker v2",
        register_broker(),
        2,
        f"""
        01 00 02              # frame version, type 0, version 2
        00 00 00 01           # broker 1
        00                    # is no migrating ZooKeeper broker
        {BROKER_BODY}
        00                    # not in controlled shutdown
        00                    # no tagged fields
        """,
    ),
    (
        "RegisterBroker v3",
        register_broker(log_dirs=(ID_2, ID_3)),
        3,
        f"""
        01 00 03              # frame version, type 0, version 3
        00 00 00 01           # broker 1
        00                    # is no migrating ZooKeeper broker
        {BROKER_BODY}
        00                    # not in controlled shutdown
        01                    # one tagged field
          00 21               #   tag 0 of 33 bytes: log dirs
          03                  #   two of them
          22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
          33 33 33 33 33 33 33 33 33 33 33 33 33 33 33 33
        """,
    ),
    (
        "RegisterBroker v3 with lost directories",
        RegisterBrokerRecord(broker_id=1, incarnation_id=ID_1, log_dirs=[ID_2], lost_log_dirs=[ID_3]),
        3,
        """
        01 00 03              # frame version, type 0, version 3
        00 00 00 01 00        # broker 1, is no migrating ZooKeeper broker
        11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # incarnation id
        00 00 00 00 00 00 00 00                           # broker epoch 0
        01 01                 # no endpoints, no features
        00                    # no rack
        01 00                 # fenced, not in controlled shutdown
        02                    # two tagged fields
          00 11               #   tag 0 of 17 bytes: log dirs
          02 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
          90 4e 11            #   tag 10000 (0x4e * 128 + 0x10) of 17 bytes: lost log dirs
          02 33 33 33 33 33 33 33 33 33 33 33 33 33 33 33 33
        """,
    ),
    (
        "RegisterBroker v4",
        RegisterBrokerRecord(broker_id=1, incarnation_id=ID_1, log_dirs=[ID_2], cordoned_log_dirs=[ID_2]),
        4,
        """
        01 00 04              # frame version, type 0, version 4
        00 00 00 01 00        # broker 1, is no migrating ZooKeeper broker
        11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # incarnation id
        00 00 00 00 00 00 00 00                           # broker epoch 0
        01 01                 # no endpoints, no features
        00                    # no rack
        01 00                 # fenced, not in controlled shutdown
        02                    # two tagged fields
          00 11               #   tag 0 of 17 bytes: log dirs
          02 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
          01 11               #   tag 1 of 17 bytes: cordoned log dirs
          02 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
        """,
    ),
    (
        "UnregisterBroker v0",
        UnregisterBrokerRecord(broker_id=2, broker_epoch=258),
        0,
        """
        01 01 00                    # frame version, type 1, version 0
        00 00 00 02                 # broker 2
        00 00 00 00 00 00 01 02     # broker epoch 258
        00                          # no tagged fields
        """,
    ),
    (
        "Topic v0",
        TopicRecord(name="logs", topic_id=ID_1),
        0,
        """
        01 02 00                                          # frame version, type 2, version 0
        05 6c 6f 67 73                                    # name "logs"
        11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # topic id
        00                                                # no tagged fields
        """,
    ),
    (
        "Partition v0",
        partition(leader_recovery_state=1),
        0,
        f"""
        01 03 00              # frame version, type 3, version 0
        {PARTITION_BODY}
        01 00 01 01           # one tagged field: tag 0 of 1 byte, RECOVERING
        """,
    ),
    (
        "Partition v1",
        partition(directories=[ID_2, LOST]),
        1,
        f"""
        01 03 01              # frame version, type 3, version 1
        {PARTITION_BODY}
        03                    # two directories
          22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
          00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01   # LOST in KIP-858's numbers
        00                    # no tagged fields
        """,
    ),
    (
        "Partition v2",
        partition(directories=[ID_2, ID_3], eligible_leader_replicas=[1], last_known_elr=[]),
        2,
        f"""
        01 03 02              # frame version, type 3, version 2
        {PARTITION_BODY}
        03                    # two directories
          22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
          33 33 33 33 33 33 33 33 33 33 33 33 33 33 33 33
        02                    # two tagged fields
          01 05 02 00 00 00 01   # tag 1 of 5 bytes: eligible leader replica 1
          02 01 01               # tag 2 of 1 byte: an empty list, not null
        """,
    ),
    (
        "Config v0",
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        0,
        """
        01 04 00        # frame version, type 4, version 0
        02              # resource type: topic
        02 74           # resource name "t"
        02 61           # name "a"
        02 31           # value "1"
        00              # no tagged fields
        """,
    ),
    (
        "Config v0 that deletes",
        ConfigRecord(resource_type=4, resource_name="", name="a", value=None),
        0,
        """
        01 04 00        # frame version, type 4, version 0
        04              # resource type: broker
        01              # resource name "", the default of all brokers
        02 61           # name "a"
        00              # null value
        00              # no tagged fields
        """,
    ),
    (
        "PartitionChange v0",
        PartitionChangeRecord(
            partition_id=3,
            topic_id=ID_1,
            isr=[2],
            leader=-1,
            replicas=[1, 2],
            removing_replicas=[],
            adding_replicas=[3],
            leader_recovery_state=0,
        ),
        0,
        f"""
        01 05 00                              # frame version, type 5, version 0
        {CHANGE_HEAD}
        06                                    # six tagged fields
          00 05 02 00 00 00 02                #   tag 0: ISR 2
          01 04 ff ff ff ff                   #   tag 1: no leader
          02 09 03 00 00 00 01 00 00 00 02    #   tag 2: replicas 1 and 2
          03 01 01                            #   tag 3: nothing is removed
          04 05 02 00 00 00 03                #   tag 4: 3 is added
          05 01 00                            #   tag 5: recovered
        """,
    ),
    (
        "PartitionChange v0 without a change",
        PartitionChangeRecord(partition_id=3, topic_id=ID_1),
        0,
        f"""
        01 05 00        # frame version, type 5, version 0
        {CHANGE_HEAD}
        00              # no tagged fields: leader -2 and recovery state -1 are the defaults
        """,
    ),
    (
        "PartitionChange v1",
        PartitionChangeRecord(partition_id=3, topic_id=ID_1, leader=7, directories=[ID_2, MIGRATING]),
        1,
        f"""
        01 05 01                # frame version, type 5, version 1
        {CHANGE_HEAD}
        02                      # two tagged fields
          01 04 00 00 00 07     #   tag 1: leader 7
          08 21                 #   tag 8 of 33 bytes: directories
          03                    #   two of them
          22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
          00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02   # MIGRATING in KIP-858's numbers
        """,
    ),
    (
        "PartitionChange v2",
        PartitionChangeRecord(
            partition_id=3, topic_id=ID_1, directories=[ID_2], eligible_leader_replicas=[4], last_known_elr=[5]
        ),
        2,
        f"""
        01 05 02                    # frame version, type 5, version 2
        {CHANGE_HEAD}
        03                          # three tagged fields, in the order of their tags
          06 05 02 00 00 00 04      #   tag 6: eligible leader replica 4
          07 05 02 00 00 00 05      #   tag 7: last known 5
          08 11 02                  #   tag 8 of 17 bytes: one directory
          22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
        """,
    ),
    (
        "FenceBroker v0",
        FenceBrokerRecord(id=1, epoch=2),
        0,
        """
        01 07 00                    # frame version, type 7, version 0
        00 00 00 01                 # broker 1
        00 00 00 00 00 00 00 02     # epoch 2
        00                          # no tagged fields
        """,
    ),
    (
        "UnfenceBroker v0",
        UnfenceBrokerRecord(id=1, epoch=2),
        0,
        """
        01 08 00                    # frame version, type 8, version 0
        00 00 00 01                 # broker 1
        00 00 00 00 00 00 00 02     # epoch 2
        00                          # no tagged fields
        """,
    ),
    (
        "RemoveTopic v0",
        RemoveTopicRecord(topic_id=ID_4),
        0,
        """
        01 09 00                                          # frame version, type 9, version 0
        44 44 44 44 44 44 44 44 44 44 44 44 44 44 44 44   # topic id
        00                                                # no tagged fields
        """,
    ),
    (
        "FeatureLevel v0",
        FeatureLevelRecord(name="metadata.version", feature_level=21),
        0,
        """
        01 0c 00                                               # frame version, type 12, version 0
        11 6d 65 74 61 64 61 74 61 2e 76 65 72 73 69 6f 6e     # name "metadata.version"
        00 15                                                  # level 21
        00                                                     # no tagged fields
        """,
    ),
    (
        "BrokerRegistrationChange v0",
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=-1),
        0,
        """
        01 11 00                    # frame version, type 17, version 0
        00 00 00 01                 # broker 1
        00 00 00 00 00 00 00 02     # broker epoch 2
        01 00 01 ff                 # one tagged field: tag 0 of 1 byte, unfenced
        """,
    ),
    (
        "BrokerRegistrationChange v1",
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, in_controlled_shutdown=1),
        1,
        """
        01 11 01                    # frame version, type 17, version 1
        00 00 00 01                 # broker 1
        00 00 00 00 00 00 00 02     # broker epoch 2
        01 01 01 01                 # one tagged field: tag 1 of 1 byte, in controlled shutdown
        """,
    ),
    (
        "BrokerRegistrationChange v2",
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=1, log_dirs=[ID_2]),
        2,
        """
        01 11 02                    # frame version, type 17, version 2
        00 00 00 01                 # broker 1
        00 00 00 00 00 00 00 02     # broker epoch 2
        02                          # two tagged fields
          00 01 01                  #   tag 0 of 1 byte: fenced
          02 11 02                  #   tag 2 of 17 bytes: one directory is left
          22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22
        """,
    ),
    (
        "BrokerRegistrationChange v3",
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned_log_dirs=[]),
        3,
        """
        01 11 03                    # frame version, type 17, version 3
        00 00 00 01                 # broker 1
        00 00 00 00 00 00 00 02     # broker epoch 2
        01                          # one tagged field
          03 01 01                  #   tag 3 of 1 byte: no directory is cordoned any more
        """,
    ),
    ("NoOp v0", NoOpRecord(), 0, "01 14 00   # frame version, type 20, version 0 \n 00   # no tagged fields"),
    (
        "ZkMigrationState v0",
        ZkMigrationRecord(),
        0,
        """
        01 15 00    # frame version, type 21, version 0
        00          # NONE
        00          # no tagged fields
        """,
    ),
    (
        "BeginTransaction v0",
        BeginTransactionRecord(name="Bo"),
        0,
        """
        01 17 00            # frame version, type 23, version 0
        01 00 03 03 42 6f   # one tagged field: tag 0 of 3 bytes, name "Bo"
        """,
    ),
    ("BeginTransaction v0 unnamed", BeginTransactionRecord(), 0, "01 17 00   # frame \n 00   # no tagged fields"),
    ("EndTransaction v0", EndTransactionRecord(), 0, "01 18 00   # frame \n 00   # no tagged fields"),
    (
        "AbortTransaction v0",
        AbortTransactionRecord(reason="x"),
        0,
        """
        01 19 00          # frame version, type 25, version 0
        01 00 02 02 78    # one tagged field: tag 0 of 2 bytes, reason "x"
        """,
    ),
    (
        "RegisterController v0",
        RegisterControllerRecord(
            controller_id=3000,
            incarnation_id=ID_1,
            end_points=[ControllerEndpoint(name="C", host="h", port=65535, security_protocol=1)],
            features=[ControllerFeature(name="f", min_supported_version=0, max_supported_version=1)],
        ),
        0,
        """
        01 1b 00                                          # frame version, type 27, version 0
        00 00 0b b8                                       # controller 3000
        11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # incarnation id
        00                                                # not ready for a ZooKeeper migration
        02                                                # one endpoint
          02 43 02 68 ff ff 00 01 00                      #   "C", "h", port 65535, security protocol 1, no tagged fields
        02                                                # one feature
          02 66 00 00 00 01 00                            #   "f", levels 0 to 1, no tagged fields
        00                                                # no tagged fields
        """,
    ),
    (
        "ProducerIds v0",
        ProducerIdsRecord(broker_id=1, broker_epoch=100, next_producer_id=2000),
        0,
        """
        01 0f 00                  # frame version, type 15, version 0
        00 00 00 01               # broker 1
        00 00 00 00 00 00 00 64   # broker epoch 100
        00 00 00 00 00 00 07 d0   # next producer id 2000
        00                        # no tagged fields
        """,
    ),
    (
        "ClientQuota v0",
        ClientQuotaRecord(
            entity=[QuotaEntity(entity_type="user", entity_name="u"), QuotaEntity(entity_type="ip")], key="k", value=1.5
        ),
        0,
        """
        01 0e 00                  # frame version, type 14, version 0
        03                        # an entity of two parts
          05 75 73 65 72 02 75 00 #   "user", "u", no tagged fields
          03 69 70 00 00          #   "ip", the default, no tagged fields
        02 6b                     # key "k"
        3f f8 00 00 00 00 00 00   # value 1.5
        00                        # not removed
        00                        # no tagged fields
        """,
    ),
    (
        "AccessControlEntry v0",
        AccessControlEntryRecord(
            id=ID_1,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:u",
            host="*",
            operation=4,
            permission_type=3,
        ),
        0,
        """
        01 12 00                                          # frame version, type 18, version 0
        11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # id
        02 02 74 03                                       # a topic, "t", a literal name
        07 55 73 65 72 3a 75                              # principal "User:u"
        02 2a                                             # any host
        04 03                                             # writing is allowed
        00                                                # no tagged fields
        """,
    ),
    (
        "RemoveAccessControlEntry v0",
        RemoveAccessControlEntryRecord(id=ID_1),
        0,
        """
        01 13 00                                          # frame version, type 19, version 0
        11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11   # id
        00                                                # no tagged fields
        """,
    ),
    (
        "UserScramCredential v0",
        UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"\xaa", stored_key=b"\xbb", server_key=b"\xcc", iterations=4096
        ),
        0,
        """
        01 0b 00                # frame version, type 11, version 0
        02 75 01                # user "u", SCRAM-SHA-256
        02 aa 02 bb 02 cc       # salt, stored key, server key
        00 00 10 00             # 4096 iterations
        00                      # no tagged fields
        """,
    ),
    (
        "ClearElr v0",
        ClearElrRecord(topic_name="t"),
        0,
        """
        01 1c 00      # frame version, type 28, version 0
        02 74         # topic "t"
        00            # no tagged fields
        """,
    ),
    (
        "RemoveUserScramCredential v0",
        RemoveUserScramCredentialRecord(name="u", mechanism=2),
        0,
        """
        01 16 00      # frame version, type 22, version 0
        02 75 02      # user "u", SCRAM-SHA-512
        00            # no tagged fields
        """,
    ),
    (
        "DelegationToken v0",
        DelegationTokenRecord(
            owner="User:o",
            requester="User:r",
            renewers=["User:n"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="i",
        ),
        0,
        """
        01 0a 00                        # frame version, type 10, version 0
        07 55 73 65 72 3a 6f            # owner "User:o"
        07 55 73 65 72 3a 72            # requester "User:r"
        02 07 55 73 65 72 3a 6e         # one renewer, "User:n"
        00 00 00 00 00 00 00 01         # issued
        00 00 00 00 00 00 00 03         # latest possible expiry
        00 00 00 00 00 00 00 02         # expires
        02 69                           # token id "i"
        00                              # no tagged fields
        """,
    ),
    (
        "RemoveDelegationToken v0",
        RemoveDelegationTokenRecord(token_id="i"),
        0,
        """
        01 1a 00      # frame version, type 26, version 0
        02 69         # token id "i"
        00            # no tagged fields
        """,
    ),
    (
        "UnregisterController v0",
        UnregisterControllerRecord(controller_id=3000),
        0,
        """
        01 1d 00      # frame version, type 29, version 0
        00 00 0b b8   # controller 3000
        00            # no tagged fields
        """,
    ),
]


@pytest.mark.parametrize(("record", "version", "listing"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN])
def test_each_record_is_written_as_and_read_from_its_golden_bytes(record: KnownRecord, version: int, listing: str) -> None:
    """Each record is encoded to, and decoded from, bytes derived by hand."""
    golden = from_annotated(listing)
    assert encode_record(record, version, Numbering.KIP858).hex(" ") == golden.hex(" ")
    assert decode_record(golden, Numbering.KIP858) == record
    assert decode_any_record(memoryview(golden), Numbering.KIP858) == record


def test_every_version_has_golden_bytes() -> None:
    """Every version of every record type has a listing of golden bytes."""
    listed = {(type(record), version) for _, record, version, _ in GOLDEN}
    declared = {
        (record_class, version)
        for record_class in RECORD_CLASSES.values()
        for version in message_schema(record_class).versions
    }
    assert listed == declared
    assert set(RECORD_CLASSES) == set(MetadataRecordType)


@pytest.mark.parametrize(
    ("directory_id", "kip858", "apache"), [(UNASSIGNED, 0, 1), (LOST, 1, 2), (MIGRATING, 2, 0), (ID_2, None, None)]
)
def test_numberings_differ_in_the_reserved_ids_only(directory_id: Uuid, kip858: int | None, apache: int | None) -> None:
    """A reserved directory id is one value in memory but has a different number in each numbering. Real ids, and ids in
    registrations, have the same bytes in both."""
    records = (
        (partition(directories=[ID_3, directory_id]), 1),
        (PartitionChangeRecord(partition_id=1, topic_id=ID_1, directories=[directory_id]), 1),
    )
    for numbering, number in ((Numbering.KIP858, kip858), (Numbering.APACHE, apache)):
        expected = ID_2 if number is None else number.to_bytes(16, "big")
        for record, version in records:
            encoded = encode_record(record, version, numbering)
            tail = encoded[:-1] if isinstance(record, PartitionRecord) else encoded
            assert tail.endswith(expected)
            assert decode_record(encoded, numbering) == record
    registration = register_broker(log_dirs=(directory_id,))
    assert encode_record(registration, 3, Numbering.APACHE) == encode_record(registration, 3, Numbering.KIP858)


def test_unknown_types_and_versions() -> None:
    """A daemon must not skip records of an unknown type or version. A tool keeps their bytes."""
    for frame, expected in (
        (bytes.fromhex("01 10 00 aa bb"), UnknownRecord(16, 0, b"\xaa\xbb")),
        (bytes.fromhex("01 03 09 cc"), UnknownRecord(3, 9, b"\xcc")),
        (bytes.fromhex("01 80 01 81 01"), UnknownRecord(128, 129, b"")),
    ):
        assert decode_any_record(frame, Numbering.KIP858) == expected
        with pytest.raises(UnknownRecordType):
            decode_record(frame, Numbering.KIP858)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "01",
        "01 14",
        "00 14 00 00",
        "02 14 00 00",
        "80 80 80 80 80 80 01 00",
        "01 ff ff ff 7f 00 00",
        "01 14 ff ff 03 00",
    ],
)
def test_a_cut_or_impossible_frame_is_malformed(frame: str) -> None:
    """A truncated or impossible frame is malformed."""
    with pytest.raises(MalformedRecord):
        decode_any_record(bytes.fromhex(frame), Numbering.KIP858)


def test_damaged_bodies_raise_protocol_errors() -> None:
    """Every proper prefix of every golden record raises ProtocolError, and so does every record with an extra byte."""
    for _, _, _, listing in GOLDEN:
        golden = from_annotated(listing)
        for size in range(len(golden)):
            with pytest.raises(ProtocolError):
                decode_record(golden[:size], Numbering.KIP858)
        with pytest.raises(ProtocolError):
            decode_record(golden + b"\x00", Numbering.KIP858)


def test_unknown_tagged_fields_survive() -> None:
    """A field from a later Kafka is kept and written again."""
    frame = bytes.fromhex("01 14 00 01 07 02 ab cd")
    record = decode_record(frame, Numbering.KIP858)
    assert record.unknown_tagged_fields == {7: b"\xab\xcd"}
    assert encode_record(record, 0, Numbering.KIP858) == frame


def test_what_an_old_version_cannot_say_is_not_written() -> None:
    """Directories in a record of version 0 are a bug of the controller. Encoding raises an error and does not drop them
    silently."""
    for record in (partition(directories=[ID_1, ID_2]), PartitionChangeRecord(topic_id=ID_1, directories=[ID_1])):
        with pytest.raises(ProtocolError):
            encode_record(record, 0, Numbering.KIP858)


def test_a_record_travels_with_its_version() -> None:
    """A record and its version form a pair that compares by value, so tests can compare whole lists of records."""
    assert ApiMessageAndVersion(NoOpRecord(), 0) == ApiMessageAndVersion(NoOpRecord(), 0)
    assert ApiMessageAndVersion(NoOpRecord(), 0) != ApiMessageAndVersion(EndTransactionRecord(), 0)
