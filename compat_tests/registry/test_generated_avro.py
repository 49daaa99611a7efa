"""`ottla generate --format avro` and `ottla registry`: Confluent's deserializer reads what they agreed on."""

import contextlib
import json

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from ottla.server.cli.cli import main


def test_confluents_deserializer_reads_generated_records(bootstrap, unique, start_registry, tmp_path, capsys):
    registry, topic = start_registry(bootstrap), unique("clicks")
    place = ("-b", bootstrap, "--timeout", "60", "--registry", registry.url)
    path = tmp_path / "sessions.jsonl"
    words = ("-t", topic, "--records", "400", "--poison", "0.02", "-p", "1", "--expected", str(path), "--json")
    assert main(["generate", "clicks", "--format", "avro", *place, *words]) == 0
    told = json.loads(capsys.readouterr().out)

    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(topic, MessageField.VALUE)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("group")})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read, poison = [], 0
    try:
        for _ in range(told["records"]):
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            if message.key().startswith(b"poison"):
                poison += 1
                with contextlib.suppress(SerializationError, SchemaRegistryError, EOFError):
                    assert deserialize(message.value(), context) is None
            else:
                read.append(deserialize(message.value(), context))
    finally:
        consumer.close()
    assert (len(read), poison) == (told["events"], sum(told["poison"].values()))
    assert poison > 3
    sessions = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(row["clicks"] for row in sessions) == len(read)
    assert {row["user"] for row in sessions} == {value["user"] for value in read}
