"""Records with schemas over HTTP, beside Confluent's own serializers and deserializers, over `ottla registry`."""

import json

import pytest
from compat_tests.registry.conftest import start_registry  # noqa: F401
from compat_tests.registry.test_confluent_serializers import ADA, PERSON, PERSON_AS_JSON, person_class
from compat_tests.rest.conftest import JSON, V2, Instance
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

READ_S = 60
PROTO = """syntax = "proto3";
package demo;
import "google/protobuf/timestamp.proto";
message Person { string name = 1; google.protobuf.Timestamp born = 2; }
"""
FORMATS = ("avro", "jsonschema", "protobuf")
SCHEMAS = {"avro": json.dumps(PERSON), "jsonschema": json.dumps(PERSON_AS_JSON), "protobuf": PROTO}
BORN = "1815-12-10T00:00:00Z"
VALUES = {
    "avro": {"name": "Ada", "age": {"int": 36}},
    "jsonschema": ADA,
    "protobuf": {"name": "Ada", "born": BORN},
}  # fmt: skip
PROTOBUF_SETTINGS = {"use.deprecated.format": False}


def media(kind):
    return f"application/vnd.kafka.{kind}.v2+json"


@pytest.fixture
def registry(broker, start_registry, unique):  # noqa: F811
    return start_registry(broker.bootstrap, "--topic", unique("schemas"))


@pytest.fixture
def client(registry):
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


@pytest.fixture
def schema_proxy(broker, registry, start_proxy):
    return start_proxy(broker.bootstrap, "--registry", registry.url)


@pytest.fixture
def read(broker, unique):
    """Reads so many records of a topic as (key, value)."""
    consumers = []

    def read(topic, count):
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": unique("g"), "auto.offset.reset": "earliest"}
        consumers.append(Consumer(settings))
        consumers[-1].subscribe([topic])
        found = consumers[-1].consume(count, READ_S)
        return [(each.key(), each.value()) for each in found]

    yield read
    for each in consumers:
        each.close()


def theirs(kind, client):
    """Confluent's serializer and deserializer, and the value that VALUES has for them."""
    if kind == "avro":
        return AvroSerializer(client, json.dumps(PERSON)), AvroDeserializer(client), ADA
    if kind == "jsonschema":
        schema = json.dumps(PERSON_AS_JSON)
        return JSONSerializer(schema, client), JSONDeserializer(None, schema_registry_client=client), ADA
    message = PERSON_CLASS(name="Ada", born=timestamp_pb2.Timestamp(seconds=-4861728000))
    serializer = ProtobufSerializer(PERSON_CLASS, client, PROTOBUF_SETTINGS)
    return serializer, ProtobufDeserializer(PERSON_CLASS, PROTOBUF_SETTINGS, client), message


PERSON_CLASS = person_class()


def test_confluents_deserializers_read_what_was_written_over_http(schema_proxy, client, read, unique):
    path = schema_proxy.cluster_path()
    for kind in FORMATS:
        topic, (_, deserializer, wanted) = unique(kind), theirs(kind, client)
        named = {"value_schema": SCHEMAS[kind], "records": [{"value": VALUES[kind]}, {"value": VALUES[kind]}]}
        answer = schema_proxy.ask("POST", f"/topics/{topic}", named, media(kind))
        assert answer.status == 200, answer
        schema_id = answer.json["value_schema_id"]
        assert schema_id == client.get_latest_version(f"{topic}-value").schema_id
        assert answer.json["key_schema_id"] is None
        by_id = {"value_schema_id": schema_id, "records": [{"value": VALUES[kind]}]}
        assert schema_proxy.ask("POST", f"/topics/{topic}", by_id, media(kind)).json["value_schema_id"] == schema_id
        # The third version: by text, by id, by version, by the latest version.
        texts = {"type": kind.upper(), "schema": SCHEMAS[kind]}
        for names in (texts, {"schema_id": schema_id}, {"schema_version": 1}, {}):
            record = {"value": {**names, "data": VALUES[kind]}}
            told = schema_proxy.ask("POST", f"{path}/topics/{topic}/records", record, "application/json").json
            assert told["error_code"] == 200, told
            assert {**told["value"], "size": 0} == {
                "type": kind.upper(),
                "subject": f"{topic}-value",
                "schema_id": schema_id,
                "schema_version": 1,
                "size": 0,
            }
        context = SerializationContext(topic, MessageField.VALUE)
        found = read(topic, 7)
        assert len(found) == 7
        assert [deserializer(value, context) for _, value in found] == [wanted] * 7
        assert {len(value) for _, value in found} == {told["value"]["size"]}


def test_what_confluents_serializers_wrote_is_read_over_http(schema_proxy, client, broker, unique):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for kind in FORMATS:
        topic, (serializer, _, value) = unique(kind), theirs(kind, client)
        data = serializer(value, SerializationContext(topic, MessageField.VALUE))
        for _ in range(3):
            producer.produce(topic, data, data)
        producer.produce(topic, None, data)
        assert producer.flush(READ_S) == 0
        instance = Instance(schema_proxy, unique("g"), format=kind, **{"auto.offset.reset": "earliest"})
        instance.ask("POST", "/subscription", {"topics": [topic]})
        found = instance.until(4)
        assert [each["value"] for each in found] == [VALUES[kind]] * 3 + [None]
        assert [each["key"] for each in found] == [VALUES[kind]] * 4
        assert [each["offset"] for each in found] == [0, 1, 2, 3]
        mismatch = instance.ask("GET", "/records", accept=JSON)
        assert (mismatch.status, mismatch.code) == (406, 40601)
        instance.ask("DELETE")


def test_poison_is_told_after_the_records_before_it(schema_proxy, broker, unique):
    topic = unique("poison")
    named = {"value_schema": SCHEMAS["avro"], "records": [{"value": VALUES["avro"], "partition": 0}] * 2}
    assert schema_proxy.ask("POST", f"/topics/{topic}", named, media("avro")).status == 200
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for data in (b"no frame", b"\0\0\0\0\x63?", b"\0\0\0\0\1\xff"):
        producer.produce(topic, data, partition=0)
    assert producer.flush(READ_S) == 0
    schema_proxy.ask("POST", f"/topics/{topic}", named, media("avro"))
    instance = Instance(schema_proxy, unique("g"), format="avro", **{"auto.offset.reset": "earliest"})
    partition = {"topic": topic, "partition": 0}
    instance.ask("POST", "/assignments", {"partitions": [partition]})
    assert [each["offset"] for each in instance.until(2)] == [0, 1]
    for offset in (2, 3, 4):
        answer = instance.refusal()
        assert (answer.status, answer.code) == (408, 40801)
        assert f"Error deserializing VALUE for partition {topic}-0 at offset {offset}." in answer.json["message"]
        seek = instance.ask("POST", "/positions", {"offsets": [{**partition, "offset": offset + 1}]})
        assert seek.status == 204
    assert [each["offset"] for each in instance.until(2)] == [5, 6]
    instance.ask("DELETE")


def test_refusals_have_confluents_codes(schema_proxy, unique):
    topic, value = unique("refused"), VALUES["avro"]

    def refusal(content, kind="avro"):
        answer = schema_proxy.ask("POST", f"/topics/{topic}", content, media(kind))
        return answer.status, answer.code

    assert refusal({"records": [{"value": value}]}) == (422, 42202)
    assert refusal({"records": [{"key": value}]}) == (422, 42201)
    assert refusal({"value_schema": "{", "records": [{"value": value}]}) == (422, 42205)
    assert refusal({"value_schema": "{", "records": [{"value": value}]}, "protobuf") == (422, 42205)
    assert refusal({"value_schema_id": 99, "records": [{"value": value}]}) == (422, 42207)
    assert refusal({"value_schema": SCHEMAS["avro"], "records": [{"value": 5}]}) == (400, 400)
    assert refusal({"value_schema_id": 1, "records": [{"value": {}}]}, "protobuf") == (422, 42205)
    # A record of the third version is refused by itself.
    records = b"".join(
        json.dumps({"value": each}).encode()
        for each in ({"data": value, "schema_id": 99}, {"data": value}, {"data": 5, "schema_version": 1})
    )
    path = f"{schema_proxy.cluster_path()}/topics/{topic}/records"
    answers = schema_proxy.ask("POST", path, records, "application/json").body.splitlines()
    assert [json.loads(each)["error_code"] for each in answers] == [42207, 200, 400]


def test_without_a_registry_formats_with_schemas_are_refused(broker, start_proxy):
    proxy = start_proxy(broker.bootstrap)
    for content, code in (
        ({"records": [{"value": 1}]}, 42207),
        ({"value_schema": "x", "records": [{"value": 1}]}, 42206),
    ):
        answer = proxy.ask("POST", "/topics/t", content, media("avro"))
        assert (answer.status, answer.code) == (422, code)
    answer = proxy.ask("POST", "/consumers/g", {"format": "protobuf"}, V2)
    assert (answer.status, answer.code) == (422, 42207)
    record = {"value": {"data": 1, "schema_id": 1}}
    answer = proxy.ask("POST", f"{proxy.cluster_path()}/topics/t/records", record, "application/json")
    assert answer.json["error_code"] == 42206
