"""Confluent's serializers of Python, and its client, against a registry over a broker."""

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

PERSON = {
    "type": "record",
    "name": "demo.Person",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"], "default": None}],
}
PERSON_AS_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}
ADA = {"name": "Ada", "age": 36}


Connect = Callable[[str], SchemaRegistryClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, and closes them at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda url: stack.enter_context(SchemaRegistryClient({"url": url}))


@pytest.fixture
def client(
    bootstrap: str, start_registry: Callable[..., object], unique: Callable[[str], str], connect: Connect
) -> SchemaRegistryClient:
    return connect(start_registry(bootstrap, "--topic", unique("schemas")).url)


@pytest.fixture
def value(unique: Callable[[str], str]) -> SerializationContext:
    return SerializationContext(unique("people"), MessageField.VALUE)


def test_avro(client: SchemaRegistryClient, value: SerializationContext, connect: Connect) -> None:
    data = AvroSerializer(client, json.dumps(PERSON))(ADA, value)
    assert data[:5] == b"\0\0\0\0\1"
    assert AvroDeserializer(client)(data, value) == ADA
    assert client.get_subjects() == [f"{value.topic}-value"]
    # Readers that know nothing yet ask by the id.
    assert AvroDeserializer(connect(client._rest_client.base_urls[0]))(data, value) == ADA


def test_json_schema(client: SchemaRegistryClient, value: SerializationContext) -> None:
    data = JSONSerializer(json.dumps(PERSON_AS_JSON), client)(ADA, value)
    assert JSONDeserializer(None, schema_registry_client=client)(data, value) == ADA
    assert client.get_latest_version(f"{value.topic}-value").schema.schema_type == "JSON"


def person_class() -> type:
    """A message of Protobuf, as protoc would have made it."""
    file = descriptor_pb2.FileDescriptorProto(name="people.proto", package="demo", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Person")
    message.field.add(name="name", number=1, type=9, label=1, json_name="name")
    born = message.field.add(name="born", number=2, type=11, label=1, json_name="born")
    born.type_name = ".google.protobuf.Timestamp"
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.Person"))


def test_protobuf(client: SchemaRegistryClient, value: SerializationContext, connect: Connect) -> None:
    kind = person_class()
    ada = kind(name="Ada", born=timestamp_pb2.Timestamp(seconds=-4857840000))
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(kind, client, settings)(ada, value)
    assert ProtobufDeserializer(kind, settings, client)(data, value) == ada
    # A reader that knows nothing yet asks for the descriptor.
    stranger = connect(client._rest_client.base_urls[0])
    assert ProtobufDeserializer(kind, settings, stranger)(data, value) == ada
    latest = connect(client._rest_client.base_urls[0]).get_latest_version(f"{value.topic}-value")
    assert latest.schema.schema_type == "PROTOBUF" and "message Person" in latest.schema.schema_str
    assert client.register_schema("again", latest.schema) == latest.schema_id


def test_references_versions_and_deletion(client: SchemaRegistryClient) -> None:
    house = {"type": "record", "name": "demo.House", "fields": [{"name": "owner", "type": "demo.Person"}]}
    first = client.register_schema("person", Schema(json.dumps(PERSON), "AVRO"))
    reference = SchemaReference("demo.Person", "person", 1)
    second = client.register_schema("house", Schema(json.dumps(house), "AVRO", [reference]))
    assert (first, second) == (1, 2)
    assert client.get_schema(second).references == [reference]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject("person")
    assert refused.value.error_code == 42206
    assert client.delete_subject("house") == [1]
    assert client.delete_subject("house", permanent=True) == [1]
    assert client.delete_version("person", 1) == 1
    assert client.get_subjects() == []


def test_compatibility(client: SchemaRegistryClient) -> None:
    client.register_schema("person", Schema(json.dumps(PERSON), "AVRO"))
    wider = {**PERSON, "fields": [*PERSON["fields"], {"name": "town", "type": "string"}]}
    assert not client.test_compatibility("person", Schema(json.dumps(wider), "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("person", Schema(json.dumps(wider), "AVRO"))
    assert refused.value.error_code == 40901
    client.set_compatibility("person", "FORWARD")
    assert client.get_compatibility("person") == "FORWARD"
    assert client.register_schema("person", Schema(json.dumps(wider), "AVRO")) == 2
    assert client.lookup_schema("person", Schema(json.dumps(wider), "AVRO")).version == 2


def test_a_registry_that_starts_again_knows_everything(
    bootstrap: str, start_registry: Callable[..., object], unique: Callable[[str], str], connect: Connect
) -> None:
    topic = unique("schemas")
    first = start_registry(bootstrap, "--topic", topic)
    client = connect(first.url)
    client.register_schema("person", Schema(json.dumps(PERSON), "AVRO"))
    client.set_compatibility("person", "NONE")
    first.stop()
    again = connect(start_registry(bootstrap, "--topic", topic).url)
    assert again.get_subjects() == ["person"] and again.get_compatibility("person") == "NONE"
    assert again.register_schema("other", Schema(json.dumps(PERSON), "AVRO")) == 1
    assert again.register_schema("number", Schema('"int"', "AVRO")) == 2


def test_a_registry_may_start_before_its_brokers(
    start_broker: Callable[..., object], start_registry: Callable[..., object], connect: Connect
) -> None:
    from compat_tests.support.brokers import free_port

    port = free_port()
    registry = start_registry(f"127.0.0.1:{port}", waits=False)
    start_broker(port=port)
    assert connect(registry.wait().url).get_subjects() == []


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_two_instances_have_one_primary(
    start_broker: Callable[..., object], start_registry: Callable[..., object], connect: Connect, ends: str
) -> None:
    bootstrap = start_broker({"group.initial.rebalance.delay.ms": "500"}).bootstrap
    instances = [start_registry(bootstrap, alone=False) for _ in range(2)]
    clients = [connect(each.url) for each in instances]
    person, number = Schema(json.dumps(PERSON), "AVRO"), Schema('"int"', "AVRO")
    # Whoever is not the primary hands both on.
    assert [each.register_schema("person", person) for each in clients] == [1, 1]
    assert [each.register_schema("number", number) for each in reversed(clients)] == [2, 2]
    # A write waits for the next primary: for a heartbeat if the first one leaves, for its session if it is killed.
    getattr(instances[0], ends)()
    assert clients[1].register_schema("other", Schema('"long"', "AVRO")) == 3
    assert clients[1].get_subjects() == ["number", "other", "person"]
