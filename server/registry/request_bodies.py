"""Bodies of requests: a schema to register, look up or compare, and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.server.registry.errors import ApiError, Code, invalid_schema
from ottla.server.registry.metadata import (
    METADATA_SETTINGS,
    RULE_SET_SETTINGS,
    InvalidRuleSet,
    Json,
    check_rule_set,
    parse_metadata,
    parse_rule_set,
)
from ottla.server.registry.records import AVRO, Reference, parse_reference
from ottla.server.registry.schemas.compatibility import LEVELS
from ottla.wire.foreign_json import parse_json

REFERENCES_MAX = 500
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_BAD_REQUEST, _UNPROCESSABLE = 400, 422
_TEXTS = ("alias", "compatibilityPolicy", "compatibilityGroup")
_FLAGS = ("aliasForDeks", "normalize", "validateFields", "validateNewSchemas", "validateRules")


def parse_body(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object. Raises ApiError."""
    if not body:
        raise ApiError(_UNPROCESSABLE, "The request has no body")
    try:
        found = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(_BAD_REQUEST, f"The body is no JSON that can be read: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(_BAD_REQUEST, "The body is no JSON object")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """Schema in a request. `version`: 0 if not given, -1 for the latest. `id`: -1 if not given."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    version: int = 0
    id: int = -1


def parse_schema(body: bytes) -> SchemaRequest:
    """Parse the body of a request with a schema. Raises ApiError."""
    found = parse_body(body)
    references = [] if found.get("references") is None else found["references"]
    if not isinstance(references, list) or len(references) > REFERENCES_MAX:
        raise ApiError(_BAD_REQUEST, f"references: a list of at most {REFERENCES_MAX}")
    try:
        parsed = tuple(parse_reference(each) for each in references)
    except ValueError as error:
        raise invalid_schema(f"Invalid reference: {error}") from None
    return SchemaRequest(
        text=_member(found, "schema", str) or "",
        type=_member(found, "schemaType", str) or AVRO,
        references=parsed,
        metadata=_parsed(found, "metadata"),
        rule_set=_parsed(found, "ruleSet"),
        version=max(-1, _number(found, "version", 0)),
        id=_number(found, "id", -1),
    )


def parse_config(body: bytes) -> dict[str, Any]:
    """Parse the settings in a body that shall change; None stands for a setting to remove. Raises ApiError."""
    found = parse_body(body)
    changes: dict[str, Any] = {}
    for names, kind in ((_TEXTS, str), (_FLAGS, bool)):
        changes |= {name: _member(found, name, kind) for name in names if name in found}
    changes |= {name: _parsed(found, name) for name in (*METADATA_SETTINGS, *RULE_SET_SETTINGS) if name in found}
    # Both names are understood, as by Confluent's registry.
    for name in ("compatibility", "compatibilityLevel"):
        if name in found:
            changes["compatibilityLevel"] = _level(_member(found, name, str))
    return changes


def _level(text: str | None) -> str | None:
    if text is not None and text.upper() not in LEVELS:
        raise ApiError(
            Code.INVALID_COMPATIBILITY,
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive",
        )
    return None if text is None else text.upper()


def parse_mode(body: bytes) -> str | None:
    """Parse the mode in a body; None removes the mode. Raises ApiError."""
    text = _member(parse_body(body), "mode", str)
    if text is not None and text.upper() not in MODES:
        raise ApiError(Code.INVALID_MODE, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")
    return None if text is None else text.upper()


def _member(found: Json, name: str, kind: type) -> Any:
    value = found.get(name)
    if value is not None and not isinstance(value, kind):
        raise ApiError(_BAD_REQUEST, f"{name}: {str(value)[:100]!r} is no {kind.__name__}")
    return value


def _parsed(found: Json, name: str) -> Json | None:
    """Parse the metadata or rule set in the member `name` of a body. Raises ApiError."""
    is_metadata = name.lower().endswith("metadata")
    given = _member(found, name, dict)
    try:
        parsed = parse_metadata(given) if is_metadata else parse_rule_set(given)
        if parsed is not None and not is_metadata:
            check_rule_set(parsed)
    except ValueError as error:
        raise ApiError(_BAD_REQUEST, f"{name}: {error}") from None
    except InvalidRuleSet as error:
        raise ApiError(Code.INVALID_RULE_SET, str(error)) from None
    return parsed


def _number(found: Json, name: str, default: int) -> int:
    value = found.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 31:
        raise ApiError(_BAD_REQUEST, f"{name}: {str(value)[:100]!r} is no number of 32 bits")
    return value
