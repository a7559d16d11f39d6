package org.apache.kafka.streams.integration.utils;

import diskraft.DiskraftCluster;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.test.TestUtils;

/**
 * A cluster of Diskraft for the tests of Kafka Streams, which lasts for all tests of a class. They find this class before
 * Apache Kafka's own, because it comes first on the class path.
 */
public class EmbeddedKafkaCluster {
    /** What these tests count on if they do not say otherwise. */
    private static final Map<String, String> DEFAULTS = Map.of(
            "group.initial.rebalance.delay.ms", "0",
            "group.min.session.timeout.ms", "0",
            "offsets.topic.num.partitions", "5",
            "offsets.topic.replication.factor", "1",
            "transaction.state.log.num.partitions", "5",
            "transaction.state.log.replication.factor", "1");

    /** The clock of a test that wants one. */
    public final MockTime time;

    private final DiskraftCluster cluster;

    public EmbeddedKafkaCluster(int brokers) {
        this(brokers, new Properties());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties) {
        this(brokers, properties, Map.of());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, long startMs) {
        this(brokers, properties, Map.of(), startMs, System.nanoTime());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, Map<Integer, Map<String, String>> propertiesOf) {
        this(brokers, properties, propertiesOf, System.currentTimeMillis(), System.nanoTime());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, Map<Integer, Map<String, String>> propertiesOf,
            long startMs, long startNs) {
        time = new MockTime(startMs, startNs);
        Map<String, String> all = new HashMap<>(DEFAULTS);
        properties.forEach((key, value) -> all.put((String) key, value.toString()));
        ClusterConfig config = ClusterConfig.defaultBuilder()
                .setBrokers(brokers)
                .setServerProperties(all)
                .setPerServerProperties(propertiesOf)
                .build();
        cluster = new DiskraftCluster(config, false);
    }

    public void start() {
        cluster.prepare();
        verifyClusterReadiness();
    }

    public void verifyClusterReadiness() {
        answer(() -> {
            cluster.waitForReadyBrokers();
            return null;
        });
    }

    public void stop() {
        cluster.delete();
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public boolean sslEnabled() {
        return false;
    }

    public void createTopics(String... topics) {
        for (String topic : topics) {
            createTopic(topic);
        }
    }

    public void createTopic(String topic) {
        createTopic(topic, 1);
    }

    public void createTopic(String topic, int partitions) {
        createTopic(topic, partitions, 1);
    }

    public void createTopic(String topic, int partitions, int replicas) {
        createTopic(topic, partitions, replicas, Map.of());
    }

    /** Does nothing if the topic exists. */
    public void createTopic(String topic, int partitions, int replicas, Map<String, String> config) {
        NewTopic asked = new NewTopic(topic, partitions, (short) replicas).configs(config);
        unless(TopicExistsException.class, () -> {
            ask(admin -> admin.createTopics(List.of(asked)).all().get());
            cluster.waitTopicCreation(topic, partitions);
            return null;
        });
    }

    public void deleteTopics(String... topics) {
        for (String topic : topics) {
            deleteTopic(topic);
        }
    }

    /** Does nothing if there is no such topic. */
    public void deleteTopic(String topic) {
        unless(UnknownTopicOrPartitionException.class, () -> ask(admin -> admin.deleteTopics(List.of(topic)).all().get()));
    }

    /** Deletes all topics that are not internal. */
    public void deleteAllTopics() {
        deleteTopics(ask(admin -> admin.listTopics().names().get()).toArray(new String[0]));
    }

    /** Returns once the cluster has these topics and no others. */
    public void waitForRemainingTopics(long msMax, String... topics) throws InterruptedException {
        Set<String> wanted = Set.of(topics);
        TestUtils.waitForCondition(() -> getAllTopicsInCluster().equals(wanted), msMax,
                "the cluster should have the topics " + wanted);
    }

    public Set<String> getAllTopicsInCluster() {
        return ask(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
    }

    /** Returns the configuration that is the topic's own. */
    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Properties own = new Properties();
        ask(admin -> admin.describeConfigs(List.of(resource)).all().get()).get(resource).entries().stream()
                .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .forEach(entry -> own.setProperty(entry.name(), entry.value()));
        return own;
    }

    public void produce(Map<String, Object> properties, String topic, Integer partition, String key, String value) {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            answer(() -> producer.send(new ProducerRecord<>(topic, partition, bytes(key), bytes(value))).get());
        }
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes();
    }

    public Map<String, String> clientDefaultConfig() {
        return new HashMap<>(Map.of(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers()));
    }

    public Admin createAdminClient() {
        return cluster.admin();
    }

    public KafkaConsumer<byte[], byte[]> createConsumer(Map<String, Object> properties) {
        Map<String, Object> all = new HashMap<>(clientDefaultConfig());
        all.put(ConsumerConfig.GROUP_ID_CONFIG, UUID.randomUUID().toString());
        all.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        all.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        all.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        all.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        all.putAll(properties);
        return new KafkaConsumer<>(all);
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(Map<String, Object> properties, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(properties);
        consumer.subscribe(Arrays.asList(topics));
        return consumer;
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(
            Map<String, Object> properties, ConsumerRebalanceListener listener, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(properties);
        consumer.subscribe(Arrays.asList(topics), listener);
        return consumer;
    }

    // These are settings of streams groups (KIP-1071). Tests make them also before they use groups of the classic protocol.

    public void setGroupSessionTimeout(String group, int ms) {}

    public void setGroupHeartbeatTimeout(String group, int ms) {}

    public void setGroupStandbyReplicas(String group, int replicas) {}

    public void setGroupStreamsInitialRebalanceDelay(String group, int ms) {}

    private interface Question<T> {
        T ask(Admin admin) throws Exception;
    }

    private <T> T ask(Question<T> question) {
        try (Admin admin = createAdminClient()) {
            return answer(() -> question.ask(admin));
        }
    }

    private static <T> T answer(Callable<T> asked) {
        try {
            return asked.call();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error instanceof ExecutionException ? error.getCause() : error);
        }
    }

    private static void unless(Class<? extends Exception> harmless, Callable<?> asked) {
        try {
            answer(asked);
        } catch (IllegalStateException error) {
            if (!harmless.isInstance(error.getCause())) {
                throw error;
            }
        }
    }
}
