"""Rows of `ottla logs`, under the names of Kafka's DumpLogSegments: as a line of text, or as JSON.

Texts of records are untrusted. Characters that a terminal would obey, or would not show, are written as escapes.

Records of the internal topics become JSON in the words of Kafka's message definitions. A decoder takes key and value of a record, and
returns the decoded form of each, or None where there is nothing to show.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import Array, Bytes, Field, Struct, Uuid
from ottla.wire.text import uuid_text

Row = dict[str, Any]


class OptionalLong(NamedTuple):
    """Integer that may be missing, printed like Java's OptionalLong."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


class Decoded(NamedTuple):
    """Result of decoding bytes: a JSON value, or a text that says why decoding failed."""

    data: Any

    def __str__(self) -> str:
        if isinstance(self.data, str):
            return self.data
        return json.dumps(self.data, separators=(",", ":"))


def as_text(row: Row, indent: str = "") -> str:
    """Format a row as `name: value name: value`, as Kafka's DumpLogSegments prints it."""
    return indent + " ".join(f"{name}: {_text(value)}" for name, value in row.items())


def as_json_line(row: Row) -> str:
    """Format a row as one JSON object in ASCII."""
    plain = {name: value[0] if isinstance(value, OptionalLong | Decoded) else value for name, value in row.items()}
    return json.dumps(plain)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return escaped(str(value))


def text_of(data: bytes) -> str:
    """Decode a key or value as text; bytes that are not UTF-8 become \\xNN."""
    return bytes(data).decode("utf-8", "backslashreplace")


def escaped(text: str) -> str:
    """Escape unprintable characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


Shown = tuple[Decoded | None, Decoded | None]
Decoder = Callable[[bytes | None, bytes | None], Shown]
Formats = Mapping[int, tuple[type[Struct], type[Struct]]]
"""Classes of keys and of values, by the type of the key."""

DELETED = Decoded("<DELETE>")
_CONSUMER_PROTOCOL = "consumer"


def offsets_decoder(key: bytes | None, value: bytes | None) -> Shown:
    """Decode a record of `__consumer_offsets`; return key and value for display."""
    return _shown(_group_formats(), key, value)


def transactions_decoder(key: bytes | None, value: bytes | None) -> Shown:
    """Decode a record of `__transaction_state`; return key and value for display."""
    from ottla.groupcoord.transactions.records import TRANSACTION_LOG_KEY, TransactionLogKey, TransactionLogValue

    return _shown({TRANSACTION_LOG_KEY: (TransactionLogKey, TransactionLogValue)}, key, value)


def share_state_decoder(key: bytes | None, value: bytes | None) -> Shown:
    """Decode a record of `__share_group_state`; return key and value for display."""
    from ottla.groupcoord.share.coordinator import records

    formats: Formats = {
        records.SNAPSHOT_KEY: (records.ShareSnapshotKey, records.ShareSnapshotValue),
        records.UPDATE_KEY: (records.ShareUpdateKey, records.ShareUpdateValue),
    }
    return _shown(formats, key, value)


@cache
def _group_formats() -> Formats:
    from ottla.groupcoord.service import GROUP_TYPES

    formats = [each for kind in GROUP_TYPES for each in kind.formats]
    return {key_type: (each.key, each.value) for each in formats for key_type in each.key_types}


def _shown(formats: Formats, key: bytes | None, value: bytes | None) -> Shown:
    key_type = _number(key)
    if key is None or key_type is None or key_type not in formats:
        return Decoded(f"record of an unknown type: {key_type}"), None
    key_class, value_class = formats[key_type]
    try:
        shown_key = Decoded({"type": str(key_type), "data": as_json(key_class.decode(key, 0, start=2), 0)})
        if value is None:
            return shown_key, DELETED
        version = _number(value)
        if version is None or version not in value_class.versions:
            return shown_key, Decoded(f"value of an unknown version: {version}")
        data = as_json(value_class.decode(value, version, start=2), version)
    except (KafkaError, ProtocolViolation) as error:
        return Decoded(f"record of type {key_type} that cannot be read: {error}"), None
    return shown_key, Decoded({"version": str(version), "data": _with_members(data)})


def _number(data: bytes | None) -> int | None:
    return None if data is None or len(data) < 2 else int.from_bytes(data[:2], "big", signed=True)


def as_json(value: Struct, version: int) -> dict[str, Any]:
    """Convert a struct to JSON as Kafka's JSON converters do. Tagged fields with default values are omitted."""
    found = {}
    for name, declared in type(value).wire_fields.items():
        field_value = getattr(value, name)
        is_there = version in declared.version_range
        if is_there and (declared.tag is None or field_value != declared.initial()):
            found[_camel_case(name)] = _json_value(declared, field_value, version)
    return found


def _json_value(declared: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(declared.type, Array):
        item = Field(declared.type.item, "0+", "none", None, None)
        return [_json_value(item, each, version) for each in value]
    if declared.type is Uuid:
        return uuid_text(value)
    if declared.type is Bytes:
        return base64.b64encode(value).decode()
    return as_json(value, version) if isinstance(value, Struct) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _with_members(data: dict[str, Any]) -> dict[str, Any]:
    """Decode the subscriptions and assignments of the members of a classic consumer group."""
    if data.get("protocolType") == _CONSUMER_PROTOCOL:
        for member in data["members"]:
            member["subscription"] = _embedded(ConsumerProtocolSubscription, member["subscription"])
            member["assignment"] = _embedded(ConsumerProtocolAssignment, member["assignment"])
    return data


def _embedded(of_class: type[Struct], encoded: str) -> Any:
    blob = base64.b64decode(encoded)
    version = _number(blob)
    if version is None or version < 0:
        return encoded
    try:
        newest = of_class.versions.last
        return as_json(of_class.decode(blob, min(version, newest), start=2), newest)
    except (KafkaError, ProtocolViolation):
        return encoded
