"""`ottla produce` and `ottla consume` with `--schema-registry`, beside Confluent's serializers and deserializers."""

import json

import pytest
from compat_tests.registry.conftest import start_registry  # noqa: F401
from compat_tests.rest.test_schemas import FORMATS, SCHEMAS, VALUES, theirs
from compat_tests.support.brokers import free_port
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

SUFFIXES = {"avro": ".avsc", "jsonschema": ".json", "protobuf": ".proto"}


@pytest.fixture(scope="module")
def servers(bootstrap):
    """One make is enough: nothing in these tests is the broker's."""
    return bootstrap


@pytest.fixture
def url(bootstrap, start_registry, unique):  # noqa: F811
    return start_registry(bootstrap, "--topic", unique("schemas")).url


@pytest.fixture
def client(url):
    with SchemaRegistryClient({"url": url}) as found:
        yield found


@pytest.fixture
def written(created, client, bootstrap):
    """Makes a topic with a value by a serializer of Confluent, twice, and a null value."""

    def write(kind):
        topic = created()
        serializer, _, value = theirs(kind, client)
        data = serializer(value, SerializationContext(topic, MessageField.VALUE))
        producer = Producer({"bootstrap.servers": bootstrap})
        for key, value in ((data, data), (b"plain key", data), (b"gone", None)):
            producer.produce(topic, value, key)
        assert producer.flush(60) == 0
        return topic

    return write


@pytest.mark.parametrize("kind", FORMATS)
def test_what_confluents_serializers_wrote_is_shown_as_json(ottla, written, url, kind):
    topic = written(kind)
    text = json.dumps(VALUES[kind], separators=(",", ":"))
    lines = [f"{text}={text}", f"plain key={text}", "gone="]
    assert ottla("consume", topic, "-eq", "-K=", "--schema-registry", url).lines == lines
    found = [json.loads(line) for line in ottla("consume", topic, "-eqJ", "-r", url).lines]
    assert [each["key"] for each in found] == [VALUES[kind], "plain key", "gone"]
    assert [each["payload"] for each in found] == [VALUES[kind], VALUES[kind], None]


@pytest.mark.parametrize("kind", FORMATS)
def test_confluents_deserializers_read_what_was_written(ottla, created, client, url, kind, tmp_path, servers):
    topic = created()
    schema, records = tmp_path / f"schema{SUFFIXES[kind]}", tmp_path / "records"
    schema.write_text(SCHEMAS[kind])
    records.write_text(f"ada={json.dumps(VALUES[kind])}\nbob=\n")
    write = ("produce", topic, "-l", str(records), "-K=", "-Z", "-r", url)
    assert f"no subject {topic}-value" in ottla(*write, status=1).err
    ottla(*write, "--value-schema", str(schema))
    ottla(*write)  # by the latest schema of the subject, which is that one
    _, deserializer, wanted = theirs(kind, client)
    context = SerializationContext(topic, MessageField.VALUE)
    found = [json.loads(line) for line in ottla("consume", topic, "-eqJ").lines]
    assert [each["key"] for each in found] == ["ada", "bob"] * 2
    values = [each["payload"].encode("utf-8", "surrogateescape") for each in found if each["payload"] is not None]
    assert [deserializer(each, context) for each in values] == [wanted] * 2


def test_keys_are_written_by_a_schema_and_choose_the_partition(ottla, created, url, tmp_path):
    topic = created(5)
    for name, text in (("key.avsc", '"string"'), ("value.avsc", '"long"'), ("records", '"a":1\n"b":2\n"a":3\nx:4\n')):
        (tmp_path / name).write_text(text)
    schemas = ("--key-schema", str(tmp_path / "key.avsc"), "--value-schema", str(tmp_path / "value.avsc"))
    told = ottla("produce", topic, "-l", str(tmp_path / "records"), "-K:", "-r", url, *schemas, status=1).err
    assert told.startswith("ottla: record 4: it is no JSON: ") and told.endswith("; 3 records are written\n")
    (tmp_path / "value").write_text('"no number"')
    told = ottla("produce", topic, "-l", str(tmp_path / "value"), "-r", url, status=1).err
    assert "record 1: it does not fit schema 1: Expected long" in told
    found = [line.split() for line in ottla("consume", topic, "-eq", "-r", url, "-f", "%k %s %p\n").lines]
    assert sorted(each[:2] for each in found) == [['"a"', "1"], ['"a"', "3"], ['"b"', "2"]]
    assert len({each[2] for each in found if each[0] == '"a"'}) == 1


def test_records_before_one_that_cannot_be_decoded_are_shown_and_committed(ottla, written, url, servers, unique):
    topic, group = written("avro"), unique("group")
    producer = Producer({"bootstrap.servers": servers})
    for value in (b"\0\0\0\0\x01", b"\0\0\0\x09\x09more", b"after"):
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    told = ottla("consume", topic, "-eq", "-g", group, "-r", url, status=1)
    assert len(told.lines) == 3
    assert told.err.startswith(
        f"ottla: the value of {topic}-0 at offset 3 cannot be decoded: it does not fit schema 1: "
    )
    assert ottla("groups", "describe", group, "--json").json[0]["offsets"][0]["committed"] == 3
    unknown = ottla("consume", topic, "-eq", "-o", "4", "-r", url, status=1).err
    assert "offset 4 cannot be decoded: schema 2313: " in unknown and "40403" in unknown
    assert ottla("consume", topic, "-eq", "-o", "5", "-r", url).out == "after\n"


def test_what_is_no_registry(ottla, written, servers):
    topic = written("avro")
    nobody = ottla("consume", topic, "-e", "-r", f"http://127.0.0.1:{free_port()}", status=1).err
    assert "cannot be asked" in nobody and nobody.count("\n") == 1
    assert "Kafka" not in ottla("consume", topic, "-e", "-r", f"http://{servers}", status=1).err
    for url in ("localhost:8081", "http://", "http://[", "http://user:secret@host", ""):
        told = ottla("consume", topic, "-r", url, status=2).err
        assert told.startswith("ottla: --schema-registry") and told.count("\n") == 1
    assert "need --schema-registry" in ottla("produce", topic, "--value-schema", "x.avsc", status=2).err
