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
    test has a cluster of its own."""

    name: str
    runner: Runner
    tests: tuple[str, ...]
    in_ci: tuple[str, ...]
    seconds_max: float
    broker: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3


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
        addresses_variable="KGO_SEEDS",
        # Most of their time goes into rebalances, so a hundredth of the records that they write by default will do.
        environment={"KGO_TEST_RECORDS": "5000"},
    ),
    tests=FRANZ_GO_TESTS,
    in_ci=("TestGroupETL", "TestTxnEtl"),
    seconds_max=900,
    broker=BROKER,
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

SUITES = {suite.name: suite for suite in (KAFKA_PYTHON, AIOKAFKA, FRANZ_GO, APACHE_CLIENTS, APACHE_TOOLS, APACHE_REQUESTS)}
