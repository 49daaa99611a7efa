"""JSON Schema: drafts 4 to 2020-12, by the libraries `jsonschema` (is a text a schema?) and `referencing` (what does it refer to?).

The canonical text is the JSON without spaces; a normalized one has its members sorted. A schema refers to others by the names that its
references have, and to nothing else: no address is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urljoin

import jsonschema
import jsonschema.exceptions
import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema.validators import validator_for

from ottla.server.registry.schemas.format import InvalidText, ParsedSchema
from ottla.server.registry.schemas.json_comparison import differences
from ottla.server.registry.schemas.json_rules import COMPATIBLE, LENIENT
from ottla.server.registry.schemas.json_shapes import Shapes, resolve
from ottla.wire.foreign_json import parse_json

DEFAULT = jsonschema.Draft7Validator
_VALUES = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are no schemas, whatever they look like."""


class JsonSchema:
    """Parsed JSON Schema."""

    def __init__(self, tree: Any, shapes: Shapes, registry: referencing.Registry[Any]) -> None:
        self.tree, self.shapes, self.registry = tree, shapes, registry

    @cached_property
    def canonical(self) -> str:
        return _dumped(self.tree)

    def normalized(self) -> str:
        return _dumped(self.tree, sorts=True)

    def formatted(self, name: str) -> str:
        return self.canonical

    def problems_reading(self, writer: ParsedSchema, *, is_lenient: bool = False) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return [str(each) for each in differences(writer.shapes, self.shapes, LENIENT if is_lenient else COMPATIBLE)]

    def is_like(self, other: ParsedSchema) -> bool:
        return isinstance(other, JsonSchema) and self.normalized() == other.normalized()


def _dumped(tree: Any, *, sorts: bool = False) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False, sort_keys=sorts)


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a JSON Schema. `references`: texts of referenced schemas by name. Raises InvalidText."""
    try:
        tree = parse_json(text)
        others = {name: parse_json(each) for name, each in references.items()}
    except ValueError as error:
        raise InvalidText(str(error)) from None
    if not isinstance(tree, dict | bool):
        raise InvalidText("a JSON Schema is an object, true or false")
    try:
        return _checked(tree, others)
    except InvalidText:
        raise
    except jsonschema.exceptions.SchemaError as error:
        raise InvalidText(f"#{''.join(f'/{each}' for each in error.path)}: {error.message[:500]}") from None
    except (referencing.exceptions.Unresolvable, ValueError, TypeError, AttributeError, KeyError) as error:
        # The libraries trust the types of `$schema`, `$id` and `$ref`.
        raise InvalidText(f"it cannot be read: {str(error)[:200]}") from None


def _checked(tree: Any, others: Mapping[str, Any]) -> JsonSchema:
    validator = validator_for(tree, default=DEFAULT)
    validator.check_schema(tree)
    specification = _specification(validator)
    resources = [(name, specification.create_resource(each)) for name, each in others.items()]
    own = specification.create_resource(tree)
    registry = referencing.Registry().with_resources([*resources, (own.id() or "", own)])
    registry = registry.with_resources(_beside(own.id(), resources)).crawl()
    resolver = registry.resolver(own.id() or "")
    for each in _references(tree):
        resolve(each, resolver)
    return JsonSchema(tree, Shapes(tree, resolver, specification), registry)


def _specification(validator: Any) -> referencing.Specification[Any]:
    return referencing.jsonschema.specification_with(
        validator.META_SCHEMA.get("$schema", validator.META_SCHEMA.get("$id"))
    )


def _beside(own_id: str | None, resources: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield referenced schemas at addresses next to `own_id`, so that relative references find them."""
    if own_id:
        for name, resource in resources:
            yield urljoin(own_id, name), resource


def _references(tree: Any) -> Iterator[str]:
    """Yield the references in a schema, without those in subschemas with an `$id`, which changes their base address."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            if each is not tree and isinstance(each.get("$id"), str):
                continue
            if isinstance(each.get("$ref"), str):
                yield each["$ref"]
            waiting += [value for name, value in each.items() if name not in _VALUES]
