"""Avro: parsed and compared by Apache Avro's own library.

Its compatibility is `avro.compatibility`, a translation of Java's `SchemaCompatibility`. What it finds is worded as `Difference.java` of
Confluent's client does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from ottla.server.registry.schemas.avro_text import (
    PRIMITIVES,
    bare,
    canonical_text,
    normalized_text,
    resolved_text,
)
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
    """A parsed schema of Avro."""

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
    """The library's checker; also records the text of each path, which the library's result omits."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noted: dict[_Problem, None] = {}
        self._steps = 0

    def problems_of(self, result: _Result) -> list[_Problem]:
        """List the problems of the last result."""
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
        # The library makes this table anew for each field.
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
    """Parse a schema with the named types that it references, dependencies first. Raises InvalidText."""
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
    """Have the library build a schema without logical types, about which it warns and Java readers do not care."""
    plain = bare(tree, [str(each) for each in names.names])
    if isinstance(plain, str) and plain not in PRIMITIVES:
        return names.names[plain]
    made: avro.schema.Schema = avro.schema.make_avsc_object(plain, names)
    return made
