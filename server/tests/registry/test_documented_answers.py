"""Conversations of Confluent's documentation, with the answers that it shows.

Source: "Schema Registry API Usage Examples", and the examples of "Schema Registry API Reference".
"""

import json

from ottla.server.tests.registry.registry import MemoryRegistry

STRING = {"schema": '{"type": "string"}'}


async def test_api_usage_examples() -> None:
    ask = MemoryRegistry().ask
    assert await ask("POST", "/subjects/Kafka-key/versions", STRING) == {"id": 1}
    assert await ask("POST", "/subjects/Kafka-value/versions", STRING) == {"id": 1}
    assert await ask("GET", "/subjects") == ["Kafka-key", "Kafka-value"]
    assert await ask("GET", "/schemas/ids/1") == {"schema": '"string"'}
    assert await ask("GET", "/subjects/Kafka-value/versions") == [1]
    version = {"subject": "Kafka-value", "version": 1, "id": 1, "schema": '"string"'}
    assert await ask("GET", "/subjects/Kafka-value/versions/1") == version
    assert await ask("GET", "/subjects/Kafka-value/versions/1/schema") == "string"
    assert await ask("GET", "/subjects/Kafka-value/versions/latest") == version
    assert await ask("DELETE", "/subjects/Kafka-value/versions/1") == 1
    assert await ask("POST", "/subjects/Kafka-value/versions", STRING) == {"id": 1}
    assert await ask("DELETE", "/subjects/Kafka-value/versions/latest") == 2
    assert await ask("POST", "/subjects/Kafka-value/versions", STRING) == {"id": 1}
    found = await ask("POST", "/subjects/Kafka-key", STRING)
    assert found == {"subject": "Kafka-key", "version": 1, "id": 1, "schema": '"string"'}
    path = "/compatibility/subjects/Kafka-value/versions/latest"
    assert await ask("POST", path, STRING) == {"is_compatible": True}
    assert await ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("PUT", "/config", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert await ask("PUT", "/config/Kafka-value", {"compatibility": "BACKWARD"}) == {"compatibility": "BACKWARD"}
    assert await ask("GET", "/subjects/Kafka-value/versions") == [3]
    assert await ask("DELETE", "/subjects/Kafka-value") == [3]


async def test_examples_of_the_reference() -> None:
    registry = MemoryRegistry()
    ask = registry.ask
    fields = [{"type": "string", "name": "field1"}, {"type": "int", "name": "field2"}]
    schema = {"type": "record", "name": "test", "fields": fields}
    body = {"schema": json.dumps(schema)}
    assert await ask("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert await ask("POST", "/subjects/test/versions", body) == {"id": 1}
    canonical = (
        '{"type":"record","name":"test","fields":[{"name":"field1","type":"string"},{"name":"field2","type":"int"}]}'
    )
    found = await ask("POST", "/subjects/test", body)
    assert found == {"subject": "test", "version": 1, "id": 1, "schema": canonical}
    assert await ask("GET", "/schemas/ids/1/versions") == [{"subject": "test", "version": 1}]
    assert await ask("GET", "/schemas/ids/1/subjects") == ["test"]
    assert await ask("GET", "/subjects/test/versions/1/referencedby") == []
    assert await ask("PUT", "/mode/test", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await ask("GET", "/mode/test") == {"mode": "READONLY"}
    assert await ask("GET", "/contexts") == ["."]
    code, message = await ask("GET", "/subjects/other/versions/1")
    assert (code, message) == (40401, "Subject 'other' not found.")


async def test_the_tutorial_of_compatibility() -> None:
    """`Payment` gets a field without a default, and then one with it."""
    registry = MemoryRegistry()
    fields = [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}]

    def payment(*more: object) -> dict[str, object]:
        return {
            "namespace": "io.confluent.examples.clients.basicavro",
            "type": "record",
            "name": "Payment",
            "fields": [*fields, *more],
        }

    assert await registry.register("transactions-value", payment()) == 1
    bad = payment({"name": "region", "type": "string"})
    path = "/compatibility/subjects/transactions-value/versions/latest"
    assert await registry.ask("POST", path, {"schema": json.dumps(bad)}) == {"is_compatible": False}
    code, message = await registry.register("transactions-value", bad)
    assert code == 40901
    assert (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'region' at path '/fields/2' in the new"
        " schema has no default value and is missing in the old schema', additionalInfo:'region'}"
    ) in message
    good = payment({"name": "region", "type": "string", "default": ""})
    assert await registry.register("transactions-value", good) == 2
