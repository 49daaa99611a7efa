"""The declarations say what Kafka's own message definitions say: names, order, types, versions, nulls, tags, defaults.

The definitions are data of Apache Kafka and not part of this repository; they are read from beside it where present.
Versions that Kafka 4 dropped are compared with its 3.9 definitions.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.schema import REQUIRED, Array, Field, Message, Primitive, Struct, VersionRange
from ottla.wire.tests.message_values import EMBEDDED, messages, snake_case

DEFINITIONS = Path(__file__).parents[3] / "shared" / "kafka-messages-4.4"
pytestmark = pytest.mark.skipif(not DEFINITIONS.is_dir(), reason=f"no Kafka message definitions in {DEFINITIONS}")

# What is declared on purpose beyond or below the versions of Kafka 4.4: old clients, and a version not yet stable.
OTHER_VERSIONS = {
    ProduceRequest: "0-13",
    ProduceResponse: "0-13",
    FetchRequest: "0-18",
    FetchResponse: "0-18",
    InitProducerIdRequest: "0-5",
    InitProducerIdResponse: "0-5",
}
# Kafka gives two structs one name, because they stand in two files.
KAFKAS_NAMES = {
    "text": "string",
    "AlteredEntryData": "EntryData",
    "DescribedPartitionData": "PartitionData",
    "DescribedTopicData": "TopicData",
}
ALL = pytest.mark.parametrize("cls", [*messages(), *EMBEDDED], ids=repr)


def definition(cls: type[Struct], folder: str = "requests") -> dict[str, Any]:
    text = (DEFINITIONS / folder / f"{cls.__name__}.json").read_text()
    parsed: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    shared = {struct["name"]: struct["fields"] for struct in parsed.get("commonStructs", [])}
    for field in parsed["fields"]:
        put_in_place(field, shared)
    return parsed


def put_in_place(field: dict[str, Any], shared: dict[str, list[dict[str, Any]]]) -> None:
    """Give a field the fields of its struct where Kafka's definition says them once for several."""
    name = field["type"].removeprefix("[]")
    if name in shared:
        field["fields"] = shared[name]
    for inner in field.get("fields", []):
        put_in_place(inner, shared)


def common(left: VersionRange, right: VersionRange) -> VersionRange:
    first, last = max(left.first, right.first), min(left.last, right.last)
    return VersionRange(first, last) if first <= last else VersionRange.parse("none")


def defined_fields(
    fields: list[dict[str, Any]], around: VersionRange, path: str = ""
) -> list[tuple[str, dict[str, Any]]]:
    """Kafka's fields, nested ones after the one that holds them, with the versions in which they really occur."""
    found = []
    for field in fields:
        versions = common(VersionRange.parse(field["versions"]), around)
        if versions.first > versions.last:
            continue
        name = f"{path}{snake_case(field['name'])}"
        found.append((name, defined(field, versions)))
        found += defined_fields(field.get("fields", []), versions, f"{name}.")
    return found


def defined(field: dict[str, Any], versions: VersionRange) -> dict[str, Any]:
    assert field.get("taggedVersions", field["versions"]) == field["versions"]
    return {
        "type": field["type"],
        "versions": versions,
        "nullable": common(VersionRange.parse(field.get("nullableVersions", "none")), versions),
        "tag": field.get("tag"),
        "default": defined_default(field),
    }


def defined_default(field: dict[str, Any]) -> Any:
    wire_type, text = field["type"], str(field.get("default", ""))
    if text == "null":
        return None
    if wire_type.startswith("[]"):
        return []
    if wire_type == "bool":
        return text.lower() == "true"
    if re.fullmatch(r"u?int\d+", wire_type):
        return int(text or "0", 0)
    if wire_type == "float64":
        return float(text or "0")
    return {"string": text, "bytes": b"", "records": b"", "uuid": bytes(16)}.get(wire_type, "zero struct")


def declared_fields(cls: type[Struct], around: VersionRange, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, field in cls.wire_fields.items():
        versions = common(VersionRange.parse(field.versions), around)
        if versions.first > versions.last:
            continue
        item = field.type.item if isinstance(field.type, Array) else field.type
        shown = {
            "type": type_name(field.type),
            "versions": versions,
            "nullable": common(VersionRange.parse(field.nullable), versions),
            "tag": field.tag,
            "default": declared_default(field),
        }
        found.append((path + name, shown))
        if not isinstance(item, Primitive):
            found += declared_fields(item, versions, f"{path}{name}.")
    return found


def declared_default(field: Field) -> Any:
    default = field.initial()
    return "zero struct" if isinstance(default, Struct) and default == field.type.zero() else default


def type_name(wire_type: Any) -> str:
    if isinstance(wire_type, Array):
        return f"[]{type_name(wire_type.item)}"
    if isinstance(wire_type, Primitive):
        return KAFKAS_NAMES.get(wire_type.name, wire_type.name)
    return KAFKAS_NAMES.get(wire_type.__name__, wire_type.__name__)


@ALL
def test_fields_are_those_of_kafka(cls: type[Struct]) -> None:
    assert declared_fields(cls, cls.versions) == defined_fields(definition(cls)["fields"], cls.versions)


@ALL
def test_key_and_versions_are_those_of_kafka(cls: type[Struct]) -> None:
    expected = definition(cls)
    assert cls.versions == VersionRange.parse(OTHER_VERSIONS.get(cls, expected["validVersions"]))
    assert cls.flexible == VersionRange.parse(expected["flexibleVersions"])
    if issubclass(cls, Message):
        assert (cls.api_key, cls.__name__) == (expected["apiKey"], expected["name"])


@pytest.mark.parametrize(
    ("cls", "dropped"),
    [(ProduceRequest, "0-2"), (ProduceResponse, "0-2"), (FetchRequest, "0-3"), (FetchResponse, "0-3")],
)
def test_versions_that_kafka_4_dropped_are_those_of_kafka_3(cls: type[Struct], dropped: str) -> None:
    versions = VersionRange.parse(dropped)
    expected = defined_fields(definition(cls, "requests-3.9")["fields"], versions)
    assert declared_fields(cls, versions) == expected


@ALL
def test_a_field_has_a_default_wherever_kafka_gives_one_or_a_version_lacks_it(cls: type[Struct]) -> None:
    fields = dict(defined_fields(definition(cls)["fields"], cls.versions))
    explicit = dict(explicit_defaults(definition(cls)["fields"]))
    for name, shown in fields.items():
        around = fields[name.rpartition(".")[0]]["versions"] if "." in name else cls.versions
        if explicit[name] or shown["tag"] is not None or shown["versions"] != around:
            assert declared_field(cls, name.split(".")).default is not REQUIRED, name


def explicit_defaults(fields: list[dict[str, Any]], path: str = "") -> list[tuple[str, bool]]:
    found = []
    for field in fields:
        name = f"{path}{snake_case(field['name'])}"
        found.append((name, "default" in field))
        found += explicit_defaults(field.get("fields", []), f"{name}.")
    return found


def declared_field(cls: type[Struct], path: list[str]) -> Field:
    field = cls.wire_fields[path[0]]
    item = field.type.item if isinstance(field.type, Array) else field.type
    return field if len(path) == 1 else declared_field(item, path[1:])
