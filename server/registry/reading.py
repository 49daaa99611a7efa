"""Answers from memory: schemas by id, by guid and by version, lists, settings and modes.

Whatever is returned is JSON, in the order of Confluent's documentation. Clients that say that they skip what they do not know also get
guid, time and deletion; older ones would fail over them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

from ottla.server.registry.errors import (
    ApiError,
    Code,
    invalid_version,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from ottla.server.registry.metadata import Json
from ottla.server.registry.records import AVRO, SchemaValue
from ottla.server.registry.state import RegistryState
from ottla.server.registry.subjects import ALL_CONTEXTS, DEFAULT_CONTEXT, Subject, normalized, resolved
from ottla.wire.time_slice import TimeSlice

LATEST = -1
VERSION_MAX = (1 << 31) - 1
SCHEMAS_MAX = 1000
"""Schemas in one list (schema.search.max.limit)."""

IsReadable = Callable[[str], bool]
"""Whether a subject may be read."""


def parse_version(text: str) -> int:
    """Parse the version number in a path; -1 stands for the latest version. Raises ApiError."""
    stripped = text.strip()
    if stripped.lower() == "latest" or stripped == "-1":
        return LATEST
    if not (stripped.isascii() and stripped.isdecimal() and len(stripped) < 12 and 0 < int(stripped) <= VERSION_MAX):
        raise invalid_version(text)
    return int(stripped)


class Page:
    """Part of a list that a request asks for.

    `offset`: number of items to skip. `limit`: most items to return; None: all. `limit_max` applies if the request has
    no limit or a larger one.
    """

    def __init__(self, query: Mapping[str, str], limit_max: int | None = None) -> None:
        self.offset = max(0, _number(query, "offset", 0))
        limit = _number(query, "limit", -1)
        self.limit = limit if 0 < limit <= (limit_max or limit) else limit_max

    def of(self, items: list[Any]) -> list[Any]:
        """Return the items of this page out of a complete list."""
        return items[self.offset :][: self.limit]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    try:
        return int(text[:20])
    except ValueError:
        raise ApiError(404, "HTTP 404 Not Found") from None  # as JAX-RS has it for a parameter that is no number


def is_true(query: Mapping[str, str], name: str) -> bool:
    """Parse a boolean query parameter like Java: True only for "true", in any case."""
    return query.get(name, "").lower() == "true"


class Reading:
    """Queries of the registry's state."""

    def __init__(self, state: RegistryState) -> None:
        self.state = state

    # --- schemas

    def by_id(self, schema_id: int, subject: str) -> SchemaValue:
        """Find a schema by id in `subject`, else in a namesake elsewhere, else in `subject`'s context. Raises ApiError."""
        place = Subject.parse(subject)
        found = self.state.by_id(schema_id, place.context, place.qualified if place.name else "")
        if found is None and place.name and place.context == DEFAULT_CONTEXT:
            others = (
                self.state.by_id(schema_id, each, Subject(each, place.name).qualified)
                for each in self.state.contexts()[1:]
            )
            found = next(filter(None, others), None) or self.state.by_id(schema_id, DEFAULT_CONTEXT)
        elif found is None and place.name:
            found = self.state.by_id(schema_id, place.context)
        if found is None:
            raise schema_not_found(schema_id)
        return found

    def by_guid(self, text: str) -> SchemaValue:
        """Find a schema by its guid in any context. Raises ApiError."""
        for context, schema_id in self._ids_of(text):
            if (found := self.state.by_id(schema_id, context)) is not None:
                return found
        raise schema_not_found(text)

    def ids_of_guid(self, text: str) -> list[Json]:
        """Return all pairs of context and id that a guid has."""
        return [{"context": context, "id": schema_id} for context, schema_id in self._ids_of(text)]

    def _ids_of(self, text: str) -> list[tuple[str, int]]:
        try:
            digest = UUID(text).bytes
        except ValueError:
            return []
        found = ((context, self.state.id_of(digest, context)) for context in self.state.contexts())
        return [(context, schema_id) for context, schema_id in found if schema_id is not None]

    def version(self, subject: str, version: int, *, with_deleted: bool) -> SchemaValue:
        """Find a version of a subject; in the default context also of its namesakes elsewhere. Raises ApiError."""
        found = self.state.version(subject, version, with_deleted=with_deleted)
        place = Subject.parse(subject)
        if found is None and place.context == DEFAULT_CONTEXT:
            names = (Subject(each, place.name).qualified for each in self.state.contexts()[1:])
            others = (self.state.version(each, version, with_deleted=with_deleted) for each in names)
            found = next(filter(None, others), None)
        if found is not None:
            return found
        if not self.state.has_subject(subject, with_deleted=with_deleted):
            raise subject_not_found(subject)
        raise version_not_found(version)

    def versions(self, subject: str, query: Mapping[str, str]) -> list[int]:
        """List the versions of a subject. Raises ApiError."""
        with_deleted, only_deleted = is_true(query, "deleted"), is_true(query, "deletedOnly")
        if not self.state.has_subject(subject, with_deleted=with_deleted or only_deleted):
            raise subject_not_found(subject)
        values = self.state.versions(subject)
        if is_true(query, "deletedAsNegative"):
            found = [-each.version if each.is_deleted else each.version for each in values]
        elif only_deleted:
            found = [each.version for each in values if each.is_deleted]
        else:
            found = [each.version for each in values if with_deleted or not each.is_deleted]
        return Page(query).of(found)

    async def places(self, value: SchemaValue, query: Mapping[str, str]) -> list[tuple[str, int]]:
        """Return the subjects and versions in which a schema is registered. There may be very many."""
        places = self.state.places_of(value.id, Subject.parse(value.subject).context)
        with_deleted, time_slice, found = is_true(query, "deleted"), TimeSlice(), []
        for subject in list(places):
            version = places.get(subject)  # others may have deleted it meanwhile
            if version is not None and self.state.version(subject, version, with_deleted=with_deleted) is not None:
                found.append((subject, version))
            await time_slice.yield_if_over()
        return Page(query).of(found)

    def referrers(self, value: SchemaValue, query: Mapping[str, str]) -> list[int]:
        """Return the ids of schemas that refer to the version `value`."""
        place = (value.subject, value.version)
        found = self.state.referrers(place, with_deleted=is_true(query, "deleted"))
        return Page(query, SCHEMAS_MAX).of([schema_id for _, schema_id in found])

    def with_metadata(self, subject: str, wanted: Mapping[str, str], *, with_deleted: bool) -> SchemaValue:
        """Find a subject's latest version whose metadata have all properties in `wanted`. Raises ApiError."""
        for value in reversed(self.state.versions(subject)):
            properties = (value.metadata or {}).get("properties")
            if properties is None or value.is_deleted and not with_deleted:
                continue
            if all(properties.get(name) == each for name, each in wanted.items()):
                return value
        if not self.state.has_subject(subject, with_deleted=with_deleted):
            raise subject_not_found(subject)
        raise schema_not_found()

    # --- lists, which may be long

    async def subjects(self, query: Mapping[str, str], is_readable: IsReadable | None = None) -> list[str]:
        """Return the names of subjects, selected and paged by `query`. `is_readable`: access filter; None: no filter."""
        with_deleted, only_deleted = is_true(query, "deleted"), is_true(query, "deletedOnly")
        page, found, skipped = Page(query), [], 0
        is_wanted = {True: only_deleted or with_deleted, False: not only_deleted}
        async with aclosing(self._names(query.get("subjectPrefix", ALL_CONTEXTS))) as names:
            async for name in names:
                if not is_wanted[not self.state.has_subject(name)] or is_readable and not is_readable(name):
                    continue
                skipped += 1
                if skipped > page.offset:
                    found.append(name)
                if page.limit is not None and len(found) == page.limit:
                    break
        return found

    async def schemas(self, query: Mapping[str, str], is_readable: IsReadable | None = None) -> list[SchemaValue]:
        """Return versions of subjects, selected and paged by `query`. `is_readable`: access filter; None: no filter."""
        with_deleted, only_latest = is_true(query, "deleted"), is_true(query, "latestOnly")
        page, found, skipped = Page(query, SCHEMAS_MAX), [], 0
        async with aclosing(self._names(query.get("subjectPrefix") or ALL_CONTEXTS)) as names:
            async for name in names:
                if is_readable and not is_readable(name):
                    continue
                values = [each for each in self.state.versions(name) if with_deleted or not each.is_deleted]
                for value in values[-1:] if only_latest else values:
                    skipped += 1
                    if skipped > page.offset:
                        found.append(value)
                    if len(found) == page.limit:
                        return found
        return found

    async def _names(self, prefix: str) -> AsyncGenerator[str, None]:
        """Yield the names of subjects that begin with `prefix`; other tasks may run in between."""
        time_slice = TimeSlice()
        for each in self._prefixes(prefix):
            name = each
            while True:
                names = self.state.names.after(name, each, 256)
                for found in names:
                    yield found
                if len(names) < 256:
                    break
                name = names[-1] + "\0"
                await time_slice.yield_if_over()

    def _prefixes(self, prefix: str) -> Iterator[str]:
        if not prefix.startswith(ALL_CONTEXTS):
            return iter([prefix])
        rest = prefix.removeprefix(ALL_CONTEXTS)
        if not rest:
            return iter([""])
        return (Subject(each, rest).qualified for each in self.state.contexts())

    # --- settings

    def config(self, subject: str | None, *, in_scope: bool) -> Json:
        """Return the settings of a subject; with `in_scope` inherited ones, too. Raises ApiError if there are none."""
        found = self.state.config_in_scope(subject) if in_scope else self.state.config(subject)
        if found is None:
            text = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise ApiError(Code.COMPATIBILITY_NOT_CONFIGURED, text)
        return found

    def mode(self, subject: str | None, *, in_scope: bool) -> Json:
        """Return the mode of a subject; with `in_scope` also an inherited one. Raises ApiError if there is none."""
        found = self.state.mode_in_scope(subject) if in_scope else self.state.mode(subject)
        if found is None:
            text = f"Subject '{subject}' does not have subject-level mode configured"
            raise ApiError(Code.MODE_NOT_CONFIGURED, text)
        return {"mode": found}


def scope_of(text: str) -> str | None:
    """Return the subject or context that a path of settings names; None for the global settings."""
    return None if Subject.parse(text).is_default_context else normalized(text)


# --- JSON


def schema_json(value: SchemaValue, *, text: str | None = None, has_extras: bool, qualifies: bool = False) -> Json:
    """Make the response to a request for a schema id.

    `text`: the schema in another format; None: as registered. `has_extras`: add subject, version and more.
    `qualifies`: add the schema's context to references.
    """
    return {
        **({"subject": value.subject, "version": value.version, "guid": guid_of(value)} if has_extras else {}),
        **_content(value, text, qualifies),
        **(_extras(value) if has_extras else {}),
    }


def version_json(value: SchemaValue, *, text: str | None = None, has_extras: bool, qualifies: bool = False) -> Json:
    """Make the response to a request for a version of a subject.

    `text`: the schema in another format; None: as registered. `qualifies`: add the schema's context to references.
    """
    return {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
        **({"guid": guid_of(value)} if has_extras else {}),
        **_content(value, text, qualifies),
        **(_extras(value) if has_extras else {}),
    }


def guid_of(value: SchemaValue) -> str:
    return str(UUID(bytes=value.digest))


def _content(value: SchemaValue, text: str | None, qualifies: bool) -> Json:
    references = [
        each._replace(subject=resolved(each.subject, value.subject)) if qualifies else each for each in value.references
    ]
    return {
        **({} if value.type == AVRO else {"schemaType": value.type}),
        **({"references": [each.json for each in references]} if references else {}),
        **({} if value.metadata is None else {"metadata": value.metadata}),
        **({} if value.rule_set is None else {"ruleSet": value.rule_set}),
        "schema": value.text if text is None else text,
    }


def _extras(value: SchemaValue) -> Json:
    return {"ts": value.timestamp, "deleted": value.is_deleted}
