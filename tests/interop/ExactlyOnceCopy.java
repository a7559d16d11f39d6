import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic into another exactly once, in a Flink cluster within this process. Goes on from the last checkpoint in the
 * folder if there is one.
 *
 * <p>Arguments: bootstrap servers, source topic, target topic, folder of the checkpoints, transaction naming
 * strategy, parallelism. Ends when it is killed or has failed.
 */
public final class ExactlyOnceCopy {
  public static void main(String[] args) throws Exception {
    Path checkpoints = Path.of(args[3]);
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "500 ms");
    settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
    settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    settings.setString("restart-strategy.type", "disable");
    settings.setString("jobmanager.bind-host", "127.0.0.1");
    settings.setString("rest.bind-address", "127.0.0.1");
    Optional<Path> last = lastCheckpoint(checkpoints);
    last.ifPresent(path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
    System.out.println("RESTORES " + last);

    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    environment.setParallelism(Integer.parseInt(args[5]));
    KafkaSource<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(args[0])
            .setTopics(args[1])
            .setGroupId("copy-" + args[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    KafkaSink<String> sink =
        KafkaSink.<String>builder()
            .setBootstrapServers(args[0])
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<String>builder()
                    .setTopic(args[2])
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("copy-" + args[1])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(args[4]))
            // By default an hour, which is more than a broker allows by default.
            .setProperty("transaction.timeout.ms", "600000")
            .build();
    environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").uid("source").sinkTo(sink).uid("sink");
    environment.execute();
  }

  /** Flink writes the file _metadata at the end of a checkpoint. */
  private static Optional<Path> lastCheckpoint(Path folder) throws IOException {
    try (Stream<Path> paths = Files.walk(folder, 3)) {
      return paths
          .filter(path -> path.endsWith("_metadata"))
          .map(Path::getParent)
          .max(Comparator.comparingInt(path -> Integer.parseInt(path.getFileName().toString().substring("chk-".length()))));
    }
  }
}
