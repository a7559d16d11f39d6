"""How each suite is run: its tests, the cluster that it wants, and what runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.interop.client_suites import sources
from tests.interop.client_suites.go_runner import GoRunner
from tests.interop.client_suites.junit_runner import JUnitRunner
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
    told others. With `in_containers` they expect there what `containers` has, and each broker in a rack of its own."""

    name: str
    runner: Runner
    tests: tuple[str, ...]
    in_ci: tuple[str, ...]
    seconds_max: float
    broker: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3
    first_node_id: int = 0
    ports: tuple[int, ...] = ()
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

# The consumers and producers for Java, the tools, and single requests to a broker.
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

SUITES = {
    suite.name: suite
    for suite in (KAFKA_PYTHON, AIOKAFKA, FRANZ_GO, SARAMA, KAFKA_GO, APACHE_CLIENTS, APACHE_TOOLS, APACHE_REQUESTS)
}
