import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes transactions that overlap in one partition: one commits, one aborts, and records outside any lie between.
 *
 * Arguments: bootstrap servers, topic, number of rounds, size of a record, and "open" to leave a last transaction as a
 * program that dies leaves it.
 */
public class Transactions {
    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("linger.ms", 0);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
            settings.put("transaction.timeout.ms", 900_000);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, String text, int size) {
        byte[] value = new byte[size];
        byte[] start = text.getBytes();
        System.arraycopy(start, 0, value, 0, start.length);
        producer.send(new ProducerRecord<>(topic, 0, null, value));
        producer.flush();
    }

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int rounds = Integer.parseInt(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        KafkaProducer<byte[], byte[]> plain = producer(bootstrap, null);
        KafkaProducer<byte[], byte[]> committing = producer(bootstrap, topic + "-committing");
        KafkaProducer<byte[], byte[]> aborting = producer(bootstrap, topic + "-aborting");
        committing.initTransactions();
        aborting.initTransactions();
        for (int round = 0; round < rounds; round++) {
            committing.beginTransaction();
            aborting.beginTransaction();
            for (int i = 0; i < 3; i++) {
                send(committing, topic, "committed " + round + " " + i, size);
                send(aborting, topic, "aborted " + round + " " + i, size);
                send(plain, topic, "plain " + round + " " + i, size);
            }
            aborting.abortTransaction();
            send(plain, topic, "between " + round, size);
            committing.commitTransaction();
        }
        if (arguments.length > 4) {
            aborting.beginTransaction();
            send(aborting, topic, "open", size);
            send(plain, topic, "behind the open one", size);
            Runtime.getRuntime().halt(0);
        }
        plain.close();
        committing.close();
        aborting.close();
    }
}
