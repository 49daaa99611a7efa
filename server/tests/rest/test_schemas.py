"""Schemas of requests, found in a registry in memory as Confluent's proxy finds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing

from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.errors import Code, RestError
from ottla.server.rest.schemas.codec import AVRO, JSON_SCHEMA, PROTOBUF
from ottla.server.rest.schemas.registry import (
    BREAK_S,
    KEPT_MAX,
    LATEST_S,
    RegistryClient,
    RegistryConfig,
    RegistryFailure,
)
from ottla.server.rest.schemas.schemas import Schemas, Wanted, check_kind
from ottla.server.security.oauth import fetching
from ottla.server.security.oauth.fetching import Answer, FailedRead
from ottla.server.tests.registry.registry import MemoryRegistry

PERSON = json.dumps({"type": "record", "name": "demo.Person", "fields": [{"name": "name", "type": "string"}]})
WIDER = json.dumps(
    {
        "type": "record",
        "name": "demo.Person",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
    }
)
PROTO = 'syntax = "proto3"; package demo; message Person { string name = 1; }'


class Reached:
    """Stands for the network between client and registry. `trouble`: an answer, or an error, instead of the registry's."""

    def __init__(self) -> None:
        self.registry = MemoryRegistry()
        self.asked: list[str] = []
        self.headers: Sequence[tuple[str, str]] = ()
        self.trouble: Callable[[str], Answer | None] = lambda path: None

    async def exchange(
        self, url: str, context: Any, method: str, headers: Sequence[tuple[str, str]], body: bytes, limits: Any
    ) -> Answer:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        self.asked.append(f"{method} {target}")
        self.headers = headers
        if (answer := self.trouble(target)) is not None:
            return answer
        response = await self.registry.request(method, target, body)
        assert isinstance(response.body, bytes)
        return Answer(response.status, response.body)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Reached:
    found = Reached()
    monkeypatch.setattr(fetching, "exchange", found.exchange)
    return found


@pytest.fixture
def schemas(reached: Reached) -> Schemas:
    return Schemas(RegistryConfig(urls=["http://registry:8081"]))


def wanted(**names: Any) -> Wanted:
    return Wanted(**{"topic": "t", "is_key": False, **names})


async def refusal(schemas: Schemas, what: Wanted) -> RestError:
    with pytest.raises(RestError) as refused:
        await schemas.wanted(what)
    return refused.value


async def test_a_text_is_registered_once(schemas: Schemas, reached: Reached) -> None:
    first = await schemas.wanted(wanted(kind=AVRO, text=PERSON))
    assert (first.subject, first.place) == ("t-value", (1, 1))
    assert first.encode({"name": "a"}) == b"\0\0\0\0\1\2a"
    asked = ["POST /subjects/t-value", "POST /subjects/t-value/versions", "POST /subjects/t-value"]
    assert reached.asked == asked
    assert await schemas.wanted(wanted(kind=AVRO, text=PERSON)) == first
    assert reached.asked == asked
    other = Schemas(RegistryConfig(urls=["http://registry:8081"]))
    assert (await other.wanted(wanted(kind=AVRO, text=PERSON))).place == (1, 1)
    assert reached.asked[3:] == ["POST /subjects/t-value"]
    key = await schemas.wanted(wanted(kind=AVRO, text=PERSON, is_key=True))
    assert (key.subject, key.place) == ("t-key", (1, 1))


async def test_an_id_and_a_version_are_found(schemas: Schemas) -> None:
    await schemas.wanted(wanted(kind=JSON_SCHEMA, text='{"type": "object"}'))
    by_id = await schemas.wanted(wanted(schema_id=1))
    by_version = await schemas.wanted(wanted(version=1))
    latest = await schemas.wanted(wanted())
    assert {each.place for each in (by_id, by_version, latest)} == {(1, 1)}
    assert {each.subject for each in (by_id, by_version, latest)} == {"t-value"}
    check_kind(by_id, JSON_SCHEMA)
    with pytest.raises(RestError) as refused:
        check_kind(by_id, AVRO)
    assert refused.value.code == Code.INVALID_SCHEMA


async def test_the_latest_version_is_asked_again(
    schemas: Schemas, mock_clock: trio.testing.MockClock, reached: Reached
) -> None:
    await schemas.wanted(wanted(kind=AVRO, text='"int"', subject="s"))
    assert (await schemas.wanted(wanted(subject="s"))).place.version == 1
    await schemas.wanted(wanted(kind=AVRO, text='"long"', subject="s"))
    mock_clock.jump(2 * LATEST_S)
    assert (await schemas.wanted(wanted(subject="s"))).place.version == 2


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        (AVRO, PERSON, ("demo.Person", "t-demo.Person")),
        (JSON_SCHEMA, '{"title": "T"}', ("T", "t-T")),
        (PROTOBUF, PROTO, ("demo.Person", "t-demo.Person")),
        (AVRO, '"int"', None),
    ],
)
async def test_strategies_name_subjects(schemas: Schemas, kind: str, text: str, names: Any) -> None:
    for strategy, name in zip(("RECORD_NAME", "TOPIC_RECORD_NAME"), names or ("", ""), strict=True):
        what = wanted(kind=kind, text=text, strategy=strategy)
        if names:
            assert (await schemas.wanted(what)).subject == name
        else:
            assert (await refusal(schemas, what)).code == Code.MESSAGE_SERIALIZATION
    error = await refusal(schemas, wanted(strategy="RECORD_NAME"))
    text = "Cannot use schema_subject_strategy=RECORD_NAME without schema_id or schema."
    assert (error.code, str(error)) == (400, f"Bad Request: {text}")


async def test_references_are_followed(schemas: Schemas, reached: Reached) -> None:
    house = {"type": "record", "name": "House", "fields": [{"name": "owner", "type": "demo.Person"}]}
    await reached.registry.ask("POST", "/subjects/person/versions", {"schema": PERSON})
    reference = {"name": "demo.Person", "subject": "person", "version": 1}
    await reached.registry.ask(
        "POST", "/subjects/t-value/versions", {"schema": json.dumps(house), "references": [reference]}
    )
    found = await schemas.wanted(wanted())
    assert found.encode({"owner": {"name": "a"}}) == b"\0\0\0\0\2\2a"
    # The lookup by id needs the references, too.
    assert (await schemas.wanted(wanted(schema_id=2))).place == (2, 1)


async def test_refusals_have_confluents_codes(schemas: Schemas, reached: Reached) -> None:
    error = await refusal(schemas, wanted(kind=AVRO, text="{"))
    assert error.code == 42205 and str(error).startswith("Invalid schema: Error when parsing raw schema. format = AVRO")
    assert (await refusal(schemas, wanted(kind=PROTOBUF, text="message"))).code == 42205
    error = await refusal(schemas, wanted(schema_id=7))
    assert error.code == 42207
    text = "Error when fetching schema by id. schemaId = 7\nSchema 7 not found; error code: 40403"
    assert str(error) == f"Error serializing message. {text}"
    error = await refusal(schemas, wanted(version=3))
    assert (error.code, str(error)) == (400, "Bad Request: Schema does not exist for subject: t-value, version: 3")
    assert (await refusal(schemas, wanted())).code == 42207
    await schemas.wanted(wanted(kind=AVRO, text=PERSON))
    error = await refusal(schemas, wanted(kind=AVRO, text=WIDER))
    assert error.code == 42207 and "error code: 409" in str(error)
    # An id that is none of the topic's subject.
    await schemas.wanted(wanted(kind=AVRO, text='"int"', topic="other"))
    assert (await refusal(schemas, wanted(schema_id=2))).code == 42207


async def test_what_does_not_fit_is_a_bad_request(schemas: Schemas) -> None:
    found = await schemas.wanted(wanted(kind=AVRO, text=PERSON))
    for value in ({"name": 1}, None):
        with pytest.raises(RestError) as refused:
            found.encode(value)
        assert refused.value.code == 400
    nullable = await schemas.wanted(wanted(kind=AVRO, text='["null", "string"]', subject="s"))
    assert nullable.encode(None) is None


async def test_a_right_that_is_missing_is_told(schemas: Schemas, reached: Reached) -> None:
    body = {"error_code": 40301, "message": "User is denied operation read on subject t-value"}
    reached.trouble = lambda path: Answer(403, json.dumps(body).encode())
    for what in (wanted(), wanted(schema_id=1), wanted(version=1), wanted(kind=AVRO, text=PERSON)):
        assert (await refusal(schemas, what)).code == Code.KAFKA_AUTHORIZATION


async def test_a_registry_that_is_away_is_asked_again_later(
    schemas: Schemas, reached: Reached, mock_clock: trio.testing.MockClock
) -> None:
    def fail(path: str) -> Answer:
        raise FailedRead("there is no connection")

    reached.trouble = fail
    error = await refusal(schemas, wanted(kind=AVRO, text=PERSON))
    assert error.code == 42207 and "there is no connection" in str(error)
    assert (await refusal(schemas, wanted(schema_id=1))).code == 42207
    assert len(reached.asked) == 1
    reached.trouble = lambda path: None
    mock_clock.jump(2 * BREAK_S)
    assert (await schemas.wanted(wanted(kind=AVRO, text=PERSON))).place == (1, 1)


async def test_the_next_address_is_asked(reached: Reached) -> None:
    client = RegistryClient(RegistryConfig(urls=["http://a", "http://b/below/"], user_info="me:secret"))
    reached.trouble = lambda path: None if path.startswith("/below") else _raise(FailedRead("away"))
    with pytest.raises(RegistryFailure):  # the registry in memory has nothing below that path
        await client.by_id(1)
    assert reached.asked == ["GET /schemas/ids/1", "GET /below/schemas/ids/1"]
    assert ("Authorization", "Basic bWU6c2VjcmV0") in reached.headers


def _raise(error: Exception) -> Answer:
    raise error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"schema": 1}',
        b'{"schema": "\\"int\\"", "schemaType": "XML"}',
        b'{"schema": "{"}',
        b'{"schema": "\\"int\\"", "references": [1]}',
        b'{"schema": "\\"int\\"", "references": [{"name": "a", "subject": "a", "version": "x"}]}',
        b"\xff",
    ],
)
async def test_a_strange_answer_is_refused(reached: Reached, body: bytes) -> None:
    reached.trouble = lambda path: Answer(200, body)
    client = RegistryClient(RegistryConfig(urls=["http://registry"]))
    with pytest.raises((RegistryFailure, InvalidText)):
        await client.by_version("s", 1)
    with pytest.raises((RegistryFailure, InvalidText)):
        await client.parsed(AVRO, '"long"')
        await client.registered("s", await client.parsed(AVRO, '"long"'))


async def test_references_in_a_circle_end(reached: Reached) -> None:
    told = {"schema": '"int"', "references": [{"name": "a", "subject": "a", "version": 1}], "id": 1, "version": 1}
    reached.trouble = lambda path: Answer(200, json.dumps(told).encode())
    client = RegistryClient(RegistryConfig(urls=["http://registry"]))
    assert (await client.by_id(1)).kind == AVRO

    def longer(path: str) -> Answer:
        name = f"n{len(reached.asked)}"
        return Answer(200, json.dumps({**told, "references": [{"name": name, "subject": name, "version": 1}]}).encode())

    reached.trouble = longer
    with pytest.raises(RegistryFailure, match="more than 100"):
        await client.by_id(2)


async def test_equal_questions_are_asked_once(schemas: Schemas, reached: Reached) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(schemas.wanted, wanted(kind=AVRO, text=PERSON))
    assert len(reached.asked) == 3


async def test_what_is_kept_is_bounded(schemas: Schemas, reached: Reached) -> None:
    client = RegistryClient(RegistryConfig(urls=["http://registry"]))
    for number in range(KEPT_MAX + 10):
        reached.trouble = lambda path: Answer(200, b'{"schema": "\\"int\\""}')
        await client.by_id(number)
    assert len(client._kept) == KEPT_MAX
    assert client._kept_bytes == sum(size for _, size, _ in client._kept.values())


async def test_readers_get_codecs_or_reasons(schemas: Schemas) -> None:
    await schemas.wanted(wanted(kind=AVRO, text='"int"'))
    found = await schemas.codecs(AVRO, [1, 2])
    assert not isinstance(found[1], str) and found[1].decode(memoryview(b"\4")) == 2
    assert found[2] == "Error retrieving AVRO schema for id 2: Schema 2 not found; error code: 40403"
    assert (await schemas.codecs(PROTOBUF, [1]))[1] == "Schema 1 is of type AVRO"
