"""Client of a schema registry; and the keys and values of a page that are framed with the id of a schema.

Any client that may write a record can name any id. So a page asks for at most FETCHES_MAX ids, pages ask one after the other and for
WAIT_S each, and a failed request is not repeated for RETRY_S. A schema never changes, so it is kept until others need its place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import trio

from ottla.server.admin.console.avro.schemas import TEXT_MAX, AvroProblem, Data, parse_schema
from ottla.server.admin.console.cells import Buffer, cell
from ottla.server.admin.http.routes import Refused
from ottla.server.security.oauth.fetching import FailedRead, HttpClient, Limits
from ottla.wire.foreign_json import parse_json
from ottla.wire.time_slice import paced

FETCHES_MAX = 8
WAIT_S, FETCH_S, RETRY_S = 3.0, 2.0, 30.0
SCHEMA_BYTES_MAX, KEPT_BYTES_MAX, FAILURES_KEPT = 256 * 1024, 2 * 1024 * 1024, 1_000
LIMITS: Final = Limits(connect_s=FETCH_S, read_s=FETCH_S, all_s=FETCH_S, bytes_max=SCHEMA_BYTES_MAX)
ASKED_AT_ONCE = 4
ASKED_LIMITS: Final = Limits(connect_s=FETCH_S, read_s=25.0, all_s=25.0, bytes_max=4 * 1024 * 1024)
"""Limits of what people ask. A registry may take 20 s to compare a schema."""
_KIND = "application/vnd.schemaregistry.v1+json"
AVRO, JSON_SCHEMA, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
REFERENCES_MAX, TITLE_MAX = 20, 200

_threads = trio.CapacityLimiter(1)


class Decoder(Protocol):
    """Schema that converts the bytes behind a schema id to JSON text."""

    @property
    def name(self) -> str: ...

    def decode(self, data: Data) -> str:
        """Convert a value. Raises AvroProblem."""


class Known(NamedTuple):
    """Result of a schema lookup: the decoder, or the problem. `schema` is None for a problem or a JSON schema."""

    schema: Decoder | None
    problem: str = ""
    title: str = "JSON"
    """Title of a JSON schema."""


class _Protobuf(NamedTuple):
    """Protobuf schema whose descriptor is still to be fetched, with name, subject and version of each import."""

    references: list[tuple[str, str, int]]


class Registry:
    """Client of a schema registry with a cache of schemas. `url`: http or https URL, with or without a path."""

    def __init__(self, url: str, user_info: str | None) -> None:
        self._url = url.rstrip("/")
        self._client = HttpClient(user_info)
        self._turn = trio.Lock()
        self._asked = trio.Semaphore(ASKED_AT_ONCE)
        self._kept: OrderedDict[int, tuple[Known, int]] = OrderedDict()
        self._kept_bytes = 0
        self._failures: OrderedDict[int, tuple[str, float]] = OrderedDict()
        self._down: tuple[str, float] = "", 0.0

    async def schemas(self, ids: Iterable[int]) -> dict[int, Known]:
        """Return lookup results by schema id, cached or requested. Waits for earlier calls, then at most WAIT_S seconds."""
        wanted = list(dict.fromkeys(ids))
        found = {each: known for each in wanted if (known := self._known(each)) is not None}
        missing = [each for each in wanted if each not in found]
        if missing:
            async with self._turn:
                with trio.move_on_after(WAIT_S):
                    for each in missing[:FETCHES_MAX]:
                        # Another page may have asked for it meanwhile.
                        found[each] = self._known(each) or await self._fetched(each)
        for each in missing:
            found.setdefault(each, Known(None, "the registry has not answered yet"))
        return found

    def _known(self, schema_id: int) -> Known | None:
        if schema_id in self._kept:
            self._kept.move_to_end(schema_id)
            return self._kept[schema_id][0]
        for problem, until in (self._down, self._failures.get(schema_id, ("", 0.0))):
            if trio.current_time() < until:
                return Known(None, problem)
        return None

    async def _fetched(self, schema_id: int) -> Known:
        until = trio.current_time() + RETRY_S
        try:
            body = await self._client.fetch(f"{self._url}/schemas/ids/{schema_id}?format=resolved", LIMITS)
            known = await trio.to_thread.run_sync(_read, body, limiter=_threads)
            if isinstance(known, _Protobuf):
                known = await self._protobuf(schema_id, known)
        except FailedRead as failure:
            if failure.status is None:
                # It is the same for all schemas.
                self._down = f"the registry cannot be asked: {failure}", until
                return Known(None, self._down[0])
            return self._failed(schema_id, f"the registry does not tell it: {failure}", until)
        except AvroProblem as problem:
            return self._failed(schema_id, f"the schema cannot be used, because {problem}", until)
        self._keep(schema_id, known, len(body))
        return known

    async def _protobuf(self, schema_id: int, told: _Protobuf) -> Known:
        """Fetch descriptors of a Protobuf schema and of its imports. Raises FailedRead, AvroProblem."""
        encoded = await self._client.fetch(f"{self._url}/schemas/ids/{schema_id}?format=serialized", LIMITS)
        imports: dict[str, bytes] = {}
        waiting = [*told.references]
        while waiting:
            name, subject, version = waiting.pop()
            if name in imports:
                continue
            if len(imports) >= REFERENCES_MAX:
                raise AvroProblem(f"it refers to more than {REFERENCES_MAX} others")
            path = f"{self._url}/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true&format=serialized"
            imports[name] = await self._client.fetch(path, LIMITS)
            waiting += _references(await trio.to_thread.run_sync(_object, imports[name], limiter=_threads))
        return await trio.to_thread.run_sync(_protobuf_schema, encoded, imports, limiter=_threads)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Send a request to the registry's API; return the status and the parsed answer. Raises Refused."""
        url, kind = self._url + path, (("Content-Type", _KIND),) if body else ()
        async with self._asked:
            try:
                answer = await self._client.exchange(method, url, ASKED_LIMITS, body, kind)
            except FailedRead as failure:
                raise Refused(502, f"The registry cannot be asked: {failure}.") from None
            try:
                return answer.status, await trio.to_thread.run_sync(parse_json, answer.body, limiter=_threads)
            except ValueError:
                raise Refused(502, f"The registry answers with status {answer.status} and no JSON.") from None

    def _failed(self, schema_id: int, problem: str, until: float) -> Known:
        self._failures[schema_id] = problem, until
        self._failures.move_to_end(schema_id)
        while len(self._failures) > FAILURES_KEPT:
            self._failures.popitem(last=False)
        return Known(None, problem)

    def _keep(self, schema_id: int, known: Known, size: int) -> None:
        self._kept[schema_id] = known, size
        self._kept_bytes += size
        while self._kept_bytes > KEPT_BYTES_MAX:
            self._kept_bytes -= self._kept.popitem(last=False)[1][1]


def _object(body: bytes) -> dict[str, Any]:
    """Parse an answer of the registry, which must be a JSON object with a schema. Raises AvroProblem."""
    try:
        answer: Any = parse_json(body)
    except ValueError:
        raise AvroProblem("the registry's answer is no JSON") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise AvroProblem("the registry's answer has no schema")
    return answer


def _read(body: bytes) -> Known | _Protobuf:
    """Parse the registry's answer to a schema lookup. Raises AvroProblem."""
    answer = _object(body)
    kind = answer.get("schemaType", AVRO)
    if kind == JSON_SCHEMA:
        return Known(None, title=_title(answer["schema"]))
    if kind == PROTOBUF:
        return _Protobuf(_references(answer))
    if kind != AVRO:
        raise AvroProblem(f"it is of the kind {str(kind)[:50]!r}, which is not decoded")
    return Known(parse_schema(answer["schema"]))


def _title(text: str) -> str:
    try:
        schema: Any = parse_json(text)
    except ValueError:
        return "JSON"
    title = schema.get("title") if isinstance(schema, dict) else None
    return title[:TITLE_MAX] if isinstance(title, str) and title else "JSON"


def _references(answer: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    try:
        return [
            (str(each["name"]), str(each["subject"]), int(each["version"])) for each in answer.get("references") or ()
        ]
    except (TypeError, KeyError, ValueError):
        raise AvroProblem("the registry's answer has references that cannot be read") from None


def _protobuf_schema(encoded: bytes, imports: Mapping[str, bytes]) -> Known:
    try:
        from ottla.server.admin.console.protobuf_values import ProtobufSchema
    except ImportError:
        raise AvroProblem("it is of Protobuf, whose library is missing: pip install protobuf") from None
    texts = {name: str(_object(body)["schema"]) for name, body in imports.items()}
    return Known(ProtobufSchema(_object(encoded)["schema"], texts))


MAGIC, FRAME_BYTES = 0, 5
VALUE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_TEXT_MAX = 64 * 1024, 1024 * 1024, 1024 * 1024

_decoding_threads = trio.CapacityLimiter(1)


class Framed:
    """Collection of a page's values that begin with a schema id, with their JSON cells. It is filled in a thread."""

    def __init__(self, cut: int) -> None:
        self._cut = cut
        self._found: list[tuple[dict[str, Any], int, bytes]] = []
        self._bytes = 0

    def note(self, shown: dict[str, Any] | None, value: Buffer | None) -> None:
        """Store `value` with its JSON cell `shown` if it begins with a schema id; if it is too long, only mark the cell."""
        if shown is None or value is None or len(value) < FRAME_BYTES or value[0] != MAGIC:
            return
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big", signed=True)
        if schema_id < 0:
            return
        if len(value) > VALUE_BYTES_MAX or self._bytes + len(value) > PAGE_BYTES_MAX:
            shown["hint"] = f"It may be of schema {schema_id}, but is too long to be decoded here."
            return
        self._bytes += len(value)
        self._found.append((shown, schema_id, bytes(value[FRAME_BYTES:])))

    async def decode(self, registry: Registry) -> None:
        """Request the schemas of all stored values, and write the decoded values into their cells."""
        if self._found:
            known = await registry.schemas(schema_id for _, schema_id, _ in self._found)
            await trio.to_thread.run_sync(self._take, known, limiter=_decoding_threads)

    def _take(self, known: Mapping[int, Known]) -> None:
        give_way, left = paced(), PAGE_TEXT_MAX
        for shown, schema_id, data in self._found:
            give_way()
            # What cannot be read has taken as much as what can.
            left -= self._show(shown, schema_id, Data(data, give_way, min(left, TEXT_MAX)), known[schema_id])

    def _show(self, shown: dict[str, Any], schema_id: int, data: Data, known: Known) -> int:
        """Write the decoded value, or the problem, into the cell `shown`; return the number of characters made."""
        if known.problem:
            shown["hint"] = f"It may be of schema {schema_id}: {known.problem}."
            return 0
        if known.schema is None:
            shown |= cell(data.rest, self._cut) or {}
            shown["schema"] = {"id": schema_id, "name": known.title}
            return len(shown["text"])
        try:
            text = known.schema.decode(data)
        except AvroProblem as problem:
            shown["hint"] = f"It may be of schema {schema_id}, but cannot be decoded, because {problem}."
            return data.spent
        shown |= {"form": "json", "text": text[: self._cut], "isCut": len(text) > self._cut}
        shown["schema"] = {"id": schema_id, "name": known.schema.name[:200]}
        return data.spent
