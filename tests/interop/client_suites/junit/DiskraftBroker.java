package diskraft;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** One broker. What a test would read inside its process is asked of the daemon, as far as requests can tell. */
final class DiskraftBroker {
    private final DiskraftCluster cluster;
    private final int id;
    private final int port;
    private final List<Path> logDirs;
    private final String configFile;
    private boolean isRunning = true;

    DiskraftBroker(DiskraftCluster cluster, JsonNode made) {
        this.cluster = cluster;
        id = made.get("id").asInt();
        port = made.get("port").asInt();
        logDirs = Stream.of(made.get("log_dirs").asText().split(",")).map(Path::of).toList();
        configFile = made.get("config").asText();
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    @Override
    public String toString() {
        return "broker " + id;
    }

    int port() {
        return port;
    }

    boolean isRunning() {
        return isRunning && cluster.started() && !cluster.stopped();
    }

    void shutdown() {
        if (isRunning) {
            ClusterServer.ask("stop_broker", Map.of("node_id", id));
            isRunning = false;
        }
    }

    void startup() {
        if (!isRunning) {
            ClusterServer.ask("start_broker", Map.of("node_id", id));
            isRunning = true;
        }
    }

    List<Node> liveBrokers() {
        return List.copyOf(metadata().brokers());
    }

    Set<String> topics() {
        return topicIds().keySet();
    }

    Map<String, Uuid> topicIds() {
        return metadata().data().topics().stream()
                .collect(Collectors.toMap(MetadataResponseTopic::name, MetadataResponseTopic::topicId));
    }

    int numPartitions(String topic) {
        return partitions(topic).size();
    }

    boolean hasFilesOf(String topic) {
        return logDirs.stream().flatMap(logDir -> Stream.of(logDir.toFile().list()))
                .anyMatch(name -> name.matches(Pattern.quote(topic) + "-\\d+([.].*-delete)?"));
    }

    /** Returns what stands for Kafka's own broker. Each of its methods either gives a true answer or aborts the test. */
    KafkaBroker seenFromInside() {
        Map<String, Function<Object[], Object>> answers = new HashMap<>();
        answers.put("boundPort", arguments -> port);
        answers.put("brokerState", arguments -> isRunning() ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN);
        answers.put("clusterId", arguments -> cluster.clusterId());
        answers.put("config", arguments -> KafkaConfig.fromProps(isRunning() ? configuration() : configurationInFile()));
        answers.put("dataPlaneRequestProcessor", arguments -> answering(KafkaApis.class, Map.of("brokerId", none -> id)));
        answers.put("groupCoordinator", arguments -> answering(GroupCoordinator.class,
                Map.of("groupMetadataTopicConfigs", none -> offsetsTopicConfig())));
        answers.put("isShutdown", arguments -> !isRunning());
        answers.put("logManager", arguments -> logManager());
        answers.put("metadataCache", arguments -> metadataCache());
        answers.put("replicaManager", arguments -> answering(ReplicaManager.class,
                Map.of("onlinePartition", asked -> Option.apply(onlinePartition((TopicPartition) asked[0])))));
        answers.put("socketServer", arguments -> answering(SocketServer.class, Map.of("boundPort", none -> port)));
        answers.put("shutdown", arguments -> {
            shutdown();
            return null;
        });
        answers.put("awaitShutdown", arguments -> null);
        answers.put("startup", arguments -> {
            startup();
            return null;
        });
        return answering(KafkaBroker.class, answers);
    }

    private LogManager logManager() {
        return answering(LogManager.class, Map.of(
                "getLog", asked -> Option.apply(log((TopicPartition) asked[0])),
                "liveLogDirs", none -> CollectionConverters.asScala(logDirs.stream().map(Path::toFile).toList()).toSeq()));
    }

    private UnifiedLog log(TopicPartition partition) {
        return logDirs.stream().anyMatch(logDir -> Files.exists(logDir.resolve(partition.toString())))
                ? answering(UnifiedLog.class, Map.of())
                : null;
    }

    private Partition onlinePartition(TopicPartition partition) {
        return (isRunning() ? partitions(partition.topic()) : List.<MetadataResponsePartition>of()).stream()
                .filter(each -> each.partitionIndex() == partition.partition() && each.replicaNodes().contains(id))
                .findFirst()
                .map(each -> answering(Partition.class,
                        Map.of("leaderIdIfLocal", none -> Option.apply(each.leaderId() == id ? id : null))))
                .orElse(null);
    }

    private MetadataCache metadataCache() {
        Map<String, Function<Object[], Object>> answers = new HashMap<>();
        answers.put("getAllTopics", arguments -> topics());
        answers.put("getTopicId", arguments -> topicIds().getOrDefault((String) arguments[0], Uuid.ZERO_UUID));
        answers.put("topicNamesToIds", arguments -> topicIds());
        answers.put("hasAliveBroker", arguments -> liveBrokers().stream().anyMatch(node -> node.id() == (int) arguments[0]));
        answers.put("getAliveBrokerNodes", arguments -> liveBrokers());
        answers.put("numPartitions", arguments ->
                Optional.of(numPartitions((String) arguments[0])).filter(count -> count > 0));
        answers.put("contains", arguments -> contains(arguments[0]));
        answers.put("getLeaderAndIsr", arguments -> leaderAndIsr((String) arguments[0], (int) arguments[1]));
        return answering(MetadataCache.class, answers);
    }

    private boolean contains(Object topicOrPartition) {
        if (topicOrPartition instanceof TopicPartition partition) {
            return partitions(partition.topic()).size() > partition.partition();
        }
        return topics().contains((String) topicOrPartition);
    }

    private Optional<LeaderAndIsr> leaderAndIsr(String topic, int partition) {
        return partitions(topic).stream()
                .filter(each -> each.partitionIndex() == partition)
                .map(each -> new LeaderAndIsr(
                        each.leaderId(), each.leaderEpoch(), each.isrNodes(), LeaderRecoveryState.RECOVERED, 0))
                .findFirst();
    }

    private List<MetadataResponsePartition> partitions(String topic) {
        return metadata().data().topics().stream()
                .filter(each -> each.name().equals(topic))
                .flatMap(each -> each.partitions().stream())
                .toList();
    }

    private MetadataResponse metadata() {
        MetadataRequest request = MetadataRequest.Builder.allTopics().build();
        RequestHeader header = new RequestHeader(ApiKeys.METADATA, request.version(), "tests", 0);
        byte[] asked = Utils.toArray(request.serializeWithHeader(header));
        try (Socket socket = new Socket("127.0.0.1", port)) {
            DataOutputStream requests = new DataOutputStream(socket.getOutputStream());
            requests.writeInt(asked.length);
            requests.write(asked);
            DataInputStream answers = new DataInputStream(socket.getInputStream());
            byte[] answer = answers.readNBytes(answers.readInt());
            return (MetadataResponse) AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private Properties configuration() {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(id));
        Properties known = new Properties();
        try (Admin admin = cluster.admin()) {
            admin.describeConfigs(List.of(broker)).all().get().get(broker).entries().stream()
                    .filter(entry -> entry.value() != null && !entry.value().isEmpty())
                    .forEach(entry -> known.setProperty(entry.name(), entry.value()));
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return known;
    }

    private Properties configurationInFile() {
        try {
            return Utils.loadProps(configFile);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Properties offsetsTopicConfig() {
        Properties compacted = new Properties();
        compacted.setProperty(TopicConfig.CLEANUP_POLICY_CONFIG, TopicConfig.CLEANUP_POLICY_COMPACT);
        return compacted;
    }

    private static <T> T answering(Class<T> what, Map<String, Function<Object[], Object>> answers) {
        return Mockito.mock(what, Mockito.withSettings().stubOnly().defaultAnswer(call -> answer(call, answers)));
    }

    private static Object answer(InvocationOnMock call, Map<String, Function<Object[], Object>> answers) {
        String asked = call.getMethod().getName();
        if (asked.equals("toString")) {
            return "a process of its own";
        }
        return Optional.ofNullable(answers.get(asked))
                .orElseThrow(() -> new LooksInside(call.getMethod().getDeclaringClass().getSimpleName() + "." + asked))
                .apply(call.getArguments());
    }
}
