"""Shapes of JSON Schema: a schema cut into parts of one kind each, as the library of Confluent's registry sees it.

A schema may ask for several things at once: a type, an enum, an anyOf. Each is a part, and several parts together are an allOf. A schema
without a type has the type that its keywords are for. `$ref` is followed; where the draft ignores what is beside it, so do shapes.

Source: the loaders of everit-org/json-schema, which Confluent's `JsonSchema.java` uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from referencing import Specification
from referencing._core import Resolver
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT3, DRAFT4, DRAFT6, DRAFT7

from ottla.server.registry.schemas.format import InvalidText

Json = Any
ALL, ANY, ONE = "allOf", "anyOf", "oneOf"
_SNIFFED = (
    ("array", ("items", "additionalItems", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
               "maxContains", "unevaluatedItems")),
    ("object", ("properties", "required", "minProperties", "maxProperties", "dependencies", "dependentRequired",
                "dependentSchemas", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("string", ("minLength", "maxLength", "pattern", "format")),
)  # fmt: skip
"""Keywords of each type, in the order in which they are looked for."""

_TYPES = {"integer": "number"}
REFERENCES_MAX = 50
"""Length of a chain of references."""

_IGNORING = (DRAFT3, DRAFT4, DRAFT6, DRAFT7)
"""Drafts that ignore what is beside a `$ref`."""


@dataclass(eq=False)
class Shape:
    """Part of a schema: its kind, its JSON, and the resolver of its references.

    Kinds: string, number, boolean, null, object, array, enum, const, not, combined, empty (also `true`) and false.
    """

    kind: str
    tree: Json
    resolver: Resolver[Json] = field(repr=False)
    criterion: str = ""
    parts: tuple[Shape, ...] = ()
    is_integer: bool = False

    @cached_property
    def identity(self) -> object:
        """Hashable value; shapes with the same meaning have equal values."""
        if self.kind == "combined":
            return (self.criterion, frozenset(each.identity for each in self.parts))
        return (self.kind, self.is_integer, json.dumps(self.tree, sort_keys=True))

    def get(self, keyword: str, default: Json = None) -> Json:
        return self.tree.get(keyword, default) if isinstance(self.tree, dict) else default

    def number(self, keyword: str) -> float | int | None:
        value = self.get(keyword)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def mapping(self, keyword: str) -> Mapping[str, Json]:
        value = self.get(keyword)
        return value if isinstance(value, dict) else {}

    def schema(self, keyword: str) -> Json | None:
        """Return the subschema under a keyword; None if there is none."""
        value = self.get(keyword)
        return value if isinstance(value, dict | bool) else None


class Shapes:
    """Maker and cache of the shapes of one document."""

    def __init__(self, tree: Json, resolver: Resolver[Json], specification: Specification[Json]) -> None:
        self._specification = specification
        self._ignores = specification in _IGNORING
        self._made: dict[int, Shape] = {}
        self.root = self.of(tree, resolver)

    def of(self, tree: Json, resolver: Resolver[Json]) -> Shape:
        """Return the shape of a schema, made or cached. Raises InvalidText if a reference cannot be resolved."""
        known = self._made.get(id(tree)) if isinstance(tree, dict) else None
        if known is None:
            known = self._shape(tree, resolver)
            if isinstance(tree, dict):
                self._made[id(tree)] = known
        return known

    def below(self, shape: Shape, tree: Json) -> Shape:
        """Return the shape of `tree`, a subschema of `shape`."""
        return self.of(tree, shape.resolver)

    def _shape(self, tree: Json, resolver: Resolver[Json]) -> Shape:
        for _ in range(REFERENCES_MAX):
            if isinstance(tree, dict) and isinstance(tree.get("$id"), str):
                resolver = resolver.in_subresource(self._specification.create_resource(tree))
            if not (isinstance(tree, dict) and isinstance(tree.get("$ref"), str)):
                return self._plain(tree, resolver)
            if not self._ignores and _has_more(tree):
                beside = {name: value for name, value in tree.items() if name != "$ref"}
                parts = (self._shape({"$ref": tree["$ref"]}, resolver), self._plain(beside, resolver))
                return Shape("combined", tree, resolver, ALL, parts)
            tree, resolver = resolve(tree["$ref"], resolver)
            if isinstance(tree, dict) and (known := self._made.get(id(tree))) is not None:
                return known
        raise InvalidText("a reference refers to itself")

    def _plain(self, tree: Json, resolver: Resolver[Json]) -> Shape:
        if not isinstance(tree, dict):
            return Shape("empty" if tree is True else "false", tree, resolver)
        parts = [Shape(kind, tree, resolver) for kind in ("enum", "const", "not") if kind in tree]
        for criterion in (ALL, ANY, ONE):
            if isinstance(tree.get(criterion), list):
                shape = Shape("combined", tree, resolver, criterion)
                # What is inside may lead back to here.
                self._made.setdefault(id(tree), shape)
                shape.parts = tuple(self.of(each, resolver) for each in tree[criterion])
                parts.append(shape)
        parts += self._typed(tree, resolver)
        self._made.pop(id(tree), None)
        if not parts:
            return Shape("empty", tree, resolver)
        return parts[0] if len(parts) == 1 else Shape("combined", tree, resolver, ALL, tuple(parts))

    def _typed(self, tree: Mapping[str, Json], resolver: Resolver[Json]) -> list[Shape]:
        kind = tree.get("type")
        if isinstance(kind, list):
            return [Shape("combined", tree, resolver, ANY, tuple(_of_type(each, tree, resolver) for each in kind))]
        if isinstance(kind, str):
            return [_of_type(kind, tree, resolver)]
        found = next((name for name, keywords in _SNIFFED if any(each in tree for each in keywords)), None)
        return [] if found is None else [Shape(found, tree, resolver)]


def _of_type(kind: object, tree: Mapping[str, Json], resolver: Resolver[Json]) -> Shape:
    name = str(kind)
    return Shape(_TYPES.get(name, name), tree, resolver, is_integer=name == "integer")


def _has_more(tree: Mapping[str, Json]) -> bool:
    annotations = {
        "$ref",
        "title",
        "description",
        "$comment",
        "default",
        "examples",
        "$id",
        "$schema",
        "$defs",
        "definitions",
    }
    return any(each not in annotations for each in tree)


def resolve(reference: str, resolver: Resolver[Json]) -> tuple[Json, Resolver[Json]]:
    """Return the target of a reference, and its resolver. Raises InvalidText if the target is not registered.

    Nothing is downloaded.
    """
    try:
        found = resolver.lookup(reference)
    except (Unresolvable, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidText(f"the reference {reference!r} leads nowhere") from None
    if not isinstance(found.contents, dict | bool):
        raise InvalidText(f"the reference {reference!r} leads to no schema")
    return found.contents, found.resolver
