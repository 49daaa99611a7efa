"""Table of the formats. Each is imported when the first schema of it is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ottla.server.registry.records import AVRO, JSON_SCHEMA, PROTOBUF
from ottla.server.registry.schemas.format import TEXT_BYTES_MAX, InvalidText, ParsedSchema

_MODULES = {JSON_SCHEMA: "json_schema", PROTOBUF: "protobuf", AVRO: "avro"}
_LIBRARIES = "pip install 'ottla[registry]'"

TYPES = tuple(_MODULES)


def parse(kind: str, text: str, references: Mapping[str, str]) -> ParsedSchema:
    """Parse a schema of the type `kind`. `references`: texts of referenced schemas by name. Raises InvalidText."""
    if kind not in _MODULES:
        raise InvalidText(f"Invalid schema type {kind}")
    if len(text) > TEXT_BYTES_MAX:
        raise InvalidText(f"it has more than {TEXT_BYTES_MAX:,} characters")
    try:
        module = import_module(f"{__package__}.{_MODULES[kind]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        raise InvalidText(f"this registry lacks the library {error.name}: {_LIBRARIES}") from None
    try:
        parsed: ParsedSchema = module.parse(text, references)
    except RecursionError:
        raise InvalidText("it is nested too deeply") from None
    return parsed
