"""Protobuf. The rules' examples are those of Confluent's page about compatibility, and one for each rule beside."""

from base64 import b64decode, b64encode

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.registry.schemas import protobuf
from ottla.server.registry.schemas.format import InvalidText

TEXT = """\
syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
import "other.proto";
option java_package = "com.x";
option optimize_for = SPEED;
// About M.
message M {
  string s = 1; // trailing
  repeated int32 n = 2 [packed = false, (my.opt) = { a: 1, b: "x" }];
  map<string, Inner> m = 3;
  oneof o {
    int64 x = 4;
    Inner y = 5;
  }
  optional google.protobuf.Timestamp t = 6;
  c.Other other = 7;
  message Inner {
    reserved 2, 4 to 6;
    reserved "q";
    E e = 1;
  }
  enum E {
    option allow_alias = true;
    A = 0;
    B = 1;
    C = 1;
  }
}
service S {
  rpc Do (M) returns (stream M.Inner);
}
"""
OTHER = {"other.proto": 'syntax = "proto3"; package c; message Other { string z = 1; }'}


def test_a_canonical_text_stays_as_it_is() -> None:
    assert protobuf.parse(TEXT, OTHER).canonical == TEXT
    assert protobuf.parse(TEXT.replace("\n", "\n\n  "), OTHER).canonical == TEXT


def test_a_descriptor_is_the_same_schema_as_its_text() -> None:
    schema = protobuf.parse(TEXT, OTHER)
    serialized = schema.formatted("serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(serialized))
    message = file.message_type[0]
    assert [each.name for each in message.field] == ["s", "n", "m", "x", "y", "t", "other"]
    assert message.field[5].proto3_optional and message.field[5].type_name == ".google.protobuf.Timestamp"
    assert message.field[4].type_name == ".a.b.M.Inner" and message.field[6].type_name == ".c.Other"
    assert [each.name for each in message.nested_type] == ["Inner", "MEntry"] and file.options.java_package == "com.x"
    again = protobuf.parse(serialized, OTHER)
    assert again.formatted("serialized") == serialized
    assert schema.is_like(again) and again.is_like(schema)
    assert not again.problems_reading(schema) and not schema.problems_reading(again)
    assert schema.formatted("unheard-of") == schema.canonical


def test_a_normalized_text_has_no_comments_and_its_imports_sorted() -> None:
    one = 'syntax = "proto3"; import "other.proto"; import "google/protobuf/any.proto"; /* x */ message M {}'
    other = 'syntax = "proto3"; import "google/protobuf/any.proto"; import "other.proto"; message M { // y\n }'
    assert protobuf.parse(one, OTHER).normalized() == protobuf.parse(other, OTHER).normalized()
    assert protobuf.parse(one, OTHER).is_like(protobuf.parse(other, OTHER))


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "message", "message A {", "syntax = 'proto3';", "AAAA", "{}", "x" * 48,
        'syntax = "proto3"; message A { string a = 1; string b = 1; }', 'syntax = "proto3"; message A { B b = 1; }',
        'syntax = "proto3"; import "missing.proto"; message A {}', "message A { optional int32 a = 0; }",
        'syntax = "proto3"; message A { map<float, int32> a = 1; }', "message A { reserved q to z; }",
        'syntax = "proto3"; enum E { A = 1; }', 'syntax = "proto3"; message A {} message A {}', "message " * 3000,
        "message A {" * 5000, "message A { optional int32 a = 99999999999999999999; }", 'syntax = "proto9"; message A {}',
        'message A { option deprecated = "x"; }', "option optimize_for = NEVER; message A {}",
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(bad: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidText):
        protobuf.parse(bad, {})
    assert capfd.readouterr() == ("", "")


def names(original: str, update: str, original_head: str = "", update_head: str | None = None) -> list[str]:
    """Names of the differences between two bodies of a message."""
    heads = original_head, original_head if update_head is None else update_head
    one, other = (
        protobuf.parse(f'syntax = "proto3"; package p; {head} message M {{ {body} }}', {})
        for head, body in zip(heads, (original, update), strict=True)
    )
    return [each.split('"')[1] for each in other.problems_reading(one)]


@pytest.mark.parametrize(
    "original, update, expected",
    [
        ("int32 a = 1;", "int32 a = 1; int32 b = 2;", []),
        ("int32 a = 1; int32 b = 2;", "int32 a = 1;", []),
        ("int32 a = 1;", "int32 b = 1;", []),
        ("int32 a = 1;", "uint64 a = 1;", []),
        ("int32 a = 1;", "bool a = 1;", []),
        ("string a = 1;", "bytes a = 1;", []),
        ("int32 a = 1;", "sint32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("fixed32 a = 1;", "sfixed32 a = 1;", []),
        ("fixed32 a = 1;", "fixed64 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("int32 a = 1;", "string a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("int32 a = 1;", "M a = 1;", ["FIELD_KIND_CHANGED"]),
        ("int32 a = 1;", "map<int32, int32> a = 1;", ["FIELD_KIND_CHANGED"]),
        ("map<int32, int32> a = 1;", "map<int32, bool> a = 1;", []),
        ("map<int32, int32> a = 1;", "map<int32, string> a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("optional int32 a = 1;", "repeated int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("optional string a = 1;", "repeated string a = 1;", []),
        ("enum E { A = 0; } E a = 1;", "int32 a = 1;", []),
        ("enum E { A = 0; B = 1; } E a = 1;", "enum E { A = 0; C = 2; } E a = 1;", []),
        ("message N { int32 x = 1; } N a = 1;", "message N { int32 x = 1; int32 y = 2; } N a = 1;", []),
        ("message N { int32 x = 1; } N a = 1;", "message O { int32 x = 1; } O a = 1;", ["FIELD_NAMED_TYPE_CHANGED", "MESSAGE_REMOVED"]),
        (
            "message N { int32 x = 1; } N a = 1;",
            "message N { string x = 1; } N a = 1;",
            ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"],
        ),
        ("message N {}", "", ["MESSAGE_REMOVED"]),
        ("", "message N {}", []),
        ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", []),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", ["ONEOF_FIELD_REMOVED"]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "", []),
        ("oneof o { int32 a = 1; }", "int32 a = 1;", []),
        ("int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }", []),
        ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
        ("int32 a = 1; oneof o { int32 b = 2; }", "oneof o { int32 a = 1; int32 b = 2; }", ["FIELD_MOVED_TO_EXISTING_ONEOF"]),
        ("M m = 1;", "M m = 1; int32 a = 2;", []),
    ],
)  # fmt: skip
def test_rules(original: str, update: str, expected: list[str]) -> None:
    assert names(original, update) == expected


def test_required_fields_of_proto2_can_neither_come_nor_go() -> None:
    def schema(body: str) -> protobuf.ProtobufSchema:
        return protobuf.parse(f"message M {{ {body} }}", {})

    empty, full = schema(""), schema("required int32 a = 1;")
    assert "REQUIRED_FIELD_ADDED" in full.problems_reading(empty)[0]
    assert "REQUIRED_FIELD_REMOVED" in empty.problems_reading(full)[0]
    assert not empty.problems_reading(schema("optional int32 a = 1;"))


def test_another_package_is_another_schema() -> None:
    one, other = (protobuf.parse(f'syntax = "proto3"; package {name}; message M {{}}', {}) for name in "ab")
    text = "The package at '#/' in the %s schema does not match the package in the %s schema"
    assert other.problems_reading(one) == [f'{{errorType:"PACKAGE_CHANGED", description:"{text}"}}']


def test_imported_messages_are_compared_too() -> None:
    text = 'syntax = "proto3"; import "other.proto"; message M { c.Other o = 1; }'
    one = protobuf.parse(text, OTHER)
    assert not one.problems_reading(protobuf.parse(text, OTHER))
    changed = {"other.proto": OTHER["other.proto"].replace("string", "int32")}
    assert "FIELD_SCALAR_KIND_CHANGED" in one.problems_reading(protobuf.parse(text, changed))[0]


def test_imports_that_lead_in_a_circle_are_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["a.proto"])
    file.message_type.add(name="A")
    text = b64encode(file.SerializeToString()).decode()
    with pytest.raises(InvalidText):
        protobuf.parse('import "a.proto"; message M {}', {"a.proto": text})


_words = st.sampled_from(
    ["message", "M", "{", "}", "string", "a", "=", "1", ";", "oneof", "map<string, M>", "repeated", "enum", "0", "import", '"x"',
     "reserved", "to", "max", "option", "[", "]", "(", ")", "extend", "service", "rpc", "returns", "package", "syntax", '"proto3"']
)  # fmt: skip


@given(st.lists(_words, max_size=25).map(" ".join) | st.text(max_size=30))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        schema = protobuf.parse(text, {})
    except InvalidText:
        return
    assert protobuf.parse(schema.canonical, {}).canonical == schema.canonical
    assert not schema.problems_reading(schema)


@given(st.binary(max_size=80))
def test_no_descriptor_raises_anything_else(data: bytes) -> None:
    try:
        protobuf.parse(b64encode(data).decode(), {})
    except InvalidText:
        return


def test_a_file_that_only_imports_for_others_is_a_schema() -> None:
    """Files of Confluent's own tests hold a public import and nothing else."""
    schema = protobuf.parse('syntax = "proto3"; import public "other.proto";', OTHER)
    assert 'import public "other.proto"' in schema.canonical
    assert protobuf.parse(schema.canonical, OTHER).is_like(schema)
    assert not schema.problems_reading(schema)
