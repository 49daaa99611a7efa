"""Values in Protobuf in the console: by descriptors of a registry, whatever the bytes and the descriptors hold."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf import descriptor_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console.avro import registry as registry_module
from ottla.server.admin.console.avro.schemas import AvroProblem, Data
from ottla.server.admin.console.protobuf_values import ProtobufSchema, built_in, message_path
from ottla.server.tests.admin.test_console_avro import framed, tiny_registry
from ottla.server.tests.console_client import ask, make_topic, running, write
from ottla.wire.records import Record

FIELD = pb.FieldDescriptorProto


def serialized(file: Any) -> str:
    return b64encode(file.SerializeToString()).decode()


def orders() -> Any:
    """A file with the message shop.Order, in which is another, and imports of a file and of Protobuf's own."""
    file = pb.FileDescriptorProto(package="shop", syntax="proto3")
    file.dependency.extend(["money.proto", "google/protobuf/timestamp.proto"])
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    order.field.add(
        name="price", number=2, type=FIELD.TYPE_MESSAGE, type_name=".bank.Money", label=FIELD.LABEL_OPTIONAL
    )
    order.field.add(
        name="at", number=3, type=FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=FIELD.LABEL_OPTIONAL
    )
    line = order.nested_type.add(name="Line")
    line.field.add(name="article", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    return file


def money() -> Any:
    file = pb.FileDescriptorProto(package="bank", syntax="proto3")
    file.message_type.add(name="Money").field.add(
        name="cents", number=1, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL
    )
    return file


ORDER = b"\x08\x05\x12\x02\x08\x07\x1a\x02\x08\x3c"
SHOWN = {"id": "5", "price": {"cents": 7}, "at": "1970-01-01T00:01:00Z"}


def schema() -> ProtobufSchema:
    return ProtobufSchema(serialized(orders()), {"money.proto": serialized(money())})


def test_messages_are_shown_as_protobufs_own_json() -> None:
    found = schema()
    assert found.name == "shop.Order"
    assert json.loads(found.decode(Data(b"\0" + ORDER, lambda: None))) == SHOWN
    # The path of the message in the message: the first of the file, and the first in it.
    assert found.decode(Data(b"\4\0\0\x0a\x03pen", lambda: None)) == '{"article":"pen"}'


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        json.loads(schema().decode(Data(data, lambda: None)))
    except AvroProblem as problem:
        assert str(problem)


@pytest.mark.parametrize(
    ("encoded", "imports", "words"),
    [
        ("no base64", {}, "no descriptor"),
        (b64encode(b"\xff\xff").decode(), {}, "no descriptor"),
        (serialized(orders()), {}, "imports money.proto"),
        (serialized(pb.FileDescriptorProto(dependency=["a"])), {"a": serialized(pb.FileDescriptorProto(dependency=["a"]))}, "in a circle"),
        (serialized(pb.FileDescriptorProto(message_type=[{"name": "A"}, {"name": "A"}])), {}, "Protobuf refuses"),
    ],
)  # fmt: skip
def test_a_descriptor_that_cannot_be_used_is_refused(encoded: str, imports: dict[str, str], words: str) -> None:
    with pytest.raises(AvroProblem, match=words):
        ProtobufSchema(encoded, imports)


def test_a_small_message_that_becomes_long_is_refused() -> None:
    file = pb.FileDescriptorProto(syntax="proto3")
    wide = file.message_type.add(name="Wide")
    for number in range(1, 200):
        wide.field.add(name=f"field_{number}", number=number, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    wide.field.add(name="next", number=1000, type=FIELD.TYPE_MESSAGE, type_name=".Wide", label=FIELD.LABEL_REPEATED)
    reader = ProtobufSchema(serialized(file), {})
    with pytest.raises(AvroProblem, match="too many fields"):
        reader.decode(Data(b"\0" + b"\xc2\x3e\x00" * 1_000, lambda: None))


def parcels() -> ProtobufSchema:
    """A file with shop.Parcel, which holds an Any and many shop.Item with 50 fields each."""
    file = pb.FileDescriptorProto(package="shop", syntax="proto3", dependency=["google/protobuf/any.proto"])
    parcel, item = file.message_type.add(name="Parcel"), file.message_type.add(name="Item")
    for name, number, kind, label in (
        ("extra", 1, ".google.protobuf.Any", FIELD.LABEL_OPTIONAL),
        ("items", 2, ".shop.Item", FIELD.LABEL_REPEATED),
    ):
        parcel.field.add(name=name, number=number, type=FIELD.TYPE_MESSAGE, type_name=kind, label=label)
    for number in range(1, 51):
        item.field.add(name=f"f{number}", number=number, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    return ProtobufSchema(serialized(file), {})


def in_any(value: bytes, type_url: str = "a/shop.Parcel") -> bytes:
    """Encode a shop.Parcel whose `extra` holds another message."""
    held = AnyMessage(type_url=type_url, value=value).SerializeToString()
    assert len(held) < 1 << 14
    size = bytes([len(held) & 0x7F | 0x80, len(held) >> 7])
    return b"\x0a" + size + held


def test_a_message_in_an_any_counts_as_any_other() -> None:
    """Two bytes in an Any become a message with all its fields, as elsewhere; the limit is the same."""
    schema = parcels()
    shown = json.loads(schema.decode(Data(b"\0" + in_any(b"\x12\0"), lambda: None)))
    assert shown["extra"]["items"] == [{f"f{number}": 0 for number in range(1, 51)}]
    with pytest.raises(AvroProblem, match="too many fields"):
        schema.decode(Data(b"\0" + in_any(b"\x12\0" * 1_000), lambda: None))


def test_an_any_may_be_empty_or_unknown_or_deep() -> None:
    schema = parcels()
    assert json.loads(schema.decode(Data(b"\0\x0a\0", lambda: None)))["extra"] == {}
    with pytest.raises(AvroProblem, match="does not know the type 'a/shop.Other'"):
        schema.decode(Data(b"\0" + in_any(b"", "a/shop.Other"), lambda: None))
    deep = b""
    for _ in range(40):
        deep = in_any(deep)
    with pytest.raises(AvroProblem, match="within one another"):
        schema.decode(Data(b"\0" + deep, lambda: None))


def test_paths_are_read_as_they_are_written() -> None:
    assert message_path(memoryview(b"\4\2\6rest")) == ([1, 3], memoryview(b"rest"))
    assert built_in("google/protobuf/timestamp.proto").name == Timestamp.DESCRIPTOR.file.name


async def test_protobuf_is_decoded_by_the_descriptors_of_a_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "WAIT_S", 120.0)
    async with tiny_registry() as told, running(
        tmp_path, **{"http.console.schema.registry": f"http://127.0.0.1:{told.port}"}
    ) as broker:  # fmt: skip
        reference = {"name": "money.proto", "subject": "money/proto", "version": 2}
        told.put(3, "text", schemaType="PROTOBUF", references=[reference])
        answers = {
            "/schemas/ids/3?format=serialized": {"schema": serialized(orders()), "references": [reference]},
            "/subjects/money%2Fproto/versions/2?deleted=true&format=serialized": {"schema": serialized(money())},
        }
        for path, answer in answers.items():
            body = json.dumps(answer).encode()
            told.answers[path] = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        await make_topic(broker, "t")
        write(broker, "t", [Record(0, 1, None, framed(3, b"\0" + ORDER)), Record(0, 1, None, framed(3, b"\0\xff"))])
        with trio.fail_after(60):
            good, bad = (await ask(broker, "/api/records?topic=t&from=0")).json["records"]
        assert json.loads(good["value"]["text"]) == SHOWN
        assert (good["value"]["form"], good["value"]["schema"]) == ("json", {"id": 3, "name": "shop.Order"})
        assert "do not fit the schema" in bad["value"]["hint"] and bad["value"]["form"] == "hex"
