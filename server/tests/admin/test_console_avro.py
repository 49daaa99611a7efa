"""Values in Avro in the console: against fastavro, from a registry that answers, stalls or lies, and whatever bytes may hold."""

from __future__ import annotations

import dataclasses
import io
import json
import struct
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console.avro import registry as registry_module
from ottla.server.admin.console.avro.registry import SCHEMA_BYTES_MAX, Registry
from ottla.server.admin.console.avro.schemas import SCHEMA_DEPTH_MAX, TEXT_MAX, AvroProblem, Data, parse_schema
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.tests.console_client import ask, make_topic, running, write
from ottla.wire.records import Record

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "article", "type": "string"}, {"name": "count", "type": "int"}]}}},
        {"name": "again", "type": ["null", "Order"], "default": None},
    ],
}  # fmt: skip
AN_ORDER = {"id": 1 << 60, "customer": "<b>", "lines": [{"article": "pen", "count": -3}], "again": None}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(schema: Any, data: bytes) -> Any:
    return json.loads(parse_schema(json.dumps(schema)).decode(Data(data, lambda: None)))


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + data


# ---------------------------------------------------------------------- the format


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        (ORDER, AN_ORDER | {"again": AN_ORDER}, AN_ORDER | {"again": AN_ORDER}),
        ({"type": "map", "values": "double"}, {"é": 1.5, "": -0.25}, {"é": 1.5, "": -0.25}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 3}, b"\0\1\xff", "0001ff"),
        ("bytes", b"\xff\0", "ff00"),
        ({"type": "int"}, -64, -64),
        ({"type": "int", "logicalType": "date"}, date(2024, 2, 29), "2024-02-29"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
            "2024-01-02T03:04:05.000006+00:00",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-1.50"), "-1.50"),
        ({"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9}, Decimal(7), "7"),
        ({"type": "string", "logicalType": "of another make"}, "x", "x"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "enum", "name": "n.E", "symbols": ["A"]}}, {"name": "b", "type": "n.E"}]},
            {"a": "A", "b": "A"},
            {"a": "A", "b": "A"},
        ),
    ],
)  # fmt: skip
def test_what_fastavro_has_written_is_read(schema: Any, value: Any, shown: Any) -> None:
    assert decoded(schema, encoded(schema, value)) == shown


PLAIN = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
}
PLAIN |= {"double": st.floats(allow_nan=False, allow_infinity=False), "string": st.text(max_size=5)}


NAMES = count()


@st.composite
def schema_and_value(draw: st.DrawFn, depth: int = 3) -> tuple[Any, Any]:
    kind = draw(st.sampled_from([*PLAIN, "array", "map", "record", "union"] if depth else list(PLAIN)))
    if kind in PLAIN:
        return kind, draw(PLAIN[kind])
    schema, value = draw(schema_and_value(depth - 1))
    if kind == "union":
        # A branch that is a union is none.
        inner = schema if not isinstance(schema, list) else "null"
        return (["null", inner] if inner != "null" else ["null"]), (None if inner == "null" else value)
    if kind == "record":
        # Each name stands for one type.
        return {"type": "record", "name": f"R{next(NAMES)}", "fields": [{"name": "f", "type": schema}]}, {"f": value}
    if kind == "array":
        return {"type": "array", "items": schema}, [value] * draw(st.integers(0, 3))
    return {"type": "map", "values": schema}, {str(each): value for each in range(draw(st.integers(0, 2)))}


@given(schema_and_value())
def test_whatever_fastavro_writes_is_read(drawn: tuple[Any, Any]) -> None:
    schema, value = drawn
    assert decoded(schema, encoded(schema, value)) == value


SCHEMAS = [
    json.dumps(each)
    for each in (
        ORDER,
        {"type": "array", "items": "null"},
        {"type": "map", "values": ORDER},
        ["null", ORDER],
        "bytes",
        "string",
    )
]


@given(st.sampled_from(SCHEMAS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_within_bounds(schema: str, data: bytes) -> None:
    reader = Data(data, lambda: None, 10_000)
    try:
        text = parse_schema(schema).decode(reader)
    except AvroProblem:
        text = ""
    assert len(text) <= 12 * 10_000
    # One part more may have been tried than there is room for.
    assert reader.spent <= 10_000 + 2 * len(data) + 10


@given(
    st.recursive(
        st.none() | st.text(max_size=9) | st.integers() | st.sampled_from(["record", "array", "int", "fixed", "Order"]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size"]), inner)
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_schema_or_refused(parsed: Any) -> None:
    try:
        parse_schema(json.dumps(parsed)).decode(Data(b"\0" * 20, lambda: None))
    except AvroProblem as problem:
        assert str(problem)


@pytest.mark.parametrize("logical", [[], {}, 1, None])
@pytest.mark.parametrize("kind", ["int", "long"])
def test_a_logical_type_that_is_no_name_counts_as_none(kind: str, logical: Any) -> None:
    assert decoded({"type": kind, "logicalType": logical}, b"\2") == 1


def test_other_threads_have_turns_while_a_value_becomes_text() -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "", "type": "int"}]}
    schema = parse_schema(json.dumps({"type": "array", "items": record}))
    turns = count()
    data = Data(b"\6\0\0\0\0", lambda: next(turns))
    assert schema.decode(data) == '[{"":0},{"":0},{"":0}]'
    # Each part is paid for when it is read, and has a turn again as text.
    assert next(turns) >= data.spent + 9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"type":' * 500 + '"int"' + "}" * 500,
        json.dumps({"type": "array", "items": "Unknown"}),
        json.dumps(["null", ["int"]]),
        json.dumps({"type": "fixed", "name": "F", "size": 1 << 40}),
        '{"type": "fixed", "name": "F", "size": ' + "9" * 10_000 + "}",
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "f"}]}),
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(AvroProblem):
        parse_schema(text)


ENDLESS = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
WIDE = {"type": "record", "name": "W", "fields": [{"name": f"field{each}", "type": "null"} for each in range(500)]}


@pytest.mark.parametrize(
    ("schema", "data", "words"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", "too much text"),
        ({"type": "array", "items": WIDE}, b"\xfe\xff\xff\x01\0", "too much text"),
        (ENDLESS, b"\x02" * 60_000 + b"\0", "deeper"),
        ({"type": "array", "items": "null"}, b"\x01" * 9 + b"\0", "do not fit"),
        ("string", b"\x04\xff\xff", "do not fit"),
        ("string", b"\x01", "do not fit"),
        ("bytes", b"\xff" * 9 + b"\x01", "do not fit"),
        ("int", b"\xff" * 20, "do not fit"),
        ("int", b"\0\0", "bytes behind"),
        ("boolean", b"\x02", "do not fit"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "do not fit"),
    ],
)
def test_values_that_mean_harm_end_within_bounds(schema: Any, data: bytes, words: str) -> None:
    reader = Data(data, lambda: None)
    with pytest.raises(AvroProblem, match=words):
        parse_schema(json.dumps(schema)).decode(reader)
    assert reader.spent <= TEXT_MAX + 10


# ---------------------------------------------------------------------- the registry


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine may be busy.
    _limit_fetches(monkeypatch, 60.0)
    monkeypatch.setattr(registry_module, "WAIT_S", 120.0)


def _limit_fetches(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    limits = dataclasses.replace(registry_module.LIMITS, connect_s=seconds, read_s=seconds, all_s=seconds)
    monkeypatch.setattr(registry_module, "LIMITS", limits)


class TinyRegistry:
    """Answers what a registry answers. `asked`: the first lines and headers of the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[bytes] = []
        self.port = 0

    def put(self, schema_id: int, schema: Any, **more: Any) -> None:
        self.put_raw(schema_id, json.dumps({"schema": json.dumps(schema), **more}).encode())

    def put_raw(self, schema_id: int, body: bytes, status: str = "200 OK", more: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        self.answers[f"/schemas/ids/{schema_id}?format=resolved"] = head + body

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some(65_536)
            self.asked.append(received)
            answer = self.answers.get(received.split()[1].decode())
            if answer is None:
                await trio.sleep_forever()
            else:
                await stream.send_all(answer)


@asynccontextmanager
async def tiny_registry() -> AsyncIterator[TinyRegistry]:
    told = TinyRegistry()
    async with trio.open_nursery() as nursery:
        [listener, *_] = await nursery.start(partial(trio.serve_tcp, told.serve, 0, host="127.0.0.1"))
        told.port = listener.socket.getsockname()[1]
        yield told
        nursery.cancel_scope.cancel()


async def test_records_are_decoded_by_the_schemas_of_a_registry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiny_registry() as told:
        more = {
            "http.console.schema.registry": f"http://127.0.0.1:{told.port}/",
            "http.console.schema.registry.user.info": "me:a secret",
        }
        async with running(tmp_path, **more) as broker:
            told.put(7, ORDER)
            told.put(8, {"title": "a schema of JSON"}, schemaType="JSON")
            told.put(9, {}, schemaType="THRIFT")
            told.put_raw(10, b"{}", "404 Not Found")
            await make_topic(broker, "t")
            values = [
                framed(7, encoded(ORDER, AN_ORDER)),
                framed(7, b"\xff"),
                framed(8, b'{"a": 1}'),
                framed(9, b"\x08"),
                framed(10, b"\x08"),
                framed(-1, b"\x08"),
                framed(7, b"long" * 20_000),
                b"\0\1",
                b"text",
            ]
            write(broker, "t", [Record(0, 1, framed(7, encoded(ORDER, AN_ORDER)), each) for each in values])
            for _ in range(2):
                page = (await ask(broker, "/api/records?topic=t&from=0&cut=500")).json["records"]
            first = page[0]["value"]
            assert json.loads(first["text"]) == AN_ORDER
            assert (first["form"], first["schema"]) == ("json", {"id": 7, "name": "shop.Order"})
            assert page[0]["key"] == first
            hints = [each["value"].get("hint", "") for each in page]
            for hint, words in zip(
                hints[1:], ["do not fit", "", "the kind 'THRIFT'", "status 404", "", "too long", "", ""], strict=True
            ):
                assert words in hint and bool(words) == bool(hint)
            assert (page[2]["value"]["text"], page[2]["value"]["schema"]["name"]) == ('{"a": 1}', "a schema of JSON")
            assert [page[each]["value"]["form"] for each in (1, 3, 5, 7, 8)] == ["hex"] * 4 + ["text"]
            # Each was asked for once, with the credentials, which stand nowhere else.
            assert len(told.asked) == 4
            assert all(
                b"authorization: basic " + b64encode(b"me:a secret").lower() in each.lower() for each in told.asked
            )
            settings = (await ask(broker, "/api/settings")).body
            assert b"schema.registry" in settings and b"a secret" not in settings
            in_hex = (await ask(broker, "/api/records?topic=t&from=0&form=hex")).json["records"]
            assert in_hex[0]["value"]["form"] == "hex" and "schema" not in in_hex[0]["value"]
            cut = (await ask(broker, "/api/records?topic=t&from=0&cut=10&limit=1")).json["records"][0]["value"]
            assert (len(cut["text"]), cut["isCut"]) == (10, True)
    assert "a secret" not in caplog.text


async def test_a_registry_that_lies_is_not_believed() -> None:
    async with tiny_registry() as told, tiny_registry() as elsewhere:
        elsewhere.put(1, "int")
        told.put_raw(1, b"", "302 Found", f"Location: http://127.0.0.1:{elsewhere.port}/schemas/ids/1\r\n")
        told.put_raw(2, b" " * (SCHEMA_BYTES_MAX + 1))
        told.put_raw(3, b"no json")
        told.put_raw(4, b'{"schema": 5}')
        told.put_raw(5, json.dumps({"schema": "[" * 200_000}).encode())
        found = await Registry(f"http://127.0.0.1:{told.port}", None).schemas(range(1, 6))
        problems = [found[each].problem for each in range(1, 6)]
        for problem, words in zip(
            problems, ["status 302", "more than", "no JSON", "no schema", "is no JSON"], strict=True
        ):
            assert words in problem
        assert elsewhere.asked == []


async def test_a_registry_that_stalls_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with tiny_registry() as told:
        told.put(2, "int")
        registry = Registry(f"http://127.0.0.1:{told.port}", None)
        _limit_fetches(monkeypatch, 0.1)
        first = await registry.schemas([1, 2])
        assert "cannot be asked" in first[1].problem and first[1] == first[2] == (await registry.schemas([3]))[3]
        assert len(told.asked) <= 1
        _limit_fetches(monkeypatch, 60.0)
        monkeypatch.setattr(registry_module, "RETRY_S", 0.0)
        again = Registry(f"http://127.0.0.1:{told.port}", None)
        with trio.move_on_after(0.1):
            await again.schemas([1])
        assert (await again.schemas([2]))[2].schema is not None


async def test_a_page_asks_for_so_many_schemas_and_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with tiny_registry() as told:
        for each in range(20):
            told.put(each, "int")
        registry = Registry(f"http://127.0.0.1:{told.port}", None)
        found = await registry.schemas(range(20))
        assert sum(each.schema is not None for each in found.values()) == len(told.asked) == registry_module.FETCHES_MAX
        assert "not answered yet" in found[19].problem
        monkeypatch.setattr(registry_module, "KEPT_BYTES_MAX", 50)
        await registry.schemas([19])
        asked = len(told.asked)
        await registry.schemas([19])
        assert len(told.asked) == asked
        await registry.schemas([0])
        assert len(told.asked) == asked + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http.console.schema.registry", "ftp://host"),
        ("http.console.schema.registry", "http://"),
        ("http.console.schema.registry", "http://me:secret@host"),
        ("http.console.schema.registry", "http://host:99999"),
        ("http.console.schema.registry", "http://host/\r\nX: y"),
        ("http.console.schema.registry", "http://host/?a"),
        ("http.console.schema.registry.user.info", "nobody"),
    ],
)
def test_what_is_no_registry_is_refused_at_the_start(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"log.dirs": "/tmp/x", name: value})
    assert "secret" not in str(refused.value).replace("user.info", "")


def test_records_in_records_are_read_as_deep_as_schemas_may_be():
    def nested(depth):
        kind = nested(depth - 1) if depth else "int"
        return {"type": "record", "name": f"r{depth}", "fields": [{"name": "f", "type": kind}]}

    assert parse_schema(json.dumps(nested(SCHEMA_DEPTH_MAX - 2)))
    with pytest.raises(AvroProblem, match=f"deeper than {SCHEMA_DEPTH_MAX} levels"):
        parse_schema(json.dumps(nested(SCHEMA_DEPTH_MAX)))
