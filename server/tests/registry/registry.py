"""A registry in memory: its API over a topic that is a list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

import trio

from ottla.server.admin.http.routes import Request, Response
from ottla.server.registry.access import Access
from ottla.server.registry.api import BODY_BYTES_MAX, RegistryApi
from ottla.server.registry.forwarding import Alone, Others
from ottla.server.registry.judging import Judging
from ottla.server.registry.reading import Reading
from ottla.server.registry.records import Event, decode, encode
from ottla.server.registry.state import RegistryState
from ottla.server.registry.topic import SchemasTopic
from ottla.server.registry.writing import Writing

KIND = "application/vnd.schemaregistry.v1+json"


class ListTopic:
    """Takes over at once what is appended, by its bytes."""

    def __init__(self, state: RegistryState) -> None:
        self.state = state
        self.name, self.cluster_id, self.problem = "_schemas", "a-cluster", None
        self.loaded = trio.Event()
        self.loaded.set()
        self.records: list[tuple[bytes, bytes | None]] = []

    async def settle(self) -> None:
        await trio.lowlevel.checkpoint()

    async def append(self, events: Sequence[Event]) -> None:
        await trio.lowlevel.checkpoint()
        for each in events:
            self.records.append(encode(each))
            self.state.apply(decode(*self.records[-1]))


class MemoryRegistry:
    """An API to ask, with the records that it writes."""

    def __init__(self, others: Alone | Others | None = None, access: Access | None = None) -> None:
        self.state = RegistryState()
        self.topic = ListTopic(self.state)
        self.judging = judging = Judging(self.state)
        topic = cast(SchemasTopic, self.topic)
        writing = Writing(self.state, topic, judging)
        self.api = RegistryApi(
            Reading(self.state), writing, judging, topic, others or Alone(), access or Access(), "schema-registry"
        )

    async def request(self, method: str, target: str, body: bytes = b"", **headers: str) -> Response:
        path, _, query = target.partition("?")
        fields = dict(parse_qsl(query, keep_blank_values=True))
        request = Request(
            method=method,
            path=path,
            raw_path=path,
            query=fields,
            headers={"content-type": KIND, **{name.replace("_", "-"): each for name, each in headers.items()}},
            body=body,
        )
        assert len(body) <= BODY_BYTES_MAX
        return await self.api.find(method, path).handler(request)

    async def ask(self, method: str, target: str, body: object = None, **headers: str) -> Any:
        """Ask for JSON. A refusal is (code, message), and an answer without a body None."""
        data = b"" if body is None else json.dumps(body).encode()
        response = await self.request(method, target, data, **headers)
        assert isinstance(response.body, bytes)
        if not response.body:
            return None
        found = json.loads(response.body)
        if response.status >= 400:
            assert found["error_code"] == response.status or found["error_code"] // 100 == response.status
            return found["error_code"], found["message"]
        return found

    async def register(self, subject: str, schema: object, **more: object) -> Any:
        """Register a schema given as a tree; returns its id, or the refusal."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found = await self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **more})
        return found["id"] if isinstance(found, dict) else found


def record(*fields: str, name: str = "R", **defaults: object) -> dict[str, Any]:
    """A record of Avro with these fields of type int, some with a default."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": each, "type": "int", **({"default": defaults[each]} if each in defaults else {})}
            for each in fields
        ],
    }
