import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer that misses the timeout of its transaction, aborts it, and commits the next one. Prints what each step has
 * brought. Arguments: bootstrap servers, topic, transactional id, and "send" for one more record before the abort.
 */
public class TimedOutTransaction {
    private static final int TIMEOUT_MS = 1000;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1], id = arguments[2];
        boolean sendsOnceMore = arguments[3].equals("send");
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "transactional.id", id, "transaction.timeout.ms", TIMEOUT_MS);
        StringSerializer text = new StringSerializer();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers));
                KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "too late")).get();
            while (state(admin, id) != TransactionState.COMPLETE_ABORT) {
                Thread.sleep(100);
            }
            if (sendsOnceMore) {
                try {
                    producer.send(new ProducerRecord<>(topic, "much too late")).get();
                } catch (ExecutionException | KafkaException error) {
                    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                    System.out.println("send: " + cause.getClass().getSimpleName());
                }
            }
            producer.abortTransaction();
            System.out.println("aborted");
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "in time")).get();
            producer.commitTransaction();
            System.out.println("committed");
        }
    }

    private static TransactionState state(Admin admin, String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get().state();
    }
}
