package org.apache.kafka.common.test.junit;

import diskraft.DiskraftCluster;
import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Gives a test a cluster of Diskraft. Apache Kafka's extension of JUnit creates an object of this name for each
 * configuration that a test asks for, and finds this class before its own, because it comes first on the class path.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    /** The last word of the name of a test that runs under another name as well. */
    public static final String REPEATED = "repeated";

    private final String method;
    private final ClusterConfig config;
    private final boolean isRepeated;

    public RaftClusterInvocationContext(String method, ClusterConfig config, boolean isCombined) {
        this.method = method;
        this.config = config;
        // A node of Diskraft has one role. A test that would also run on nodes with both runs once.
        isRepeated = isCombined && config.clusterTypes().contains(Type.KRAFT);
    }

    @Override
    public String getDisplayName(int invocation) {
        return method + (isRepeated ? " " + REPEATED : "");
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        DiskraftCluster cluster = new DiskraftCluster(config, isRepeated);
        return List.of(
                (BeforeEachCallback) context -> cluster.prepare(),
                (AfterEachCallback) context -> cluster.delete(),
                new ClusterInstanceParameterResolver(cluster));
    }
}
