package diskraft;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.AbstractMap;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.opentest4j.TestAbortedException;

/**
 * A cluster of Diskraft's daemons, as Apache Kafka's tests use their own.
 *
 * <p>Those run in the process of the test, which may look into them. Here a test that does so ends with
 * {@link LooksInside}, unless a request to the daemon can answer.
 */
public final class DiskraftCluster implements ClusterInstance {
    private static final long METADATA_MS_MAX = 30_000;
    private static final long POLL_MS = 20;
    private static final Set<String> SUPPORTED_FEATURES = Set.of("metadata.version", "transaction.version", "group.version");

    /** What the server of clusters sets by itself. */
    private static final List<String> OF_THE_SERVER = List.of(
            "advertised.listeners", "broker.id", "inter.broker.listener.name", "listener.security.protocol.map", "log.dir",
            "security.inter.broker.protocol");
    private static final ApiError UNKNOWN_TOPIC = new ApiError(Errors.UNKNOWN_TOPIC_OR_PARTITION);

    private final ClusterConfig config;
    private final boolean isRepeated;
    private final AtomicBoolean isCreated = new AtomicBoolean();
    private final AtomicBoolean isStarted = new AtomicBoolean();
    private final AtomicBoolean isStopped = new AtomicBoolean();
    private final Map<Integer, DiskraftBroker> brokers = new TreeMap<>();
    private String clusterId;
    private String controller;
    private int controllerId;

    public DiskraftCluster(ClusterConfig config, boolean isRepeated) {
        this.config = config;
        this.isRepeated = isRepeated;
    }

    /** Creates the cluster's files, and starts it if the test wants to find it running. Aborts a test that wants a cluster
     * which Diskraft cannot be. */
    public void prepare() {
        abortIf(isRepeated, "the same test runs once more");
        abortIf(config.numControllers() > 1, "a cluster of Diskraft has one controller");
        abortIf(config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT, "Diskraft has no SASL and no TLS");
        abortIf(config.serverProperties().containsKey("authorizer.class.name"), "Diskraft has no ACLs");
        abortIf(config.serverProperties().containsKey("remote.log.storage.system.enable"), "Diskraft has no tiered storage");
        create();
        if (config.isAutoStart()) {
            start();
        }
    }

    private static void abortIf(boolean isSo, String reason) {
        if (isSo) {
            throw new TestAbortedException(reason);
        }
    }

    private void create() {
        if (!isCreated.compareAndSet(false, true)) {
            return;
        }
        JsonNode made = ClusterServer.ask("create", Map.of(
                "brokers", config.numBrokers(),
                "disks", config.numDisksPerBroker(),
                "features", features(),
                "properties", config.serverProperties(),
                "properties_of", config.perServerOverrideProperties()));
        clusterId = made.get("cluster_id").asText();
        controller = made.get("controller").asText();
        controllerId = made.get("controller_id").asInt();
        made.get("brokers").forEach(each -> brokers.put(each.get("id").asInt(), new DiskraftBroker(this, each)));
    }

    private Map<String, String> features() {
        Map<String, String> levels = new HashMap<>(Map.of("metadata.version", config.metadataVersion().version()));
        config.features().forEach((feature, level) -> levels.put(feature.featureName(), level.toString()));
        levels.keySet().retainAll(SUPPORTED_FEATURES);
        return levels;
    }

    /** Configures a broker, whose directories it formats. Does not start it. */
    public BrokerServer addBroker(KafkaConfig config) {
        abortIf(config.effectiveAdvertisedBrokerListeners().exists(each ->
                each.securityProtocol() != SecurityProtocol.PLAINTEXT), "Diskraft has no SASL and no TLS");
        abortIf(config.originals().containsKey("authorizer.class.name"), "Diskraft has no ACLs");
        abortIf(config.originals().containsKey("remote.log.storage.system.enable"), "Diskraft has no tiered storage");
        List<String> logDirs = config.logDirs().stream().map(each -> Path.of(each).toAbsolutePath().toString()).toList();
        String metadataDir = Path.of(config.metadataLogDir()).toAbsolutePath().toString();
        format(config.nodeId(), logDirs, metadataDir);
        Map<String, String> properties = new HashMap<>();
        config.originals().forEach((key, value) -> properties.put((String) key, String.valueOf(value)));
        OF_THE_SERVER.forEach(properties::remove);
        JsonNode made = ClusterServer.ask("add_broker", Map.of(
                "node_id", config.nodeId(),
                "log_dirs", String.join(",", logDirs),
                "metadata_dir", metadataDir,
                "properties", properties));
        DiskraftBroker broker = new DiskraftBroker(this, made, config);
        brokers.put(config.nodeId(), broker);
        return broker.seenFromInside();
    }

    void awaitStarted() {
        brokers.values().forEach(DiskraftBroker::awaitStarted);
    }

    private void format(int nodeId, List<String> logDirs, String metadataDir) {
        try {
            MetaPropertiesEnsemble found = new MetaPropertiesEnsemble.Loader()
                    .addLogDirs(logDirs).addMetadataLogDir(metadataDir).load();
            MetaPropertiesEnsemble.Copier formatted = new MetaPropertiesEnsemble.Copier(found);
            found.emptyLogDirs().forEach(each -> formatted.setLogDirProps(each, new MetaProperties.Builder()
                    .setVersion(MetaPropertiesVersion.V1)
                    .setClusterId(clusterId)
                    .setNodeId(nodeId)
                    .setDirectoryId(DirectoryId.random())
                    .build()));
            formatted.setPreWriteHandler((logDir, isNew, properties) -> Files.createDirectories(Path.of(logDir)));
            formatted.writeLogDirChanges();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Returns what stands for Kafka's own controller. */
    public ControllerServer controllerServer() {
        Map<String, Function<Object[], Object>> answers = new HashMap<>();
        answers.put("clusterId", none -> clusterId);
        answers.put("shutdown", none -> stopController());
        answers.put("awaitShutdown", none -> null);
        answers.put("socketServer", none ->
                DiskraftBroker.answering(SocketServer.class, Map.of("boundPort", name -> controllerBoundPorts().get(0))));
        answers.put("config", none -> DiskraftBroker.answering(KafkaConfig.class, Map.of("nodeId", never -> controllerId)));
        RaftLog log = DiskraftBroker.answering(RaftLog.class, Map.of("endOffset", none ->
                new LogOffsetMetadata(DiskraftBroker.metadataOffset(controllerBoundPorts().get(0)) + 1)));
        // There is one controller, and the cluster was started.
        KafkaRaftClient<?> client = DiskraftBroker.answering(KafkaRaftClient.class, Map.of("leaderAndEpoch", none ->
                new LeaderAndEpoch(OptionalInt.of(controllerId), 1)));
        answers.put("raftManager", none -> DiskraftBroker.answering(
                KafkaRaftManager.class, Map.of("raftLog", never -> log, "client", never -> client)));
        answers.put("controller", none -> DiskraftBroker.answering(Controller.class, Map.of(
                "findAllTopicIds", asked -> CompletableFuture.completedFuture(running().get(0).topicIds()),
                "findTopicIds", asked -> CompletableFuture.completedFuture(topicIds((Collection<?>) asked[1])))));
        return DiskraftBroker.answering(ControllerServer.class, answers);
    }

    private Map<String, ResultOrError<Uuid>> topicIds(Collection<?> topics) {
        Map<String, Uuid> all = running().get(0).topicIds();
        return topics.stream().map(String.class::cast).collect(Collectors.toMap(topic -> topic, topic ->
                all.containsKey(topic) ? new ResultOrError<>(all.get(topic)) : new ResultOrError<>(UNKNOWN_TOPIC)));
    }

    private Void stopController() {
        awaitStarted();
        ClusterServer.ask("stop_controller", Map.of());
        return null;
    }

    /** Ends the daemons and removes their files. */
    public void delete() {
        isStopped.set(true);
        if (isCreated.compareAndSet(true, false)) {
            ClusterServer.ask("delete", Map.of());
        }
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> all = new LinkedHashMap<>();
        brokers.forEach((id, broker) -> all.put(id, broker.seenFromInside()));
        return all;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new AbstractMap<>() {
            @Override
            public Set<Map.Entry<Integer, ControllerServer>> entrySet() {
                // Tests wait for each of them to know something. A request that the controller answers tells as much.
                return Set.of();
            }

            @Override
            public ControllerServer get(Object id) {
                throw new LooksInside("ControllerServer");
            }
        };
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of(controllerId);
    }

    @Override
    public Set<Integer> brokerIds() {
        return new TreeSet<>(brokers.keySet());
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return brokers.values().stream().map(DiskraftBroker::address).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        return controller;
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return List.of(Integer.parseInt(controller.substring(controller.lastIndexOf(':') + 1)));
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return brokers.values().stream().map(DiskraftBroker::port).toList();
    }

    @Override
    public String clusterId() {
        return clusterId;
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        throw new LooksInside("FaultHandler");
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        throw new LooksInside("FaultHandler");
    }

    @Override
    public void start() {
        create();
        if (isStarted.compareAndSet(false, true)) {
            ClusterServer.ask("start", Map.of());
        }
    }

    @Override
    public boolean started() {
        return isStarted.get();
    }

    @Override
    public void stop() {
        if (isStopped.compareAndSet(false, true)) {
            ClusterServer.ask("stop", Map.of());
        }
    }

    @Override
    public boolean stopped() {
        return isStopped.get();
    }

    @Override
    public void shutdownBroker(int brokerId) {
        brokers.get(brokerId).shutdown();
    }

    @Override
    public void startBroker(int brokerId) {
        brokers.get(brokerId).startup();
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        untilEachBroker(broker -> broker.liveBrokers().size() == running().size(), "knows all others");
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        untilEachBroker(broker -> broker.numPartitions(topic) == partitions, "knows the partitions of " + topic);
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        untilEachBroker(broker -> !broker.topics().contains(topic), "has no " + topic);
        untilEachBroker(broker -> !broker.hasFilesOf(topic), "has deleted the files of " + topic);
    }

    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        // What each broker knows is compared with the others: a test that waits has just changed something.
        untilEachBroker(broker -> running().stream().allMatch(other -> Objects.equals(other.topicIds(), broker.topicIds())),
                "knows the same topics");
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> ofThese, Collection<ControllerServer> controllers)
            throws InterruptedException {
        ensureConsistentMetadata();
    }

    @Override
    public List<Authorizer> authorizers() {
        return List.of();
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) {
        throw new TestAbortedException("Diskraft has no ACLs");
    }

    private List<DiskraftBroker> running() {
        return brokers.values().stream().filter(DiskraftBroker::isRunning).toList();
    }

    private interface Question {
        boolean hasYes(DiskraftBroker broker);
    }

    private void untilEachBroker(Question question, String what) throws InterruptedException {
        long deadline = System.currentTimeMillis() + METADATA_MS_MAX;
        for (DiskraftBroker broker : running()) {
            while (!question.hasYes(broker)) {
                if (System.currentTimeMillis() > deadline) {
                    throw new AssertionError("it is not so within " + METADATA_MS_MAX + " ms that " + broker + " " + what);
                }
                Thread.sleep(POLL_MS);
            }
        }
    }
}
