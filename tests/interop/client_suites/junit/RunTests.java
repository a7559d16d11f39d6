package diskraft;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import kafka.server.QuorumTestHarness;
import org.apache.kafka.common.test.api.ClusterTemplate;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTests;
import org.apache.kafka.common.test.junit.RaftClusterInvocationContext;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.streams.integration.utils.EmbeddedKafkaCluster;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.opentest4j.TestAbortedException;

/**
 * Runs the tests that need a cluster, of the named classes ("package.Class") or methods ("package.Class.method"). Writes a
 * line of JSON for each to the file that is the first argument: the test, its outcome, the reason if it did not pass, and
 * the seconds that it took. A test with several configurations has a number for each.
 */
public final class RunTests {
    private RunTests() {}

    public static void main(String[] arguments) throws IOException {
        var request = LauncherDiscoveryRequestBuilder.request()
                .selectors(Stream.of(arguments).skip(1).flatMap(RunTests::select).toList())
                .filters((PostDiscoveryFilter) RunTests::needsCluster)
                .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
                .build();
        try (PrintStream outcomes = new PrintStream(Files.newOutputStream(Path.of(arguments[0])), true)) {
            LauncherFactory.create().execute(request, new Outcomes(outcomes));
        }
        // Clients that a failed test has left open have threads that run on.
        System.exit(0);
    }

    private static Stream<DiscoverySelector> select(String name) {
        try {
            return Stream.of(DiscoverySelectors.selectClass(Class.forName(name)));
        } catch (ClassNotFoundException notAClass) {
            int dot = name.lastIndexOf('.');
            Class<?> tests = DiscoverySelectors.selectClass(name.substring(0, dot)).getJavaClass();
            return Stream.of(tests.getDeclaredMethods())
                    .filter(method -> method.getName().equals(name.substring(dot + 1)))
                    .map(method -> DiscoverySelectors.selectMethod(tests, method));
        }
    }

    private static FilterResult needsCluster(TestDescriptor test) {
        if (!(test.getSource().orElse(null) instanceof MethodSource source)) {
            return FilterResult.included("it holds tests");
        }
        Method method = source.getJavaMethod();
        return FilterResult.includedIf(Stream.of(ClusterTest.class, ClusterTests.class, ClusterTemplate.class)
                        .anyMatch(method::isAnnotationPresent)
                || QuorumTestHarness.class.isAssignableFrom(source.getJavaClass())
                || hasEmbeddedCluster(source.getJavaClass()));
    }

    /** The tests of Kafka Streams have a cluster for all tests of a class, in a field. */
    private static boolean hasEmbeddedCluster(Class<?> tests) {
        return tests != null
                && (Stream.of(tests.getDeclaredFields()).anyMatch(field -> field.getType() == EmbeddedKafkaCluster.class)
                        || hasEmbeddedCluster(tests.getSuperclass()));
    }

    private static final class Outcomes implements TestExecutionListener {
        private static final ObjectMapper JSON = new ObjectMapper();
        private final PrintStream lines;
        private final Map<String, Integer> counts = new HashMap<>();
        private long startedAt;

        private Outcomes(PrintStream lines) {
            this.lines = lines;
        }

        @Override
        public void executionStarted(TestIdentifier test) {
            startedAt = System.nanoTime();
            Exit.setExitProcedure(Outcomes::refuseToExit);
        }

        /** Tools would end this process where a test does not expect them to fail. */
        private static void refuseToExit(int status, String message) {
            throw new IllegalStateException("the tool ends with status " + status + ": " + message);
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            write(test, "skipped", reason);
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            Throwable error = result.getThrowable().orElse(null);
            if (error == null) {
                if (test.isTest()) {
                    write(test, "passed", "");
                }
            } else if (error instanceof TestAbortedException || error instanceof LooksInside) {
                write(test, "skipped", error.getMessage());
            } else {
                System.out.println(test.getUniqueId());
                error.printStackTrace(System.out);
                write(test, "failed", error.toString());
            }
        }

        private void write(TestIdentifier test, String outcome, String reason) {
            if (test.getDisplayName().endsWith(RaftClusterInvocationContext.REPEATED)) {
                return;
            }
            String name = name(test.getSource().orElse(null));
            int count = counts.merge(name, 1, Integer::sum);
            try {
                lines.println(JSON.writeValueAsString(Map.of(
                        "test", count == 1 ? name : name + " " + count,
                        "outcome", outcome,
                        "reason", reason.lines().findFirst().orElse(""),
                        "seconds", (System.nanoTime() - startedAt) / 1_000_000_000.0)));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private static String name(TestSource source) {
            if (source instanceof MethodSource method) {
                return method.getClassName() + "." + method.getMethodName();
            }
            return source instanceof ClassSource tests ? tests.getClassName() : "JUnit";
        }
    }
}
