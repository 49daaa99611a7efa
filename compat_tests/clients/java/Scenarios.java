import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Kafka's own Java clients against a broker: {@code Scenarios SCENARIO BOOTSTRAP TOPIC GROUP [ARGUMENT]}. Every scenario
 * prints lines of "name=value"; test_java_clients.py says what they have to be.
 */
public class Scenarios {
    static String bootstrap, topic, group, argument;

    public static void main(String[] args) throws Exception {
        bootstrap = args[1];
        topic = args[2];
        group = args[3];
        argument = args.length > 4 ? args[4] : "";
        switch (args[0]) {
            case "roundTrip" -> roundTrip();
            case "largeRecords" -> largeRecords();
            case "seek" -> seek();
            case "commit" -> commit();
            case "rebalance" -> rebalance();
            case "topics" -> topics();
            case "configs" -> configs();
            case "offsets" -> offsets();
            case "groups" -> groups();
            case "transactions" -> transactions();
            case "zombie" -> zombie();
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Exit.exit(0); // whatever a client's thread is still doing
    }

    static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    /** The name of the exception with which something fails, or what it gives. */
    static String outcome(KafkaFuture<?> future) throws InterruptedException {
        try {
            return String.valueOf(future.get());
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName();
        }
    }

    /** The settings that the file named in CLIENT_PROPERTIES has, such as those of TLS and SASL. */
    static Map<String, Object> common() {
        Properties properties = new Properties();
        String path = System.getenv("CLIENT_PROPERTIES");
        if (path != null) {
            try (var reader = Files.newBufferedReader(Path.of(path))) {
                properties.load(reader);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
        Map<String, Object> config = new HashMap<>();
        properties.forEach((name, value) -> config.put((String) name, value));
        return config;
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> options) {
        Map<String, Object> config = common();
        config.putAll(options);
        config.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> options) {
        Map<String, Object> config = common();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("heartbeat.interval.ms", 100);
        config.put("session.timeout.ms", 6000);
        config.putAll(options);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void produce(int count, long firstTimestamp) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, 0, firstTimestamp + i, null, bytes("v" + i)));
            }
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> read(Consumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 60_000;
        while (records.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        }
        return records;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }

    /** 200 records with keys, headers and timestamps; argument: codec, with "-plain" for no idempotence. */
    static void roundTrip() throws Exception {
        int count = 200;
        boolean plain = argument.endsWith("-plain");
        Map<String, Object> options = Map.of(
            "compression.type", argument.replace("-plain", ""), "enable.idempotence", !plain, "linger.ms", 5);
        List<Future<RecordMetadata>> sends = new ArrayList<>();
        try (var producer = producer(options)) {
            for (int i = 0; i < count; i++) {
                var record = new ProducerRecord<>(topic, 0, 7000L + i, i % 3 == 0 ? null : bytes("k" + i), bytes("value " + i));
                record.headers().add("a", bytes("1")).add("a", new byte[0]).add("none", null);
                sends.add(producer.send(record));
            }
        }
        int rightOffsets = 0;
        for (int i = 0; i < count; i++) rightOffsets += sends.get(i).get().offset() == i ? 1 : 0;
        int right = 0;
        try (var consumer = consumer(Map.of("group.id", group))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (var record : read(consumer, count)) {
                int i = (int) record.offset();
                var headers = record.headers().toArray();
                boolean same = record.timestamp() == 7000 + i
                    && text(record.key()).equals(i % 3 == 0 ? "null" : "k" + i)
                    && text(record.value()).equals("value " + i)
                    && headers.length == 3
                    && text(headers[0].value()).equals("1")
                    && headers[1].value().length == 0
                    && headers[2].value() == null
                    && record.leaderEpoch().equals(Optional.of(0));
                right += same ? 1 : 0;
            }
        }
        say("offsets", rightOffsets);
        say("records", right);
    }

    static void largeRecords() throws Exception {
        try (var producer = producer(Map.of("max.request.size", 4_000_000, "compression.type", "none"))) {
            for (int size : new int[] {900_000, 500_000, 1}) {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[size])).get();
            }
            try {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[2_000_000])).get();
            } catch (ExecutionException e) {
                say("refused", e.getCause().getClass().getSimpleName());
            }
            say("afterwards", producer.send(new ProducerRecord<>(topic, 0, null, new byte[1])).get().offset());
        }
        List<Integer> sizes = new ArrayList<>();
        try (var consumer = consumer(Map.of("max.partition.fetch.bytes", 1000, "fetch.max.bytes", 1000))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            read(consumer, 4).forEach(record -> sizes.add(record.value().length));
        }
        say("sizes", sizes);
    }

    static void seek() throws Exception {
        produce(100, 7000);
        var partition = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 42);
            say("seek", read(consumer, 1).get(0).offset());
            say("beginning", consumer.beginningOffsets(Set.of(partition)).get(partition));
            say("end", consumer.endOffsets(Set.of(partition)).get(partition));
            say("time", consumer.offsetsForTimes(Map.of(partition, 7010L)).get(partition).offset());
            say("late", consumer.offsetsForTimes(Map.of(partition, 99_000L)).get(partition));
            consumer.seek(partition, 1000);
            say("reset", read(consumer, 1).get(0).offset());
            consumer.pause(Set.of(partition));
            say("paused", consumer.poll(Duration.ofMillis(200)).count());
        }
    }

    static void commit() throws Exception {
        produce(10, 7000);
        var partition = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of("max.poll.records", 4))) {
            consumer.subscribe(List.of(topic));
            say("first", read(consumer, 4).size());
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, Optional.of(0), "note")));
        }
        try (var consumer = consumer(Map.of())) {
            consumer.subscribe(List.of(topic));
            say("next", read(consumer, 6).get(0).offset());
            var committed = consumer.committed(Set.of(partition)).get(partition);
            say("committed", committed.offset() + " " + committed.metadata() + " " + committed.leaderEpoch().get());
        }
    }

    /** Two consumers polled in turn; argument: the assignor's class. Static members with "-static". */
    static void rebalance() throws Exception {
        String assignor = argument.replace("-static", "");
        boolean isStatic = argument.endsWith("-static");
        List<String> events = new ArrayList<>();
        var one = member(assignor, isStatic ? "one" : null);
        one.subscribe(List.of(topic), listener(events));
        pollUntil(() -> one.assignment().size() == 4, one);
        var two = member(assignor, isStatic ? "two" : null);
        two.subscribe(List.of(topic));
        pollUntil(() -> one.assignment().size() == 2 && two.assignment().size() == 2, one, two);
        Set<TopicPartition> all = new HashSet<>(one.assignment());
        all.addAll(two.assignment());
        say("together", all.size());
        Set<TopicPartition> kept = Set.copyOf(two.assignment());
        two.close();
        if (isStatic) {
            var again = member(assignor, "two");
            again.subscribe(List.of(topic));
            pollUntil(() -> again.assignment().equals(kept), one, again);
            again.close();
        } else {
            pollUntil(() -> one.assignment().size() == 4, one);
        }
        say("events", String.join(" ", events));
        one.close();
    }

    static KafkaConsumer<byte[], byte[]> member(String assignor, String instance) {
        Map<String, Object> options = new HashMap<>(Map.of("partition.assignment.strategy", assignor));
        if (instance != null) options.putAll(Map.of("group.instance.id", instance, "session.timeout.ms", 60_000));
        return consumer(options);
    }

    static ConsumerRebalanceListener listener(List<String> events) {
        return new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                if (!partitions.isEmpty()) events.add("-" + partitions.size());
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                if (!partitions.isEmpty()) events.add("+" + partitions.size());
            }
        };
    }

    @SafeVarargs
    static void pollUntil(BooleanSupplier condition, Consumer<byte[], byte[]>... members) {
        long deadline = System.currentTimeMillis() + 60_000;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("the group did not settle");
            for (var member : members) member.poll(Duration.ofMillis(20));
        }
    }

    static void topics() throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            // -1: the broker's default, as Kafka Streams asks for its topics.
            var created = admin.createTopics(List.of(
                new NewTopic(topic, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "60000"))));
            created.all().get();
            say("created", created.numPartitions(topic).get() + " " + created.replicationFactor(topic).get());
            say("returnedConfig", created.config(topic).get().get("retention.ms").value());
            say("sameId", created.topicId(topic).get().equals(describe(admin).topicId()));
            say("again", outcome(admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all()));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            say("partitions", describe(admin).partitions().size());
            say("listed", admin.listTopics().names().get().contains(topic));
            say("clusterId", !admin.describeCluster().clusterId().get().isEmpty());
            say("nodes", admin.describeCluster().nodes().get().size());
            say("logDirs", admin.describeLogDirs(List.of(admin.describeCluster().controller().get().id()))
                .allDescriptions().get().size());
            var id = describe(admin).topicId();
            admin.deleteTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).all().get();
            say("deleted", outcome(admin.describeTopics(List.of(topic)).allTopicNames()));
        }
    }

    static TopicDescription describe(Admin admin) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    static void configs() throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            say("default", config(admin, resource, "retention.ms"));
            var set = new AlterConfigOp(new ConfigEntry("retention.ms", "4000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            say("set", config(admin, resource, "retention.ms"));
            var append = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(append))).all().get();
            say("appended", config(admin, resource, "cleanup.policy"));
            var bad = new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
            say("bad", outcome(admin.incrementalAlterConfigs(Map.of(resource, List.of(bad))).all()));
            var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            var entry = admin.describeConfigs(List.of(resource), options).all().get().get(resource).get("retention.ms");
            List<String> synonyms = new ArrayList<>();
            entry.synonyms().forEach(synonym -> synonyms.add(synonym.name() + ":" + synonym.source()));
            say("synonyms", synonyms);
            say("documented", entry.documentation() != null && !entry.documentation().isEmpty());
            say("type", entry.type());
        }
    }

    static String config(Admin admin, ConfigResource resource, String name) throws Exception {
        var entry = admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
        return entry.value() + " " + entry.source();
    }

    static void offsets() throws Exception {
        produce(20, 9000);
        var partition = new TopicPartition(topic, 0);
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).all().get();
            say("earliest", listed(admin, partition, OffsetSpec.earliest()));
            say("latest", listed(admin, partition, OffsetSpec.latest()));
            say("maxTimestamp", listed(admin, partition, OffsetSpec.maxTimestamp()));
            say("forTimestamp", listed(admin, partition, OffsetSpec.forTimestamp(9012)));
            say("tooFar", outcome(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(21))).all()));
            var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get();
            say("producers", producers.activeProducers().size());
            say("lastSequence", producers.activeProducers().get(0).lastSequence());
        }
    }

    static long listed(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    static void groups() throws Exception {
        produce(10, 9000);
        var partition = new TopicPartition(topic, 0);
        var groups = List.of(group);
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var member = consumer(Map.of("client.id", "member", "group.instance.id", "instance"));
            member.subscribe(List.of(topic));
            pollUntil(() -> !member.assignment().isEmpty(), member);
            member.commitSync(Map.of(partition, new OffsetAndMetadata(3)));
            var described = admin.describeConsumerGroups(groups).all().get().get(group);
            say("state", described.groupState() + " " + described.partitionAssignor() + " " + described.members().size());
            var one = described.members().iterator().next();
            say("member", one.clientId() + " " + one.groupInstanceId().get() + " " + one.assignment().topicPartitions().equals(Set.of(partition)));
            say("listed", admin.listGroups().all().get().stream().anyMatch(listing -> listing.groupId().equals(group)));
            say("notEmpty", outcome(admin.deleteConsumerGroups(groups).all()));
            say("subscribed", outcome(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all()));
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(
                List.of(new MemberToRemove("instance")))).all().get();
            member.close();
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(8))).all().get();
            say("altered", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).offset());
            say("offsetDeleted", outcome(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all()));
            say("deleted", outcome(admin.deleteConsumerGroups(groups).all()));
            say("gone", outcome(admin.describeConsumerGroups(groups).all()));
        }
    }

    static KafkaProducer<byte[], byte[]> transactional() {
        return producer(Map.of("transactional.id", group + "-transactional"));
    }

    /** Copies the topic into another one, exactly once although every third transaction is aborted. */
    static void transactions() throws Exception {
        produce(100, 1000);
        Map<String, Object> committed = Map.of("isolation.level", "read_committed", "max.poll.records", 10);
        int aborted = 0, rounds = 0, copied = 0;
        try (var source = consumer(committed); var sink = transactional()) {
            sink.initTransactions();
            source.subscribe(List.of(topic));
            while (copied < 100) {
                var records = source.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                sink.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (var each : records) {
                    sink.send(new ProducerRecord<>(argument, each.value()));
                    var place = new TopicPartition(each.topic(), each.partition());
                    offsets.put(place, new OffsetAndMetadata(each.offset() + 1));
                }
                sink.sendOffsetsToTransaction(offsets, source.groupMetadata());
                if (++rounds % 3 == 0) {
                    sink.abortTransaction();
                    aborted++;
                    for (var place : source.assignment()) {
                        var known = source.committed(Set.of(place)).get(place);
                        source.seek(place, known == null ? 0 : known.offset());
                    }
                } else {
                    sink.commitTransaction();
                    copied += records.count();
                }
            }
        }
        Set<String> values = new HashSet<>();
        int count = 0;
        try (var reader = consumer(committed)) {
            var place = new TopicPartition(argument, 0);
            reader.assign(List.of(place));
            reader.seekToBeginning(List.of(place));
            long end = endOf(place);
            while (reader.position(place) < end) {
                for (var each : reader.poll(Duration.ofMillis(200))) {
                    values.add(new String(each.value(), StandardCharsets.UTF_8));
                    count++;
                }
            }
        }
        say("aborted", aborted > 0);
        say("copied", count);
        say("values", values.size());
    }

    /** A producer goes on after another one has taken its transactional id. */
    static void zombie() throws Exception {
        try (var first = transactional(); var second = transactional()) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, new byte[1])).get();
            second.initTransactions();
            say("zombie", failure(() -> {
                first.send(new ProducerRecord<>(topic, new byte[2])).get();
                first.commitTransaction();
            }));
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, new byte[3])).get();
            second.commitTransaction();
        } catch (KafkaException e) {
            // The first one cannot be closed in order.
        }
        try (var reader = consumer(Map.of("isolation.level", "read_committed"))) {
            var place = new TopicPartition(topic, 0);
            reader.assign(List.of(place));
            List<Integer> sizes = new ArrayList<>();
            long end = endOf(place);
            while (reader.position(place) < end) {
                reader.poll(Duration.ofMillis(200)).forEach(each -> sizes.add(each.value().length));
            }
            say("sizes", sizes);
        }
    }

    /** Of the log: a reader of committed records comes so far when the markers of all transactions are there. */
    static long endOf(TopicPartition place) {
        try (var plain = consumer(Map.of())) {
            return plain.endOffsets(List.of(place)).get(place);
        }
    }

    interface Action {
        void run() throws Exception;
    }

    static String failure(Action action) throws Exception {
        try {
            action.run();
            return "none";
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName();
        } catch (KafkaException e) {
            return e.getClass().getSimpleName();
        }
    }
}
