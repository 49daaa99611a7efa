// Confluent's Java client of schema registries, as Flink brings it: Schemas BOOTSTRAP REGISTRY SUBJECT TOPIC.
// It registers, compares, configures and deletes; then it reads the values of the topic, and writes each back with its number doubled.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Metadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Schemas {
    interface Call {
        Object make() throws Exception;
    }

    static void expect(Object wanted, Object found) {
        if (!wanted.equals(found)) {
            throw new AssertionError("expected " + wanted + ", found " + found);
        }
    }

    static void refused(int code, Call call) throws Exception {
        try {
            throw new AssertionError("not refused, but " + call.make());
        } catch (RestClientException error) {
            expect(code, error.getErrorCode());
        }
    }

    static AvroSchema order(String... more) {
        return new AvroSchema("{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":["
            + "{\"name\":\"number\",\"type\":\"long\"}" + String.join("", more) + "]}");
    }

    static void ask(String url, String subject) throws Exception {
        var client = new CachedSchemaRegistryClient(url, 100);
        AvroSchema first = order(), fits = order(",{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}");
        AvroSchema other = order(",{\"name\":\"note\",\"type\":\"string\"}");
        int id = client.register(subject, first);
        expect(id, client.register(subject, first));
        expect(id, new CachedSchemaRegistryClient(url, 100).getId(subject, first));
        expect(first.canonicalString(), client.getSchemaById(id).canonicalString());
        expect(true, client.testCompatibility(subject, fits));
        expect(false, client.testCompatibility(subject, other));
        refused(40901, () -> client.register(subject, other));
        int second = client.register(subject, fits);
        expect(List.of(1, 2), client.getAllVersions(subject));
        expect(2, client.getVersion(subject, fits));
        expect(second, client.getLatestSchemaMetadata(subject).getId());
        expect(true, client.getAllSubjects().contains(subject));
        expect(List.of(subject), List.copyOf(client.getAllSubjectsById(second)));

        expect("BACKWARD", client.updateCompatibility(subject, "BACKWARD"));
        expect("NONE", client.updateCompatibility(subject, "NONE"));
        expect("NONE", client.getCompatibility(subject));
        client.register(subject, other);
        refused(42203, () -> client.updateCompatibility(subject, "SIDEWAYS"));
        client.deleteCompatibility(subject);
        expect("READWRITE", client.getMode());
        expect("READONLY", client.setMode("READONLY", subject));
        refused(42205, () -> client.register(subject, order(",{\"name\":\"x\",\"type\":\"int\",\"default\":0}")));
        expect("READWRITE", client.setMode("READWRITE", subject));

        var reference = new SchemaReference("shop.Order", subject, 1);
        var referring = new AvroSchema("{\"type\":\"array\",\"items\":\"shop.Order\"}", List.of(reference),
            Map.of("shop.Order", first.canonicalString()), null);
        int referringId = client.register(subject + "-list", referring);
        expect(List.of(reference), new CachedSchemaRegistryClient(url, 100).getSchemaById(referringId).references());
        refused(42206, () -> client.deleteSchemaVersion(subject, "1"));

        var metadata = new Metadata(null, Map.of("owner", "me"), null);
        client.register(subject + "-kept", new AvroSchema(first.canonicalString(), List.of(), Map.of(), metadata, null, null, false));
        expect("me", client.getLatestWithMetadata(subject + "-kept", Map.of("owner", "me"), false).getMetadata().getProperties().get("owner"));

        expect(3, client.deleteSchemaVersion(subject, "3"));
        refused(40406, () -> client.deleteSchemaVersion(subject, "3"));
        expect(List.of(1), client.deleteSubject(subject + "-list"));
        expect(List.of(1), client.deleteSubject(subject + "-list", true));
        refused(40401, () -> new CachedSchemaRegistryClient(url, 100).getLatestSchemaMetadata(subject + "-list"));
        refused(40403, () -> new CachedSchemaRegistryClient(url, 100).getSchemaById(1 << 30));
    }

    static void doubled(String bootstrap, String url, String topic) throws Exception {
        Schema schema = new Schema.Parser().parse(order().canonicalString());
        var reader = ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url);
        var writer = ConfluentRegistryAvroSerializationSchema.forGeneric(topic + "-value", schema, url);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    GenericRecord value = reader.deserialize(each.value());
                    var twice = new GenericData.Record(schema);
                    twice.put("number", 2 * (Long) value.get("number"));
                    producer.send(new ProducerRecord<>(topic, writer.serialize(twice))).get();
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        ask(arguments[1], arguments[2]);
        doubled(arguments[0], arguments[1], arguments[3]);
        System.out.println("done");
    }
}
