"""Subjects, versions and levels of a schema registry in the console, and what it makes of the registry's refusals."""

from __future__ import annotations

import json
from typing import Any, cast
from urllib.parse import quote

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console import schemas_view
from ottla.server.admin.console.avro.registry import Registry
from ottla.server.admin.console.schemas_view import SchemasView
from ottla.server.admin.http.routes import Refused, Request
from ottla.server.tests.registry.registry import MemoryRegistry, record


class Asked:
    """The client of a registry in memory, or of one that answers what it is told to."""

    def __init__(self, answer: Any = None) -> None:
        self.registry, self.answer = MemoryRegistry(), answer

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        if self.answer is not None:
            await trio.lowlevel.checkpoint()
            return 200, self.answer
        response = await self.registry.request(method, path, body)
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body or b"null")


def view_of(asked: Asked) -> SchemasView:
    return SchemasView(cast(Registry, asked))


def get(**query: Any) -> Request:
    return Request(method="GET", path="", query={name: str(each) for name, each in query.items()})


def posted(**body: Any) -> Request:
    return Request(method="POST", path="", body=json.dumps(body).encode())


async def refused(answer: Any, status: int, words: str) -> None:
    with pytest.raises(Refused, match=words) as error:
        await answer
    assert error.value.status == status


async def test_subjects_come_in_pages_and_by_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas_view, "SUBJECTS_PER_PAGE", 2)
    asked = Asked()
    for name in ("a-key", "a-value", "b/c d?", ":.staging:a-value", "käse"):
        await asked.registry.register(quote(name, safe=""), record("x"))
    view, found, start = view_of(asked), [], 0
    while start is not None:
        page = await view.subjects(get(**{"from": start}))
        found += page["subjects"]
        start = page["next"]
    assert sorted(found) == sorted(["a-key", "a-value", "b/c d?", ":.staging:a-value", "käse"])
    assert (await view.subjects(get(prefix="a-k")))["subjects"] == ["a-key"]
    assert (await view.subjects(get(prefix=":.staging:")))["subjects"] == [":.staging:a-value"]
    for name in found:
        assert (await view.subject(get(name=name)))["versions"] == [1]


async def test_a_registry_without_pages_is_read_as_if_it_had_some() -> None:
    names = [f"s{number:03}" for number in range(120)]
    view = view_of(Asked([*reversed(names), "other", 5]))
    first = await view.subjects(get(prefix="s"))
    assert first == {"subjects": names[:50], "next": 50}
    last = await view.subjects(get(prefix="s", **{"from": 100}))
    assert last == {"subjects": names[100:], "next": None}


async def test_a_subject_is_changed_and_shown() -> None:
    asked = Asked()
    view = view_of(asked)
    text = json.dumps(record("a"))
    assert (await view.check(posted(subject="s/1", type="AVRO", text=text)))[
        "isCompatible"
    ]  # there is nothing before it
    done = await view.register(posted(subject="s/1", type="AVRO", text=text))
    assert done == {"subject": "s/1", "id": 1, "version": 1}
    shown = await view.schema(get(subject="s/1", version=1))
    assert json.loads(shown["text"]) == record("a") and (shown["id"], shown["type"]) == (1, "AVRO")
    assert (await view.subject(get(name="s/1")))["isOwnLevel"] is False
    wrong = posted(subject="s/1", type="AVRO", text=json.dumps(record("a", "b")))
    found = await view.check(wrong)
    assert not found["isCompatible"] and "READER_FIELD_MISSING_DEFAULT_VALUE" in found["messages"][0]
    await refused(view.register(wrong), 409, "40901")
    await view.set_level(posted(subject="s/1", level="NONE"))
    assert (await view.subject(get(name="s/1")))["level"] == "NONE"
    assert (await view.register(wrong))["version"] == 2
    await view.set_level(posted(subject="s/1", level=None))
    assert (await view.subject(get(name="s/1")))["isOwnLevel"] is False
    assert (await view.delete(posted(subject="s/1", version=2)))["version"] == 2
    assert (await view.subject(get(name="s/1")))["versions"] == [1]
    await view.delete(posted(subject="s/1", version=None))
    await refused(view.subject(get(name="s/1")), 404, "40401")


async def test_references_and_other_formats_are_registered() -> None:
    view = view_of(Asked())
    await view.register(posted(subject="p", type="PROTOBUF", text='syntax = "proto3"; message P { int32 a = 1; }'))
    text = 'syntax = "proto3"; import "p.proto"; message Q { P p = 1; }'
    references = [{"name": "p.proto", "subject": "p", "version": 1}]
    await view.register(posted(subject="q", type="PROTOBUF", text=text, references=references))
    shown = await view.schema(get(subject="q", version=1))
    assert (shown["type"], shown["references"]) == ("PROTOBUF", references)


async def test_what_no_request_may_be_is_refused() -> None:
    view = view_of(Asked())
    await refused(SchemasView(None).subjects(get()), 404, "http.console.schema.registry")
    await refused(view.schema(get(subject="s", version="latest")), 400, "whole number")
    await refused(view.register(posted(subject="s", type="XML", text="x")), 400, "AVRO, JSON, PROTOBUF")
    await refused(view.register(posted(subject="s", type="AVRO", text="x", references="y")), 400, "a list")
    await refused(view.register(posted(subject="s", type="AVRO", text="")), 400, "text must be a text")
    await refused(view.register(posted(subject="s", type="AVRO", text="{")), 409, "42201")
    await refused(view.set_level(posted(subject="s", level="X")), 409, "42203")
    for version in (0, -1, "1", True, 1 << 40):
        await refused(view.delete(posted(subject="s", version=version)), 400, "a number or null")
    await refused(view.delete(posted(subject="s", version=1)), 404, "40401")


ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["schema", "id", "message", "messages", "mode", "references"]), inner)
    ),
    max_leaves=6,
)


@given(ANSWERS)
def test_whatever_a_registry_answers_is_shown_or_refused(answer: Any) -> None:
    async def look() -> None:
        view = view_of(Asked(answer if answer is not None else {}))
        for each in (
            view.subjects(get()),
            view.subject(get(name="s")),
            view.schema(get(subject="s", version=1)),
            view.check(posted(subject="s", type="AVRO", text="x")),
            view.register(posted(subject="s", type="AVRO", text="x")),
        ):
            json.dumps(await each)

    trio.run(look)


async def test_the_client_takes_json_of_any_status_and_bounded_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 21\r\n\r\n" + b'{"error_code": 40401}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9_000_000,
        b"no HTTP",
    ]
    asked: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            asked.append(bytes(await stream.receive_some(65_536)))
            try:
                await stream.send_all(answers[len(asked) - 1])
            except trio.BrokenResourceError:
                return  # the client has heard enough

    async with trio.open_nursery() as nursery:
        [listener, *_] = await nursery.start(trio.serve_tcp, serve, 0)
        registry = Registry(f"http://127.0.0.1:{listener.socket.getsockname()[1]}", "me:secret")
        assert await registry.ask("PUT", "/config/a%2Fb", b"{}") == (404, {"error_code": 40401})
        assert asked[0].startswith(b"PUT /config/a%2Fb HTTP/1.1") and b"Authorization: Basic" in asked[0]
        await refused(registry.ask("GET", "/subjects"), 502, "status 200 and no JSON")
        await refused(registry.ask("GET", "/subjects"), 502, "more than")
        await refused(registry.ask("GET", "/subjects"), 502, "speaks no HTTP")
        nursery.cancel_scope.cancel()
