"""Keys and values of the topic `_schemas`, as Confluent's and Karapace's registries write and read them.

Both are JSON. The order of a key's members matters, because compaction compares bytes:

    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}   {"subject":"s","version":1,"id":1,"schema":"...","deleted":false}
    {"keytype":"CONFIG","subject":"s","magic":0}               {"subject":"s","compatibilityLevel":"FULL"}
    {"keytype":"MODE","subject":"s","magic":0}                 {"subject":"s","mode":"READONLY"}
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}       {"subject":"s","version":3}    versions up to this one are soft-deleted
    {"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}        {"subject":"s"}                soft-deleted versions are forgotten
    {"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}   {"tenant":"default","context":".c"}
    {"keytype":"NOOP","magic":0}                               null

Settings of all subjects have no subject. A null value takes back what its key said.
Source: the classes in `io.confluent.kafka.schemaregistry.storage`, and Karapace's `schema_reader.py`.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import NamedTuple

from ottla.server.registry.metadata import (
    METADATA_SETTINGS,
    RULE_SET_SETTINGS,
    Json,
    metadata_texts,
    parse_metadata,
    parse_rule_set,
    rule_set_texts,
)
from ottla.wire.foreign_json import parse_json

AVRO, JSON_SCHEMA, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TENANT = "default"


class Malformed(ValueError):
    """Record that no schema registry could have written."""


class Reference(NamedTuple):
    """Reference to a version of another schema, under the name `name`. Version -1: the latest when registered."""

    name: str
    subject: str
    version: int

    @property
    def json(self) -> Json:
        return self._asdict()


@dataclass(slots=True)
class SchemaValue:
    """Version of a subject, with its schema."""

    subject: str
    version: int
    id: int
    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    is_deleted: bool = False
    digest: bytes = b""
    """Identity of the schema across subjects, MD5; as a UUID it is the guid of the API."""
    timestamp: int = -1
    offset: int = -1


class SchemaPut(NamedTuple):
    """Event: a version was registered, or soft-deleted."""

    value: SchemaValue


class SchemaDropped(NamedTuple):
    """Event: a version was permanently deleted."""

    subject: str
    version: int


class Configured(NamedTuple):
    """Event: settings of `subject` (a subject, a context, or None for all) were set. `config` None: removed."""

    subject: str | None
    config: Json | None


class ModeSet(NamedTuple):
    """Event: the mode of `subject` (a subject, a context, or None for all) was set. `mode` None: removed."""

    subject: str | None
    mode: str | None


class SubjectDeleted(NamedTuple):
    """Event: versions of a subject up to a number were soft-deleted."""

    subject: str
    version: int


class SubjectCleared(NamedTuple):
    """Event: soft-deleted versions of a subject or context were permanently deleted."""

    subject: str | None


class ContextNoted(NamedTuple):
    """Event: a context was created, or deleted if `exists` is False."""

    context: str
    exists: bool


class Nothing(NamedTuple):
    """Record without content. An instance writes it to find out where the topic ends."""


Event = SchemaPut | SchemaDropped | Configured | ModeSet | SubjectDeleted | SubjectCleared | ContextNoted | Nothing


def digest_of(text: str, references: tuple[Reference, ...], metadata: Json | None, rule_set: Json | None) -> bytes:
    """Return the MD5 digest that identifies a schema, as in Confluent's registry (`MD5.ofSchema`)."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for name, subject, version in references:
        digest.update(f"{name}{subject}".encode("utf-8", "surrogatepass") + version.to_bytes(4, "big", signed=True))
    for texts in (metadata and metadata_texts(metadata), rule_set and rule_set_texts(rule_set)):
        if texts is not None:
            digest.update(b"\1" + "".join(texts).encode("utf-8", "surrogatepass"))
    return digest.digest()


# --- writing


def encode(event: Event) -> tuple[bytes, bytes | None]:
    """Encode an event as the key and value of a record."""
    match event:
        case SchemaPut(value):
            return _key("SCHEMA", value.subject, version=value.version, magic=1), _dumped(_schema_json(value))
        case SchemaDropped(subject, version):
            return _key("SCHEMA", subject, version=version, magic=1), None
        case Configured(subject, config):
            key = _key("CONFIG", subject, magic=0)
            return key, None if config is None else _dumped(_without_none({"subject": subject, **config}))
        case ModeSet(subject, mode):
            key = _key("MODE", subject, magic=0)
            return key, None if mode is None else _dumped(_without_none({"subject": subject, "mode": mode}))
        case SubjectDeleted(subject, version):
            return _key("DELETE_SUBJECT", subject, magic=0), _dumped({"subject": subject, "version": version})
        case SubjectCleared(subject):
            return _key("CLEAR_SUBJECT", subject, magic=0), _dumped(_without_none({"subject": subject}))
        case ContextNoted(context, exists):
            place = {"tenant": TENANT, "context": context}
            key = _dumped({"keytype": "CONTEXT", **place, "magic": 0})
            return key, _dumped(place) if exists else None
        case Nothing():
            return _dumped({"keytype": "NOOP", "magic": 0}), None


def _key(kind: str, subject: str | None, **more: int) -> bytes:
    return _dumped(_without_none({"keytype": kind, "subject": subject, **more}))


def _schema_json(value: SchemaValue) -> Json:
    return {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
        "md5": b64encode(value.digest).decode(),
        **({} if value.type == AVRO else {"schemaType": value.type}),
        **({"references": [each.json for each in value.references]} if value.references else {}),
        **({} if value.metadata is None else {"metadata": value.metadata}),
        **({} if value.rule_set is None else {"ruleSet": value.rule_set}),
        "schema": value.text,
        "deleted": value.is_deleted,
    }


def _without_none(members: Json) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def _dumped(value: Json) -> bytes:
    # A lone surrogate has no UTF-8; as an escape it is JSON all the same.
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


# --- reading


def decode(key: bytes | None, value: bytes | None) -> Event:
    """Decode a record of the schemas topic into an event. Raises Malformed."""
    if key is None:
        raise Malformed("a record without a key")
    try:
        return _decoded(_object(key), None if value is None else _object(value))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from None


def _object(data: bytes) -> Json:
    parsed = parse_json(str(data, "utf-8"))
    if not isinstance(parsed, dict):
        raise Malformed("a key or value that is no JSON object")
    return parsed


def _decoded(key: Json, value: Json | None) -> Event:
    match key["keytype"]:
        case "SCHEMA":
            subject, version = _string(key["subject"]), _whole(key["version"])
            return SchemaDropped(subject, version) if value is None else SchemaPut(_schema(subject, version, value))
        case "CONFIG":
            return Configured(_optional(key.get("subject")), None if value is None else _settings(value))
        case "MODE":
            return ModeSet(_optional(key.get("subject")), None if value is None else _string(value["mode"]))
        case "DELETE_SUBJECT":
            if value is None:
                return Nothing()
            return SubjectDeleted(_string(value["subject"]), _whole(value["version"]))
        case "CLEAR_SUBJECT":
            return Nothing() if value is None else SubjectCleared(_optional(value.get("subject")))
        case "CONTEXT":
            return ContextNoted(_string(key["context"]), value is not None)
        case "NOOP":
            return Nothing()
    raise Malformed(f"keytype {key['keytype']!r}")


def _settings(value: Json) -> Json:
    found = {name: each for name, each in value.items() if name != "subject" and each is not None}
    for name in found.keys() & {*METADATA_SETTINGS}:
        found[name] = parse_metadata(_json_or_none(found[name]))
    for name in found.keys() & {*RULE_SET_SETTINGS}:
        found[name] = parse_rule_set(_json_or_none(found[name]))
    return found


def _schema(subject: str, version: int, value: Json) -> SchemaValue:
    references = tuple(parse_reference(each) for each in value.get("references") or ())
    metadata = parse_metadata(_json_or_none(value.get("metadata")))
    rule_set = parse_rule_set(_json_or_none(value.get("ruleSet")))
    text, known = _string(value["schema"]), value.get("md5")
    digest = b64decode(known) if known else digest_of(text, references, metadata, rule_set)
    return SchemaValue(
        subject=subject,
        version=version,
        id=_whole(value["id"]),
        text=text,
        type=_TYPES.get(value.get("schemaType") or AVRO) or _string(value["schemaType"]),
        references=references,
        metadata=metadata,
        rule_set=rule_set,
        is_deleted=value.get("deleted") is True,
        digest=digest,
    )


_TYPES = {AVRO: AVRO, JSON_SCHEMA: JSON_SCHEMA, PROTOBUF: PROTOBUF}
"""Names of schema types, one string object for each, because there may be very many schemas."""


def parse_reference(value: object) -> Reference:
    """Parse a reference in a record or a request. Raises ValueError."""
    if not isinstance(value, dict):
        raise Malformed("a reference that is no object")
    return Reference(_string(value.get("name")), _string(value.get("subject")), _whole(value.get("version")))


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{value!r} is no string")
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _string(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        raise Malformed(f"{value!r} is no number of 32 bits")
    return value


def _json_or_none(value: object) -> Json | None:
    if value is not None and not isinstance(value, dict):
        raise Malformed(f"{value!r} is no object")
    return value
