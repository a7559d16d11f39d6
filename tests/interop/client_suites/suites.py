"""How each suite is run: its tests, the cluster that it wants, and what runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.interop.client_suites import sources
from tests.interop.client_suites.go_runner import GoRunner
from tests.interop.client_suites.junit_runner import JUnitRunner
from tests.interop.client_suites.librdkafka_runner import LibrdkafkaRunner
from tests.interop.client_suites.pytest_runner import KAFKA_VERSION, PytestRunner
from tests.interop.client_suites.runner import Runner

# What the suites' own brokers are configured with. Their members have sessions of seconds, and wait for no others to join.
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class Suite:
    """A client's suite. `in_ci` are the tests that CI has time for. `seconds_max` is for all of them. `brokers` is 0 if each
    test has a cluster of its own. `ports` are those of localhost at which the tests look for the brokers, if they cannot be
    told others. `has_racks`: each broker is in a rack of its own. With `in_containers` the tests expect what `containers`
    has."""

    name: str
    runner: Runner
    tests: tuple[str, ...]
    in_ci: tuple[str, ...]
    seconds_max: float
    broker: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3
    first_node_id: int = 0
    ports: tuple[int, ...] = ()
    has_racks: bool = False
    in_containers: bool = False


KAFKA_PYTHON = Suite(
    name="kafka-python",
    runner=PytestRunner(sources.kafka_python, "test", plugin="kafka_python_broker", options=("-p", "no:asyncio")),
    tests=("test/integration",),
    in_ci=("test/integration",),
    seconds_max=600,
    broker=BROKER | {"num.partitions": "4", "default.replication.factor": "3"},
)

AIOKAFKA = Suite(
    name="aiokafka",
    runner=PytestRunner(
        sources.aiokafka,
        "tests",
        plugin="aiokafka_broker",
        options=("--docker-image", f"diskraft:2.13_{KAFKA_VERSION}"),
        settings={"asyncio_mode": "auto", "markers": "ssl: needs certificates"},
    ),
    tests=tuple(
        f"tests/test_{name}.py"
        for name in (
            "admin",
            "client",
            "conn",
            "consumer",
            "coordinator",
            "pep492",
            "producer",
            "sasl",
            "sender",
            "transactional_consumer",
            "transactional_producer",
        )
    ),
    in_ci=(
        "tests/test_admin.py",
        "tests/test_client.py",
        "tests/test_conn.py",
        "tests/test_pep492.py",
        "tests/test_producer.py",
    ),
    seconds_max=1200,
    # Some of its tests presume a single broker. Nor does another replica have to be waited for after a write with acks=1,
    # when a test reads the end of the log at once.
    broker=BROKER | {"num.partitions": "2"},
    brokers=1,
)

# Those that need a broker. Each test within TestGroupETL and TestTxnEtl copies the records from topic to topic with groups
# whose members come and go: with every assignor, in both protocols, with static members, and exactly once.
FRANZ_GO_TESTS = (
    "Test848RegexBrokerResolves",
    "TestAddRemovePartitions",
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestConsumeMaxDecompressBatchBytes",
    "TestConsumeRegex",
    "TestConsumeTopicRetrieval",
    "TestConsumeTopicRetrieval_Many",
    "TestDirectPartitionPurge",
    "TestGroupETL",
    "TestGroupSimple",
    "TestHookPollStart",
    "TestIssue1034",
    "TestIssue325",
    "TestIssue337",
    "TestIssue434",
    "TestIssue523",
    "TestIssue648",
    "TestIssue769",
    "TestIssue810",
    "TestIssue831",
    "TestIssue865",
    "TestIssueFetchLargerThanBrokerMaxReadBytes",
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
    "TestPauseIssue489",
    "TestPauseIssueOct2023",
    "TestPing",
    "TestPooling",
    "TestShareGroup",
    "TestTxnEtl",
    "TestUnknownGroupOffsetFetchPinned",
)

FRANZ_GO = Suite(
    name="franz-go",
    runner=GoRunner(
        "github.com/twmb/franz-go/pkg/kgo",
        address_variable="KGO_SEEDS",
        # Most of their time goes into rebalances, so a hundredth of the records that they write by default will do.
        environment={"KGO_TEST_RECORDS": "5000"},
    ),
    tests=FRANZ_GO_TESTS,
    in_ci=("TestGroupETL", "TestTxnEtl"),
    seconds_max=900,
    broker=BROKER,
)

# Its functional tests. Those with a client for Java skip themselves.
SARAMA_TESTS = (
    "TestAsyncProducerRemoteBrokerClosed",
    "TestConsumerFetchFollowerFailover",
    "TestConsumerGroupDeadlock",
    "TestConsumerHighWaterMarkOffset",
    "TestConsumerPartialBatchRecovery",
    "TestFuncAdminAlterConfig",
    "TestFuncAdminAlterConsumerGroupOffsets",
    "TestFuncAdminAlterPartitionReassignments",
    "TestFuncAdminDeleteGroup",
    "TestFuncAdminDeleteRecords",
    "TestFuncAdminDeleteTopic",
    "TestFuncAdminDescribeConfig",
    "TestFuncAdminDescribeGroups",
    "TestFuncAdminDescribeLogDirs",
    "TestFuncAdminElectLeadersV1",
    "TestFuncAdminIncrementalAlterConfigs",
    "TestFuncAdminListConsumerGroupOffsets",
    "TestFuncAdminListConsumerGroupOffsetsBatch",
    "TestFuncAdminListConsumerGroups",
    "TestFuncAdminListOffsets",
    "TestFuncAdminNetworkErrorClosesControllerConnection",
    "TestFuncAdminQuotas",
    "TestFuncAdminUpdateFeatures",
    "TestFuncClientCoordinator",
    "TestFuncClientMetadata",
    "TestFuncConnectionFailure",
    "TestFuncConsumerGroupCooperative",
    "TestFuncConsumerGroupExcessConsumers",
    "TestFuncConsumerGroupFuzzy",
    "TestFuncConsumerGroupOffsetDeletion",
    "TestFuncConsumerGroupPartitioning",
    "TestFuncConsumerGroupPartitioningStateful",
    "TestFuncConsumerGroupRebalanceAfterAddingPartitions",
    "TestFuncConsumerGroupStaticMembership_Basic",
    "TestFuncConsumerGroupStaticMembership_Fenced",
    "TestFuncConsumerGroupStaticMembership_RejoinAndLeave",
    "TestFuncConsumerOffsetOutOfRange",
    "TestFuncDescribeProducers",
    "TestFuncDescribeTransactions",
    "TestFuncIdempotentBufferedSequence",
    "TestFuncInitProducerId3",
    "TestFuncJavaInteropCooperativeRebalance",
    "TestFuncJoinGroupVersionSelection",
    "TestFuncListTransactions",
    "TestFuncMultiPartitionProduce",
    "TestFuncOffsetManager",
    "TestFuncProducing",
    "TestFuncProducingFlushing",
    "TestFuncProducingGzip",
    "TestFuncProducingIdempotentWithBrokerFailure",
    "TestFuncProducingNoResponse",
    "TestFuncProducingSnappy",
    "TestFuncProducingToInvalidTopic",
    "TestFuncProducingZstd",
    "TestFuncTxnAbortedProduce",
    "TestFuncTxnCommitNoMessages",
    "TestFuncTxnProduce",
    "TestFuncTxnProduceAndCommitOffset",
    "TestFuncTxnProduceEpochBump",
    "TestFuncTxnProduceMultiTxn",
    "TestFuncTxnProduceNoBegin",
    "TestFuncTxnProduceWithBrokerFailure",
    "TestInterceptors",
    "TestJavaConsumerCompressionRoundTrip",
    "TestJavaMurmur2PartitionerInterop",
    "TestJavaProducerCompressionRoundTrip",
    "TestReadOnlyAndAllCommittedMessages",
    "TestVersionMatrix",
    "TestVersionMatrixIdempotent",
    "TestVersionMatrixLZ4",
    "TestVersionMatrixZstd",
)

SARAMA = Suite(
    name="sarama",
    runner=GoRunner(
        "github.com/IBM/sarama",
        address_variable="TOXIPROXY_ADDR",
        environment={"KAFKA_VERSION": KAFKA_VERSION},
        tags="functional",
    ),
    tests=SARAMA_TESTS,
    in_ci=(),
    seconds_max=1500,
    broker={
        "auto.create.topics.enable": "false",
        "default.replication.factor": "2",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "2",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.replication.factor": "2",
    },
    brokers=5,
    first_node_id=1,
    ports=(29091, 29092, 29093, 29094, 29095),
    has_racks=True,
    in_containers=True,
)

# Those that need a broker, without SASL, and without TestReaderConsumerGroup, which dereferences nil with any broker.
KAFKA_GO_TESTS = (
    "TestAlterUserScramCredentials",
    "TestBatchDontExpectEOF",
    "TestClient",
    "TestClientAddOffsetsToTxn",
    "TestClientAddPartitionsToTxn",
    "TestClientAlterClientQuotas",
    "TestClientAlterConfigs",
    "TestClientAlterPartitionReassignments",
    "TestClientAlterPartitionReassignmentsMultiTopics",
    "TestClientApiVersions",
    "TestClientCreateACLs",
    "TestClientCreatePartitions",
    "TestClientCreatePartitionsNoAssignments",
    "TestClientCreateTopics",
    "TestClientDeleteACLs",
    "TestClientDeleteGroups",
    "TestClientDeleteOffset",
    "TestClientDeleteTopics",
    "TestClientDescribeACLs",
    "TestClientDescribeConfigs",
    "TestClientDescribeGroups",
    "TestClientElectLeaders",
    "TestClientFetch",
    "TestClientFetchCompressed",
    "TestClientFindCoordinator",
    "TestClientHeartbeat",
    "TestClientIncrementalAlterConfigs",
    "TestClientInitProducerId",
    "TestClientJoinGroup",
    "TestClientLeaveGroup",
    "TestClientListGroups",
    "TestClientListOffsets",
    "TestClientListPartitionReassignments",
    "TestClientMetadata",
    "TestClientOffsetCommit",
    "TestClientPipeline",
    "TestClientProduce",
    "TestClientProduceAndConsume",
    "TestClientProduceCompressed",
    "TestClientProduceEmptyRecords",
    "TestClientProduceNilRecords",
    "TestClientRawProduce",
    "TestClientRawProduceCompressed",
    "TestClientRawProduceEmptyRecords",
    "TestClientRawProduceNilRecords",
    "TestClientSyncGroup",
    "TestClientTxnOffsetCommit",
    "TestCloseLeavesGroup",
    "TestConn",
    "TestConnCreateTopics",
    "TestConsumerGroup",
    "TestConsumerGroupWithGroupTopicsMultiple",
    "TestConsumerGroupWithGroupTopicsSingle",
    "TestConsumerGroupWithMissingTopic",
    "TestConsumerGroupWithTopic",
    "TestDescribeGroupsErrorHandling",
    "TestDescribeGroupsInvalidAssignments",
    "TestDescribeGroupsPartialMembersCleared",
    "TestDescribeUserScramCredentials",
    "TestDialer",
    "TestDialerResolver",
    "TestDialerTLS",
    "TestOffsetFetchRequestWithNoTopic",
    "TestOffsetFetchRequestWithOneTopic",
    "TestReadTruncatedMessages",
    "TestReader",
    "TestReaderOnNonZeroPartition",
    "TestReaderReadCompactedMessage",
    "TestReaderTruncatedResponse",
    "TestRebalanceTooManyConsumers",
    "TestWriteOptimizations",
    "TestWriteV2RecordBatch",
    "TestWriter",
)

KAFKA_GO = Suite(
    name="kafka-go",
    runner=GoRunner(
        "github.com/segmentio/kafka-go",
        # Their authors skip nettest, because with newer brokers of Kafka it fails.
        environment={"KAFKA_VERSION": KAFKA_VERSION, "KAFKA_SKIP_NETTEST": "1"},
    ),
    tests=KAFKA_GO_TESTS,
    in_ci=(),
    seconds_max=900,
    broker={"group.initial.rebalance.delay.ms": "0", "message.max.bytes": "200000000"},
    brokers=1,
    first_node_id=1,
    ports=(9092,),
)

# As for librdkafka's own brokers, which wait for other members as long as Kafka does by default.
LIBRDKAFKA_BROKER = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}

# The parts of the test of rebalances: all together take a quarter of an hour. Without the one that needs Java.
LIBRDKAFKA_REBALANCE_TESTS = tuple(
    f"0113/{part}"
    for part in (
        "a_assign_tests",
        "b_subscribe_with_cb",
        "c_subscribe_no_cb",
        "d_change_subscription_add_topic",
        "e_change_subscription_remove_topic",
        "f_assign_call_cooperative",
        "g_incremental_assign_call_eager",
        "h_delete_topic",
        "i_delete_topic_2",
        "j_delete_topic_no_rb_callback",
        "k_add_partition",
        "l_unsubscribe",
        "m_unsubscribe_2",
        "n_wildcard",
        "s_subscribe_when_rebalancing",
        "t_max_poll_interval_exceeded",
        "u_multiple_subscription_changes",
        "v_commit_during_rebalance",
        "x_incremental_rebalances",
    )
)
# The numbers of the tests that need a broker, without those of share groups and those that bring their own. The parts of the
# admin client's test are chosen one by one, because the first that fails would end all.
LIBRDKAFKA_TESTS = (
    *"0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0016 0017 0018 0019 0020 0021 0022 0026 0029 0030".split(),
    *"0031 0033 0034 0035 0036 0038 0039 0040 0041 0042 0044 0045 0048 0049 0050 0051 0052 0053 0054 0055 0056".split(),
    *"0057 0059 0060 0061 0063 0064 0065 0067 0068 0069 0070 0073 0075 0076 0077 0082 0083 0084 0085 0086 0088".split(),
    *"0089 0090 0091 0092 0093 0094 0097 0098 0099 0101 0102 0103 0109 0110 0112 0114 0115 0118 0119 0122".split(),
    *"0123 0125 0126 0127 0129 0130 0132 0135 0137 0140 0142".split(),
    *LIBRDKAFKA_REBALANCE_TESTS,
    *(
        f"0081/do_test_{part}"
        for part in (
            "AlterConfigs",
            "AlterConsumerGroupOffsets",
            "CreateAcls",
            "CreatePartitions",
            "CreateTopics",
            "DeleteAcls",
            "DeleteConsumerGroupOffsets",
            "DeleteGroups",
            "DeleteRecords",
            "DeleteTopics",
            "DescribeAcls",
            "DescribeCluster",
            "DescribeConfigs",
            "DescribeConsumerGroups",
            "DescribeTopics",
            "IncrementalAlterConfigs",
            "ListConsumerGroupOffsets",
            "ListConsumerGroups",
            "ListOffsets",
            "UserScramCredentials",
            "unclean_destroy",
        )
    ),
)
# Of these, the tests with a consumer group that may do otherwise with the consumer protocol.
LIBRDKAFKA_GROUP_TESTS = (
    *"0018 0019 0020 0022 0026 0029 0030 0033 0034 0042 0045 0049 0050 0051 0056 0059 0060 0061 0067 0069 0084".split(),
    *"0089 0091 0093 0099 0101 0102 0103 0112 0118 0122 0127 0129 0130 0132 0137 0140".split(),
    *LIBRDKAFKA_REBALANCE_TESTS,
)

LIBRDKAFKA = Suite(
    name="librdkafka",
    runner=LibrdkafkaRunner(sources.librdkafka),
    tests=LIBRDKAFKA_TESTS,
    in_ci=("0012", "0029", "0034", "0130", "0081/do_test_DescribeConfigs"),
    seconds_max=3600,
    broker=LIBRDKAFKA_BROKER,
    has_racks=True,
)

LIBRDKAFKA_CONSUMER = Suite(
    name="librdkafka-consumer",
    runner=LibrdkafkaRunner(sources.librdkafka, group_protocol="consumer"),
    tests=LIBRDKAFKA_GROUP_TESTS,
    in_ci=("0029", "0034", "0056", "0130"),
    seconds_max=3600,
    broker=LIBRDKAFKA_BROKER,
    has_racks=True,
)

LIBRDKAFKA_NO_AUTO_CREATE = Suite(
    name="librdkafka-no-auto-create",
    runner=LibrdkafkaRunner(sources.librdkafka, scenario="noautocreate"),
    tests=("0045", "0107", "0111"),
    in_ci=(),
    seconds_max=600,
    broker=LIBRDKAFKA_BROKER | {"auto.create.topics.enable": "false"},
    has_racks=True,
)

# Apache Kafka's own tests that ask for a cluster. Those of what Diskraft does not have are left out: security, share groups,
# streams groups, classes that a broker of Java would load, or a certain metadata.version.
APACHE_CLIENTS_TESTS = tuple(
    f"org.apache.kafka.clients.{name}"
    for name in (
        "ClientRebootstrapTest",
        "TransactionsExpirationTest",
        "TransactionsWithMaxInFlightOneTest",
        "admin.AdminFenceProducersTest",
        "admin.AutoTopicCreationTest",
        "admin.ConcurrentListOffsetsRequestTest",
        "admin.DeleteTopicTest",
        "admin.DescribeProducersWithBrokerIdTest",
        "admin.DynamicGroupConfigIntegrationTest",
        "admin.ListOffsetsIntegrationTest",
        "admin.RackAwareAutoTopicCreationTest",
        "admin.StaticBrokerConfigTest",
        "consumer.ConsumerBounceTest",
        "consumer.ConsumerIntegrationTest",
        "consumer.ConsumerTopicCreationTest",
        "consumer.ConsumerWithLegacyMessageFormatIntegrationTest",
        "consumer.PlaintextConsumerAssignTest",
        "consumer.PlaintextConsumerCallbackTest",
        "consumer.PlaintextConsumerCloseTest",
        "consumer.PlaintextConsumerCommitTest",
        "consumer.PlaintextConsumerFetchTest",
        "consumer.PlaintextConsumerPollTest",
        "consumer.PlaintextConsumerSubscriptionTest",
        "consumer.PlaintextConsumerTest",
        "producer.ProducerCompressionTest",
        "producer.ProducerFailureHandlingTest",
        "producer.ProducerIdExpirationTest",
        "producer.ProducerIntegrationTest",
        "producer.ProducerSendWhileDeletionTest",
        "producer.SocketServerMemoryPoolTest",
    )
)

APACHE_TOOLS_TESTS = tuple(
    f"org.apache.kafka.tools.{name}"
    for name in (
        "BrokerApiVersionsCommandTest",
        "ClusterToolTest",
        "ConfigCommandIntegrationTest",
        "DeleteRecordsCommandTest",
        "GetOffsetShellTest",
        "LeaderElectionCommandTest",
        "LogDirsCommandTest",
        "MetadataQuorumCommandTest",
        "TopicCommandTest",
        "consumer.ConsoleConsumerTest",
        "consumer.group.DeleteConsumerGroupsTest",
        "consumer.group.DeleteOffsetsConsumerGroupCommandIntegrationTest",
        "consumer.group.DescribeConsumerGroupTest",
        "consumer.group.ListConsumerGroupTest",
        "consumer.group.ResetConsumerGroupOffsetTest",
        "reassign.ReassignPartitionsCommandTest",
    )
)

APACHE_REQUESTS_TESTS = tuple(
    f"kafka.{name}"
    for name in (
        "server.ConsumerGroupDescribeRequestTest",
        "server.ConsumerGroupHeartbeatRequestTest",
        "server.ConsumerProtocolMigrationTest",
        "server.DeleteGroupsRequestTest",
        "server.DescribeGroupsRequestTest",
        "server.HeartbeatRequestTest",
        "server.JoinGroupRequestTest",
        "server.LeaveGroupRequestTest",
        "server.ListGroupsRequestTest",
        "server.OffsetCommitRequestTest",
        "server.OffsetDeleteRequestTest",
        "server.OffsetFetchRequestTest",
        "server.SyncGroupRequestTest",
        "server.TxnOffsetCommitRequestTest",
        "server.WriteTxnMarkersRequestTest",
    )
)

# Those of Kafka Streams for groups of the classic protocol. One cluster serves all tests of a class.
APACHE_STREAMS_TESTS = (
    "org.apache.kafka.streams.integration.EOSUncleanShutdownIntegrationTest",
    "org.apache.kafka.streams.integration.EosIntegrationTest",
    "org.apache.kafka.streams.integration.GlobalKTableEOSIntegrationTest",
    "org.apache.kafka.streams.integration.InternalTopicIntegrationTest",
    "org.apache.kafka.streams.integration.KafkaStreamsCloseOptionsIntegrationTest",
    "org.apache.kafka.streams.integration.PurgeRepartitionTopicIntegrationTest",
    "org.apache.kafka.streams.integration.RegexSourceIntegrationTest",
    "org.apache.kafka.streams.integration.RestoreIntegrationTest",
    "org.apache.kafka.tools.ResetIntegrationTest",
)

# The consumers and producers for Java, the tools, single requests to a broker, and Kafka Streams.
APACHE_CLIENTS = Suite(
    name="apache-clients",
    runner=JUnitRunner(),
    tests=APACHE_CLIENTS_TESTS,
    in_ci=("org.apache.kafka.clients.admin.AdminFenceProducersTest",),
    seconds_max=3600,
    brokers=0,
)

APACHE_TOOLS = Suite(
    name="apache-tools",
    runner=JUnitRunner(),
    tests=APACHE_TOOLS_TESTS,
    in_ci=(
        "org.apache.kafka.tools.LogDirsCommandTest",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommandTest.testLogDirReassignment",
    ),
    seconds_max=1800,
    brokers=0,
)

APACHE_REQUESTS = Suite(
    name="apache-requests",
    runner=JUnitRunner(),
    tests=APACHE_REQUESTS_TESTS,
    in_ci=("kafka.server.SyncGroupRequestTest",),
    seconds_max=1800,
    brokers=0,
)

APACHE_STREAMS = Suite(
    name="apache-streams",
    runner=JUnitRunner(),
    tests=APACHE_STREAMS_TESTS,
    in_ci=("org.apache.kafka.streams.integration.EOSUncleanShutdownIntegrationTest",),
    seconds_max=3600,
    brokers=0,
)

LIBRDKAFKA_SUITES = (LIBRDKAFKA, LIBRDKAFKA_CONSUMER, LIBRDKAFKA_NO_AUTO_CREATE)
SUITES = {
    suite.name: suite
    for suite in (
        *(KAFKA_PYTHON, AIOKAFKA, FRANZ_GO, SARAMA, KAFKA_GO),
        *LIBRDKAFKA_SUITES,
        *(APACHE_CLIENTS, APACHE_TOOLS, APACHE_REQUESTS, APACHE_STREAMS),
    )
}
