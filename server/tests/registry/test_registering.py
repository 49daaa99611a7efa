"""Schemas are registered, looked up, compared and deleted: conversations with a registry in memory."""

import json
import threading
from contextlib import aclosing
from typing import Any

import pytest
import trio
import trio.testing

from ottla.server.admin.http.server import HttpConnection
from ottla.server.admin.http.standalone import ApiGuard, FreePace
from ottla.server.registry import api
from ottla.server.registry.api import BODY_BYTES_MAX
from ottla.server.registry.errors import ApiError
from ottla.server.registry.records import SchemaPut, SchemaValue
from ottla.server.registry.schemas import compatibility
from ottla.server.tests.registry.registry import MemoryRegistry, record
from ottla.wire.time_slice import TimeSlice

A, AB = record("a"), record("a", "b", b=0)
TEXT_A = json.dumps(A, separators=(",", ":"))


async def test_equal_schemas_of_a_context_have_one_id_and_versions_of_their_own() -> None:
    registry = MemoryRegistry()
    assert await registry.register("s", A) == 1
    assert await registry.register("s", AB) == 2
    assert await registry.register("t", AB) == 2
    assert await registry.register("s", A) == 1
    assert await registry.register(":.c:s", AB) == 1
    assert await registry.ask("GET", "/subjects") == [":.c:s", "s", "t"]
    assert await registry.ask("GET", "/subjects/s/versions") == [1, 2]
    assert await registry.ask("GET", "/schemas/ids/2/versions") == [
        {"subject": "s", "version": 2},
        {"subject": "t", "version": 1},
    ]
    assert await registry.ask("GET", "/contexts") == [".", ".c"]
    assert len([key for key, _ in registry.topic.records if b"SCHEMA" in key]) == 4


async def test_a_schema_with_other_spaces_and_another_order_is_the_same() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    assert await registry.register("s", json.dumps(A, indent=4)) == 1
    assert await registry.register("s", dict(reversed(A.items()))) == 1
    # Attributes in another order are another text of the same schema.
    assert await registry.register("t", {**A, "x": 1, "y": 2}) == 2
    assert await registry.register("t", {**A, "y": 2, "x": 1}) == 2
    assert await registry.ask("GET", "/subjects/t/versions") == [1]


async def test_a_schema_is_found_by_id_version_and_guid() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    assert await registry.ask("GET", "/schemas/ids/1") == {"schema": TEXT_A}
    assert await registry.ask("GET", "/schemas/ids/1/schema") == A
    version = {"subject": "s", "version": 1, "id": 1, "schema": TEXT_A}
    assert await registry.ask("GET", "/subjects/s/versions/1") == version
    assert await registry.ask("GET", "/subjects/s/versions/latest") == version
    assert await registry.ask("GET", "/subjects/s/versions/-1") == version
    assert await registry.ask("GET", "/subjects/s/versions/1/schema") == A
    assert await registry.ask("POST", "/subjects/s", {"schema": json.dumps(A)}) == version
    wide = await registry.ask("GET", "/schemas/ids/1", confluent_accept_unknown_properties="true")
    assert wide["subject"] == "s" and wide["version"] == 1 and wide["deleted"] is False
    assert await registry.ask("GET", f"/schemas/guids/{wide['guid']}") == {"guid": wide["guid"], "schema": TEXT_A}
    assert await registry.ask("GET", f"/schemas/guids/{wide['guid']}/ids") == [{"context": ".", "id": 1}]
    assert (await registry.ask("GET", "/schemas/guids/x"))[0] == 40403


async def test_what_is_not_there_is_told_by_its_code() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    assert await registry.ask("GET", "/subjects/x/versions") == (40401, "Subject 'x' not found.")
    assert await registry.ask("GET", "/subjects/x/versions/1") == (40401, "Subject 'x' not found.")
    assert await registry.ask("GET", "/subjects/s/versions/2") == (40402, "Version 2 not found.")
    assert await registry.ask("GET", "/schemas/ids/9") == (40403, "Schema 9 not found")
    assert (await registry.ask("POST", "/subjects/x", {"schema": TEXT_A}))[0] == 40401
    assert await registry.ask("POST", "/subjects/s", {"schema": '"int"'}) == (40403, "Schema not found")
    for version in ("0", "-2", "x", "2147483648", "1.0"):
        code, message = await registry.ask("GET", f"/subjects/s/versions/{version}")
        assert code == 42202 and message.startswith(f"The specified version '{version}' is not a valid version id.")
    assert (await registry.ask("GET", "/schemas/ids/x"))[0] == 404
    assert await registry.ask("GET", "/nothing") == (404, "HTTP 404 Not Found")
    assert await registry.ask("GET", "/subjects/s/versions/1/2/3") == (404, "HTTP 404 Not Found")
    assert await registry.ask("PUT", "/subjects/s") == (405, "HTTP 405 Method Not Allowed")
    assert (await registry.ask("GET", "/associations/resources/x"))[0] == 404


@pytest.mark.parametrize(
    "body, code",
    [
        (b"", 422),
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 1_000_000, 400),
        (b'{"schema": 1}', 400),
        (b'{"schema": "\\"int\\"", "version": "x"}', 400),
        (b'{"schema": "\\"int\\"", "references": {}}', 400),
        (b'{"schema": "\\"int\\"", "references": [{"name": "a"}]}', 42201),
        (b'{"schema": "\\"int\\"", "references": [{"name": "a", "subject": "x", "version": 1}]}', 42201),
        (b'{"schema": "\\"int\\"", "schemaType": "XML"}', 42201),
        (b'{"schema": ""}', 42201),
        (b'{"schema": "{"}', 42201),
        (json.dumps({"schema": '"' + "x" * 1_100_000 + '"'}).encode(), 42201),
        (json.dumps({"schema": "[" * 100_000}).encode(), 42201),
    ],
)
async def test_a_body_that_cannot_be_used_is_refused(body: bytes, code: int) -> None:
    registry = MemoryRegistry()
    response = await registry.request("POST", "/subjects/s/versions", body)
    assert isinstance(response.body, bytes)
    assert json.loads(response.body)["error_code"] == code
    assert not registry.topic.records


async def test_types_of_content() -> None:
    registry = MemoryRegistry()
    body = json.dumps({"schema": TEXT_A}).encode()
    path = "/subjects/s/versions"
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert (await registry.request("POST", path, body, content_type=kind)).status == 415
    for kind in ("application/json; charset=utf-8", "application/octet-stream"):
        assert (await registry.request("POST", path, body, content_type=kind)).status == 200
    for accepted, kind in (
        ("*/*", "application/vnd.schemaregistry.v1+json"),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json, application/json; q=0.5", "application/vnd.schemaregistry+json"),
    ):
        assert (await registry.request("GET", "/subjects", accept=accepted)).content_type == kind


async def test_a_subject_may_have_any_characters() -> None:
    registry = MemoryRegistry()
    for encoded, name in (("a%2Fb", "a/b"), ("a%20b", "a b"), ("%C3%A4", "ä"), ("a+b", "a+b"), ("..", "..")):
        assert await registry.register(encoded, A) == 1
        assert await registry.ask("GET", f"/subjects/{encoded}/versions") == [1]
        assert name in await registry.ask("GET", "/subjects")
    assert (await registry.register("a%0Ab", A))[0] == 42208
    assert (await registry.register("__GLOBAL", A))[0] == 42208


async def test_an_incompatible_schema_is_refused_with_its_reasons() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    code, message = await registry.register("s", record("a", "b"))
    assert code == 40901
    assert message.startswith(
        'Schema being registered is incompatible with an earlier schema for subject "s", details: ['
    )
    assert "{oldSchemaVersion: 1}" in message and TEXT_A in message
    assert message.endswith("{validateFields: 'false', compatibility: 'BACKWARD'}]")
    path = "/compatibility/subjects/s/versions"
    bad, good = {"schema": json.dumps(record("a", "b"))}, {"schema": json.dumps(AB)}
    assert await registry.ask("POST", path, bad) == {"is_compatible": False}
    assert await registry.ask("POST", f"{path}/1", bad) == {"is_compatible": False}
    assert await registry.ask("POST", f"{path}/latest", good) == {"is_compatible": True}
    verbose = await registry.ask("POST", f"{path}/latest?verbose=true", bad)
    assert verbose["is_compatible"] is False and len(verbose["messages"]) == 4
    assert await registry.ask("POST", f"{path}?verbose=true", good) == {"is_compatible": True, "messages": []}
    assert (await registry.ask("POST", f"{path}/9", good))[0] == 40402
    assert await registry.ask("POST", "/compatibility/subjects/x/versions/latest", good) == {"is_compatible": True}
    assert (await registry.ask("POST", path, {"schema": "{"}))[0] == 42201
    found = await registry.ask("POST", f"{path}?verbose=true", {"schema": "{"})
    assert found["is_compatible"] is False and found["messages"][0].startswith("Invalid schema of type AVRO")


# Field b comes with a default, goes, and comes without one: each step alone is a different question.
@pytest.mark.parametrize(
    "level, versions, last, is_compatible",
    [
        ("NONE", [A], {"type": "array", "items": "int"}, True),
        ("BACKWARD", [record("a", "b")], record("a"), True),
        ("BACKWARD", [record("a")], record("a", "b"), False),
        ("BACKWARD", [record("a"), record("a", "b", b=0)], record("a", "b"), True),
        ("BACKWARD_TRANSITIVE", [record("a"), record("a", "b", b=0)], record("a", "b"), False),
        ("FORWARD", [record("a")], record("a", "b"), True),
        ("FORWARD", [record("a", "b")], record("a"), False),
        ("FORWARD", [record("a", "b"), record("a", "b", b=0)], record("a"), True),
        ("FORWARD_TRANSITIVE", [record("a", "b"), record("a", "b", b=0)], record("a"), False),
        ("FULL", [record("a")], record("a", "b", b=0), True),
        ("FULL", [record("a")], record("a", "b"), False),
        ("FULL", [record("a", "b")], record("a"), False),
        ("FULL", [record("a", "b"), record("a", "b", b=0)], record("a"), True),
        ("FULL_TRANSITIVE", [record("a", "b"), record("a", "b", b=0)], record("a"), False),
    ],
)
async def test_levels(level: str, versions: list[object], last: object, is_compatible: bool) -> None:
    registry = MemoryRegistry()
    await registry.ask("PUT", "/config/s", {"compatibility": "NONE"})
    for each in versions:
        await registry.register("s", each)
    await registry.ask("PUT", "/config/s", {"compatibility": level})
    found = await registry.ask("POST", "/compatibility/subjects/s/versions", {"schema": json.dumps(last)})
    assert found == {"is_compatible": is_compatible}
    assert isinstance(await registry.register("s", last), int) == is_compatible


async def test_deletion_has_two_steps() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    await registry.register("s", AB)
    path = "/subjects/s/versions/1"
    assert (await registry.ask("DELETE", f"{path}?permanent=true"))[0] == 40407
    assert await registry.ask("DELETE", path) == 1
    assert (await registry.ask("DELETE", path))[0] == 40406
    assert await registry.ask("GET", "/subjects/s/versions") == [2]
    assert await registry.ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]
    assert await registry.ask("GET", "/subjects/s/versions?deletedOnly=true") == [1]
    assert await registry.ask("GET", "/subjects/s/versions?deletedAsNegative=true") == [-1, 2]
    assert (await registry.ask("GET", path))[0] == 40402
    assert (await registry.ask("GET", f"{path}?deleted=true"))["id"] == 1
    assert (await registry.ask("GET", "/schemas/ids/1"))["schema"] == TEXT_A
    assert (await registry.ask("POST", "/subjects/s", {"schema": TEXT_A}))[0] == 40403
    assert (await registry.ask("POST", "/subjects/s?deleted=true", {"schema": TEXT_A}))["version"] == 1
    assert await registry.ask("DELETE", f"{path}?permanent=true") == 1
    assert (await registry.ask("GET", f"{path}?deleted=true"))[0] == 40402
    assert (await registry.ask("GET", "/schemas/ids/1"))[0] == 40403


async def test_a_deleted_schema_that_comes_again_gets_its_id_and_a_new_version() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    assert await registry.ask("DELETE", "/subjects/s") == [1]
    assert await registry.register("s", A) == 1
    assert await registry.ask("GET", "/subjects/s/versions?deleted=true") == [2]


async def test_a_subject_is_deleted_whole() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    await registry.register("s", AB)
    await registry.ask("PUT", "/config/s", {"compatibility": "FULL"})
    await registry.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    assert (await registry.ask("DELETE", "/subjects/x"))[0] == 40401
    assert (await registry.ask("DELETE", "/subjects/s?permanent=true"))[0] == 40405
    assert await registry.ask("DELETE", "/subjects/s") == [1, 2]
    assert (await registry.ask("DELETE", "/subjects/s"))[0] == 40404
    assert await registry.ask("GET", "/subjects") == []
    assert await registry.ask("GET", "/subjects?deleted=true") == ["s"]
    assert await registry.ask("GET", "/subjects?deletedOnly=true") == ["s"]
    assert (await registry.ask("GET", "/subjects/s/versions"))[0] == 40401
    assert await registry.ask("DELETE", "/subjects/s?permanent=true") == [1, 2]
    assert await registry.ask("GET", "/subjects?deleted=true") == []
    assert (await registry.ask("GET", "/config/s"))[0] == 40408
    assert (await registry.ask("GET", "/mode/s"))[0] == 40409
    # Ids are not given out twice.
    assert await registry.register("s", record("c")) == 3


async def test_a_schema_that_others_refer_to_stays() -> None:
    registry = MemoryRegistry()
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "r", "type": "R"}]}
    reference = {"name": "R", "subject": "s", "version": 1}
    await registry.register("s", A)
    assert await registry.register("t", outer, references=[{**reference, "version": -1}]) == 2
    found = await registry.ask("GET", "/subjects/t/versions/1")
    assert found["references"] == [reference]
    assert await registry.ask("GET", "/subjects/s/versions/1/referencedby") == [2]
    assert await registry.register("t", outer, references=[reference]) == 2
    for path in ("/subjects/s", "/subjects/s/versions/1"):
        assert (await registry.ask("DELETE", path))[0] == 42206
    resolved = await registry.ask("GET", "/schemas/ids/2?format=resolved")
    assert json.loads(resolved["schema"])["fields"][0]["type"]["name"] == "R"
    # The resolved text is known to be the same schema.
    assert await registry.register("t", resolved["schema"]) == 2
    await registry.ask("DELETE", "/subjects/t")
    assert await registry.ask("GET", "/subjects/s/versions/1/referencedby") == []
    assert await registry.ask("GET", "/subjects/s/versions/1/referencedby?deleted=true") == [2]
    assert await registry.ask("DELETE", "/subjects/s/versions/1") == 1
    assert (await registry.ask("DELETE", "/subjects/s/versions/1?permanent=true"))[0] == 42206
    await registry.ask("DELETE", "/subjects/t?permanent=true")
    assert await registry.ask("DELETE", "/subjects/s/versions/1?permanent=true") == 1


async def test_lists_have_prefixes_and_pages() -> None:
    registry = MemoryRegistry()
    for name in ("a1", "a2", "b1", ":.c:a3", ":.c:b2"):
        await registry.register(name, A)
        await registry.register(name, AB)
    assert await registry.ask("GET", "/subjects?subjectPrefix=a") == ["a1", "a2"]
    assert await registry.ask("GET", "/subjects?subjectPrefix=:.c:") == [":.c:a3", ":.c:b2"]
    assert await registry.ask("GET", "/subjects?subjectPrefix=:*:a") == ["a1", "a2", ":.c:a3"]
    assert await registry.ask("GET", "/subjects?offset=1&limit=2") == [":.c:b2", "a1"]
    assert (await registry.ask("GET", "/subjects?offset=x"))[0] == 404
    schemas = await registry.ask("GET", "/schemas?subjectPrefix=a")
    assert [(each["subject"], each["version"]) for each in schemas] == [("a1", 1), ("a1", 2), ("a2", 1), ("a2", 2)]
    latest = await registry.ask("GET", "/schemas?subjectPrefix=a&latestOnly=true&offset=1")
    assert [(each["subject"], each["version"]) for each in latest] == [("a2", 2)]
    assert len(await registry.ask("GET", "/schemas?limit=3")) == 3


async def test_long_lists_come_in_pieces() -> None:
    registry = MemoryRegistry()
    names = [f"{'s' * 60}{number:05}" for number in range(3201)]
    for name in names:
        value = SchemaValue(subject=name, version=1, id=1, text='"int"', digest=bytes(16))
        registry.state.apply(SchemaPut(value))
    response = await registry.request("GET", "/subjects")
    assert not isinstance(response.body, bytes)
    async with aclosing(response.body):
        pieces = [piece async for piece in response.body]
    assert len(pieces) > 3 and json.loads(b"".join(pieces)) == names
    response = await registry.request("GET", "/schemas/ids/1/versions?limit=3")
    assert response.body == (
        b"[" + b",".join(b'{"subject":"%s","version":1}' % name.encode() for name in names[:3]) + b"]"
    )


async def test_each_schema_of_a_list_is_written_in_a_step_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    for number in range(20):
        value = SchemaValue(subject=f"s{number}", version=1, id=number, text="x" * 10_000, digest=bytes(16))
        registry.state.apply(SchemaPut(value))
    dumped, sizes = api._dumped, []

    def measured(value: Any) -> bytes:
        sizes.append(len(dumped(value)))
        return dumped(value)

    monkeypatch.setattr(api, "_dumped", measured)
    response = await registry.request("GET", "/schemas")
    assert not isinstance(response.body, bytes)
    async with aclosing(response.body):
        pieces = [piece async for piece in response.body]
    assert [len(each["schema"]) for each in json.loads(b"".join(pieces))] == [10_000] * 20
    assert max(sizes) < 11_000 and max(map(len, pieces)) < api.PIECE_BYTES + 11_000


async def test_a_body_of_more_than_a_piece_is_parsed_in_a_thread() -> None:
    registry = MemoryRegistry()
    assert await registry.register("s", {**record("a"), "doc": "x" * 300_000}) == 1
    assert len((await registry.ask("GET", "/schemas/ids/1"))["schema"]) > 300_000


@pytest.mark.parametrize(
    ("method", "path", "parser"),
    [("PUT", "/config/s", "parse_config"), ("PUT", "/mode", "parse_mode"), ("POST", "/subjects/s", "parse_schema")],
)
async def test_only_a_long_body_is_parsed_in_a_thread(
    method: str, path: str, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def parse(body: bytes) -> None:
        threads.append(threading.current_thread())
        raise ApiError(400, "no")

    monkeypatch.setattr(api, parser, parse)
    registry = MemoryRegistry()
    for length in (10, 200_000):
        await registry.request(method, path, b" " * length)
    assert [each is threading.main_thread() for each in threads] == [True, False]


async def test_a_look_up_in_many_contexts_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    for number in range(5):
        await registry.register(f":.c{number}:s", A)
    body = {"schemaType": "JSON", "schema": '{"type": "object"}'}
    assert (await registry.ask("POST", "/subjects/s", body))[0] == 40401
    passed = []

    async def yield_if_over(time_slice: object) -> None:
        passed.append(time_slice)

    monkeypatch.setattr(TimeSlice, "yield_if_over", yield_if_over)
    assert (await registry.ask("POST", "/subjects/s", body))[0] == 40401
    assert len(passed) == 6


async def test_a_decision_that_others_have_overtaken_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    problems = registry.judging.problems
    first = True

    async def overtaken(*arguments: Any, **more: Any) -> list[str]:
        nonlocal first
        found = await problems(*arguments, **more)
        if first:
            first = False
            # Compatible with version 1, as the schema below is, but not with that one.
            other = {**A, "fields": [*A["fields"], {"name": "b", "type": "string", "default": ""}]}
            assert await registry.register("s", other) == 2
        return found

    monkeypatch.setattr(registry.judging, "problems", overtaken)
    assert (await registry.register("s", AB))[0] == 40901
    assert await registry.ask("GET", "/subjects/s/versions") == [1, 2]


async def test_writers_at_the_same_time_get_ids_and_versions_of_their_own() -> None:
    registry = MemoryRegistry()
    found: list[int] = []

    async def register(number: int) -> None:
        found.append(await registry.register(f"s{number % 3}", record("a", name=f"R{number}")))

    for level in range(3):
        await registry.ask("PUT", f"/config/s{level}", {"compatibility": "NONE"})
    async with trio.open_nursery() as nursery:
        for number in range(24):
            nursery.start_soon(register, number)
    assert sorted(found) == list(range(1, 25))
    for number in range(3):
        assert await registry.ask("GET", f"/subjects/s{number}/versions") == list(range(1, 9))


async def test_a_schema_that_takes_long_holds_up_no_other_writer() -> None:
    registry = MemoryRegistry()
    begun, may_end = trio.Event(), threading.Event()
    await registry.register("slow", A)
    token = trio.lowlevel.current_trio_token()

    def slow(*_: object, **more: object) -> list[str]:
        token.run_sync_soon(begun.set)
        may_end.wait(60)
        return []

    async with trio.open_nursery() as nursery:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compatibility, "problems", slow)
            nursery.start_soon(registry.register, "slow", AB)
            await begun.wait()
        assert await registry.register("quick", A) == 1
        assert await registry.ask("PUT", "/config", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
        may_end.set()
    assert await registry.ask("GET", "/subjects/slow/versions") == [1, 2]


async def test_a_schema_may_hold_what_has_no_utf_8() -> None:
    registry = MemoryRegistry()
    text = json.dumps({**A, "doc": "\ud800"})
    assert await registry.register("s", text) == await registry.register("s", text) == 1
    assert json.loads((await registry.ask("GET", "/schemas/ids/1"))["schema"])["doc"] == "\ud800"
    assert (await registry.request("GET", "/schemas/ids/1/schema")).status == 200


async def test_over_a_socket() -> None:
    """The server of the console's endpoint carries the API: also what has no body, and subjects with a slash."""
    registry = MemoryRegistry()
    await registry.register(":.c:s", A)
    for path in ("/subjects/:.c:s", "/subjects/:.c:s?permanent=true"):
        assert await registry.ask("DELETE", path)
    ours, theirs = trio.testing.memory_stream_pair()
    talk = HttpConnection(theirs, "127.0.0.1", registry.api, ApiGuard("127.0.0.1"), FreePace())

    async def ask(head: str, body: bytes = b"") -> tuple[str, bytes]:
        headers = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await ours.send_all(f"{head} HTTP/1.1\r\n{headers}".encode() + body)
        received = b""
        while b"\r\n\r\n" not in received:
            received += bytes(await ours.receive_some())
        answer, _, rest = received.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in answer.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0)
        while len(rest) < length:
            rest += bytes(await ours.receive_some())
        return answer.split(b"\r\n")[0].decode(), rest

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk.run)
        assert await ask("DELETE /contexts/.c") == ("HTTP/1.1 204 No Content", b"")
        body = json.dumps({"schema": TEXT_A}).encode()
        assert await ask("POST /subjects/a%2Fb/versions", body) == ("HTTP/1.1 200 OK", b'{"id":1}')
        assert await ask("GET /subjects/a%2Fb/versions") == ("HTTP/1.1 200 OK", b"[1]")
        answer = b'{"compatibility":"NONE"}'
        assert await ask("PUT /config/a%2Fb", answer) == ("HTTP/1.1 200 OK", answer)
        status, rest = await ask("POST /subjects/s/versions", b"x" * (BODY_BYTES_MAX + 1))
        assert status.startswith("HTTP/1.1 413") and json.loads(rest)["error_code"] == 413
        nursery.cancel_scope.cancel()
