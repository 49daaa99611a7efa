"""Port of a format with schemas, and the making of a codec from the text of a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from ottla.wire.time_slice import paced

AVRO, JSON_SCHEMA, PROTOBUF = "avro", "jsonschema", "protobuf"
KINDS = {"AVRO": AVRO, "JSON": JSON_SCHEMA, "PROTOBUF": PROTOBUF}
"""Formats by the registry's names."""

REGISTRY_NAMES = {kind: name for name, kind in KINDS.items()}
ELEMENTS_AT_ONCE, CHARACTERS_AT_ONCE = 5_000, 256 * 1024
"""What is turned into text at once."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class BadData(ValueError):
    """Error: a value does not fit its schema. The message is written for the client."""


class Codec(Protocol):
    """Codec of the values of one schema; used in threads."""

    @property
    def name(self) -> str | None:
        """Full name of the schema's record or message, or its title; None if there is none."""

    def encode(self, data: Any) -> bytes:
        """Convert JSON to the bytes that follow the schema id. Raises BadData."""

    def decode(self, data: memoryview) -> Any:
        """Convert the bytes that follow the schema id to JSON. Raises BadData."""


def make(kind: str, text: str, references: Mapping[str, str]) -> Codec:
    """Parse a schema and return its codec. Raises InvalidText. Call this in a thread, because it may take seconds.

    `references`: texts of referenced schemas by name, dependencies first.
    """
    from ottla.server.registry.schemas import formats
    from ottla.server.registry.schemas.format import InvalidText

    parsed = formats.parse(REGISTRY_NAMES[kind], text, references)
    module = import_module(f"{__package__}.{_MODULES[kind]}")
    try:
        codec: Codec = module.codec_of(parsed)
    except RecursionError:
        raise InvalidText("it is nested too deeply") from None
    return codec


_MODULES = {AVRO: "avro", JSON_SCHEMA: "json_schema", PROTOBUF: "protobuf"}


def dumped(value: Any) -> str:
    """Convert a value to JSON text. Raises ValueError if the value has no JSON form."""
    if not _is_long(value):
        return _ENCODER.encode(value)
    give_way = paced()
    pieces = []
    # Made at once it would hold the interpreter's lock for too long.
    for piece in _ENCODER.iterencode(value):
        give_way()
        pieces.append(piece)
    return "".join(pieces)


def _is_long(value: Any) -> bool:
    """Tell whether a value has very many elements or characters."""
    waiting, elements, characters = [value], 0, 0
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            characters += len(each)
        elif isinstance(each, dict):
            elements += len(each)
            characters += sum(map(len, each))
            waiting += each.values()
        elif isinstance(each, list):
            elements += len(each)
            waiting += each
        if elements > ELEMENTS_AT_ONCE or characters > CHARACTERS_AT_ONCE:
            return True
    return False
