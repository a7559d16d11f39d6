"""Apache Kafka's own tests of its clients, its tools and Kafka Streams."""

from tests.interop.client_suites.junit_runner import JUnitRunner
from tests.interop.client_suites.suites.suite import Suite

# Apache Kafka's own tests that ask for a cluster. Those of what Diskraft does not have are left out: security, share groups,
# streams groups, eligible leader replicas, or classes that a broker of Java would load. So are those that read the metrics
# or the logs of a node in its process.
CLIENTS_TESTS = tuple(
    f"org.apache.kafka.clients.{name}"
    for name in (
        "ClientRebootstrapTest",
        "MetadataVersionIntegrationTest",
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
    )
)

TOOLS_TESTS = tuple(
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

REQUESTS_TESTS = tuple(
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

SERVER_TESTS = tuple(
    f"org.apache.kafka.server.{name}"
    for name in (
        "BootstrapControllersIntegrationTest",
        "CordonedLogDirsIntegrationTest",
        "MetadataRequestTest",
        "config.DynamicConfigTest",
        "log.LogAppendTimeTest",
    )
)

# Those of the core that have a cluster by its older harness.
CORE_TESTS = tuple(
    f"kafka.{name}"
    for name in (
        "admin.AddPartitionsTest",
        "server.AddPartitionsToTxnRequestServerTest",
        "server.AlterReplicaLogDirsRequestTest",
        "server.DeleteRecordsRequestTest",
        "server.DeleteTopicsRequestTest",
        "server.DeleteTopicsRequestWithDeletionDisabledTest",
        "server.DescribeClusterRequestTest",
        "server.DescribeLogDirsRequestTest",
        "server.EdgeCaseRequestTest",
        "server.FetchFromFollowerIntegrationTest",
        "server.FetchRequestMaxBytesTest",
        "server.FetchRequestTest",
        "server.ListOffsetsRequestTest",
        "server.LogDirFailureTest",
        "server.LogOffsetTest",
        "server.LogRecoveryTest",
        "server.OffsetsForLeaderEpochRequestTest",
        "server.ProduceRequestTest",
        "server.ReplicaFetchTest",
        "server.ServerShutdownTest",
        "server.epoch.LeaderEpochIntegrationTest",
    )
)

# Those of Kafka Streams for groups of the classic protocol. One cluster serves all tests of a class.
STREAMS_TESTS = (
    "org.apache.kafka.streams.integration.AdjustStreamThreadCountTest",
    "org.apache.kafka.streams.integration.AtLeastOnceDeliveryMessageLossIntegrationTest",
    "org.apache.kafka.streams.integration.EOSUncleanShutdownIntegrationTest",
    "org.apache.kafka.streams.integration.EosIntegrationTest",
    "org.apache.kafka.streams.integration.GlobalKTableEOSIntegrationTest",
    "org.apache.kafka.streams.integration.HandlingSourceTopicDeletionIntegrationTest",
    "org.apache.kafka.streams.integration.InternalTopicIntegrationTest",
    "org.apache.kafka.streams.integration.KafkaStreamsCloseOptionsIntegrationTest",
    "org.apache.kafka.streams.integration.PurgeRepartitionTopicIntegrationTest",
    "org.apache.kafka.streams.integration.RegexSourceIntegrationTest",
    "org.apache.kafka.streams.integration.RestoreIntegrationTest",
    "org.apache.kafka.streams.integration.StandbyTaskEOSMultiRebalanceIntegrationTest",
    "org.apache.kafka.tools.ResetIntegrationTest",
)

# The consumers and producers for Java, the tools, single requests to a broker, what a server does, its core, and Kafka
# Streams.
CLIENTS = Suite(
    name="apache-clients",
    runner=JUnitRunner(),
    tests=CLIENTS_TESTS,
    in_ci=("org.apache.kafka.clients.admin.AdminFenceProducersTest",),
    seconds_max=3600,
    brokers=0,
)

TOOLS = Suite(
    name="apache-tools",
    runner=JUnitRunner(),
    tests=TOOLS_TESTS,
    in_ci=(
        "org.apache.kafka.tools.LogDirsCommandTest",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommandTest.testLogDirReassignment",
    ),
    seconds_max=1800,
    brokers=0,
)

REQUESTS = Suite(
    name="apache-requests",
    runner=JUnitRunner(),
    tests=REQUESTS_TESTS,
    in_ci=("kafka.server.SyncGroupRequestTest",),
    seconds_max=1800,
    brokers=0,
)

SERVER = Suite(
    name="apache-server",
    runner=JUnitRunner(),
    tests=SERVER_TESTS,
    in_ci=(),
    seconds_max=1800,
    brokers=0,
)

CORE = Suite(
    name="apache-core",
    runner=JUnitRunner(by_scala=True),
    tests=CORE_TESTS,
    in_ci=(),
    seconds_max=3600,
    brokers=0,
)

STREAMS = Suite(
    name="apache-streams",
    runner=JUnitRunner(),
    tests=STREAMS_TESTS,
    in_ci=("org.apache.kafka.streams.integration.EOSUncleanShutdownIntegrationTest",),
    seconds_max=3600,
    brokers=0,
)
