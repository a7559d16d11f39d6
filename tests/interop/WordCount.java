import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of a topic, each exactly once. Every update of a count becomes a record of the other topic.
 *
 * <p>Arguments: bootstrap servers, source topic, target topic, folder of the state. Prints the state of the application
 * whenever that changes, and ends when it is killed or has failed.
 */
public final class WordCount {
  public static void main(String[] args) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", args[0]);
    settings.put("application.id", "count-" + args[1]);
    settings.put("state.dir", args[3]);
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", "2");
    settings.put("num.standby.replicas", "1");
    // Of the internal topics. By default it is that of the brokers, 1.
    settings.put("replication.factor", "3");
    // Every update is forwarded, also those that a cache would keep back.
    settings.put("statestore.cache.max.bytes", "0");
    // An instance that was killed is missed after 45 s by default.
    settings.put("consumer.session.timeout.ms", "10000");

    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(Materialized.as(Stores.persistentKeyValueStore("counts")))
        .toStream()
        .to(args[2], Produced.with(Serdes.String(), Serdes.Long()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setStateListener(
        (now, before) -> {
          System.out.println("STATE " + now);
          if (now == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
          }
        });
    streams.start();
  }
}
