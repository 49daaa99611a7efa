"""The declarations say what Kafka's own messages are: names, order, types, versions, nulls, tags, defaults.

The yardstick are the schemas in the classes of kafka-clients, whose jars `make setup` brings: those of 4.4, and those of 3.9
for the messages and versions that Kafka 4 dropped.
"""

from functools import cache
from typing import Any

import pytest
from compat_tests.apache.message_schemas import message_schemas

from ottla.wire.messages.controller_requests import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema import REQUIRED, ZERO_UUID, Array, Field, Message, Primitive, Struct, VersionRange
from ottla.wire.tests.message_values import EMBEDDED, messages, versions

# What is declared on purpose neither from the first version of Kafka 3.9 nor to the last of 4.4: requests that only brokers
# send, and a version not yet stable.
OTHER_VERSIONS = {
    AlterPartitionRequest: "2-3",
    AlterPartitionResponse: "2-3",
    InitProducerIdRequest: "0-5",
    InitProducerIdResponse: "0-5",
}
# Kafka gives two structs one name, because they stand in two files.
KAFKAS_NAMES = {
    "text": "string",
    "AcknowledgedPartition": "PartitionData",
    "AlteredEntryData": "EntryData",
    "DeleteStatePartition": "PartitionData",
    "DescribedAssignment": "Assignment",
    "DescribedEntryData": "EntryData",
    "DescribedPartitionData": "PartitionData",
    "DescribedSubtopology": "Subtopology",
    "DescribedTopicData": "TopicData",
    "DescribedTopicPartitions": "TopicPartitions",
    "DescribedTopology": "Topology",
    "IncrementalConfig": "AlterableConfig",
    "IncrementalConfigsResource": "AlterConfigsResource",
    "InitializeStatePartition": "PartitionData",
    "ListedTransaction": "TransactionState",
    "ReadStatePartition": "PartitionData",
    "ReadStatePartitionResult": "PartitionResult",
    "ReadStateSummaryPartitionResult": "PartitionResult",
    "StatePartitionResult": "PartitionResult",
    "WriteStatePartition": "PartitionData",
}
TYPES = {"boolean": "bool", "unsigned_int32": "uint32"}
ALL = pytest.mark.parametrize("cls", [*messages(), *EMBEDDED], ids=repr)

Fields = list[tuple[str, dict[str, Any]]]
"""Of one version, by their paths: nested ones after the one that holds them, those with tags after the others."""


@cache
def schemas(release: str) -> dict[str, dict[str, Any]]:
    return message_schemas(release, [class_name(cls) for cls in (*messages(), *EMBEDDED)])


def class_name(cls: type[Struct]) -> str:
    return cls.__name__ if cls in EMBEDDED else f"{cls.__name__}Data"


def kafkas(cls: type[Struct]) -> dict[str, Any]:
    """Of the newest release that has the message."""
    name = class_name(cls)
    return schemas("kafka_4").get(name) or schemas("kafka_3")[name]


def kafkas_version(cls: type[Struct], version: int) -> dict[str, Any]:
    """Of the newest release that has this version."""
    found = kafkas(cls)["versions"].get(str(version))
    schema: dict[str, Any] = found or schemas("kafka_3")[class_name(cls)]["versions"][str(version)]
    return schema


def defined_fields(schema: dict[str, Any], path: str = "") -> Fields:
    found = []
    for field in schema["fields"]:
        name, wire_type = path + field["name"], field["type"]
        shown = {
            "type": TYPES.get(wire_type, wire_type),
            "nullable": field["nullable"],
            "tag": field["tag"],
            "default": "records" if wire_type == "records" else field["default"],
        }
        found.append((name, shown))
        if field["struct"] is not None:
            found += defined_fields(field["struct"], f"{name}.")
    return found


def declared_fields(cls: type[Struct], version: int, path: str = "") -> Fields:
    found = []
    present = [(name, field) for name, field in cls.wire_fields.items() if is_in(version, field.versions)]
    for name, field in sorted(present, key=lambda each: -1 if each[1].tag is None else each[1].tag):
        item = field.type.item if isinstance(field.type, Array) else field.type
        shown = {
            "type": type_name(field.type),
            "nullable": is_in(version, field.nullable),
            "tag": field.tag,
            "default": declared_default(field),
        }
        found.append((path + name, shown))
        if not isinstance(item, Primitive):
            found += declared_fields(item, version, f"{path}{name}.")
    return found


def is_in(version: int, within: str) -> bool:
    return version in VersionRange.parse(within)


def declared_default(field: Field) -> Any:
    """As the schemas have it. Kafka has no empty records in its classes, only null."""
    default = field.initial()
    if type_name(field.type) == "records":
        return "records"
    if isinstance(default, Struct) and default == field.type.zero():
        return "zero struct"
    return {ZERO_UUID: "zero uuid", b"": ""}.get(default, default) if isinstance(default, bytes) else default


def type_name(wire_type: Any) -> str:
    if isinstance(wire_type, Array):
        return f"[]{type_name(wire_type.item)}"
    if isinstance(wire_type, Primitive):
        return KAFKAS_NAMES.get(wire_type.name, wire_type.name)
    return KAFKAS_NAMES.get(wire_type.__name__, wire_type.__name__)


@ALL
def test_fields_are_those_of_kafka_in_every_version(cls: type[Struct]) -> None:
    for version in versions(cls):
        assert declared_fields(cls, version) == defined_fields(kafkas_version(cls, version)), version


@ALL
def test_key_and_versions_are_those_of_kafka(cls: type[Struct]) -> None:
    expected = kafkas(cls)
    stable = list(map(int, expected["versions"]))
    # In 3.9 share groups had a draft of their messages, which no broker told.
    of_old_clients = expected if "Share" in cls.__name__ else schemas("kafka_3").get(class_name(cls), expected)
    first = min(*stable, *map(int, of_old_clients["versions"]))
    assert cls.versions == VersionRange.parse(OTHER_VERSIONS.get(cls, f"{first}-{max(stable)}"))
    for version in versions(cls):
        assert (version in cls.flexible) == kafkas_version(cls, version)["flexible"], version
    if issubclass(cls, Message):
        assert cls.api_key == expected["key"]


@ALL
def test_a_field_has_a_default_wherever_kafka_gives_one_or_a_version_lacks_it(cls: type[Struct]) -> None:
    fields = [dict(defined_fields(kafkas_version(cls, version))) for version in versions(cls)]
    for name in {name for each in fields for name in each}:
        around = name.rpartition(".")[0]
        shown = [each[name] for each in fields if name in each]
        lacks_it = any(name not in each for each in fields if not around or around in each)
        # Of the classes of Kafka nobody can tell whether a zero was written there.
        is_zero = shown[0]["default"] in (0, "", [], None, "zero uuid", "zero struct", "records")
        if lacks_it or not is_zero or any(each["tag"] is not None for each in shown):
            assert declared_field(cls, name.split(".")).default is not REQUIRED, name


def declared_field(cls: type[Struct], path: list[str]) -> Field:
    field = cls.wire_fields[path[0]]
    item = field.type.item if isinstance(field.type, Array) else field.type
    return field if len(path) == 1 else declared_field(item, path[1:])
