import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;

/**
 * One Kafka Streams application: `StreamsApplication <topology> <prefix of its topics> name=value...`.
 *
 * It prints a line when it runs, and ends when its standard input does. Nothing is cached, so each input has its output.
 */
public final class StreamsApplication {
    public static void main(String[] arguments) throws Exception {
        String prefix = arguments[1];
        Properties settings = new Properties();
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("replication.factor", "1");
        for (String each : Arrays.asList(arguments).subList(2, arguments.length)) {
            String[] parts = each.split("=", 2);
            if (parts[1].isEmpty()) {
                settings.remove(parts[0]);
            } else {
                settings.put(parts[0], parts[1]);
            }
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (arguments[0]) {
            case "words" -> countWords(builder, prefix);
            case "window" -> joinInWindows(builder, prefix);
            case "foreignKey" -> joinByForeignKey(builder, prefix);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        run(new KafkaStreams(builder.build(), settings));
    }

    /** Counts words: lines -> (repartition by word) -> a store -> counts. */
    private static void countWords(StreamsBuilder builder, String prefix) {
        KStream<String, String> lines = builder.stream(prefix + "-lines");
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(prefix + "-counts");
    }

    /** Joins two streams whose records lie within ten seconds of each other. */
    private static void joinInWindows(StreamsBuilder builder, String prefix) {
        KStream<String, String> left = builder.stream(prefix + "-left");
        KStream<String, String> right = builder.stream(prefix + "-right");
        JoinWindows window = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(10), Duration.ofDays(1));
        left.join(right, (one, other) -> one + "+" + other, window).to(prefix + "-joined");
    }

    /** Joins orders ("customer item") with customers. */
    private static void joinByForeignKey(StreamsBuilder builder, String prefix) {
        KTable<String, String> orders = builder.table(prefix + "-orders");
        KTable<String, String> customers = builder.table(prefix + "-customers");
        orders.join(customers, order -> order.split(" ")[0], (order, customer) -> order + " " + customer)
            .toStream(Named.as("changes"))
            .to(prefix + "-named");
    }

    private static void run(KafkaStreams streams) throws Exception {
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            System.out.flush();
        });
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close(Duration.ofSeconds(30));
    }
}
