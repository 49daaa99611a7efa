"""A machine: subjects, versions, ids, settings and modes, as the records of the topic have them so far.

It is given events in the order of the topic and answers questions; it neither waits nor writes. Ids belong to a context. A schema that
is registered under several subjects of a context has one id, found by its digest.

An id that comes again with another text is not taken over: two primaries have written at the same time, and the first one counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.server.registry.metadata import Json
from ottla.server.registry.records import (
    Configured,
    ContextNoted,
    Event,
    ModeSet,
    SchemaDropped,
    SchemaPut,
    SchemaValue,
    SubjectCleared,
    SubjectDeleted,
)
from ottla.server.registry.subjects import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    SortedNames,
    Subject,
    context_of,
    resolved,
)

logger = logging.getLogger("ottla.registry")

LEVEL = "compatibilityLevel"
_OF_THE_SUBJECT = (
    "normalize", "validateFields", "validateNewSchemas", "validateRules", "compatibilityPolicy", "compatibilityGroup",
)  # fmt: skip
"""Settings that a subject without one has from all subjects; others are its own alone (`Config.mergeConfigs`)."""

_GLOBAL = Subject(GLOBAL_CONTEXT, "").qualified
Place = tuple[str, int]
"""A subject and a version of it."""


@dataclass(slots=True)
class _Context:
    places: dict[int, dict[str, int]] = field(default_factory=dict)
    """Versions by subject, for each schema id."""
    ids: dict[bytes, int] = field(default_factory=dict)
    """Ids by digest."""
    max_id: int = 0


class RegistryState:
    """State of the registry, read from the schemas topic. `default_level`: global level until one is set."""

    def __init__(self, default_level: str = "BACKWARD") -> None:
        self._default_level = default_level
        self.clear()

    def clear(self) -> None:
        """Clear the state, before the topic is read again from the beginning."""
        self.names = SortedNames()
        """Subjects that have a version, deleted ones too."""
        self.schema_count = 0
        self._subjects: dict[str, dict[int, SchemaValue]] = {}
        self._contexts: dict[str, _Context] = {}
        self._known_contexts: set[str] = set()
        self._referrers: dict[Place, set[tuple[str, int]]] = {}
        self._configs: dict[str | None, Json] = {}
        self._modes: dict[str | None, str] = {}

    # --- events

    def apply(self, event: Event) -> None:
        """Apply the next event of the topic to the state."""
        match event:
            case SchemaPut(value):
                self._put(value)
            case SchemaDropped(subject, version):
                self._drop(subject, version)
            case SubjectDeleted(subject, last):
                for version, value in self._subjects.get(subject, {}).items():
                    value.is_deleted = value.is_deleted or version <= last
            case SubjectCleared(subject):
                for name in self._matching(subject):
                    for value in [each for each in self._subjects[name].values() if each.is_deleted]:
                        self._drop(name, value.version)
            case Configured(subject, config):
                _set(self._configs, subject, config)
            case ModeSet(subject, mode):
                _set(self._modes, subject, mode)
            case ContextNoted(context, exists):
                (self._known_contexts.add if exists else self._known_contexts.discard)(context)

    def _put(self, value: SchemaValue) -> None:
        name = context_of(value.subject)
        context = self._contexts.setdefault(name, _Context())
        places = context.places.setdefault(value.id, {})
        known = self._one_of(places)
        if known is not None:
            if known.text != value.text:
                logger.error("id %d comes with another schema at %s version %d", value.id, value.subject, value.version)
                return
            value.text = known.text  # one text for all subjects that have it
        context.max_id = max(context.max_id, value.id)
        before = self._subjects.get(value.subject, {}).get(value.version)
        if before is not None and before.id != value.id:
            self._drop(value.subject, value.version)
        versions = self._subjects.setdefault(value.subject, {})
        if not versions:
            self.names.add(value.subject)
        self.schema_count += value.version not in versions
        versions[value.version] = value
        context.places.setdefault(value.id, places)[value.subject] = value.version
        context.ids[value.digest] = value.id
        for place in _references(value):
            self._referrers.setdefault(place, set()).add((name, value.id))

    def _drop(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        value = versions.pop(version, None)
        if value is None:
            return
        self.schema_count -= 1
        if not versions:
            del self._subjects[subject]
            self.names.discard(subject)
        name = context_of(subject)
        context = self._contexts[name]
        places = context.places.get(value.id, {})
        if places.get(subject) == version:
            del places[subject]
            # The same schema may have had an older version here, which was deleted before.
            others = [each.version for each in versions.values() if each.id == value.id]
            if others:
                places[subject] = max(others)
        if not places:
            context.places.pop(value.id, None)
            context.ids.pop(value.digest, None)
            for place in _references(value):
                referrers = self._referrers.get(place, set())
                referrers.discard((name, value.id))
                if not referrers:
                    self._referrers.pop(place, None)

    def _one_of(self, places: Mapping[str, int]) -> SchemaValue | None:
        return next((self._subjects[subject][version] for subject, version in places.items()), None)

    # --- schemas

    def versions(self, subject: str) -> list[SchemaValue]:
        """Return all versions of a subject in order, soft-deleted ones included."""
        return [value for _, value in sorted(self._subjects.get(subject, {}).items())]

    def version(self, subject: str, version: int, *, with_deleted: bool = False) -> SchemaValue | None:
        """Return a version of a subject; None if unknown. `version` -1: the latest that is not soft-deleted."""
        if version == -1:
            return self.latest(subject)
        value = self._subjects.get(subject, {}).get(version)
        return None if value is None or value.is_deleted and not with_deleted else value

    def latest(self, subject: str) -> SchemaValue | None:
        """Return the latest version of a subject that is not soft-deleted; None if there is none."""
        alive = (each for each in self._subjects.get(subject, {}).values() if not each.is_deleted)
        return max(alive, key=lambda each: each.version, default=None)

    def has_subject(self, subject: str, *, with_deleted: bool = False) -> bool:
        """Tell whether a subject has versions. If `with_deleted`, soft-deleted ones count, too."""
        versions = self._subjects.get(subject, {}).values()
        return bool(versions) if with_deleted else any(not each.is_deleted for each in versions)

    def by_id(self, schema_id: int, context: str, subject: str = "") -> SchemaValue | None:
        """Return a schema by id, even if soft-deleted; None if unknown. `subject`: only if registered there."""
        places = self._places(schema_id, context)
        if subject:
            return self._one_of({subject: places[subject]}) if subject in places else None
        return self._one_of(places)

    def places_of(self, schema_id: int, context: str) -> Mapping[str, int]:
        """Return the subjects and versions in which a schema id is registered, soft-deleted ones included."""
        return self._places(schema_id, context)

    def is_alive(self, place: Place) -> bool:
        """Tell whether a version is still registered, not soft-deleted."""
        return not self._subjects[place[0]][place[1]].is_deleted

    def id_of(self, digest: bytes, context: str) -> int | None:
        """Return the id of the schema with this digest in a context; None if unknown."""
        found = self._contexts.get(context)
        return None if found is None else found.ids.get(digest)

    def max_id(self, context: str) -> int:
        """Return the highest id that a context has ever used."""
        found = self._contexts.get(context)
        return 0 if found is None else found.max_id

    def version_under(self, subject: str, schema_id: int) -> int | None:
        """Return a subject's latest version that has this schema id; None if there is none."""
        return self._places(schema_id, context_of(subject)).get(subject)

    def referrers(self, place: Place, *, with_deleted: bool) -> list[tuple[str, int]]:
        """Return (context, id) of each schema that refers to a version. `with_deleted`: include soft-deleted schemas."""
        found = sorted(self._referrers.get(place, ()))
        if with_deleted:
            return found
        return [each for each in found if any(map(self.is_alive, self._places(each[1], each[0]).items()))]

    def contexts(self) -> list[str]:
        """Return the names of all contexts, the default context first."""
        return [DEFAULT_CONTEXT, *sorted(self._known_contexts)]

    def _places(self, schema_id: int, context: str) -> Mapping[str, int]:
        found = self._contexts.get(context)
        return {} if found is None else found.places.get(schema_id, {})

    def _matching(self, subject: str | None) -> Iterable[str]:
        """Return the known subjects in a scope: a subject itself, all of a context, or all (None)."""
        if subject is not None and Subject.parse(subject).name:
            return [subject] if subject in self._subjects else []
        return list(self.in_context(subject))

    def in_context(self, subject: str | None) -> Iterator[str]:
        """Yield the subjects in the context of `subject`, a qualified name; None: in all contexts."""
        context = None if subject is None else context_of(subject)
        if context is None:
            return iter(list(self._subjects))
        if context == DEFAULT_CONTEXT:
            # By the beginnings of names: to parse a million of them would hold the event loop.
            return (each for each in list(self._subjects) if not each.startswith((":.", ALL_CONTEXTS)))
        prefix = Subject(context, "").qualified
        return iter(self.names.after(prefix, prefix, len(self._subjects)))

    # --- settings and modes

    def config(self, subject: str | None) -> Json | None:
        """Return the settings of a subject or context, None if it has none. Global settings always exist."""
        found = self._configs.get(subject)
        if found is None:
            return {LEVEL: self._default_level} if subject is None or subject == _GLOBAL else None
        return {LEVEL: self._default_level, **found}

    def own_config(self, subject: str | None) -> Json | None:
        """Return the settings of a subject or context as they were given, without defaults; None if it has none."""
        return self._configs.get(subject)

    def config_in_scope(self, subject: str | None) -> Json:
        """Return the settings that apply to a subject: its own, its context's, or the global ones."""
        own = None if subject is None else self.config(subject)
        if own is not None:
            above = self.config(None) or {}
            return {name: above[name] for name in _OF_THE_SUBJECT if name in above} | dict(own)
        for scope in _scopes(subject):
            if scope in self._configs:
                return {LEVEL: self._default_level, **self._configs[scope]}
        return {LEVEL: self._default_level}

    def mode(self, subject: str | None) -> str | None:
        """Return the mode of a subject or context, None if it has none. The global mode always exists."""
        is_all = subject is None or subject == _GLOBAL
        return self._modes.get(subject) or ("READWRITE" if is_all else None)

    def mode_in_scope(self, subject: str | None) -> str:
        """Return the mode that applies to a subject: its own, its context's or the global one; else READWRITE."""
        for scope in (subject, *_scopes(subject)):
            if scope in self._modes:
                return self._modes[scope]
        return "READWRITE"

    def modes_in(self, context: str) -> list[str]:
        """Return the subjects of a context that have their own mode."""
        return [each for each in self._modes if each and context_of(each) == context and Subject.parse(each).name]


def _scopes(subject: str | None) -> tuple[str | None, ...]:
    """Return the scopes whose settings a subject inherits, nearest first (Confluent's `InMemoryCache.config`)."""
    context = DEFAULT_CONTEXT if subject is None else context_of(subject)
    return (None if context == DEFAULT_CONTEXT else Subject(context, "").qualified, _GLOBAL)


def _set(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value


def _references(value: SchemaValue) -> Iterator[Place]:
    return ((resolved(each.subject, value.subject), each.version) for each in value.references)
