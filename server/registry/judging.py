"""Schemas of requests, judged in threads: parsed, written canonically, and compared with earlier versions.

A thread works for at most TIME_S; a text that takes longer is refused. What a text came to is kept, because clients send the same ones
again and again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from ottla.server.registry import metadata
from ottla.server.registry.errors import ApiError, Code, invalid_schema
from ottla.server.registry.metadata import Json
from ottla.server.registry.records import Reference, SchemaValue, digest_of
from ottla.server.registry.request_bodies import SchemaRequest
from ottla.server.registry.schemas import compatibility, formats
from ottla.server.registry.schemas.format import InvalidText, ParsedSchema
from ottla.server.registry.state import RegistryState
from ottla.server.registry.subjects import resolved

TIME_S = 20.0
THREADS, WAITING_MAX = 2, 200
KEPT_MAX, KEPT_BYTES_MAX = 1000, 4 << 20
NESTED_REFERENCES_MAX = 1000

T = TypeVar("T")
Texts = Mapping[str, str]
_Key = tuple[str, str, tuple[Reference, ...], bool]
"""Type and text of a schema in a request, its references, and whether it is normalized."""


class Judged(NamedTuple):
    """Schema of a request in canonical form. `texts`: texts of referenced schemas by name, dependencies first."""

    text: str
    type: str
    references: tuple[Reference, ...]
    metadata: Json | None
    rule_set: Json | None
    digest: bytes
    texts: Texts


class Judging:
    """Checker that parses and compares the schemas of requests, in threads."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._threads = trio.CapacityLimiter(THREADS)
        self._kept: OrderedDict[_Key, str] = OrderedDict()
        self._kept_bytes = 0

    async def judged(self, subject: str, request: SchemaRequest, *, normalizes: bool, is_new: bool = False) -> Judged:
        """Parse the schema in a request. `is_new`: refuse references to deleted versions. Raises ApiError."""
        references, texts = self._resolved(subject, request, with_deleted=not is_new)
        kind, text = request.type, request.text
        key = (kind, text, references, normalizes)
        canonical = self._kept.get(key)
        if canonical is None:
            canonical = await self._in_thread(partial(_canonical, kind, text, texts, normalizes))
            self._keep(key, canonical)
        digest = digest_of(canonical, references, request.metadata, request.rule_set)
        return Judged(canonical, kind, references, request.metadata, request.rule_set, digest, texts)

    async def formatted(self, value: SchemaValue, name: str) -> str | None:
        """Return a registered schema's text in the format `name`; None if `name` is empty."""
        if not name.strip():
            return None
        texts = self._texts_of(value)
        return await self._in_thread(lambda: formats.parse(value.type, value.text, texts).formatted(name))

    async def problems(
        self, judged: Judged, level: str, earlier: Sequence[SchemaValue], *, is_lenient: bool = False
    ) -> list[str]:
        """Return the incompatibilities of a new schema with `earlier` versions (sorted, latest last); empty if none."""
        until_s = time.monotonic() + TIME_S
        prepared = [
            compatibility.Earlier(each.version, each.type, each.text, partial(self._parsed, each, until_s))
            for each in earlier
        ]

        def compare() -> list[str]:
            new = formats.parse(judged.type, judged.text, judged.texts)
            return compatibility.problems(level, new, judged.type, prepared, is_lenient=is_lenient)

        return await self._in_thread(compare)

    async def alike(self, judged: Judged, versions: Sequence[SchemaValue]) -> SchemaValue | None:
        """Return the first of `versions` with an equal schema; None if there is none.

        The texts may differ, and the new text may contain the referenced schemas instead of references.
        """
        wanted = [
            each
            for each in versions
            if each.type == judged.type
            and each.rule_set == judged.rule_set
            and metadata.alike(judged.metadata, each.metadata, each.version)
            and (each.references == judged.references or not judged.references)
        ]
        if not wanted:
            return None
        until_s = time.monotonic() + TIME_S

        def search() -> SchemaValue | None:
            new = formats.parse(judged.type, judged.text, judged.texts)
            return next((each for each in wanted if new.is_like(self._parsed(each, until_s))), None)

        return await self._in_thread(search)

    # --- parts

    def _parsed(self, value: SchemaValue, until_s: float) -> ParsedSchema:
        if time.monotonic() > until_s:
            raise ApiError(Code.TIMEOUT, f"The schemas take longer than {TIME_S:g} s")
        return formats.parse(value.type, value.text, self._texts_of(value))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._threads.statistics().tasks_waiting >= WAITING_MAX:
            raise ApiError(503, "Too many schemas are being parsed")
        try:
            with trio.fail_after(TIME_S):
                return await trio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)
        except trio.TooSlowError:
            raise ApiError(Code.TIMEOUT, f"The schema takes longer than {TIME_S:g} s") from None
        except InvalidText as error:
            raise invalid_schema(str(error)) from None
        except RecursionError:
            raise invalid_schema("The schema is nested too deeply") from None

    def _keep(self, key: _Key, canonical: str) -> None:
        size = _size(key, canonical)
        # Requests that come at once with one text parse it each, and all but the first find it here.
        if key in self._kept or size > KEPT_BYTES_MAX // 8:
            return
        self._kept[key] = canonical
        self._kept_bytes += size
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept_bytes -= _size(*self._kept.popitem(last=False))

    # --- references

    def _texts_of(self, value: SchemaValue) -> Texts:
        texts: dict[str, str] = {}
        try:
            self._collect(value.subject, value.references, texts, set(), with_deleted=True)
        except ApiError:
            return texts  # what is missing now was there when it was registered; the format says what it lacks
        return texts

    def _resolved(
        self, subject: str, request: SchemaRequest, *, with_deleted: bool
    ) -> tuple[tuple[Reference, ...], Texts]:
        texts: dict[str, str] = {}
        references = self._collect(subject, request.references, texts, set(), with_deleted=with_deleted)
        return references, texts

    def _collect(
        self, parent: str, references: Sequence[Reference], texts: dict[str, str], seen: set[str], *, with_deleted: bool
    ) -> tuple[Reference, ...]:
        """Add the texts of referenced schemas to `texts`, dependencies first; return references with resolved versions."""
        found = []
        for each in references:
            place = resolved(each.subject, parent)
            value = self._state.version(place, each.version, with_deleted=with_deleted)
            if value is None:
                text = f'No schema reference found for subject "{place}" and version {each.version}'
                raise invalid_schema(f"Invalid schema, details: {text}")
            found.append(each._replace(version=value.version))
            if each.name in seen:
                continue
            seen.add(each.name)
            if len(seen) > NESTED_REFERENCES_MAX:
                raise invalid_schema(f"The schema refers to more than {NESTED_REFERENCES_MAX} others")
            self._collect(value.subject, value.references, texts, seen, with_deleted=True)
            texts[each.name] = value.text
        return tuple(found)


def _size(key: _Key, canonical: str) -> int:
    """Return the number of characters that a cache entry holds: original text, canonical text and references."""
    _, text, references, _ = key
    return len(text) + len(canonical) + sum(len(each.name) + len(each.subject) for each in references)


def _canonical(kind: str, text: str, texts: Texts, normalizes: bool) -> str:
    try:
        parsed = formats.parse(kind, text, texts)
        return parsed.normalized() if normalizes else parsed.canonical
    except InvalidText as error:
        if kind not in formats.TYPES:
            raise
        raise InvalidText(f"Invalid schema of type {kind}, details: {error}") from None
