"""Client of a schema registry with Confluent's API.

What an id stands for never changes, so it is kept until others need its place; the latest version of a subject is kept for LATEST_S.
Of several equal questions one is asked. A registry that cannot be reached is left alone for BREAK_S. The credentials go into a header,
and nowhere else.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlsplit

import trio

from ottla.replication.keyed_lock import KeyedLock
from ottla.server.cli.client.output import UsageError
from ottla.server.cli.client.security import security_of
from ottla.server.rest.schemas.codec import KINDS, REGISTRY_NAMES, Codec, make
from ottla.server.security.oauth.fetching import Answer, FailedRead, HttpClient, Limits
from ottla.wire.foreign_json import parse_json

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

LIMITS: Final = Limits(connect_s=5.0, read_s=10.0, all_s=20.0, bytes_max=4 << 20)
ASKING_MAX, PARSING_MAX, PARSING_WAITING_MAX = 16, 2, 200
PARSING_S = 20.0
BREAK_S, LATEST_S = 1.0, 1.0
KEPT_MAX, KEPT_BYTES_MAX = 1_000, 4 << 20
"""Schemas and answers that are kept, and the bytes of their texts."""

REFERENCES_MAX = 100
LATEST = "latest"
_PREFIX = "schema.registry."
_CONTENT_TYPE = ("Content-Type", "application/vnd.schemaregistry.v1+json")
Json = Any


class RegistryFailure(Exception):
    """Failure of a request to the registry. `code`: the registry's error code, None without a response."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message if code is None else f"{message}; error code: {code}")
        self.code = code


class Schema(NamedTuple):
    """Schema in the registry, with its codec. `references`: name, subject and version of each referenced schema."""

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...]
    codec: Codec

    @property
    def body(self) -> dict[str, Json]:
        """Body of a request that contains this schema."""
        return body_of(self.kind, self.text, self.references)


class Place(NamedTuple):
    """Id and version of a schema in a subject."""

    id: int
    version: int


class Found(NamedTuple):
    """Version of a subject: the schema's id, the version's number, and the schema."""

    place: Place
    schema: Schema


@dataclass(frozen=True, kw_only=True)
class RegistryConfig:
    """Login and addresses of registries. All of them have the same schemas. `user_info`: NAME:PASSWORD."""

    urls: Sequence[str]
    user_info: str | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = None
    """Context for https; None: the system's authorities."""


def registry_config(url: str | None, texts: Mapping[str, str], option: str) -> RegistryConfig | None:
    """Read the settings of a registry; None if no address is given. Raises UsageError.

    `url`: value of the command-line option named `option`, addresses with commas between. `texts`: client settings; only
    those that begin with schema.registry. are read.
    """
    own = {name.removeprefix(_PREFIX): text for name, text in texts.items() if name.startswith(_PREFIX)}
    urls = [each.strip() for each in (url or own.get("url", "")).split(",") if each.strip()]
    if not urls:
        return None
    for each in urls:
        if not _is_address(each):
            raise UsageError(f"{option} {each}: must be http://HOST:PORT or https://HOST:PORT, without a login in it")
    tls = {name: text for name, text in own.items() if name.startswith("ssl.")}
    context = security_of({"security.protocol": "SSL", **tls}).encryption if tls else None
    return RegistryConfig(urls=urls, user_info=own.get("basic.auth.user.info"), context=context)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https")
        return is_http and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # its port is no number, or its host no address
        return False


def body_of(kind: str, text: str, references: Sequence[tuple[str, str, int]] = ()) -> dict[str, Json]:
    """Make the body of a request that contains a schema."""
    body: dict[str, Json] = {"schema": text}
    if REGISTRY_NAMES[kind] != "AVRO":
        body["schemaType"] = REGISTRY_NAMES[kind]
    if references:
        body["references"] = [
            {"name": name, "subject": subject, "version": version} for name, subject, version in references
        ]
    return body


class RegistryClient:
    """Client of a registry with one or more addresses. Methods raise RegistryFailure, InvalidText for a bad schema."""

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._client = HttpClient(config.user_info, config.context)
        self._asking, self._parsing = trio.CapacityLimiter(ASKING_MAX), trio.CapacityLimiter(PARSING_MAX)
        self._questions = KeyedLock()
        self._kept: OrderedDict[str, tuple[object, int, float]] = OrderedDict()
        """Answers with their sizes, and the times until which they hold."""
        self._kept_bytes = 0
        self._down: tuple[str, float] = "", -1.0

    async def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this id."""

        async def ask() -> tuple[Schema, int]:
            schema = await self._schema(await self._get(f"/schemas/ids/{schema_id}"))
            return schema, len(schema.text)

        return await self._once(f"id {schema_id}", ask)

    async def by_version(self, subject: str, version: int | None) -> Found:
        """Return a version of a subject; None: the latest version."""

        async def ask() -> tuple[Found, int]:
            told = await self._get(f"{_path(subject)}/versions/{LATEST if version is None else version}")
            schema = await self._schema(told)
            return Found(_place(told), schema), len(schema.text)

        return await self._once(f"version {version} {subject}", ask, LATEST_S if version is None else None)

    async def place_of(self, subject: str, schema: Schema) -> Place:
        """Return id and version of a registered schema in a subject."""

        async def ask() -> tuple[Place, int]:
            return _place(await self._post(_path(subject), schema.body)), len(schema.text)

        return await self._once(f"place {subject} {schema.kind} {_key(schema)}", ask)

    async def registered(self, subject: str, schema: Schema) -> Place:
        """Return id and version of a schema in a subject; register the schema if necessary."""

        async def ask() -> tuple[Place, int]:
            try:
                told = await self._post(_path(subject), schema.body)
            except RegistryFailure as error:
                if error.code is None:
                    raise
                await self._post(f"{_path(subject)}/versions", schema.body)
                told = await self._post(_path(subject), schema.body)
            return _place(told), len(schema.text)

        return await self._once(f"place {subject} {schema.kind} {_key(schema)}", ask)

    async def parsed(self, kind: str, text: str) -> Schema:
        """Parse the text of a schema without references."""

        async def ask() -> tuple[Schema, int]:
            return Schema(kind, text, (), await self._made(kind, text, {})), 2 * len(text)

        return await self._once(f"text {kind} {text}", ask)

    # --- schemas

    async def _schema(self, told: Json) -> Schema:
        text, kind = told.get("schema"), KINDS.get(told.get("schemaType") or "AVRO")
        if not isinstance(text, str) or kind is None:
            raise RegistryFailure(
                f"The registry tells a schema of an unknown type {str(told.get('schemaType'))[:50]!r}"
            )
        references = _references(told)
        texts: dict[str, str] = {}
        await self._collect(references, texts, set())
        return Schema(kind, text, references, await self._made(kind, text, texts))

    async def _collect(self, references: Sequence[tuple[str, str, int]], texts: dict[str, str], seen: set[str]) -> None:
        """Fetch the texts of referenced schemas into `texts`, dependencies first."""
        for name, subject, version in references:
            if name in seen:
                continue
            seen.add(name)
            if len(seen) > REFERENCES_MAX:
                raise RegistryFailure(f"The schema refers to more than {REFERENCES_MAX} others")
            told = await self._get(f"{_path(subject)}/versions/{version}?deleted=true")
            await self._collect(_references(told), texts, seen)
            texts[name] = str(told.get("schema"))

    async def _made(self, kind: str, text: str, texts: Mapping[str, str]) -> Codec:
        if self._parsing.statistics().tasks_waiting >= PARSING_WAITING_MAX:
            raise RegistryFailure("Too many schemas are being parsed")
        try:
            with trio.fail_after(PARSING_S):
                return await trio.to_thread.run_sync(
                    make, kind, text, texts, limiter=self._parsing, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            raise RegistryFailure(f"The schema takes longer than {PARSING_S:g} s") from None

    # --- answers that are kept

    async def _once(self, key: str, ask: Callable[[], Awaitable[tuple[T, int]]], seconds: float | None = None) -> T:
        """Return the cached answer for `key`, or call `ask` and cache its answer for `seconds` (None: forever).

        `ask` returns an answer and its size in bytes.
        """
        if (found := self._recalled(key)) is not None:
            return cast(T, found)
        async with self._questions.hold([key]):
            if (found := self._recalled(key)) is not None:
                return cast(T, found)
            told, size = await ask()
            self._keep(key, told, size + 2 * len(key), math.inf if seconds is None else seconds)
            return told

    def _recalled(self, key: str) -> object | None:
        kept = self._kept.get(key)
        if kept is None or kept[2] < trio.current_time():
            return None
        self._kept.move_to_end(key)
        return kept[0]

    def _keep(self, key: str, told: object, size: int, seconds: float) -> None:
        if key in self._kept:
            self._kept_bytes -= self._kept.pop(key)[1]
        self._kept[key] = told, size, trio.current_time() + seconds
        self._kept_bytes += size
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept_bytes -= self._kept.popitem(last=False)[1][1]

    # --- HTTP

    async def _get(self, path: str) -> Json:
        return await self._asked("GET", path, b"")

    async def _post(self, path: str, body: Json) -> Json:
        return await self._asked("POST", path, json.dumps(body).encode())

    async def _asked(self, method: str, path: str, body: bytes) -> Json:
        problem, until_s = self._down
        if trio.current_time() < until_s:
            raise RegistryFailure(problem)
        kind = (_CONTENT_TYPE,) if body else ()
        async with self._asking:
            for url in self._config.urls:
                try:
                    answer = await self._client.exchange(method, url.rstrip("/") + path, LIMITS, body, kind)
                    break
                except FailedRead as failure:
                    problem = f"The schema registry cannot be asked: {failure}"
            else:
                self._down = problem, trio.current_time() + BREAK_S
                raise RegistryFailure(problem)
            return await trio.to_thread.run_sync(_content, answer, limiter=self._parsing)


def _content(answer: Answer) -> Json:
    """Return the JSON in a response of the registry. Raises RegistryFailure."""
    try:
        content = parse_json(answer.body)
    except ValueError:
        content = None
    if answer.status == 200 and isinstance(content, dict):
        return content
    told = content if isinstance(content, dict) else {}
    code, message = told.get("error_code"), told.get("message")
    raise RegistryFailure(
        str(message)[:500] if message else f"The schema registry answers with status {answer.status}",
        code if isinstance(code, int) else answer.status,
    )


def _place(told: Json) -> Place:
    schema_id, version = told.get("id"), told.get("version")
    if not isinstance(schema_id, int) or not isinstance(version, int):
        raise RegistryFailure("The registry tells neither id nor version")
    return Place(schema_id, version)


def _references(told: Json) -> tuple[tuple[str, str, int], ...]:
    found = told.get("references") or []
    try:
        return tuple((str(each["name"]), str(each["subject"]), int(each["version"])) for each in found)
    except (TypeError, KeyError, ValueError):
        raise RegistryFailure("The registry tells references that cannot be read") from None


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _key(schema: Schema) -> str:
    return f"{schema.references} {schema.text}" if schema.references else schema.text
