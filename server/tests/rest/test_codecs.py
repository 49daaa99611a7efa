"""Values of formats with schemas, from JSON to bytes and back. fastavro is the oracle for Avro, Protobuf's classes are for Protobuf."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from typing import Any

import fastavro
import jsonschema
import pytest
from fastavro.utils import generate_many
from google.protobuf import timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console.protobuf_values import BadMessage, message_path
from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.schemas import json_schema
from ottla.server.rest.schemas.codec import AVRO, JSON_SCHEMA, PROTOBUF, BadData, Codec, dumped, make
from ottla.server.rest.schemas.framing import BadFrame, framed, unframed

PERSON = {
    "type": "record",
    "name": "demo.Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int", "demo.Person"]},
        {"name": "data", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "long"}},
        {"name": "more", "type": {"type": "map", "values": ["double", "boolean", "string"]}},
    ],
}
ADA = {
    "name": "Ad\u00e4",
    "age": {"int": 36},
    "data": "\u0000\u00ff",
    "kind": "B",
    "mark": "ab",
    "tags": [1, -(2**63)],
    "more": {"x": {"double": 1.5}, "y": {"boolean": False}},
}
PROTO = """
syntax = "proto3";
package demo;
import "google/protobuf/timestamp.proto";
message Person {
  string name = 1;
  int64 born_at = 2;
  google.protobuf.Timestamp seen = 3;
  repeated Person children = 4;
  map<string, Other> others = 5;
  message Inner { bool is_set = 1; }
}
message Other { bytes data = 1; optional int32 number = 2; }
"""


def avro(schema: Any) -> Codec:
    return make(AVRO, json.dumps(schema), {})


def read(codec: Codec, data: bytes) -> Any:
    return codec.decode(memoryview(data))


@pytest.fixture(scope="module")
def proto() -> Codec:
    return make(PROTOBUF, PROTO, {})


# --- Avro


@pytest.mark.parametrize(
    "schema",
    [
        # fastavro's writer of JSON fails for records that contain themselves.
        {**PERSON, "fields": [PERSON["fields"][0], *PERSON["fields"][2:]]},
        {"type": "array", "items": {"type": "map", "values": ["null", "string"]}},
        ["int", "string"],
        "double",
        "bytes",
        "long",
    ],
)
def test_avro_is_what_fastavro_writes(schema: Any) -> None:
    codec, parsed = avro(schema), fastavro.parse_schema(schema)
    for value in generate_many(parsed, 20):
        binary, text = io.BytesIO(), io.StringIO()
        fastavro.schemaless_writer(binary, parsed, value)
        fastavro.json_writer(text, parsed, [value])
        wanted = json.loads(text.getvalue())
        assert codec.encode(wanted) == binary.getvalue()
        found = read(codec, binary.getvalue())
        assert found == (wanted if isinstance(schema, dict | str) else next(iter(wanted.values())))


def test_avro_reads_what_it_has_written() -> None:
    codec = avro(PERSON)
    assert read(codec, codec.encode(ADA)) == ADA
    nested = {**ADA, "age": {"demo.Person": {**ADA, "age": None}}}
    assert read(codec, codec.encode(nested)) == nested
    assert codec.name == "demo.Person" and avro("int").name is None


def test_avro_takes_types_of_other_schemas() -> None:
    house = {"type": "record", "name": "House", "fields": [{"name": "owner", "type": "demo.Person"}]}
    codec = make(AVRO, json.dumps(house), {"demo.Person": json.dumps(PERSON)})
    assert read(codec, codec.encode({"owner": ADA})) == {"owner": ADA}


def test_a_short_float_is_shown_shortly() -> None:
    codec = avro("float")
    assert read(codec, codec.encode(1.1)) == 1.1
    assert read(codec, codec.encode(1e300)) == "Infinity" and read(codec, codec.encode(-(10**400))) == "-Infinity"
    assert read(codec, codec.encode("NaN")) == "NaN"


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ("int", "a", "Expected int. Got VALUE_STRING"),
        ("int", True, "Expected int. Got VALUE_TRUE"),
        ("int", 1.5, "Expected int. Got VALUE_NUMBER_FLOAT"),
        ("int", 1 << 31, "Numeric value (2147483648) out of range of int (-2147483648 - 2147483647)"),
        ("string", None, "Expected string. Got VALUE_NULL"),
        ("null", 0, "Expected null. Got VALUE_NUMBER_INT"),
        ("boolean", [], "Expected boolean. Got START_ARRAY"),
        ("double", {}, "Expected double. Got START_OBJECT"),
        ("bytes", "\u0100", "Expected bytes. Got a character beyond U+00FF"),
        (["null", "string"], "bare", "Expected start-union. Got VALUE_STRING"),
        (["null", "string"], {"int": 1}, "Unknown union branch int"),
        (PERSON, {}, "Expected field name not found: name"),
        (PERSON, {**ADA, "kind": "C"}, "Unknown symbol in enum C"),
        (PERSON, {**ADA, "mark": "abc"}, "Expected fixed length 2, but got3"),
        (PERSON, {**ADA, "height": 1}, "Unknown fields: ['height']"),
        ("string", "\ud800", "A string has half a surrogate pair"),
    ],
)
def test_what_does_not_fit_avro_is_told_as_java_tells_it(schema: Any, value: Any, message: str) -> None:
    with pytest.raises(BadData) as refused:
        avro(schema).encode(value)
    assert str(refused.value) == message


def test_a_branch_of_a_union_is_found_without_a_look_at_all_others() -> None:
    """A schema has thousands of branches, and a body as many values."""

    class Unwalked(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            pytest.fail("The branches are walked through")

    codec = avro(["null", "int", {"type": "fixed", "name": "F", "size": 1}])
    codec._root.branches = Unwalked(codec._root.branches)  # type: ignore[attr-defined]
    assert [codec.encode(each) for each in (None, {"int": 1}, {"F": "a"})] == [b"\0", b"\2\2", b"\4a"]
    with pytest.raises(BadData, match="Unknown union branch G"):
        codec.encode({"G": "a"})


def test_few_bytes_of_avro_cannot_become_endless_values() -> None:
    codec = avro({"type": "array", "items": "null"})
    with pytest.raises(BadData, match="too much text"):
        read(codec, b"\xfe\xff\xff\xff\x0f\x00")
    loop = avro({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]})
    with pytest.raises(BadData, match="deeper"):
        read(loop, b"\2" * 10_000)


# --- Protobuf


def test_protobuf_is_mapped_as_java_maps_it(proto: Codec) -> None:
    body = proto.encode({"name": "Ada", "seen": "2026-01-31T12:00:00Z", "others": {"o": {"data": "AAE="}}})
    assert body[:1] == b"\0"
    assert read(proto, body) == {
        "name": "Ada",
        "bornAt": "0",
        "seen": "2026-01-31T12:00:00Z",
        "children": [],
        "others": {"o": {"data": "AAE="}},
    }
    seen = timestamp_pb2.Timestamp(seconds=1769860800).SerializeToString()
    assert bytes([0x1A, len(seen)]) + seen in body
    assert proto.name == "demo.Person"
    # The names of the file are taken, too.
    assert read(proto, proto.encode({"born_at": 5}))["bornAt"] == "5"


def test_protobuf_is_read_by_the_path_of_its_message(proto: Codec) -> None:
    assert read(proto, b"\2\2\x0a\1\xff") == {"data": "/w=="}
    assert read(proto, b"\4\0\0\x08\1") == {"isSet": True}
    for path in (b"\2\4", b"\4\0\x08", b"\2\1", b"", b"\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(BadData):
            read(proto, path)


@pytest.mark.parametrize("value", [None, [], 5, {"unknown": 1}, {"name": 5}, {"bornAt": "x"}, {"children": [None, 3]}])
def test_what_does_not_fit_protobuf_is_refused(proto: Codec, value: Any) -> None:
    with pytest.raises(BadData):
        proto.encode(value)


def test_few_bytes_of_protobuf_cannot_become_endless_defaults() -> None:
    fields = "".join(f"int32 f{number} = {number};" for number in range(2, 1_000))
    wide = make(PROTOBUF, f'syntax = "proto3"; message Wide {{ repeated Wide all = 1; {fields} }}', {})
    assert len(read(wide, b"\0" + b"\x0a\0" * 10)["all"]) == 10
    with pytest.raises(BadData, match="too many fields"):
        read(wide, b"\0" + b"\x0a\0" * 1_000)


# --- JSON Schema


def test_json_is_validated_before_it_is_written() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "title": "T"}
    codec = make(JSON_SCHEMA, json.dumps(schema), {})
    assert codec.encode({"a": 1, "b": "\u00e4"}) == '{"a":1,"b":"\u00e4"}'.encode()
    assert read(codec, b'{"a": "not validated"}') == {"a": "not validated"}
    assert codec.name == "T"
    with pytest.raises(BadData, match="#/a: 'x' is not of type 'integer'"):
        codec.encode({"a": "x"})
    with pytest.raises(BadData, match="'a' is a required property"):
        codec.encode({})
    with pytest.raises(BadData):
        read(codec, b"{")


def test_json_refers_to_other_schemas() -> None:
    codec = make(
        JSON_SCHEMA,
        json.dumps({"properties": {"a": {"$ref": "number.json"}}}),
        {"number.json": json.dumps({"type": "number"})},
    )
    assert codec.encode({"a": 1}) == b'{"a":1}'
    with pytest.raises(BadData):
        codec.encode({"a": ""})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"pattern": "^a+$"}, ["aaa", 5], ["b"]),
        ({"patternProperties": {"^a": {"type": "null"}}}, [{"a": None, "b": 1}, 1], [{"ab": 1}]),
        ({"additionalProperties": False, "properties": {"a": {}}}, [{"a": 1}], [{"b": 1}]),
        ({"additionalProperties": {"type": "null"}, "patternProperties": {"^x": {}}}, [{"x1": 1, "b": None}], [{"b": 1}]),
        ({"anyOf": [{"type": "null"}, {"minimum": 2}]}, [None, 2, "a"], [1]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}, False]}, [1, 2.5], [2, 1.5]),
        ({"uniqueItems": True}, [[1, "1", True, {"a": 1}, [1]], {}], [[1, 1.0], [{"a": [1]}, {"a": [1.0]}]]),
    ],
)  # fmt: skip
def test_own_keywords_judge_like_the_librarys(schema: Any, good: list[Any], bad: list[Any]) -> None:
    codec = make(JSON_SCHEMA, json.dumps(schema), {})
    for value in good:
        jsonschema.validate(value, schema)
        codec.encode(value)
    for value in bad:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)
        with pytest.raises(BadData):
            codec.encode(value)


def test_a_dear_schema_ends_soon() -> None:
    slow = make(JSON_SCHEMA, json.dumps({"pattern": "^(a+)+$"}), {})
    with pytest.raises(BadData, match="does not match"):
        slow.encode("a" * 10_000 + "!")
    definitions = {f"d{depth}": {"anyOf": [{"$ref": f"#/definitions/d{depth + 1}"}] * 3} for depth in range(30)}
    endless = make(
        JSON_SCHEMA,
        json.dumps({"definitions": {**definitions, "d30": {"type": "null"}}, "$ref": "#/definitions/d0"}),
        {},
    )
    with pytest.raises(BadData, match="too many steps"):
        endless.encode(1)
    many = make(JSON_SCHEMA, json.dumps({"uniqueItems": True}), {})
    many.encode([{"number": number} for number in range(50_000)])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": list(range(5000))}}, [4999] * 500),
        ({"items": {"required": [str(number) for number in range(5000)]}}, [5] * 500),
        ({"items": {"const": "a" * 500_000}}, ["a" * 500_000] * 20),
        ({"items": {"not": {"enum": ["a" * 500_000]}}}, [0] * 20),
        ({"anyOf": [{"type": "array"}] * 1000}, "a" * 100_000),
        ({"pattern": "a.{500}c"}, "ab" * 20_000),
        ({"patternProperties": {"a.{500}c": {}}}, {"ab" * 20_000: 1}),
        (
            {"additionalProperties": {}, "patternProperties": {f"{number}": {} for number in range(200)}},
            {f"name{number}": 1 for number in range(100)},
        ),
    ],
    ids=["enum", "required", "const", "not", "value", "pattern", "name", "names"],
)
def test_a_long_argument_and_a_long_value_count_for_more_than_a_step(
    schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema, "STEPS_PER_BYTE", 0)
    with pytest.raises(BadData, match="too many steps"):
        make(JSON_SCHEMA, json.dumps(schema), {}).encode(value)


def test_errors_of_branches_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of a value would become gigabytes of messages."""
    made = []

    def required(validator: Any, names: list[str], instance: Any, schema: Any) -> Iterator[Any]:
        for name in names:
            made.append(name)
            yield jsonschema.exceptions.ValidationError(name)

    monkeypatch.setitem(json_schema._OWN, "required", required)
    for keyword in ("anyOf", "oneOf"):
        codec = make(JSON_SCHEMA, json.dumps({keyword: [{"items": {"required": ["a", "b", "c"]}}]}), {})
        with pytest.raises(BadData, match="the given schemas"):
            codec.encode([{}] * 100)
    assert made == ["a", "a"]


@pytest.mark.parametrize(
    "schema", [{"pattern": "(?=a)"}, {"unevaluatedProperties": False, "patternProperties": {"a": {}}}]
)
def test_a_schema_that_could_be_dear_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidText):
        make(JSON_SCHEMA, json.dumps(schema), {})


# --- all


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(list(ADA)), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip
CODECS = {
    AVRO: avro(PERSON),
    PROTOBUF: make(PROTOBUF, PROTO, {}),
    JSON_SCHEMA: make(JSON_SCHEMA, json.dumps({"properties": {"name": {"type": "string"}}}), {}),
}


@given(kind=st.sampled_from(list(CODECS)), data=st.binary(max_size=200))
def test_foreign_bytes_are_read_or_refused(kind: str, data: bytes) -> None:
    try:
        found = read(CODECS[kind], data)
    except BadData:
        return
    json.loads(dumped(found))


@given(kind=st.sampled_from(list(CODECS)), value=JSON)
def test_foreign_json_is_written_or_refused(kind: str, value: Any) -> None:
    try:
        data = CODECS[kind].encode(value)
    except BadData:
        return
    assert CODECS[kind].encode(read(CODECS[kind], data)) == data


@given(st.binary(max_size=20))
def test_foreign_frames_are_split_or_refused(data: bytes) -> None:
    try:
        schema_id, rest = unframed(data)
        assert framed(schema_id, bytes(rest)) == data
        path, _ = message_path(rest)
        assert path
    except (BadFrame, BadMessage):
        pass


def test_a_long_value_is_written_like_a_short_one() -> None:
    value = {"list": [{"a": None, "b": [True, 1.5, "\u00e4"]} for _ in range(3_000)], "text": "x" * 300_000}
    assert dumped(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    with pytest.raises(ValueError):
        dumped([math.nan] * 10_000)
