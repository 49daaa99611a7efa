"""Keys and values with schemas, for the commands `ottla consume` and `ottla produce`: they have no event loop, and one record at a time.

`ottla.server.cli.records.formats` names this module (SCHEMAS) and imports it when a command is given a registry, because it lies above the
commands in the order of the packages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.records.formats import Decoded
from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.schemas.codec import AVRO, JSON_SCHEMA, PROTOBUF, BadData, Codec
from ottla.server.rest.schemas.framing import BadFrame, framed, unframed
from ottla.server.rest.schemas.registry import RegistryClient, RegistryFailure, registry_config
from ottla.wire.foreign_json import parse_json

T = TypeVar("T")

OPTION = "--schema-registry"
SUBJECT_NOT_FOUND = 40401
SUFFIXES = {".avsc": AVRO, ".json": JSON_SCHEMA, ".proto": PROTOBUF}


class RecordValues:
    """Decoder and encoder of keys and values by the schemas of a registry."""

    def __init__(self, url: str, texts: Mapping[str, str]) -> None:
        """`url`: value of --schema-registry; `texts`: client settings. Raises UsageError."""
        config = registry_config(url, texts, OPTION)
        if config is None:
            raise UsageError(f"{OPTION}: needs an address, such as http://localhost:8081")
        self._client = RegistryClient(config)
        self._codecs: dict[int, Codec] = {}
        self._writers: dict[str, tuple[int, Codec]] = {}

    def decode(self, data: bytes) -> Decoded | None:
        """Decode a key or value; None if it has no schema id in front. Raises ValueError with the reason."""
        try:
            schema_id, body = unframed(data)
        except BadFrame:
            return None
        if schema_id not in self._codecs:
            try:
                self._codecs[schema_id] = _asked(lambda: self._client.by_id(schema_id)).codec
            except (RegistryFailure, InvalidText) as error:
                raise ValueError(f"schema {schema_id}: {error}") from None
        try:
            return Decoded(self._codecs[schema_id].decode(body))
        except BadData as error:
            raise ValueError(f"it does not fit schema {schema_id}: {error}") from None

    def learn(self, subject: str, file: str | None) -> bool:
        """Look up the schema that `encode` writes with: the latest of a subject, or that of a file, which is registered.

        Return False if the registry has no such subject. Raises RequestFailed, UsageError.
        """
        try:
            if file is not None:
                kind, text = _schema_in(file)
                schema = _asked(lambda: self._client.parsed(kind, text))
                place = _asked(lambda: self._client.registered(subject, schema))
            else:
                place, schema = _asked(lambda: self._client.by_version(subject, None))
        except RegistryFailure as error:
            if file is None and error.code == SUBJECT_NOT_FOUND:
                return False
            raise RequestFailed(f"the schema of {subject}: {error}") from None
        except InvalidText as error:
            raise RequestFailed(f"the schema of {subject} cannot be used: {error}") from None
        self._writers[subject] = place.id, schema.codec
        return True

    def encode(self, subject: str, text: bytes) -> bytes:
        """Encode JSON by the schema that was learnt of a subject. Raises ValueError with the reason."""
        schema_id, codec = self._writers[subject]
        try:
            value = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is no JSON: {error}") from None
        try:
            return framed(schema_id, codec.encode(value))
        except BadData as error:
            raise ValueError(f"it does not fit schema {schema_id}: {error}") from None


def _schema_in(file: str) -> tuple[str, str]:
    kind = next((kind for suffix, kind in SUFFIXES.items() if file.endswith(suffix)), None)
    if kind is None:
        raise UsageError(f"{file}: the name of a schema's file ends with {', '.join(SUFFIXES)}")
    try:
        with open(file, encoding="utf-8") as opened:
            return kind, opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None


def _asked(question: Callable[[], Awaitable[T]]) -> T:
    async def ask() -> T:
        return await question()

    return trio.run(ask)
