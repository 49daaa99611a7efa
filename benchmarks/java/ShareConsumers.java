import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * {@code ShareConsumers BOOTSTRAP TOPIC GROUP CONSUMERS RECORDS}: consumers of one share group with default settings,
 * each in a thread.
 *
 * Prints the seconds from the first record to the last as JSON: what comes before is joining, which waits for heartbeats.
 */
public final class ShareConsumers {
    private static final long PATIENCE_NS = 60_000_000_000L;
    private static final AtomicLong left = new AtomicLong();
    private static final AtomicLong began = new AtomicLong();
    private static final AtomicLong ended = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        long records = Long.parseLong(arguments[4]);
        left.set(records);
        Thread[] threads = new Thread[Integer.parseInt(arguments[3])];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> consume(arguments[0], arguments[1], arguments[2]));
            threads[i].start();
        }
        for (Thread each : threads) {
            each.join();
        }
        if (left.get() > 0) {
            System.err.println(left.get() + " records are missing");
            System.exit(1);
        }
        System.out.printf("{\"records\": %d, \"seconds\": %f}%n", records - left.get(), (ended.get() - began.get()) / 1e9);
    }

    private static void consume(String bootstrap, String topic, String group) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group);
        long deadline = System.nanoTime() + PATIENCE_NS;
        try (var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (left.get() > 0 && System.nanoTime() < deadline) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                long now = System.nanoTime();
                if (count > 0) {
                    began.compareAndSet(0, now);
                    if (left.addAndGet(-count) <= 0) {
                        ended.compareAndSet(0, now);
                    }
                }
            }
        }
    }
}
