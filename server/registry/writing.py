"""Changes: schemas are registered and deleted, settings and modes set. Only the primary writes, one change after the other.

The order of the checks is that of `KafkaSchemaRegistry.java`, so that a request that is wrong in two ways is refused for the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import trio

from ottla.server.registry import metadata
from ottla.server.registry.errors import (
    ApiError,
    Code,
    invalid_schema,
    invalid_subject,
    not_permitted,
    reference_exists,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from ottla.server.registry.judging import Judged, Judging
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
from ottla.server.registry.request_bodies import SchemaRequest
from ottla.server.registry.state import LEVEL, RegistryState
from ottla.server.registry.subjects import DEFAULT_CONTEXT, Subject, context_of, resolved
from ottla.server.registry.topic import SchemasTopic
from ottla.wire.time_slice import TimeSlice

EVENTS_MAX = 1000
"""Events in one batch."""

ATTEMPTS = 5
"""Decisions about a registration that others may overtake; the next one is made while no other task writes."""

_MERGED = (*metadata.METADATA_SETTINGS, *metadata.RULE_SET_SETTINGS)
"""Settings that change what is registered."""

_READ_ONLY = ("READONLY", "READONLY_OVERRIDE")


class Writing:
    """Operations that change the registry's state."""

    def __init__(self, state: RegistryState, topic: SchemasTopic, judging: Judging) -> None:
        self._state, self._topic, self._judging = state, topic, judging
        self._turn = trio.Lock()

    # --- schemas

    async def known(self, subject: str, request: SchemaRequest, *, normalizes: bool) -> SchemaValue | None:
        """Find a version that already has the schema of `request`; None: `register` must decide. Raises ApiError."""
        config = self._state.config_in_scope(subject)
        if not request.text.strip() or request.version > 0 or request.id >= 0 or any(map(config.get, _MERGED)):
            return None
        judged = await self._judging.judged(subject, request, normalizes=normalizes)
        latest = self._state.latest(subject)
        if request.version == 0 and (found := self._same(subject, judged, with_deleted=False)) is not None:
            return found
        if latest is None or request.version == 0 and metadata.version_of(latest.metadata) is None:
            return None
        alive = [each for each in self._state.versions(subject) if not each.is_deleted]
        return await self._judging.alike(judged, alive[::-1] if request.version == 0 else [latest])

    async def looked_up(
        self, subject: str, request: SchemaRequest, *, normalizes: bool, with_deleted: bool
    ) -> SchemaValue:
        """Find the version of a subject that has the schema in `request`. Raises ApiError."""
        names = [subject]
        if context_of(subject) == DEFAULT_CONTEXT:
            names += [Subject(each, subject).qualified for each in self._state.contexts()[1:]]
        time_slice = TimeSlice()
        if request.text.strip():
            for name in names:
                found = await self._looked_up(name, request, normalizes=normalizes, with_deleted=with_deleted)
                if found is not None:
                    return found
                # A text that is known by now is not parsed again, and no thread is waited for.
                await time_slice.yield_if_over()
        if not self._state.has_subject(subject, with_deleted=with_deleted):
            raise subject_not_found(subject)
        raise schema_not_found()

    async def _looked_up(
        self, subject: str, request: SchemaRequest, *, normalizes: bool, with_deleted: bool
    ) -> SchemaValue | None:
        is_elsewhere = context_of(subject) != DEFAULT_CONTEXT
        if is_elsewhere and not self._state.has_subject(subject, with_deleted=with_deleted):
            return None
        # A registration without metadata takes those of the latest version, so a look-up finds it with them, too.
        requests = [request]
        previous = self._state.latest(subject)
        completed = request if previous is None else self._with_metadata(subject, request, previous)
        if completed != request:
            requests.append(completed)
        for each in requests:
            judged = await self._judging.judged(subject, each, normalizes=normalizes)
            found = self._same(subject, judged, with_deleted=with_deleted)
            if found is None:
                versions = [each for each in self._state.versions(subject) if with_deleted or not each.is_deleted]
                found = await self._judging.alike(judged, versions[::-1])
            if found is not None:
                return found
        return None

    def _with_metadata(self, subject: str, request: SchemaRequest, previous: SchemaValue | None) -> SchemaRequest:
        """Fill in missing metadata and rules from the previous version, then merge the configured ones."""
        config = self._state.config_in_scope(subject)
        given, rules = request.metadata, request.rule_set
        if previous is not None:
            given = previous.metadata if given is None else given
            rules = previous.rule_set if rules is None else rules
        merged = metadata.in_force(given, config, "Metadata")
        return replace(request, metadata=merged, rule_set=metadata.in_force(rules, config, "RuleSet"))

    def _same(self, subject: str, judged: Judged, *, with_deleted: bool) -> SchemaValue | None:
        schema_id = self._state.id_of(judged.digest, context_of(subject))
        version = None if schema_id is None else self._state.version_under(subject, schema_id)
        return None if version is None else self._state.version(subject, version, with_deleted=with_deleted)

    async def register(
        self, subject: str, request: SchemaRequest, *, normalizes: bool, forces: bool = False
    ) -> SchemaValue:
        """Register a schema in a subject; return the new version, or an existing equal one. Raises ApiError."""
        if not Subject.parse(subject).is_valid():
            raise invalid_subject(subject)
        async with self._turn:
            await self._topic.settle()
        # Parsing and comparing may take long, so others write meanwhile. If that has changed what was decided on, it is done again.
        for _ in range(ATTEMPTS):
            basis = self._basis(subject)
            decided = await self._decided(subject, request, normalizes, forces)
            if isinstance(decided, SchemaValue):
                return decided
            async with self._turn:
                await self._topic.settle()
                if self._basis(subject) == basis and self._has_references(subject, decided):
                    return await self._registered(subject, request, decided)
        async with self._turn:
            decided = await self._decided(subject, request, normalizes, forces)
            return decided if isinstance(decided, SchemaValue) else await self._registered(subject, request, decided)

    def _basis(self, subject: str) -> object:
        """Return the state that a registration in a subject depends on. The caller compares it to detect changes."""
        versions = tuple((each.version, each.id, each.is_deleted) for each in self._state.versions(subject))
        return versions, self._state.mode_in_scope(subject), self._state.config_in_scope(subject)

    def _has_references(self, subject: str, judged: Judged) -> bool:
        places = ((resolved(each.subject, subject), each.version) for each in judged.references)
        return all(self._state.version(*place) is not None for place in places)

    async def _decided(
        self, subject: str, request: SchemaRequest, normalizes: bool, forces: bool
    ) -> SchemaValue | Judged:
        """Return the version that already has the schema; otherwise the schema to register. Raises ApiError."""
        mode = self._state.mode_in_scope(subject)
        self._check_mode(subject, request, mode)
        versions = self._state.versions(subject)
        alive = [each for each in versions if not each.is_deleted]
        if mode != "IMPORT":
            request = self._completed(subject, request, alive, _next_version(versions))
        if not request.text.strip():
            raise invalid_schema("Empty schema")
        judged = await self._judging.judged(subject, request, normalizes=normalizes, is_new=request.id < 0)
        schema_id = self._id_for(subject, request, judged)
        if request.version == 0:
            found = self._same(subject, judged, with_deleted=False)
            if found is not None and request.id in (-1, found.id):
                return found
            candidates = [each for each in alive if schema_id is None or each.id == schema_id]
            found = await self._judging.alike(judged, candidates[::-1])
            if found is not None:
                return found
        if mode != "IMPORT" and not forces:
            await self._check_compatibility(subject, judged, alive)
        return judged

    def _id_for(self, subject: str, request: SchemaRequest, judged: Judged) -> int | None:
        """Return the id given in `request` or already known; None: a new one is needed.

        Raises ApiError if the given id is used by another schema.
        """
        schema_id = self._state.id_of(judged.digest, context_of(subject))
        if request.id >= 0 and request.id != schema_id:
            self._check_id(subject, request.id, judged)
            return request.id
        return schema_id

    async def _registered(self, subject: str, request: SchemaRequest, judged: Judged) -> SchemaValue:
        """Write a new version of a subject and return it. The schema has passed all checks before."""
        versions = self._state.versions(subject)
        next_version = _next_version(versions)
        version = request.version if request.version > 0 else next_version
        if version != next_version and self._state.mode_in_scope(subject) != "IMPORT":
            raise invalid_schema("Version is not one more than previous version")
        schema_id = self._id_for(subject, request, judged)
        value = SchemaValue(
            subject=subject,
            version=version,
            id=self._state.max_id(context_of(subject)) + 1 if schema_id is None else schema_id,
            text=judged.text,
            type=judged.type,
            references=judged.references,
            metadata=judged.metadata,
            rule_set=judged.rule_set,
            digest=judged.digest,
        )
        await self._topic.append([*self._before(value, versions), SchemaPut(value)])
        return value

    def _check_mode(self, subject: str, request: SchemaRequest, mode: str) -> None:
        what = f"Subject {subject} in context {_context_name(subject)}"
        if mode in _READ_ONLY:
            raise not_permitted(f"{what} is in read-only mode")
        if request.id >= 0 and mode != "IMPORT":
            raise not_permitted(f"{what} is not in import mode")
        if request.id < 0 and mode != "READWRITE":
            raise not_permitted(f"{what} is not in read-write mode")

    def _completed(
        self, subject: str, request: SchemaRequest, alive: Sequence[SchemaValue], next_version: int
    ) -> SchemaRequest:
        """Return the request with its missing schema, metadata and rules filled in.

        They come from the latest version; metadata and rules also from the settings.
        """
        previous = alive[-1] if alive else None
        if previous is not None and not request.text.strip():
            request = replace(request, text=previous.text, type=previous.type, references=previous.references)
        request = self._with_metadata(subject, request, previous)
        if request.version != 0 or metadata.version_of(request.metadata) is not None:
            request = replace(request, metadata=metadata.with_version(request.metadata, next_version))
        return request

    def _check_id(self, subject: str, schema_id: int, judged: Judged) -> None:
        known = self._state.by_id(schema_id, context_of(subject))
        if known is not None and known.digest != judged.digest:
            raise not_permitted(
                f"Overwrite new schema with id {schema_id} in context {_context_name(subject)} is not permitted."
            )

    async def _check_compatibility(self, subject: str, judged: Judged, alive: Sequence[SchemaValue]) -> None:
        problems = await self.problems(subject, judged, alive)
        if problems:
            raise ApiError(
                Code.INCOMPATIBLE_SCHEMA,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
                f"details: [{', '.join(problems)}]",
            )

    async def problems(self, subject: str, judged: Judged, alive: Sequence[SchemaValue]) -> list[str]:
        """Return why a schema is incompatible with the versions `alive` of a subject; empty if it is compatible."""
        config = self._state.config_in_scope(subject)
        if group := config.get("compatibilityGroup"):
            wanted = metadata.properties_of(judged.metadata).get(group)
            alive = [each for each in alive if metadata.properties_of(each.metadata).get(group) == wanted]
        is_lenient = str(config.get("compatibilityPolicy")).upper() == "LENIENT"
        found = await self._judging.problems(judged, config[LEVEL], alive, is_lenient=is_lenient)
        if found:
            found.append(f"{{validateFields: 'false', compatibility: '{config[LEVEL]}'}}")
        return found

    def _before(self, value: SchemaValue, versions: Iterable[SchemaValue]) -> list[Event]:
        """Return the events to write before the new version `value`.

        They create its context if that is new, and purge soft-deleted versions that it replaces.
        """
        events: list[Event] = []
        context = context_of(value.subject)
        if context not in self._state.contexts():
            events.append(ContextNoted(context, exists=True))
        for each in versions:
            is_replaced = each.is_deleted and each.id == value.id and each.version < value.version
            if is_replaced and not self._state.referrers((each.subject, each.version), with_deleted=True):
                events.append(SchemaDropped(each.subject, each.version))
        return events

    # --- deletion

    async def delete_version(self, subject: str, version: int, *, for_good: bool) -> int:
        """Delete a version, permanently if `for_good`; return the version number. Raises ApiError."""
        async with self._turn:
            await self._topic.settle()
            value = self._to_delete(subject, version, for_good)
            self._check_writable(subject)
            if self._state.referrers((subject, value.version), with_deleted=for_good):
                raise reference_exists(subject, value.version)
            if not for_good:
                await self._topic.append([SchemaPut(replace(value, is_deleted=True))])
                return value.version
            if not value.is_deleted:
                text = f"Subject '{subject}' Version {value.version} was not deleted first before being permanently deleted"
                raise ApiError(Code.VERSION_NOT_SOFT_DELETED, text)
            events: list[Event] = [SchemaDropped(subject, value.version)]
            if len(self._state.versions(subject)) == 1:
                events += self._settings_gone(subject)
            await self._topic.append(events)
            return value.version

    def _to_delete(self, subject: str, version: int, for_good: bool) -> SchemaValue:
        value = self._state.version(subject, version, with_deleted=True)
        if value is None:
            has_any = self._state.has_subject(subject, with_deleted=True)
            raise version_not_found(version) if has_any else subject_not_found(subject)
        if value.is_deleted and not for_good:
            text = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
            raise ApiError(Code.VERSION_SOFT_DELETED, text)
        return value

    async def delete_subject(self, subject: str, *, for_good: bool) -> list[int]:
        """Delete all versions of a subject, permanently if `for_good`; return the version numbers. Raises ApiError."""
        async with self._turn:
            await self._topic.settle()
            versions = self._state.versions(subject)
            if not versions:
                raise subject_not_found(subject)
            alive = [each for each in versions if not each.is_deleted]
            if not for_good and not alive:
                text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
                raise ApiError(Code.SUBJECT_SOFT_DELETED, text)
            self._check_writable(subject)
            for each in versions if for_good else alive:
                self._check_no_other_refers(each, for_good)
                if for_good and not each.is_deleted:
                    text = f"Subject '{subject}' was not deleted first before being permanently deleted"
                    raise ApiError(Code.SUBJECT_NOT_SOFT_DELETED, text)
            if not for_good:
                await self._topic.append([SubjectDeleted(subject, alive[-1].version)])
                return [each.version for each in alive]
            dropped = [SchemaDropped(subject, each.version) for each in reversed(versions)]
            await self._append_all([*dropped, *self._settings_gone(subject)])
            return [each.version for each in versions]

    def _check_no_other_refers(self, value: SchemaValue, for_good: bool) -> None:
        referrers = self._state.referrers((value.subject, value.version), with_deleted=for_good)
        for context, schema_id in referrers:
            places = self._state.places_of(schema_id, context)
            if any(each[0] != value.subject and (for_good or self._state.is_alive(each)) for each in places.items()):
                raise reference_exists(value.subject, value.version)

    def _settings_gone(self, subject: str) -> list[Event]:
        events: list[Event] = []
        if self._state.mode(subject) is not None:
            events.append(ModeSet(subject, None))
        if self._state.config(subject) is not None:
            events.append(Configured(subject, None))
        return events

    async def _append_all(self, events: Sequence[Event]) -> None:
        for start in range(0, len(events), EVENTS_MAX):
            await self._topic.append(events[start : start + EVENTS_MAX])

    def _check_writable(self, subject: str | None) -> None:
        if self._state.mode_in_scope(subject) in _READ_ONLY:
            raise not_permitted(f"Subject {subject} in context {_context_name(subject)} is in read-only mode")

    async def delete_context(self, context: str) -> None:
        """Delete an empty context. Raises ApiError."""
        async with self._turn:
            await self._topic.settle()
            if next(self._state.in_context(Subject(context, "").qualified), None) is not None:
                raise ApiError(Code.CONTEXT_NOT_EMPTY, f"The specified context ':{context}:' is not empty.")
            await self._topic.append([ContextNoted(context, exists=False)])

    # --- settings

    async def configure(self, subject: str | None, changes: Json) -> Json:
        """Change settings of a subject, a context or all (None); return all its settings. Raises ApiError."""
        self._check_scope(subject)
        async with self._turn:
            await self._topic.settle()
            self._check_writable(subject)
            merged: dict[str, Any] = {**(self._state.own_config(subject) or {}), **changes}
            merged = {name: value for name, value in merged.items() if value is not None}
            await self._topic.append([Configured(subject, merged)])
            return merged

    async def unset_config(self, subject: str | None) -> Json:
        """Remove the settings of a subject, a context or all (None); return the former settings. Raises ApiError."""
        async with self._turn:
            await self._topic.settle()
            before = self._state.config(subject)
            if before is None:
                raise subject_not_found(str(subject))
            self._check_writable(subject)
            await self._topic.append([Configured(subject, None)])
            return before

    async def set_mode(self, subject: str | None, mode: str | None, *, forces: bool) -> None:
        """Set the mode of a subject, a context or all (None). `mode` None removes it. Raises ApiError."""
        self._check_scope(subject)
        async with self._turn:
            await self._topic.settle()
            events: list[Event] = []
            if mode == "IMPORT" and self._state.mode_in_scope(subject) != "IMPORT" and not forces:
                events = await self._cleared(subject)
            await self._append_all([*events, ModeSet(subject, mode)])

    async def _cleared(self, subject: str | None) -> list[Event]:
        """Return the events that purge a scope's soft-deleted versions before an import.

        Raises ApiError if a version is not deleted or still referenced.
        """
        is_one = subject is not None and bool(Subject.parse(subject).name)
        names = iter([subject]) if is_one and subject is not None else self._state.in_context(subject)
        events: list[Event] = []
        time_slice = TimeSlice()
        for name in names:
            if self._state.has_subject(name):
                raise not_permitted("Cannot import since found existing subjects")
            for value in self._state.versions(name):
                if self._state.referrers((name, value.version), with_deleted=True):
                    raise reference_exists(name, value.version)
                events.append(SchemaDropped(name, value.version))
            await time_slice.yield_if_over()
        return [*events, SubjectCleared(subject)]

    async def unset_mode(self, subject: str | None, *, recursively: bool) -> str | None:
        """Remove the mode of a subject, a context or all (None); return the former mode or None. Raises ApiError.

        `recursively`: remove also the modes of the subjects in the context.
        """
        async with self._turn:
            await self._topic.settle()
            before = self._state.mode(subject)
            if before is None and not recursively:
                raise subject_not_found(str(subject))
            names: list[str | None] = [subject]
            if recursively and (subject is None or not Subject.parse(subject).name):
                names += self._state.modes_in(DEFAULT_CONTEXT if subject is None else context_of(subject))
            await self._append_all([ModeSet(each, None) for each in names])
            return before

    def _check_scope(self, subject: str | None) -> None:
        if subject is not None and not Subject.parse(subject).is_valid(for_settings=True):
            raise invalid_subject(subject)


def _next_version(versions: Sequence[SchemaValue]) -> int:
    return max((each.version for each in versions), default=0) + 1


def _context_name(subject: str | None) -> str:
    """Return the context of a subject as Confluent's messages spell it; the default context is empty."""
    return "" if subject is None else Subject(context_of(subject), "").qualified
