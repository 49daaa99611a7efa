"""HTTP API: the table of its paths, and the handler of each.

A path is cut at its slashes before it is decoded, so that a subject may have one. Answers are JSON of the type that a
client prefers among Confluent's three. Requests come as one of these, or as application/octet-stream; a page of another
site cannot send any of these types.

A write goes to the primary: an instance that is not it hands the request on as it is (`Others`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import trio

from ottla import __version__
from ottla.server.admin.http.routes import Refused, Request, Response, Route, Routes
from ottla.server.registry.access import COMPATIBILITY, DELETE, READ, WRITE, Access
from ottla.server.registry.errors import ApiError, Code, invalid_schema, version_not_found
from ottla.server.registry.forwarding import Alone, Others
from ottla.server.registry.judging import Judging
from ottla.server.registry.reading import (
    LATEST,
    Page,
    Reading,
    guid_of,
    is_true,
    parse_version,
    schema_json,
    scope_of,
    version_json,
)
from ottla.server.registry.records import SchemaValue
from ottla.server.registry.request_bodies import SchemaRequest, parse_config, parse_mode, parse_schema
from ottla.server.registry.schemas import formats
from ottla.server.registry.schemas.format import TEXT_BYTES_MAX
from ottla.server.registry.subjects import Subject, context_of, normalized
from ottla.server.registry.topic import SchemasTopic
from ottla.server.registry.writing import Writing
from ottla.wire.time_slice import TimeSlice

TYPES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
_TAKEN = (*TYPES, "application/octet-stream")
BODY_BYTES_MAX = 4 * TEXT_BYTES_MAX
"""Longest body: a schema of the highest length, most of whose characters are escaped."""

BODY_BYTES_AT_ONCE = 128 * 1024
ELEMENTS_AT_ONCE = 500
"""Names or numbers of a list that are written in one step."""

PIECE_BYTES = 64 * 1024
"""A list beyond this is sent in pieces."""

SCHEMA_REGISTRY_VERSION = "8.1.0"
"""Release of Confluent's registry whose API this is."""

EXTRAS_HEADER = "confluent-accept-unknown-properties"


T = TypeVar("T")


class Call(NamedTuple):
    """Request with the variable parts of its path."""

    request: Request
    parts: tuple[str, ...]

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def has_extras(self) -> bool:
        return self.request.headers.get(EXTRAS_HEADER, "").lower() == "true"

    def flag(self, name: str) -> bool:
        return is_true(self.query, name)


Answer = Callable[[Call], Awaitable[Any]]


class _Path(NamedTuple):
    answer: Answer
    right: str
    is_write: bool


class RawText(NamedTuple):
    """Schema text that is sent as it is, not as a JSON string."""

    text: str


class NoContent(NamedTuple):
    """Response without content: status 204."""


class RegistryApi(Routes):
    """HTTP API of the registry: handles all requests."""

    headers: Mapping[str, str] = {"x-content-type-options": "nosniff"}

    def __init__(
        self,
        reading: Reading,
        writing: Writing,
        judging: Judging,
        topic: SchemasTopic,
        others: Alone | Others,
        access: Access,
        group: str,
    ) -> None:
        super().__init__()
        self._reading, self._writing, self._judging = reading, writing, judging
        self._topic, self._others, self._access, self._group = topic, others, access, group
        self._threads = trio.CapacityLimiter(1)
        self._paths: dict[tuple[int, str], list[tuple[tuple[str, ...], dict[str, _Path]]]] = {}
        self._declare()
        self._route = Route(self._handle, 0, self._check)
        self._route_with_body = Route(self._handle, BODY_BYTES_MAX, self._check)

    def _declare(self) -> None:
        add = self._path
        add("GET", "/", self._root, READ)
        add("GET", "/subjects", self._subjects, READ)
        add("POST", "/subjects/{}", self._look_up, READ)
        add("DELETE", "/subjects/{}", self._delete_subject, DELETE, is_write=True)
        add("GET", "/subjects/{}/metadata", self._with_metadata, READ)
        add("GET", "/subjects/{}/versions", self._versions, READ)
        add("POST", "/subjects/{}/versions", self._register, WRITE)
        add("GET", "/subjects/{}/versions/{}", self._version, READ)
        add("DELETE", "/subjects/{}/versions/{}", self._delete_version, DELETE, is_write=True)
        add("GET", "/subjects/{}/versions/{}/schema", self._version_text, READ)
        add("GET", "/subjects/{}/versions/{}/referencedby", self._referrers, READ)
        add("GET", "/schemas", self._schemas, READ)
        add("GET", "/schemas/types", self._types, READ)
        add("GET", "/schemas/ids/{}", self._by_id, READ)
        add("GET", "/schemas/ids/{}/schema", self._text_by_id, READ)
        add("GET", "/schemas/ids/{}/subjects", self._subjects_of_id, READ)
        add("GET", "/schemas/ids/{}/versions", self._versions_of_id, READ)
        add("GET", "/schemas/guids/{}", self._by_guid, READ)
        add("GET", "/schemas/guids/{}/ids", self._ids_of_guid, READ)
        for place in ("", "/{}"):
            add("GET", f"/config{place}", self._config, READ)
            add("PUT", f"/config{place}", self._configure, COMPATIBILITY, is_write=True)
            add("DELETE", f"/config{place}", self._unset_config, COMPATIBILITY, is_write=True)
            add("GET", f"/mode{place}", self._mode, READ)
            add("PUT", f"/mode{place}", self._set_mode, COMPATIBILITY, is_write=True)
            add("DELETE", f"/mode{place}", self._unset_mode, COMPATIBILITY, is_write=True)
        add("POST", "/compatibility/subjects/{}/versions", self._compare_all, READ)
        add("POST", "/compatibility/subjects/{}/versions/{}", self._compare, READ)
        add("GET", "/contexts", self._contexts, READ)
        add("DELETE", "/contexts/{}", self._delete_context, DELETE, is_write=True)
        add("GET", "/v1/metadata/id", self._cluster_ids, READ)
        add("GET", "/v1/metadata/version", self._server_version, READ)

    def _path(self, method: str, path: str, answer: Answer, right: str, *, is_write: bool = False) -> None:
        pattern = tuple(path.strip("/").split("/"))
        table = self._paths.setdefault((len(pattern), pattern[0]), [])
        methods = next((methods for known, methods in table if known == pattern), None)
        if methods is None:
            methods = {}
            table.append((pattern, methods))
        methods[method] = _Path(answer, right, is_write)

    # --- what the server asks for

    def find(self, method: str, path: str) -> Route:
        """Return the route with body for POST, PUT and DELETE, else the one without. `path` does not matter."""
        return self._route_with_body if method in ("POST", "PUT", "DELETE") else self._route

    def refusal(self, refused: Refused) -> Response:
        """Make the response for a request that the HTTP server refuses."""
        return Response(ApiError(refused.status, str(refused)).body, refused.status, TYPES[0], refused.headers)

    def _check(self, request: Request) -> None:
        self._access.check_login(request)

    async def _handle(self, request: Request) -> Response:
        kind = _preferred(request)
        try:
            found = await self._answered(request)
        except ApiError as error:
            return Response(error.body, error.status, kind)
        if isinstance(found, Response):
            return found
        if isinstance(found, NoContent):
            return Response(status=204, content_type=kind)
        if isinstance(found, RawText):
            return Response(found.text.encode("utf-8", "surrogatepass"), content_type=kind)
        if not isinstance(found, list):
            return Response(_dumped(found), content_type=kind)
        pieces = _pieces(found)
        first, second = await anext(pieces), await anext(pieces, None)
        return Response(first if second is None else _joined(first, second, pieces), content_type=kind)

    async def _answered(self, request: Request) -> Any:
        path, parts = self._found(request)
        if not (path.right == READ and _is_of_many(request.raw_path)):
            self._access.check(request, path.right, _subject_in(parts))
        if request.body and request.headers.get("content-type"):
            kind = request.headers["content-type"].partition(";")[0].strip().lower()
            if kind not in _TAKEN:
                raise ApiError(415, "HTTP 415 Unsupported Media Type")
        if not self._topic.loaded.is_set():
            raise ApiError(Code.STORE, f"The Kafka store has not been read yet: {self._topic.problem}")
        if path.is_write and (answer := await self._of_primary(request)) is not None:
            return answer
        return await path.answer(Call(request, parts))

    async def _of_primary(self, request: Request) -> Response | None:
        """Forward a request to the primary and return its answer; None if this is the primary. Raises ApiError."""
        while True:
            await self._others.settled()
            if self._others.is_primary:
                return None
            if (answer := await self._others.forward(request)) is not None:
                return answer

    def _found(self, request: Request) -> tuple[_Path, tuple[str, ...]]:
        """Return the route of a request and the decoded variable parts of its path. Raises ApiError."""
        segments = request.raw_path.strip("/").split("/")
        for pattern, methods in self._paths.get((len(segments), segments[0]), ()):
            if all(part in ("{}", segment) for part, segment in zip(pattern, segments, strict=True)):
                method = "GET" if request.method == "HEAD" else request.method
                if method not in methods:
                    continue
                parts = (unquote(each) for part, each in zip(pattern, segments, strict=True) if part == "{}")
                return methods[method], tuple(parts)
        is_known = any(
            all(part in ("{}", segment) for part, segment in zip(pattern, segments, strict=True))
            for pattern, _ in self._paths.get((len(segments), segments[0]), ())
        )
        raise ApiError(405, "HTTP 405 Method Not Allowed") if is_known else ApiError(404, "HTTP 404 Not Found")

    # --- subjects

    async def _root(self, call: Call) -> Any:
        return {}

    async def _subjects(self, call: Call) -> Any:
        return await self._reading.subjects(call.query, self._access.readable(call.request))

    async def _look_up(self, call: Call) -> Any:
        subject = normalized(call.parts[0])
        found = await self._writing.looked_up(
            subject,
            await self._schema(call),
            normalizes=self._normalizes(call, subject),
            with_deleted=call.flag("deleted"),
        )
        return version_json(found, text=await self._formatted(call, found), has_extras=call.has_extras)

    async def _schema(self, call: Call) -> SchemaRequest:
        return await self._parsed(call, parse_schema)

    async def _parsed(self, call: Call, parse: Callable[[bytes], T]) -> T:
        """Parse the request's body with `parse`. Long bodies are parsed in a thread, to keep the event loop free."""
        body = call.request.body
        if len(body) < BODY_BYTES_AT_ONCE:
            return parse(body)
        return await trio.to_thread.run_sync(parse, body, limiter=self._threads)

    def _normalizes(self, call: Call, subject: str) -> bool:
        return call.flag("normalize") or self._reading.state.config_in_scope(subject).get("normalize") is True

    async def _formatted(self, call: Call, value: SchemaValue) -> str | None:
        return await self._judging.formatted(value, call.query.get("format", ""))

    async def _delete_subject(self, call: Call) -> Any:
        return await self._writing.delete_subject(normalized(call.parts[0]), for_good=call.flag("permanent"))

    async def _with_metadata(self, call: Call) -> Any:
        key = call.query.get("key")
        wanted = {} if key is None else {key: call.query.get("value", "")}
        found = self._reading.with_metadata(normalized(call.parts[0]), wanted, with_deleted=call.flag("deleted"))
        return version_json(found, text=await self._formatted(call, found), has_extras=call.has_extras)

    async def _versions(self, call: Call) -> Any:
        return self._reading.versions(normalized(call.parts[0]), call.query)

    async def _register(self, call: Call) -> Any:
        subject, request = normalized(call.parts[0]), await self._schema(call)
        normalizes = self._normalizes(call, subject)
        found = await self._writing.known(subject, request, normalizes=normalizes)
        if found is None:
            if (answer := await self._of_primary(call.request)) is not None:
                return answer
            found = await self._writing.register(subject, request, normalizes=normalizes, forces=call.flag("force"))
        # Without its text, which clients would keep in place of what they have sent: for Protobuf that may be a descriptor.
        return {"id": found.id, **({"version": found.version, "guid": guid_of(found)} if call.has_extras else {})}

    async def _version(self, call: Call) -> Any:
        found = self._asked_version(call)
        text = await self._formatted(call, found)
        qualifies = call.query.get("referenceFormat") == "qualified"
        return version_json(found, text=text, has_extras=call.has_extras, qualifies=qualifies)

    def _asked_version(self, call: Call, *, with_deleted: bool = False) -> SchemaValue:
        version = parse_version(call.parts[1])
        return self._reading.version(
            normalized(call.parts[0]), version, with_deleted=with_deleted or call.flag("deleted")
        )

    async def _delete_version(self, call: Call) -> Any:
        version = parse_version(call.parts[1])
        return await self._writing.delete_version(normalized(call.parts[0]), version, for_good=call.flag("permanent"))

    async def _version_text(self, call: Call) -> Any:
        found = self._asked_version(call)
        return RawText(await self._formatted(call, found) or found.text)

    async def _referrers(self, call: Call) -> Any:
        return self._reading.referrers(self._asked_version(call, with_deleted=True), call.query)

    # --- schemas

    async def _schemas(self, call: Call) -> Any:
        found = await self._reading.schemas(call.query, self._access.readable(call.request))
        return [version_json(each, has_extras=call.has_extras) for each in found]

    async def _types(self, call: Call) -> Any:
        return formats.TYPES

    def _asked_id(self, call: Call) -> SchemaValue:
        text = call.parts[0]
        if not (text.isascii() and text.isdecimal() and len(text) < 12):
            raise ApiError(404, "HTTP 404 Not Found")
        found = self._reading.by_id(int(text), call.query.get("subject", ""))
        self._check_any(call, found)
        return found

    def _check_any(self, call: Call, value: SchemaValue) -> None:
        """Raise ApiError if the client may read none of the subjects in which the schema is registered."""
        is_readable = self._access.readable(call.request)
        if is_readable is not None:
            places = self._reading.state.places_of(value.id, context_of(value.subject))
            if not any(map(is_readable, places)):
                raise ApiError(Code.FORBIDDEN, f"User is denied operation read on schema {value.id}")

    async def _by_id(self, call: Call) -> Any:
        found = self._asked_id(call)
        text = await self._formatted(call, found)
        qualifies = call.query.get("referenceFormat") == "qualified"
        body = dict(schema_json(found, text=text, has_extras=call.has_extras, qualifies=qualifies))
        if call.flag("fetchMaxId"):
            body["maxId"] = self._reading.state.max_id(context_of(found.subject))
        return body

    async def _text_by_id(self, call: Call) -> Any:
        found = self._asked_id(call)
        return RawText(await self._formatted(call, found) or found.text)

    async def _subjects_of_id(self, call: Call) -> Any:
        places = await self._reading.places(self._asked_id(call), call.query)
        return [subject for subject, _ in places]

    async def _versions_of_id(self, call: Call) -> Any:
        places = await self._reading.places(self._asked_id(call), call.query)
        return [{"subject": subject, "version": version} for subject, version in places]

    async def _by_guid(self, call: Call) -> Any:
        found = self._reading.by_guid(call.parts[0])
        self._check_any(call, found)
        body = schema_json(found, text=await self._formatted(call, found), has_extras=False)
        return {"guid": guid_of(found), **body}

    async def _ids_of_guid(self, call: Call) -> Any:
        return self._reading.ids_of_guid(call.parts[0])

    # --- settings

    def _scope(self, call: Call) -> str | None:
        return scope_of(call.parts[0]) if call.parts else None

    async def _config(self, call: Call) -> Any:
        return self._reading.config(self._scope(call), in_scope=call.flag("defaultToGlobal"))

    async def _configure(self, call: Call) -> Any:
        found = dict(await self._writing.configure(self._scope(call), await self._parsed(call, parse_config)))
        # In requests, and so in their echo, the level has the name that it had first.
        level = found.pop("compatibilityLevel", None)
        return found if level is None else {"compatibility": level, **found}

    async def _unset_config(self, call: Call) -> Any:
        return await self._writing.unset_config(self._scope(call))

    async def _mode(self, call: Call) -> Any:
        return self._reading.mode(self._scope(call), in_scope=call.flag("defaultToGlobal"))

    async def _set_mode(self, call: Call) -> Any:
        mode = await self._parsed(call, parse_mode)
        await self._writing.set_mode(self._scope(call), mode, forces=call.flag("force"))
        return {} if mode is None else {"mode": mode}

    async def _unset_mode(self, call: Call) -> Any:
        before = await self._writing.unset_mode(self._scope(call), recursively=call.flag("recursive"))
        return {} if before is None else {"mode": before}

    # --- compatibility

    async def _compare_all(self, call: Call) -> Any:
        subject = normalized(call.parts[0])
        alive = [each for each in self._reading.state.versions(subject) if not each.is_deleted]
        return await self._compared(call, subject, alive)

    async def _compare(self, call: Call) -> Any:
        subject, version = normalized(call.parts[0]), parse_version(call.parts[1])
        found = self._reading.state.version(subject, version)
        if found is None and version != LATEST:
            raise version_not_found(version)
        return await self._compared(call, subject, [] if found is None else [found])

    async def _compared(self, call: Call, subject: str, earlier: list[SchemaValue]) -> Any:
        request, is_verbose = await self._schema(call), call.flag("verbose")
        try:
            found = await self._problems(subject, request, earlier, normalizes=self._normalizes(call, subject))
        except ApiError as error:
            if error.code != Code.INVALID_SCHEMA or not is_verbose:
                raise
            found = [str(error)]
        return {"is_compatible": not found, **({"messages": found} if is_verbose else {})}

    async def _problems(
        self, subject: str, request: SchemaRequest, earlier: list[SchemaValue], *, normalizes: bool
    ) -> list[str]:
        if not request.text.strip():
            raise invalid_schema("Empty schema")
        judged = await self._judging.judged(subject, request, normalizes=normalizes)
        return await self._writing.problems(subject, judged, earlier)

    # --- contexts, and the registry itself

    async def _contexts(self, call: Call) -> Any:
        prefix = call.query.get("contextPrefix", "")
        return Page(call.query).of([each for each in self._reading.state.contexts() if each.startswith(prefix)])

    async def _delete_context(self, call: Call) -> Any:
        text = call.parts[0]
        await self._writing.delete_context(context_of(text) if text.startswith(":") else text)
        return NoContent()

    async def _cluster_ids(self, call: Call) -> Any:
        clusters = {"kafka-cluster": self._topic.cluster_id, "schema-registry-cluster": self._group}
        return {"id": "", "scope": {"path": [], "clusters": clusters}}

    async def _server_version(self, call: Call) -> Any:
        return {"version": SCHEMA_REGISTRY_VERSION, "commitId": f"ottla-{__version__}"}


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def _pieces(values: Sequence[Any]) -> AsyncGenerator[bytes, None]:
    """Yield a list as JSON in pieces; other tasks may run in between."""
    # A schema may be a megabyte, and a name is a few bytes.
    step = 1 if values and isinstance(values[0], dict) else ELEMENTS_AT_ONCE
    time_slice, piece = TimeSlice(), bytearray(b"[")
    for start in range(0, len(values), step):
        if start:
            piece += b","
        piece += _dumped(values[start : start + step])[1:-1]
        if len(piece) > PIECE_BYTES:
            yield bytes(piece)
            piece = bytearray()
        await time_slice.yield_if_over()
    yield bytes(piece + b"]")


async def _joined(first: bytes, second: bytes, others: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(others):
        yield first
        yield second
        async for each in others:
            yield each


def _preferred(request: Request) -> str:
    """Return the response's content type: the first in TYPES that the client accepts, else the first in TYPES."""
    accepted = request.headers.get("accept", "")
    return next((each for each in TYPES if each in accepted), TYPES[0])


def _is_of_many(path: str) -> bool:
    """Tell whether a path names a list or schema id instead of a subject. Its handler checks the access itself."""
    return path.rstrip("/") in ("", "/subjects", "/contexts") or path.startswith(("/schemas", "/v1/"))


def _subject_in(parts: tuple[str, ...]) -> str | None:
    """Return the subject or context in the path parts `parts`; None if there are no parts."""
    if not parts:
        return None
    # A context may be named without its colons.
    return Subject(parts[0], "").qualified if parts[0].startswith(".") else normalized(parts[0])
