package diskraft;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** One broker. What a test would read inside its process is asked of the daemon, as far as requests can tell. */
final class DiskraftBroker {
    /** The offset of a replica that does not serve yet. Tests wait for another one. */
    private static final long NOT_YET = -1;
    private static final long CHECKPOINT_MS_MAX = 10_000;
    private static final long POLL_MS = 500;

    private final DiskraftCluster cluster;
    private final int id;
    private final int port;
    private final List<Path> logDirs;
    private final String configFile;
    private final KafkaConfig given;
    private boolean isRunning;
    private boolean isAwaited;

    DiskraftBroker(DiskraftCluster cluster, JsonNode made) {
        this(cluster, made, null);
        isRunning = true;
    }

    /** A broker that is still to be started. The test expects to read the configuration that it has given. */
    DiskraftBroker(DiskraftCluster cluster, JsonNode made, KafkaConfig given) {
        this.given = given;
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

    /** A broker may have ended by itself, as this test then knows. */
    private boolean hasProcess() {
        boolean isAsked = isRunning() && given != null;
        if (isAsked && !ClusterServer.ask("is_running", Map.of("node_id", id)).get("answer").asBoolean()) {
            isRunning = false;
        }
        return isRunning();
    }

    void shutdown() {
        if (isRunning) {
            ClusterServer.ask("stop_broker", Map.of("node_id", id));
            isRunning = false;
        }
    }

    void startup() {
        if (!isRunning) {
            ClusterServer.ask("start_broker", Map.of("node_id", id, "wait", given == null));
            isRunning = true;
            isAwaited = given != null;
        }
    }

    /** A test starts its brokers one after the other, and then uses them. So they start side by side. */
    void awaitStarted() {
        if (isAwaited) {
            isAwaited = false;
            ClusterServer.ask("await_broker", Map.of("node_id", id));
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
    BrokerServer seenFromInside() {
        Map<String, Function<Object[], Object>> answers = new HashMap<>();
        answers.put("boundPort", arguments -> port);
        answers.put("brokerState", arguments -> hasProcess() ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN);
        answers.put("clusterId", arguments -> cluster.clusterId());
        answers.put("config", arguments -> seenConfiguration());
        answers.put("dataPlaneRequestProcessor", arguments -> answering(KafkaApis.class, Map.of(
                "brokerId", none -> id,
                "clusterId", none -> cluster.clusterId(),
                "metadataCache", none -> metadataCache())));
        answers.put("groupCoordinator", arguments -> answering(GroupCoordinator.class,
                Map.of("groupMetadataTopicConfigs", none -> offsetsTopicConfig())));
        answers.put("isShutdown", arguments -> !isRunning());
        answers.put("lifecycleManager", arguments -> answering(BrokerLifecycleManager.class,
                Map.of("initialUnfenceFuture", none -> CompletableFuture.completedFuture(null))));
        answers.put("logDirFailureChannel", arguments -> answering(LogDirFailureChannel.class, Map.of(
                "maybeAddOfflineLogDir", asked -> fail((String) asked[0]),
                "hasOfflineLogDir", asked -> !isOnline((String) asked[0]))));
        answers.put("logManager", arguments -> logManager());
        answers.put("metadataCache", arguments -> metadataCache());
        answers.put("replicaManager", arguments -> replicaManager());
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
        answers.put("sharedServer", arguments -> answering(SharedServer.class, Map.of("loader", none ->
                answering(MetadataLoader.class, Map.of("lastAppliedOffset", nothing -> metadataOffset(port))))));
        Map<String, Function<Object[], Object>> afterStart = new HashMap<>();
        answers.forEach((asked, answer) -> afterStart.put(asked, arguments -> {
            if (!asked.equals("startup") && !asked.equals("config")) {
                cluster.awaitStarted();
            }
            return answer.apply(arguments);
        }));
        return answering(BrokerServer.class, afterStart);
    }

    private KafkaConfig seenConfiguration() {
        return given != null ? given : KafkaConfig.fromProps(isRunning() ? configuration() : configurationInFile());
    }

    /** The offset up to which a node has applied the metadata. */
    static long metadataOffset(int port) {
        ApiVersionsResponse answer = (ApiVersionsResponse) ask(port, new ApiVersionsRequest.Builder().build());
        return answer.data().finalizedFeaturesEpoch();
    }

    private ReplicaManager replicaManager() {
        return answering(ReplicaManager.class, Map.of(
                "onlinePartition", asked -> Option.apply(onlinePartition((TopicPartition) asked[0])),
                "localLog", asked -> Option.apply(log((TopicPartition) asked[0])),
                "localLogOrException", asked -> log((TopicPartition) asked[0]),
                "getLog", asked -> Option.apply(log((TopicPartition) asked[0])),
                "getLogEndOffsetLag", asked -> lag((TopicPartition) asked[0], (long) asked[1], (boolean) asked[2]),
                "logManager", none -> logManager(),
                "checkpointHighWatermarks", none -> awaitCheckpoint(),
                "handleLogDirFailure", asked -> fail((String) asked[0]),
                "metadataCache", none -> metadataCache()));
    }

    private LogManager logManager() {
        return answering(LogManager.class, Map.of(
                "getLog", asked -> Option.apply(log((TopicPartition) asked[0])),
                "isLogDirOnline", asked -> isOnline((String) asked[0]),
                "liveLogDirs", none -> CollectionConverters.asScala(logDirs.stream().map(Path::toFile).toList()).toSeq()));
    }

    private UnifiedLog log(TopicPartition partition) {
        return logDirs.stream()
                .map(logDir -> logDir.resolve(partition.toString()))
                .filter(Files::exists)
                .findFirst()
                .map(folder -> answering(UnifiedLog.class, Map.of(
                        "dir", none -> folder.toFile(),
                        "highWatermark", none -> highWatermark(partition),
                        "size", none -> files(folder).mapToLong(File::length).sum(),
                        "numberOfSegments", none -> (int) files(folder).count(),
                        "logSegments", none -> files(folder).map(DiskraftBroker::segment).toList(),
                        "parentDir", none -> folder.getParent().toString(),
                        "logEndOffset", none -> offset(partition, ListOffsetsRequest.LATEST_TIMESTAMP),
                        "logStartOffset", none -> offset(partition, ListOffsetsRequest.EARLIEST_TIMESTAMP))))
                .orElse(null);
    }

    private long lag(TopicPartition partition, long end, boolean isFuture) {
        if (isFuture) {
            throw new LooksInside("the lag of a future replica");
        }
        return Math.max(0, offset(partition, ListOffsetsRequest.LATEST_TIMESTAMP) - end);
    }

    private static Stream<File> files(Path folder) {
        return Stream.of(folder.toFile().listFiles((dir, name) -> name.endsWith(".log"))).sorted();
    }

    private static LogSegment segment(File file) {
        return answering(LogSegment.class, Map.of(
                "log", none -> records(file),
                "read", asked -> read(file, (long) asked[0])));
    }

    private static FetchDataInfo read(File file, long offset) {
        FileRecords records = records(file);
        var found = records.searchForOffsetFromPosition(offset, 0);
        return found == null ? null : new FetchDataInfo(
                LogOffsetMetadata.UNKNOWN_OFFSET_METADATA, records.slice(found.position, records.sizeInBytes()));
    }

    private static FileRecords records(File file) {
        try {
            return FileRecords.open(file, false);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The daemon writes its checkpoints after the interval. A test with a long one has broken the directory, which the
     * daemon notices anyway. */
    private Void awaitCheckpoint() {
        long intervalMs = given.replicaHighWatermarkCheckpointIntervalMs();
        try {
            Thread.sleep(intervalMs <= CHECKPOINT_MS_MAX ? intervalMs + POLL_MS : 0);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return null;
    }

    /** Puts a file in the place of a log directory, and waits until the broker has noticed. */
    private Void fail(String logDir) {
        try {
            cluster.awaitStarted();
            Utils.delete(new File(logDir));
            Files.createFile(Path.of(logDir));
            while (isOnline(logDir)) {
                Thread.sleep(POLL_MS);
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return null;
    }

    private long offset(TopicPartition partition, long timestamp) {
        ListOffsetsRequest request = ListOffsetsRequest.Builder
                .forReplica((short) 6, ListOffsetsRequest.DEBUGGING_REPLICA_ID)
                .setTargetTimes(List.of(new ListOffsetsTopic().setName(partition.topic()).setPartitions(List.of(
                        new ListOffsetsPartition().setPartitionIndex(partition.partition()).setTimestamp(timestamp)))))
                .build();
        var found = ((ListOffsetsResponse) ask(port, request)).topics().get(0).partitions().get(0);
        return found.errorCode() == 0 ? found.offset() : NOT_YET;
    }

    /** Followers answer a consumer's fetch as well. */
    private long highWatermark(TopicPartition partition) {
        var wanted = new FetchRequest.PartitionData(
                Uuid.ZERO_UUID, offset(partition, ListOffsetsRequest.EARLIEST_TIMESTAMP), -1, 1, Optional.empty());
        FetchRequest request = FetchRequest.Builder.forConsumer((short) 12, 0, 0, Map.of(partition, wanted)).build();
        var found = ((FetchResponse) ask(port, request)).data().responses().get(0).partitions().get(0);
        return found.errorCode() == 0 ? found.highWatermark() : NOT_YET;
    }

    private boolean isOnline(String logDir) {
        try (Admin admin = cluster.admin()) {
            return admin.describeLogDirs(List.of(id)).allDescriptions().get().get(id).get(logDir).error() == null;
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private Partition onlinePartition(TopicPartition partition) {
        return (isRunning() ? partitions(partition.topic()) : List.<MetadataResponsePartition>of()).stream()
                .filter(each -> each.partitionIndex() == partition.partition() && each.replicaNodes().contains(id))
                .findFirst()
                .map(each -> answering(Partition.class,
                        Map.of("leaderIdIfLocal", none -> Option.apply(each.leaderId() == id ? id : null),
                                "leaderReplicaIdOpt", none -> Option.apply(each.leaderId() < 0 ? null : each.leaderId()),
                                "isLeader", none -> each.leaderId() == id,
                                "inSyncReplicaIds", none -> CollectionConverters.asScala(each.isrNodes()).toSet(),
                                "getLeaderEpoch", none -> each.leaderEpoch(),
                                "leaderLogIfLocal", none -> Option.apply(
                                        each.leaderId() == id ? log(partition) : null))))
                .orElse(null);
    }

    private KRaftMetadataCache metadataCache() {
        Map<String, Function<Object[], Object>> answers = new HashMap<>();
        answers.put("getAllTopics", arguments -> topics());
        answers.put("getTopicId", arguments -> topicIds().getOrDefault((String) arguments[0], Uuid.ZERO_UUID));
        answers.put("topicNamesToIds", arguments -> topicIds());
        answers.put("hasAliveBroker", arguments -> liveBrokers().stream().anyMatch(node -> node.id() == (int) arguments[0]));
        answers.put("getAliveBrokerNodes", arguments -> liveBrokers());
        answers.put("getAliveBrokerNode", arguments ->
                liveBrokers().stream().filter(node -> node.id() == (int) arguments[0]).findFirst());
        answers.put("numPartitions", arguments ->
                Optional.of(numPartitions((String) arguments[0])).filter(count -> count > 0));
        answers.put("getTopicMetadata", arguments -> metadata().data().topics().stream()
                .filter(each -> ((Set<?>) arguments[0]).contains(each.name())).toList());
        answers.put("getPartitionLeaderEndpoint", arguments -> partitions((String) arguments[0]).stream()
                .filter(each -> each.partitionIndex() == (int) arguments[1])
                .map(each -> liveBrokers().stream().filter(node -> node.id() == each.leaderId()).findFirst()
                        .orElse(Node.noNode()))
                .findFirst());
        answers.put("getPartitionReplicaEndpoints", arguments -> liveReplicas((TopicPartition) arguments[0]));
        answers.put("contains", arguments -> contains(arguments[0]));
        answers.put("getLeaderAndIsr", arguments -> leaderAndIsr((String) arguments[0], (int) arguments[1]));
        return answering(KRaftMetadataCache.class, answers);
    }

    private Map<Integer, Node> liveReplicas(TopicPartition partition) {
        List<Integer> replicas = partitions(partition.topic()).stream()
                .filter(each -> each.partitionIndex() == partition.partition())
                .flatMap(each -> each.replicaNodes().stream())
                .toList();
        return liveBrokers().stream()
                .filter(node -> replicas.contains(node.id()))
                .collect(Collectors.toMap(Node::id, node -> node));
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
        return (MetadataResponse) ask(port, request);
    }

    static AbstractResponse ask(int port, AbstractRequest request) {
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "tests", 0);
        byte[] asked = Utils.toArray(request.serializeWithHeader(header));
        try (Socket socket = new Socket("127.0.0.1", port)) {
            DataOutputStream requests = new DataOutputStream(socket.getOutputStream());
            requests.writeInt(asked.length);
            requests.write(asked);
            DataInputStream answers = new DataInputStream(socket.getInputStream());
            byte[] answer = answers.readNBytes(answers.readInt());
            return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
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

    static <T> T answering(Class<T> what, Map<String, Function<Object[], Object>> answers) {
        return Mockito.mock(what, Mockito.withSettings().stubOnly().defaultAnswer(call -> answer(call, answers)));
    }

    private static Object answer(InvocationOnMock call, Map<String, Function<Object[], Object>> answers) throws Throwable {
        String asked = call.getMethod().getName();
        if (asked.equals("toString")) {
            return "a process of its own";
        }
        if (asked.contains("$default$")) {
            // What Scala passes for an argument that the test leaves out.
            return call.callRealMethod();
        }
        return Optional.ofNullable(answers.get(asked))
                .orElseThrow(() -> new LooksInside(call.getMethod().getDeclaringClass().getSimpleName() + "." + asked))
                .apply(call.getArguments());
    }
}
