"""Avro: parsed and compared by Apache Avro's own library, and written as texts.

Its compatibility is `avro.compatibility`, a translation of Java's `SchemaCompatibility`. What it finds is worded as `Difference.java` of
Confluent's client does.

The canonical text is registered. It is what Java's `Schema.toString()` writes: members in one order, names without the namespace that is
known, no attributes without meaning, all others in their order. A normalized text also has these sorted. A resolved one has the definitions
that were referred to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from ottla.server.registry.schemas.format import InvalidText, ParsedSchema
from ottla.wire.foreign_json import parse_json

_PROBLEMS = {
    "fixed_size_mismatch": (
        "The size of FIXED type field at path '{path}' in the %s schema does not match with the %s schema"
    ),
    "type_mismatch": "The type (path '{path}') of a field in the %s schema does not match with the %s schema",
    "name_mismatch": "The name of the schema has changed (path '{path}')",
    "missing_enum_symbols": "The %s schema is missing enum symbols '{text}' at path '{path}' in the %s schema",
    "missing_union_branch": "The %s schema is missing a type inside a union field at path '{path}' in the %s schema",
    "reader_field_missing_default_value": (
        "The field '{text}' at path '{path}' in the %s schema has no default value and is missing in the %s schema"
    ),
}

STEPS_MAX = 20_000
"""Pairs of types that are compared: each branch of a union with each of another one."""


class AvroSchema:
    """Parsed Avro schema."""

    def __init__(self, tree: Any, references: list[Any], names: list[str], parsed: avro.schema.Schema) -> None:
        self._tree, self._references, self._names = tree, references, names
        self.parsed = parsed

    @cached_property
    def canonical(self) -> str:
        return canonical_text(self._tree, self._names)

    def normalized(self) -> str:
        return normalized_text(self._tree, self._names)

    def formatted(self, name: str) -> str:
        return resolved_text(self._tree, self._references) if name == "resolved" else self.canonical

    def problems_reading(self, writer: ParsedSchema, *, is_lenient: bool = False) -> list[str]:
        assert isinstance(writer, AvroSchema)
        checker = _Checker()
        found = checker.get_compatibility(self.parsed, writer.parsed)
        if found.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return []
        return [_problem(*each) for each in checker.problems_of(found)]

    def is_like(self, other: ParsedSchema) -> bool:
        return isinstance(other, AvroSchema) and self._meaning == other._meaning

    @cached_property
    def _meaning(self) -> str:
        return resolved_text(self._tree, self._references, sorts=True)


_Result = avro.compatibility.SchemaCompatibilityResult
_Problem = tuple[str, str, str]
"""Kind, path and text."""


class _Checker(avro.compatibility.ReaderWriterCompatibilityChecker):
    """Compatibility checker of the avro library. It also records the path of each problem, unlike the library."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noted: dict[_Problem, None] = {}
        self._steps = 0

    def problems_of(self, result: _Result) -> list[_Problem]:
        """Return the problems in a result, each with kind, path and message."""
        self._note(result)
        # Branches of a union that were tried and did not fit have left notes, too.
        noted = [each for each in self._noted if each[1] in result.locations and each[2] in result.messages]
        if sorted(kind for kind, _, _ in noted) == sorted(each.value for each in result.incompatibilities):
            return noted
        path, text = ", ".join(sorted(result.locations)), ", ".join(sorted(result.messages))
        return [(each.value, path, text) for each in result.incompatibilities]

    def get_compatibility(
        self,
        reader: avro.schema.Schema,
        writer: avro.schema.Schema,
        reference_token: str = avro.compatibility.ReaderWriterCompatibilityChecker.ROOT_REFERENCE_TOKEN,
        location: list[str] | None = None,
    ) -> _Result:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise InvalidText(f"to compare it takes more than {STEPS_MAX:,} steps")
        return super().get_compatibility(reader, writer, reference_token, location)

    def check_reader_writer_record_fields(
        self, reader: avro.schema.RecordSchema, writer: avro.schema.RecordSchema, location: list[str]
    ) -> _Result:
        # The library makes this table again for each field.
        written = {each.name: each for each in writer.fields}
        result = avro.compatibility.CompatibleResult
        for index, each in enumerate(reader.fields):
            names = (each.name, *(each.props.get("aliases") or ()))
            found = self._field(
                each,
                next((written[name] for name in names if name in written), None),
                [*location, "fields", str(index)],
            )
            self._note(found)
            result = avro.compatibility.merge(result, found)
        return result

    def _field(self, reader: avro.schema.Field, written: avro.schema.Field | None, location: list[str]) -> _Result:
        if written is not None:
            return self.get_compatibility(reader.type, written.type, "type", location)
        if reader.has_default:
            return avro.compatibility.CompatibleResult
        kind = avro.compatibility.SchemaIncompatibilityType.reader_field_missing_default_value
        return avro.compatibility.incompatible(kind, reader.name, location)

    def _note(self, result: _Result) -> None:
        if len(result.incompatibilities) == len(result.locations) == len(result.messages) == 1:
            [kind], [path], [text] = result.incompatibilities, result.locations, result.messages
            self._noted[kind.value, path, text] = None


def _problem(kind: str, path: str, text: str) -> str:
    path, text = path.replace("%", "%%"), text.replace("%", "%%")
    described = _PROBLEMS[kind].format(path=path, text=text)
    return f"{{errorType:'{kind.upper()}', description:'{described}', additionalInfo:'{text}'}}"


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parse a schema. `references`: texts of referenced schemas by name, dependencies first. Raises InvalidText."""
    names = avro.name.Names()
    try:
        trees = [parse_json(each) for each in references.values()]
        for each in trees:
            _made(each, names)
        tree = parse_json(text)
        known = [str(each) for each in names.names]
        return AvroSchema(tree, trees, known, _made(tree, names))
    except (ValueError, KeyError, TypeError, AttributeError, avro.errors.AvroException) as error:
        raise InvalidText(f"{error}") from None


def _made(tree: Any, names: avro.name.Names) -> avro.schema.Schema:
    """Build the avro library's schema without logical types: the library warns about them, Java ignores them."""
    plain = bare(tree, [str(each) for each in names.names])
    if isinstance(plain, str) and plain not in PRIMITIVES:
        return names.names[plain]
    made: avro.schema.Schema = avro.schema.make_avsc_object(plain, names)
    return made


PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
_RESERVED = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)  # fmt: skip
_OF_FIELDS = frozenset({"default", "doc", "name", "order", "type", "aliases"})


def dumped(tree: Any) -> str:
    """Dump JSON like Java: without spaces, and without escapes for non-ASCII characters."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def canonical_text(tree: Any, known: Iterable[str] = ()) -> str:
    """Return the canonical text of a schema. `known`: full names of referenced types."""
    return dumped(_Writer(known).schema(tree, ""))


def normalized_text(tree: Any, known: Iterable[str] = ()) -> str:
    """Return the normalized text of a schema. `known`: full names of referenced types."""
    return dumped(_Writer(known, sorts=True).schema(tree, ""))


def resolved_text(tree: Any, references: Iterable[Any], *, sorts: bool = False) -> str:
    """Return a schema's text with the definitions of referenced types included."""
    definitions: dict[str, Any] = {}
    for each in references:
        writer = _Writer(definitions, full_names=True)
        definitions |= {found["name"]: found for found in _definitions(writer.schema(each, ""))}
    return dumped(_Writer((), sorts=sorts, definitions=definitions).schema(tree, ""))


def bare(tree: Any, known: Iterable[str] = ()) -> Any:
    """Return the parts of a schema that affect how data are read: full type names, aliases, fields and defaults."""
    return _Writer(known, full_names=True, bare=True).schema(tree, "")


def _definitions(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the definitions of all named types in a schema that `_Writer` has converted."""
    if isinstance(tree, list):
        for each in tree:
            yield from _definitions(each)
    elif isinstance(tree, dict):
        if tree["type"] in NAMED:
            yield tree
        for part in (tree.get("items"), tree.get("values"), *(each["type"] for each in tree.get("fields", ()))):
            yield from _definitions(part)


class _Writer:
    """Converter of a schema's JSON to one of the output forms. It visits types in the order of parsing."""

    def __init__(
        self,
        known: Iterable[str],
        *,
        sorts: bool = False,
        full_names: bool = False,
        bare: bool = False,
        definitions: Mapping[str, Any] | None = None,
    ) -> None:
        self._known = set(known)
        self._sorts, self._full_names, self._bare = sorts, full_names, bare
        self._definitions = definitions or {}

    def schema(self, tree: Any, space: str) -> Any:
        """Convert a schema within the namespace `space`. Raises InvalidText if the schema is malformed."""
        if isinstance(tree, list):
            return [self.schema(each, space) for each in tree]
        if isinstance(tree, str):
            return tree if tree in PRIMITIVES else self._reference(tree, space)
        if not isinstance(tree, dict):
            raise InvalidText(f"No type: {tree!r:.200}")
        kind = tree.get("type")
        if not isinstance(kind, str):
            raise InvalidText(f"No type: {tree!r:.200}")
        if kind in NAMED:
            return self._named(kind, tree, space)
        if kind in PRIMITIVES:
            more = self._more(tree, _RESERVED)
            return {"type": kind, **more} if more else kind
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in tree:
                raise InvalidText(f"{kind} has no {part} type: {tree!r:.200}")
            return {"type": kind, part: self.schema(tree[part], space), **self._more(tree, _RESERVED)}
        return self._reference(kind, space)

    def _reference(self, name: str, space: str) -> Any:
        full = _full(name, space)
        if full not in self._known and full not in self._definitions and "." not in name:
            full = name  # a type without a namespace may be meant
        if full in self._definitions and full not in self._known:
            return self.schema(self._definitions[full], space)
        if full not in self._known:
            raise InvalidText(f'Undefined name: "{full}"')
        return self._shown(full, space)

    def _named(self, kind: str, tree: dict[str, Any], space: str) -> Any:
        name, own_space = tree.get("name"), tree.get("namespace")
        if not isinstance(name, str) or not name or not isinstance(own_space, str | None):
            raise InvalidText(f"No name in schema: {tree!r:.200}")
        full = _full(name, space if own_space is None else own_space)
        if full in self._known:
            raise InvalidText(f"Can't redefine: {full}")
        self._known.add(full)
        inner, _, simple = full.rpartition(".")
        written: dict[str, Any] = {"type": kind, "name": full if self._full_names else simple}
        if inner != space and not self._full_names:
            written["namespace"] = inner
        if isinstance(tree.get("doc"), str) and not self._bare and (tree["doc"] or not self._sorts):
            written["doc"] = tree["doc"]
        if kind == "enum":
            written["symbols"] = tree.get("symbols")
            if "default" in tree:
                written["default"] = tree["default"]
        elif kind == "fixed":
            written["size"] = tree.get("size")
        else:
            written["fields"] = self._fields(tree, inner)
        written |= self._more(tree, _RESERVED | {"default"} if kind == "enum" else _RESERVED)
        if aliases := _aliases(tree):
            shown = [self._shown(_full(each, inner), inner) for each in aliases]
            written["aliases"] = sorted(shown) if self._sorts else shown
        return written

    def _fields(self, tree: dict[str, Any], space: str) -> list[Any]:
        fields = tree.get("fields")
        if not isinstance(fields, list):
            raise InvalidText(f"Record has no fields: {tree!r:.200}")
        return [self._field(each, space) for each in fields]

    def _field(self, tree: Any, space: str) -> dict[str, Any]:
        if not isinstance(tree, dict) or not isinstance(tree.get("name"), str) or "type" not in tree:
            raise InvalidText(f"No field name or type: {tree!r:.200}")
        written = {"name": tree["name"], "type": self.schema(tree["type"], space)}
        if isinstance(tree.get("doc"), str) and not self._bare:
            written["doc"] = tree["doc"]
        if "default" in tree:
            # Whether there is one matters to a reader, and not which.
            written["default"] = None if self._bare else self._value(tree["default"])
        if tree.get("order", "ascending") != "ascending" and not self._bare:
            written["order"] = tree["order"]
        if aliases := _aliases(tree):
            written["aliases"] = sorted(aliases) if self._sorts else aliases
        return written | self._more(tree, _OF_FIELDS)

    def _more(self, tree: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
        if self._bare:
            return {}
        names = [each for each in tree if each not in reserved]
        return {each: self._value(tree[each]) for each in (sorted(names) if self._sorts else names)}

    def _value(self, value: Any) -> Any:
        """Copy a JSON value that is no schema. If the output is normalized, sort the members of objects."""
        return json.loads(json.dumps(value, sort_keys=True)) if self._sorts else value

    def _shown(self, full: str, space: str) -> str:
        inner, _, simple = full.rpartition(".")
        return simple if inner == space and not self._full_names else full


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _aliases(tree: dict[str, Any]) -> list[str]:
    aliases = tree.get("aliases")
    if aliases is None:
        return []
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InvalidText(f"aliases not an array of names: {aliases!r:.200}")
    return list(dict.fromkeys(aliases))
