// Squares of numbers by Spring's listener container, each in a transaction: Squares BOOTSTRAP SOURCE TARGET.
// The end of standard input ends it.

import java.util.Map;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

public class Squares {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2];
        var producers = new DefaultKafkaProducerFactory<String, String>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
        producers.setTransactionIdPrefix("squares-");
        var template = new KafkaTemplate<>(producers);
        var consumers = new DefaultKafkaConsumerFactory<String, String>(
                Map.of(
                        "bootstrap.servers", bootstrap,
                        "group.id", "squares",
                        "auto.offset.reset", "earliest",
                        "isolation.level", "read_committed",
                        "enable.auto.commit", "false"),
                new StringDeserializer(),
                new StringDeserializer());
        var properties = new ContainerProperties(source);
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        properties.setMessageListener((MessageListener<String, String>) number -> {
            long value = Long.parseLong(number.value());
            template.send(target, number.key(), String.valueOf(value * value));
        });
        var container = new ConcurrentMessageListenerContainer<>(consumers, properties);
        container.setConcurrency(3);
        // Otherwise Spring skips a record after nine failures in a row.
        var forever = new FixedBackOff(500, FixedBackOff.UNLIMITED_ATTEMPTS);
        container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(forever));
        container.start();
        System.in.read();
        System.exit(0);
    }
}
