"""Asks a schema registry for schemas by their ids, and keeps what it has said.

Whoever may write a record can name any id. So a page asks for FETCHES_MAX ids at most, all pages ask one after the other, for
WAIT_S each, and what failed is not asked again for RETRY_S. A schema never changes, so it is kept until others need its place.
The credentials go into a header, and nowhere else.
"""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import trio

from ottla.server.auth.oauth.fetching import FailedRead, Limits, fetch
from ottla.server.console.avro.nodes import AvroProblem
from ottla.server.console.avro.schemas import Schema, parse_schema
from ottla.wire.foreign_json import parse_json

if TYPE_CHECKING:
    import ssl

FETCHES_MAX = 8
WAIT_S, FETCH_S, RETRY_S = 3.0, 2.0, 30.0
SCHEMA_BYTES_MAX, KEPT_BYTES_MAX, FAILURES_KEPT = 256 * 1024, 2 * 1024 * 1024, 1_000
LIMITS: Final = Limits(connect_s=FETCH_S, read_s=FETCH_S, all_s=FETCH_S, bytes_max=SCHEMA_BYTES_MAX)
AVRO, JSON_SCHEMA = "AVRO", "JSON"

_threads = trio.CapacityLimiter(1)


class Known(NamedTuple):
    """What an id stands for: a schema of Avro, None for one of JSON, or why it is not known."""

    schema: Schema | None
    problem: str = ""


class Registry:
    """See the module's docstring. `url`: http or https, with a path or without."""

    def __init__(self, url: str, user_info: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = () if user_info is None else (("Authorization", _basic(user_info)),)
        self._turn = trio.Lock()
        self._context: ssl.SSLContext | None = None
        self._kept: OrderedDict[int, tuple[Known, int]] = OrderedDict()
        self._kept_bytes = 0
        self._failures: OrderedDict[int, tuple[str, float]] = OrderedDict()
        self._down: tuple[str, float] = "", 0.0

    async def schemas(self, ids: Iterable[int]) -> dict[int, Known]:
        """What is known of each; returns after WAIT_S and the time that others wait before."""
        wanted = list(dict.fromkeys(ids))
        found = {each: known for each in wanted if (known := self._known(each)) is not None}
        missing = [each for each in wanted if each not in found]
        if missing:
            async with self._turn:
                with trio.move_on_after(WAIT_S):
                    for each in missing[:FETCHES_MAX]:
                        # Another page may have asked for it meanwhile.
                        found[each] = self._known(each) or await self._asked(each)
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

    async def _asked(self, schema_id: int) -> Known:
        until = trio.current_time() + RETRY_S
        try:
            body = await self._answer(f"{self._url}/schemas/ids/{schema_id}?format=resolved")
            known = await trio.to_thread.run_sync(_read, body, limiter=_threads)
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

    async def _answer(self, url: str) -> bytes:
        if urlsplit(url).scheme == "https" and self._context is None:
            self._context = await trio.to_thread.run_sync(_default_context, limiter=_threads)
        return await fetch(url, self._context, self._headers, LIMITS)

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


def _basic(user_info: str) -> str:
    return "Basic " + b64encode(user_info.encode()).decode()


def _default_context() -> ssl.SSLContext:
    # Only who names a registry with https pays for OpenSSL, and for reading all authorities.
    from ssl import create_default_context

    return create_default_context()


def _read(body: bytes) -> Known:
    """The answer of a registry. Raises AvroProblem."""
    try:
        told: Any = parse_json(body)
    except ValueError:
        raise AvroProblem("the registry's answer is no JSON") from None
    text = told.get("schema") if isinstance(told, dict) else None
    if not isinstance(text, str):
        raise AvroProblem("the registry's answer has no schema")
    kind = told.get("schemaType", AVRO)
    if kind == JSON_SCHEMA:
        return Known(None)
    if kind != AVRO:
        raise AvroProblem(f"it is of the kind {str(kind)[:50]!r}, which is not decoded")
    return Known(parse_schema(text))
