import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * What Kafka's Java clients ask of coordinators: transactions, consumer groups of KIP-848, share groups.
 * {@code Coordinated SCENARIO BOOTSTRAP TOPIC GROUP} prints lines of "name=value"; test_java_coordinated.py says what they
 * have to be.
 */
public class Coordinated {
    static String bootstrap, topic, group;

    public static void main(String[] args) throws Exception {
        bootstrap = args[1];
        topic = args[2];
        group = args[3];
        switch (args[0]) {
            case "transactions" -> transactions();
            case "fencing" -> fencing();
            case "driven" -> driven();
            case "consumeAndProduce" -> consumeAndProduce();
            case "administration" -> administration();
            case "consumerGroup" -> consumerGroup();
            case "pattern" -> pattern();
            case "upgrade" -> upgrade();
            case "staticMember" -> staticMember();
            case "shareImplicit" -> shareImplicit();
            case "shareExplicit" -> shareExplicit();
            case "shareTogether" -> shareTogether();
            case "shareUntilEnd" -> shareUntilEnd();
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Exit.exit(0); // whatever a client's thread is still doing
    }

    static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    interface Action {
        void run() throws Exception;
    }

    /** The name of the exception with which something fails; "done" if it does not. */
    static String outcome(Action action) throws Exception {
        try {
            action.run();
            return "done";
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName();
        } catch (Exception e) {
            return e.getClass().getSimpleName();
        }
    }

    static KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> options) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "isolation.level", "read_committed", "metadata.max.age.ms", 500));
        config.putAll(options);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static KafkaConsumer<String, String> newConsumer(String... options) {
        Map<String, Object> config = new HashMap<>(Map.of("group.protocol", "consumer"));
        for (int i = 0; i < options.length; i += 2) {
            config.put(options[i], options[i + 1]);
        }
        return consumer(config);
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static void produce(int from, int to) {
        try (var producer = producer(null)) {
            for (int i = from; i < to; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "v" + i));
            }
        }
    }

    static void send(KafkaProducer<String, String> producer, String... values) {
        for (String value : values) {
            producer.send(new ProducerRecord<>(topic, 0, null, value));
        }
    }

    static List<String> read(Consumer<String, String> consumer, int count) {
        List<String> values = new ArrayList<>();
        until(() -> {
            consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            return values.size() >= count;
        });
        return values;
    }

    static List<String> readAll(String isolation, int count) {
        try (var consumer = consumer(Map.of("isolation.level", isolation, "group.id", group + "-reader"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            return read(consumer, count);
        }
    }

    /** Whether something came true in time. */
    static boolean until(BooleanSupplier condition) {
        long deadline = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < deadline) {
            if (condition.getAsBoolean()) {
                return true;
            }
        }
        return false;
    }

    // --- transactions

    static void transactions() {
        try (var producer = producer(group)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "a", "b");
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, "c", "d");
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.commitTransaction(); // nothing was sent in it
            producer.beginTransaction();
            send(producer, "e");
            producer.commitTransaction();
        }
        say("committed", readAll("read_committed", 3));
        say("all", readAll("read_uncommitted", 5));
    }

    /** Does what each line of its input says, and tells how that went. */
    @SuppressWarnings("removal") // of the metadata of a group that has no members
    static void driven() throws Exception {
        try (var producer = producer(group); var lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String[] words = lines.nextLine().split(" ");
                say(words[0], outcome(() -> {
                    switch (words[0]) {
                        case "init" -> producer.initTransactions();
                        case "begin" -> producer.beginTransaction();
                        case "send" -> producer.send(new ProducerRecord<>(words[1], 0, null, words[2])).get();
                        case "offset" -> producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition(words[1], 0), new OffsetAndMetadata(Long.parseLong(words[2]))),
                            new ConsumerGroupMetadata(words[3]));
                        case "commit" -> producer.commitTransaction();
                        case "abort" -> producer.abortTransaction();
                        default -> throw new IllegalArgumentException(words[0]);
                    }
                }));
                System.out.flush();
            }
        }
    }

    static void fencing() throws Exception {
        try (var zombie = producer(group); var successor = producer(group)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            send(zombie, "zombie");
            zombie.flush();
            successor.initTransactions();
            say("zombie", outcome(zombie::commitTransaction));
            successor.beginTransaction();
            send(successor, "successor");
            successor.commitTransaction();
            try (var admin = admin()) {
                admin.fenceProducers(List.of(group)).all().get();
            }
            successor.beginTransaction();
            send(successor, "fenced");
            say("successor", outcome(successor::commitTransaction));
        }
        say("committed", readAll("read_committed", 1));
    }

    static void consumeAndProduce() throws Exception {
        produce(0, 10);
        TopicPartition output = new TopicPartition(topic, 1);
        try (var consumer = newConsumerOfEither(); var producer = producer(group)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            until(() -> {
                consumer.poll(Duration.ofMillis(100)).forEach(records::add);
                return records.size() >= 10;
            });
            for (boolean commits : new boolean[] {false, true}) {
                producer.beginTransaction();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(topic, 1, null, "out of " + record.value()));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(10, "m")), consumer.groupMetadata());
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                    say("afterAbort", consumer.committed(Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0)));
                }
            }
            var committed = consumer.committed(Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0));
            say("afterCommit", committed.offset() + " " + committed.metadata());
        }
        try (var reader = consumer(Map.of("group.id", group + "-reader"))) {
            reader.assign(List.of(output));
            reader.seekToBeginning(List.of(output));
            say("outputs", read(reader, 10).size());
        }
    }

    static KafkaConsumer<String, String> newConsumerOfEither() {
        return consumer(Map.of("session.timeout.ms", 6000));
    }

    static void administration() throws Exception {
        try (var producer = producer(group); var admin = admin()) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "open");
            producer.flush();
            var described = admin.describeTransactions(List.of(group)).description(group).get();
            say("state", described.state() + " " + described.topicPartitions().size() + " " + described.transactionTimeoutMs());
            var listed = admin.listTransactions(new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))).all().get();
            say("listed", listed.stream().filter(each -> each.transactionalId().equals(group)).count());
            TopicPartition partition = new TopicPartition(topic, 0);
            var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            say("producers", states.stream().filter(each -> each.currentTransactionStartOffset().isPresent()).count());
            var state = states.get(0);
            say("aborted", outcome(() -> admin.abortTransaction(new AbortTransactionSpec(
                partition, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get()));
            states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            say("afterwards", states.stream().filter(each -> each.currentTransactionStartOffset().isPresent()).count());
            say("unknown", outcome(() -> admin.describeTransactions(List.of(group + "-unknown")).all().get()));
        }
    }

    // --- consumer groups of KIP-848

    static Set<Integer> owned(Consumer<?, ?> consumer) {
        Set<Integer> found = new TreeSet<>();
        consumer.assignment().forEach(each -> found.add(each.partition()));
        return found;
    }

    static void poll(Consumer<?, ?>... consumers) {
        for (var each : consumers) {
            each.poll(Duration.ofMillis(20));
        }
    }

    static void consumerGroup() throws Exception {
        produce(0, 20);
        try (var first = newConsumer(); var admin = admin()) {
            first.subscribe(List.of(topic));
            say("read", read(first, 20).size());
            say("alone", owned(first));
            var second = newConsumer();
            second.subscribe(List.of(topic));
            say("together", until(() -> {
                poll(first, second);
                return first.assignment().size() == 2 && second.assignment().size() == 2;
            }));
            Set<Integer> all = owned(first);
            all.addAll(owned(second));
            say("all", all);
            first.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(7)));
            var described = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            say("described", described.type() + " " + described.groupState() + " " + described.members().size() + " " + described.partitionAssignor());
            second.close();
            say("againAlone", until(() -> {
                poll(first);
                return first.assignment().size() == 4;
            }));
            say("committed", first.committed(Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0)).offset());
            say("notEmpty", outcome(() -> admin.deleteConsumerGroups(List.of(group)).all().get()));
        }
        try (var admin = admin()) {
            say("deleted", outcome(() -> admin.deleteConsumerGroups(List.of(group)).all().get()));
        }
    }

    static void pattern() throws Exception {
        produce(0, 5);
        try (var consumer = newConsumer(); var admin = admin()) {
            consumer.subscribe(new SubscriptionPattern(topic + "(-other)?"));
            say("matched", until(() -> {
                poll(consumer);
                return consumer.assignment().size() == 4;
            }));
            admin.createTopics(List.of(new NewTopic(topic + "-other", 2, (short) 1))).all().get();
            say("newTopic", until(() -> {
                poll(consumer);
                return consumer.assignment().size() == 6;
            }));
            admin.createPartitions(Map.of(topic + "-other", NewPartitions.increaseTo(3))).all().get();
            say("newPartition", until(() -> {
                poll(consumer);
                return consumer.assignment().size() == 7;
            }));
        }
        try (var consumer = newConsumer("group.id", group + "-bad")) {
            consumer.subscribe(new SubscriptionPattern("(unclosed"));
            say("bad", outcome(() -> until(() -> {
                poll(consumer);
                return false;
            })));
        }
    }

    static void upgrade() throws Exception {
        produce(0, 10);
        try (var classic = consumer(Map.of("session.timeout.ms", 6000, "heartbeat.interval.ms", 100,
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")); var admin = admin()) {
            classic.subscribe(List.of(topic));
            say("classic", read(classic, 10).size());
            classic.commitSync();
            try (var modern = newConsumer()) {
                modern.subscribe(List.of(topic));
                say("together", until(() -> {
                    poll(classic, modern);
                    return classic.assignment().size() == 2 && modern.assignment().size() == 2;
                }));
                say("upgraded", admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get().type());
            }
            say("alone", until(() -> {
                poll(classic);
                return classic.assignment().size() == 4;
            }));
            say("downgraded", admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get().type());
            say("committed", classic.committed(Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0)).offset());
        }
    }

    static void staticMember() throws Exception {
        Set<Integer> before;
        try (var other = newConsumer("group.instance.id", "two")) {
            try (var one = newConsumer("group.instance.id", "one")) {
                one.subscribe(List.of(topic));
                other.subscribe(List.of(topic));
                say("together", until(() -> {
                    poll(one, other);
                    return one.assignment().size() == 2 && other.assignment().size() == 2;
                }));
                before = owned(one);
            }
            try (var again = newConsumer("group.instance.id", "one")) {
                again.subscribe(List.of(topic));
                say("back", until(() -> {
                    poll(again, other);
                    return again.assignment().size() == 2;
                }));
                say("same", owned(again).equals(before));
            }
        }
    }

    // --- share groups

    static KafkaShareConsumer<String, String> shareConsumer(String mode) throws Exception {
        return shareConsumer(mode, Map.of());
    }

    static KafkaShareConsumer<String, String> shareConsumer(String mode, Map<String, Object> options) throws Exception {
        try (var admin = admin()) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            var earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", mode));
        config.putAll(options);
        return new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static void shareImplicit() throws Exception {
        produce(0, 50);
        try (var consumer = shareConsumer("implicit")) {
            consumer.subscribe(List.of(topic));
            Set<String> values = new HashSet<>();
            int[] deliveries = {0};
            until(() -> {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> {
                    values.add(record.value());
                    deliveries[0]++;
                });
                return values.size() >= 50;
            });
            say("read", values.size() + " " + deliveries[0]);
            consumer.commitSync();
        }
        produce(50, 60);
        try (var consumer = shareConsumer("implicit")) {
            consumer.subscribe(List.of(topic));
            List<String> values = new ArrayList<>();
            until(() -> {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
                return values.size() >= 10;
            });
            say("next", values.get(0) + " " + values.size());
        }
    }

    static void shareExplicit() throws Exception {
        produce(0, 9);
        Map<String, Integer> counts = new HashMap<>();
        try (var consumer = shareConsumer("explicit")) {
            consumer.subscribe(List.of(topic));
            until(() -> {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    counts.put(record.value(), (int) record.deliveryCount().get());
                    int number = Integer.parseInt(record.value().substring(1));
                    AcknowledgeType type = number % 3 == 0 ? AcknowledgeType.ACCEPT
                        : number % 3 == 1 ? AcknowledgeType.REJECT
                        : record.deliveryCount().get() < 3 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                    consumer.acknowledge(record, type);
                }
                var results = consumer.commitSync();
                results.values().forEach(error -> error.ifPresent(e -> say("error", e.getClass().getSimpleName())));
                return counts.size() == 9 && counts.get("v2") == 3 && counts.get("v5") == 3 && counts.get("v8") == 3;
            });
        }
        Set<String> shown = new TreeSet<>();
        counts.forEach((value, count) -> shown.add(value + ":" + count));
        say("deliveries", shown);
    }

    static void shareTogether() throws Exception {
        Set<String> values = new HashSet<>();
        int deliveries = 0;
        try (var first = shareConsumer("implicit"); var second = shareConsumer("implicit"); var admin = admin()) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            int[] got = {0, 0};
            first.poll(Duration.ofMillis(500));
            second.poll(Duration.ofMillis(500));
            int rounds = 0;
            // One may read alone for a while: until both have read something, the other may still be joining.
            while (rounds < 20 || rounds < 500 && (got[0] == 0 || got[1] == 0)) {
                produce(rounds * 20, rounds * 20 + 20);
                rounds++;
                first.poll(Duration.ofMillis(100)).forEach(record -> { values.add(record.value()); got[0]++; });
                second.poll(Duration.ofMillis(100)).forEach(record -> { values.add(record.value()); got[1]++; });
            }
            int written = rounds * 20;
            until(() -> {
                first.poll(Duration.ofMillis(100)).forEach(record -> { values.add(record.value()); got[0]++; });
                second.poll(Duration.ofMillis(100)).forEach(record -> { values.add(record.value()); got[1]++; });
                return values.size() >= written;
            });
            var described = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
            say("described", described.groupState() + " " + described.members().size());
            say("missing", written - values.size());
            say("twice", got[0] + got[1] - values.size());
            say("both", got[0] > 0 && got[1] > 0);
        }
    }

    /** Two members read until the input ends, and tell of each record and of each answer to what they have said of it. */
    static void shareUntilEnd() throws Exception {
        var ended = new AtomicBoolean();
        List<Thread> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            var consumer = shareConsumer("explicit", Map.of("max.poll.records", 20));
            var member = new Thread(() -> {
                try (consumer) {
                    consumer.subscribe(List.of(topic));
                    while (!ended.get()) {
                        acknowledge(consumer, consumer.poll(Duration.ofMillis(200)));
                    }
                } catch (Exception e) {
                    say("failed", e);
                }
            });
            member.start();
            members.add(member);
        }
        while (System.in.read() >= 0) {
        }
        ended.set(true);
        for (var member : members) {
            member.join();
        }
    }

    /** Accepts records, but releases every fifth when it comes for the first time. */
    static void acknowledge(KafkaShareConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
        Map<TopicPartition, List<String>> said = new HashMap<>();
        for (var record : records) {
            String shown = record.partition() + ":" + record.offset() + ":" + record.deliveryCount().get();
            boolean releases = record.offset() % 5 == 0 && record.deliveryCount().get() == 1;
            say("read", shown);
            consumer.acknowledge(record, releases ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            var partition = new TopicPartition(record.topic(), record.partition());
            said.computeIfAbsent(partition, each -> new ArrayList<>()).add((releases ? "released=" : "accepted=") + shown);
        }
        consumer.commitSync().forEach((partition, error) -> {
            error.ifPresent(e -> say("error", partition + " " + e));
            for (String each : said.getOrDefault(partition.topicPartition(), List.of())) {
                System.out.println(error.map(e -> "un").orElse("") + each);
            }
        });
    }
}
