"""Schemas of requests and of records, found as Confluent's proxy finds them.

A request names a schema by its text, its id, or the version of a subject; without any of these the latest version of the subject is
meant. The subject is given, or follows from topic and schema by a strategy.

Source: `SchemaManagerImpl.java`, `SchemaRecordSerializerImpl.java` and `ProduceRequest.java` of Confluent's proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import trio

from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.errors import Code, RestError, bad_request
from ottla.server.rest.schemas.codec import REGISTRY_NAMES, BadData, Codec
from ottla.server.rest.schemas.framing import framed
from ottla.server.rest.schemas.registry import Place, RegistryClient, RegistryConfig, RegistryFailure, Schema

T = TypeVar("T")

CODING_MAX = 2
TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = STRATEGIES = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")
_SHOWN = 200


class Wanted(NamedTuple):
    """Description of the schema that a request wants for a topic's keys or values. Set fields say how to find it."""

    topic: str
    is_key: bool
    kind: str | None = None
    """Format of `text`."""
    text: str | None = None
    schema_id: int | None = None
    version: int | None = None
    subject: str | None = None
    strategy: str | None = None


class Registered(NamedTuple):
    """Schema that is registered in a subject."""

    subject: str
    place: Place
    schema: Schema

    def encode(self, data: Any) -> bytes | None:
        """Return a key or value encoded; None if it is null and the schema accepts null. Raises RestError.

        Call this in a thread.
        """
        if data is None and self._takes_null:
            return None
        try:
            return framed(self.place.id, self.schema.codec.encode(data))
        except BadData as error:
            raise bad_request(f"Bad Request: {error}") from None

    @property
    def _takes_null(self) -> bool:
        """True if the schema accepts null. Then a null is written as a null value, as Confluent's serializers do."""
        try:
            self.schema.codec.encode(None)
        except BadData:
            return False
        return True


class Schemas:
    """Client of the registry that encodes and decodes values in threads."""

    def __init__(self, config: RegistryConfig) -> None:
        self._registry = RegistryClient(config)
        self._coding = trio.CapacityLimiter(CODING_MAX)

    async def code(self, work: Callable[[], T]) -> T:
        """Call `work`, which encodes or decodes values, in a thread; return its result."""
        return await trio.to_thread.run_sync(work, limiter=self._coding)

    # --- for writers

    async def wanted(self, wanted: Wanted) -> Registered:
        """Return the schema that a request names, by its text or otherwise. Raises RestError.

        A schema text that is not registered yet is registered.
        """
        if wanted.schema_id is not None:
            return await self._by_id(wanted, wanted.schema_id)
        if wanted.version is not None:
            return await self._by_version(wanted, wanted.version)
        if wanted.text is not None:
            assert wanted.kind is not None
            return await self._by_text(wanted, wanted.kind, wanted.text)
        return await self._latest(wanted)

    async def _by_id(self, wanted: Wanted, schema_id: int) -> Registered:
        try:
            schema = await self._registry.by_id(schema_id)
        except RegistryFailure as error:
            raise _failed(f"Error when fetching schema by id. schemaId = {schema_id}", error) from None
        except InvalidText as error:
            raise _invalid(f"Error when fetching schema by id. schemaId = {schema_id}: {error}") from None
        subject = _subject(wanted, schema.codec)
        try:
            place = await self._registry.place_of(subject, schema)
        except RegistryFailure as error:
            what = f"Error when fetching schema version. subject = {subject}, schema = {schema.text[:_SHOWN]}"
            raise _failed(what, error) from None
        # One schema may have several ids, of which the request names one.
        return Registered(subject, Place(schema_id, place.version), schema)

    async def _by_version(self, wanted: Wanted, version: int) -> Registered:
        subject = _subject(wanted, None)
        try:
            found = await self._registry.by_version(subject, version)
        except RegistryFailure as error:
            if error.code == Code.KAFKA_AUTHORIZATION:
                raise _failed(f"Error when fetching schema by version. subject = {subject}", error) from None
            text = f"Bad Request: Schema does not exist for subject: {subject}, version: {version}"
            raise bad_request(text) from None
        except InvalidText as error:
            what = f"Error when fetching schema by version. subject = {subject}, version = {version}"
            raise _invalid(f"{what}: {error}") from None
        return Registered(subject, found.place, found.schema)

    async def _latest(self, wanted: Wanted) -> Registered:
        subject = _subject(wanted, None)
        what = f"Error when fetching latest schema version. subject = {subject}"
        try:
            found = await self._registry.by_version(subject, None)
        except RegistryFailure as error:
            raise _failed(what, error) from None
        except InvalidText as error:
            raise _invalid(f"{what}: {error}") from None
        return Registered(subject, found.place, found.schema)

    async def _by_text(self, wanted: Wanted, kind: str, text: str) -> Registered:
        shown = f"format = {kind.upper()}, schema = {text[:_SHOWN]}"
        try:
            schema = await self._registry.parsed(kind, text)
        except InvalidText as error:
            raise _invalid(f"Error when parsing raw schema. {shown}: {error}") from None
        except RegistryFailure as error:
            raise _failed(f"Error when parsing raw schema. {shown}", error) from None
        subject = _subject(wanted, schema.codec)
        try:
            place = await self._registry.registered(subject, schema)
        except RegistryFailure as error:
            what = f"Error when registering schema. format = {kind.upper()}, subject = {subject}"
            raise _failed(f"{what}, schema = {text[:_SHOWN]}", error) from None
        return Registered(subject, place, schema)

    # --- for readers

    async def codecs(self, kind: str, ids: Iterable[int]) -> dict[int, Codec | str]:
        """Return the codec of each schema id or, if there is none, a text that gives the reason."""
        found: dict[int, Codec | str] = {}
        for each in ids:
            try:
                schema = await self._registry.by_id(each)
            except (RegistryFailure, InvalidText) as error:
                found[each] = f"Error retrieving {REGISTRY_NAMES[kind]} schema for id {each}: {error}"
            else:
                is_right = schema.kind == kind
                found[each] = schema.codec if is_right else f"Schema {each} is of type {REGISTRY_NAMES[schema.kind]}"
        return found


def check_kind(registered: Registered, kind: str) -> None:
    """Raise RestError if the schema's format is not `kind`, the format that the request uses."""
    if registered.schema.kind != kind:
        told, wanted = REGISTRY_NAMES[registered.schema.kind], REGISTRY_NAMES[kind]
        raise _invalid(f"Schema {registered.place.id} is of type {told}, not {wanted}")


def _subject(wanted: Wanted, codec: Codec | None) -> str:
    """Return the subject of the wanted schema. `codec` None: the schema is not known yet. Raises RestError."""
    if wanted.subject is not None:
        return wanted.subject
    strategy = wanted.strategy or TOPIC_NAME
    if strategy == TOPIC_NAME:
        return f"{wanted.topic}-{'key' if wanted.is_key else 'value'}"
    if codec is None:
        text = f"Cannot use schema_subject_strategy={strategy} without schema_id or schema."
        raise bad_request(f"Bad Request: {text}")
    if codec.name is None:
        part = "key" if wanted.is_key else "value"
        raise serialization(f"The message {part} must only be a record schema")
    return codec.name if strategy == RECORD_NAME else f"{wanted.topic}-{codec.name}"


def serialization(message: str) -> RestError:
    return RestError(Code.MESSAGE_SERIALIZATION, f"Error serializing message. {message}")


def _failed(what: str, error: RegistryFailure) -> RestError:
    if error.code == Code.KAFKA_AUTHORIZATION:
        return RestError(Code.KAFKA_AUTHORIZATION, what)
    return serialization(f"{what}\n{error}")


def _invalid(message: str) -> RestError:
    return RestError(Code.INVALID_SCHEMA, f"Invalid schema: {message}")
