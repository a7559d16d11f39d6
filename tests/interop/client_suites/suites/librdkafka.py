"""The suite of librdkafka, in both group protocols."""

from tests.interop.client_suites import sources
from tests.interop.client_suites.librdkafka_runner import LibrdkafkaRunner
from tests.interop.client_suites.suites.suite import Suite

# As for librdkafka's own brokers, which wait for other members as long as Kafka does by default.
BROKER = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}

# The parts of the test of rebalances: all together take a quarter of an hour. Without the one that needs Java.
REBALANCE_TESTS = tuple(
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
TESTS = (
    *"0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0016 0017 0018 0019 0020 0021 0022 0026 0029 0030".split(),
    *"0031 0033 0034 0035 0036 0038 0039 0040 0041 0042 0044 0045 0048 0049 0050 0051 0052 0053 0054 0055 0056".split(),
    *"0057 0059 0060 0061 0063 0064 0065 0067 0068 0069 0070 0073 0075 0076 0077 0082 0083 0084 0085 0086 0088".split(),
    *"0089 0090 0091 0092 0093 0094 0097 0098 0099 0101 0102 0103 0109 0110 0112 0114 0115 0118 0119 0122".split(),
    *"0123 0125 0126 0127 0129 0130 0132 0135 0137 0140 0142".split(),
    *REBALANCE_TESTS,
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
GROUP_TESTS = (
    *"0018 0019 0020 0022 0026 0029 0030 0033 0034 0042 0045 0049 0050 0051 0056 0059 0060 0061 0067 0069 0084".split(),
    *"0089 0091 0093 0099 0101 0102 0103 0112 0118 0122 0127 0129 0130 0132 0137 0140".split(),
    *REBALANCE_TESTS,
)

CLASSIC = Suite(
    name="librdkafka",
    runner=LibrdkafkaRunner(sources.librdkafka),
    tests=TESTS,
    in_ci=("0012", "0029", "0034", "0130", "0081/do_test_DescribeConfigs"),
    seconds_max=3600,
    broker=BROKER,
    has_racks=True,
)

CONSUMER = Suite(
    name="librdkafka-consumer",
    runner=LibrdkafkaRunner(sources.librdkafka, group_protocol="consumer"),
    tests=GROUP_TESTS,
    in_ci=("0029", "0034", "0056", "0130"),
    seconds_max=3600,
    broker=BROKER,
    has_racks=True,
)

NO_AUTO_CREATE = Suite(
    name="librdkafka-no-auto-create",
    runner=LibrdkafkaRunner(sources.librdkafka, scenario="noautocreate"),
    tests=("0045", "0107", "0111"),
    in_ci=(),
    seconds_max=600,
    broker=BROKER | {"auto.create.topics.enable": "false"},
    has_racks=True,
)
