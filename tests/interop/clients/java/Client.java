import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own clients with their default settings, one command for each step of the test that starts them. See
 * programs.py for the commands and the lines that they print.
 */
public final class Client {
    private static final short REPLICATION_FACTOR = 3;
    private static final Duration POLL = Duration.ofMillis(500);

    private Client() {
    }

    public static void main(String[] arguments) throws Exception {
        String command = arguments[0];
        switch (command) {
            case "compressions" -> say("compressions", Arrays.stream(CompressionType.values()).map(each -> quoted(each.name)));
            case "create" -> create(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
            case "list" -> list(arguments[1]);
            case "delete" -> delete(arguments[1], arguments[2]);
            case "produce" -> produce(arguments[1], arguments[2], arguments[3]);
            case "consume" -> {
                Properties settings = settings(arguments[1]);
                for (String each : Arrays.asList(arguments).subList(4, arguments.length)) {
                    String[] parts = each.split("=", 2);
                    settings.put(parts[0], parts[1]);
                }
                consume(settings, arguments[2], arguments[3]);
            }
            default -> throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private static synchronized void say(String key, java.util.stream.Stream<String> values) {
        System.out.println("{\"" + key + "\": [" + values.collect(Collectors.joining(", ")) + "]}");
    }

    private static String quoted(String text) {
        return '"' + text + '"';
    }

    private static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, REPLICATION_FACTOR))).all().get();
        }
    }

    private static void list(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            say("topics", admin.listTopics().names().get().stream().map(Client::quoted));
        }
    }

    private static void delete(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    private static void produce(String bootstrap, String topic, String compression) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("compression.type", compression);
        BufferedReader given = new BufferedReader(new InputStreamReader(System.in));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line = given.readLine(); line != null; line = given.readLine()) {
                String[] parts = line.split(" ");
                producer.send(new ProducerRecord<>(topic, Integer.valueOf(parts[0]), null, parts[1])).get();
                System.out.println("{\"acked\": " + quoted(parts[1]) + "}");
            }
        }
    }

    private static void consume(Properties settings, String topic, String group) {
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        try (consumer) {
            new Thread(() -> wakeAtEnd(consumer)).start();
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    // What is owned is reported when the new assignment is known.
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("assigned", consumer.assignment().stream().map(each -> String.valueOf(each.partition())));
                }
            });
            while (true) {
                for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                    System.out.println("{\"read\": [" + each.partition() + ", " + each.offset() + ", " + quoted(each.value()) + "]}");
                }
            }
        } catch (WakeupException end) {
            // The consumer has been closed, with its last commit.
        }
    }

    private static void wakeAtEnd(KafkaConsumer<String, String> consumer) {
        try {
            System.in.readAllBytes();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        } finally {
            consumer.wakeup();
        }
    }
}
