import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.support.Acknowledgment;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Three listeners of Spring for Apache Kafka read the topic "lines". One copies it to "copy" in transactions, of which it rolls
 * back every fifth. One finds the topic by a pattern, in the new group protocol, and acknowledges its records in another
 * thread; it says what it reads. One refuses every 200th line, which goes through two retry topics into "lines-dlt".
 *
 * <p>Argument: bootstrap servers. Ends when it is killed.
 */
@Configuration(proxyBeanMethods = false)
@EnableKafka
@EnableKafkaRetryTopic
public class SpringListeners {
  private static final Map<String, Object> CLUSTER = new HashMap<>();

  private final AtomicInteger batches = new AtomicInteger();
  private final DefaultKafkaProducerFactory<String, String> transactional = producers();

  public static void main(String[] args) throws InterruptedException {
    CLUSTER.put("bootstrap.servers", args[0]);
    new AnnotationConfigApplicationContext(SpringListeners.class);
    Thread.currentThread().join();
  }

  @KafkaListener(id = "copier", topics = "lines", containerFactory = "inTransactions")
  void copy(List<ConsumerRecord<String, String>> records) {
    KafkaTemplate<String, String> template = new KafkaTemplate<>(transactional);
    records.forEach(record -> template.send("copy", record.value()));
    if (batches.incrementAndGet() % 5 == 0) {
      System.out.println("ROLLS BACK");
      throw new IllegalStateException("every fifth batch is rolled back");
    }
  }

  @KafkaListener(id = "reader", topicPattern = "line.", containerFactory = "acknowledgedLater")
  void read(ConsumerRecord<String, String> record, Acknowledgment acknowledgment) {
    System.out.println("READ " + record.value());
    CompletableFuture.runAsync(acknowledgment::acknowledge);
  }

  @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 200), numPartitions = "3", replicationFactor = "3")
  @KafkaListener(id = "refuser", topics = "lines")
  void refuse(String line) {
    if (Integer.parseInt(line.substring("line ".length())) % 200 == 0) {
      throw new IllegalArgumentException(line);
    }
  }

  @DltHandler
  void giveUp(String line) {
    System.out.println("GIVES UP " + line);
  }

  @Bean
  KafkaAdmin admin() {
    return new KafkaAdmin(CLUSTER);
  }

  @Bean
  TaskScheduler scheduler() {
    return new ThreadPoolTaskScheduler();
  }

  @Bean
  KafkaTemplate<String, String> defaultRetryTopicKafkaTemplate() {
    return new KafkaTemplate<>(producers());
  }

  @Bean
  KafkaTransactionManager<String, String> transactions() {
    transactional.setTransactionIdPrefix("copier-");
    return new KafkaTransactionManager<>(transactional);
  }

  @Bean
  ConcurrentKafkaListenerContainerFactory<String, String> inTransactions(
      KafkaTransactionManager<String, String> transactions) {
    var factory = listeners("isolation.level", "read_committed");
    factory.setBatchListener(true);
    factory.setConcurrency(2);
    factory.getContainerProperties().setKafkaAwareTransactionManager(transactions);
    factory.setAfterRollbackProcessor(
        new DefaultAfterRollbackProcessor<>(new FixedBackOff(100, FixedBackOff.UNLIMITED_ATTEMPTS)));
    return factory;
  }

  @Bean
  ConcurrentKafkaListenerContainerFactory<String, String> acknowledgedLater() {
    var factory = listeners("group.protocol", "consumer");
    factory.setConcurrency(2);
    factory.getContainerProperties().setAckMode(ContainerProperties.AckMode.MANUAL);
    factory.getContainerProperties().setAsyncAcks(true);
    return factory;
  }

  @Bean
  ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
    return listeners("auto.offset.reset", "earliest");
  }

  private static DefaultKafkaProducerFactory<String, String> producers() {
    return new DefaultKafkaProducerFactory<>(CLUSTER, new StringSerializer(), new StringSerializer());
  }

  private static ConcurrentKafkaListenerContainerFactory<String, String> listeners(String name, String value) {
    Map<String, Object> settings = new HashMap<>(CLUSTER);
    settings.put("auto.offset.reset", "earliest");
    settings.put(name, value);
    ConsumerFactory<String, String> consumers =
        new DefaultKafkaConsumerFactory<>(settings, new StringDeserializer(), new StringDeserializer());
    var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
    factory.setConsumerFactory(consumers);
    return factory;
  }
}
