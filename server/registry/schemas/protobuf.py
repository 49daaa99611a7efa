"""Protobuf: proto2, proto3 and editions, parsed by `proto-schema-parser`, checked by `protobuf` itself, and written as texts.

A schema may be sent as its text, or as the base64 of its descriptor, as the serializers of some languages do. The canonical text has the
format of the parser's library, and keeps comments. Clients that cannot parse a text ask for the form "serialized".
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.generator import Generator
from proto_schema_parser.parser import Parser

from ottla.server.admin.console.protobuf_values import BadImports, imported_files
from ottla.server.registry.schemas.format import InvalidText, ParsedSchema
from ottla.server.registry.schemas.proto_descriptors import describe
from ottla.server.registry.schemas.proto_rules import Known, differences, messages_of

NAME = "default.proto"
NESTING_MAX = 60
TEXT_MAX = 100_000
"""Characters of a text: its parser takes a second for some ten thousand."""

IMPORTS_MAX = 1000
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class ProtobufSchema:
    """Parsed Protobuf schema."""

    def __init__(self, tree: ast.File, file: Any, imported: list[Any], *, is_described: bool) -> None:
        self._tree, self.file, self.imported = tree, file, imported
        self._is_described = is_described

    @cached_property
    def canonical(self) -> str:
        return written(self._tree)

    def normalized(self) -> str:
        return written(plain(self._tree))

    def formatted(self, name: str) -> str:
        if name == "serialized":
            return b64encode(self.file.SerializeToString(deterministic=True)).decode()
        return self.canonical

    def problems_reading(self, writer: ParsedSchema, *, is_lenient: bool = False) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        found = differences(writer.file, writer.messages, self.file, self.messages)
        return [str(each) for each in found]

    @cached_property
    def messages(self) -> Mapping[str, Known]:
        """All message types that this schema can use, by full name: its own and imported ones."""
        found = dict(messages_of(self.file, ""))
        for each in self.imported:
            # The same file in both schemas holds the same messages.
            origin = b64encode(each.SerializeToString(deterministic=True)).decode()
            found |= {name: known for name, known in messages_of(each, origin) if name not in found}
        return found

    def is_like(self, other: ParsedSchema) -> bool:
        if not isinstance(other, ProtobufSchema):
            return False
        if self._is_described or other._is_described:
            return self._meaning == other._meaning
        return self.normalized() == other.normalized()

    @cached_property
    def _meaning(self) -> bytes:
        """Serialized descriptor for comparisons. It has no comments, and its imports and options are sorted."""
        file = pb.FileDescriptorProto()
        file.CopyFrom(describe(plain(self._tree), NAME, self.imported))
        data: bytes = file.SerializeToString(deterministic=True)
        return data


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a schema. `references`: texts of imported files by the names in imports. Raises InvalidText."""
    known: dict[str, Any] = {}
    for name, each in references.items():
        tree, file = _read(each)
        known[name] = _described(tree, file, name, known)
    tree, file = _read(text)
    is_described = file is not None
    made = _described(tree, file, NAME, known)
    imported = _imported(made, known)
    _check(made, imported)
    return ProtobufSchema(tree, made, imported, is_described=is_described)


def _described(tree: ast.File, file: Any, name: str, known: Mapping[str, Any]) -> Any:
    if file is not None:
        copy = pb.FileDescriptorProto()
        copy.CopyFrom(file)
        copy.name = name
        copy.ClearField("source_code_info")
        return copy
    names = [each.name for each in tree.file_elements if isinstance(each, ast.Import)]
    try:
        return describe(tree, name, _with_imports(names, known))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        if isinstance(error, InvalidText):
            raise
        raise InvalidText(str(error)[:500]) from None


def _with_imports(names: list[str], known: Mapping[str, Any]) -> list[Any]:
    return _imported(pb.FileDescriptorProto(dependency=names), known)


def _imported(file: Any, known: Mapping[str, Any]) -> list[Any]:
    """Return all files that `file` imports, dependencies first. Raises InvalidText if a file is missing."""
    try:
        return imported_files(file, known, IMPORTS_MAX)
    except BadImports as error:
        if error.missing is None:
            raise InvalidText(str(error)) from None
        raise InvalidText(f'the import "{error.missing}" is none of the references') from None


def _check(file: Any, imported: list[Any]) -> None:
    """Check that Protobuf can build the schema. Raises InvalidText."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for each in (*imported, file):
            pool.Add(each)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidText(str(error)[:500]) from None


def _read(text: str) -> tuple[ast.File, Any]:
    """Parse a schema's text or base64 descriptor. Raises InvalidText.

    Returns the syntax tree, and the descriptor (None if `text` is no descriptor).
    """
    stripped = text.strip()
    if _BASE64.fullmatch(stripped):
        file = pb.FileDescriptorProto()
        try:
            file.ParseFromString(b64decode(stripped, validate=True))
            return tree_of(file), file
        except (DecodeError, ValueError, KeyError, IndexError) as error:
            raise InvalidText(f"it is neither a text nor a descriptor: {str(error)[:200]}") from None
    return _parsed(text), None


class _Refusing(ErrorListener):  # type: ignore[misc]
    """Error listener of the parser. It raises InvalidText at the first error instead of printing it."""

    def syntaxError(self, recognizer: Any, offendingSymbol: Any, line: int, column: int, msg: str, e: Any) -> None:
        raise InvalidText(f"line {line}:{column} {msg[:300]}")


def _refuse_errors(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Refusing())


def _parsed(text: str) -> ast.File:
    if len(text) > TEXT_MAX:
        raise InvalidText(f"it has more than {TEXT_MAX:,} characters")
    depth = deepest = 0
    for character in re.findall("[{}<>\\[\\]]", text):
        depth += 1 if character in "{<[" else -1
        deepest = max(deepest, depth)
    if deepest > NESTING_MAX:
        raise InvalidText(f"it is nested more than {NESTING_MAX} deep")
    try:
        tree: ast.File = Parser(setup_lexer=_refuse_errors, setup_parser=_refuse_errors).parse(text)
    except InvalidText:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise InvalidText(str(error)[:500] or type(error).__name__) from None
    if tree.syntax not in (None, "proto2", "proto3"):
        raise InvalidText(f"the syntax {tree.syntax!r} is not known")
    if not any(isinstance(each, ast.Message | ast.Enum | ast.Import) for each in tree.file_elements):
        raise InvalidText("it has neither a message, nor an enum, nor an import")
    return tree


_Field = pb.FieldDescriptorProto
_NAMES = {each.number: each.name.removeprefix("TYPE_").lower() for each in _Field.Type.DESCRIPTOR.values}


def written(tree: ast.File) -> str:
    """Convert a syntax tree to text."""
    generator = Generator()

    def as_line(element: Any) -> Any:
        # The library quotes whatever value an option of a file has; as a comment a line is written as it is.
        return ast.Comment(generator._generate_option(element)) if isinstance(element, ast.Option) else element

    lines = ast.File(
        syntax=tree.syntax, edition=tree.edition, file_elements=[as_line(each) for each in tree.file_elements]
    )
    text: str = generator.generate(lines)
    return text.rstrip() + "\n"


def plain(tree: ast.File) -> ast.File:
    """Copy a syntax tree; remove comments, and sort imports and options."""
    elements = _uncommented(tree.file_elements)
    rank = {ast.Package: 0, ast.Import: 1, ast.Option: 2}
    elements.sort(key=lambda each: (rank.get(type(each), 3), str(each.name) if type(each) in rank else ""))
    return ast.File(syntax=tree.syntax, edition=tree.edition, file_elements=elements)


def _uncommented(elements: list[Any]) -> list[Any]:
    kept = []
    for each in elements:
        if isinstance(each, ast.Comment):
            continue
        if isinstance(getattr(each, "elements", None), list):
            each = type(each)(**{**vars(each), "elements": _uncommented(each.elements)})
        kept.append(each)
    return kept


def tree_of(file: Any) -> ast.File:
    """Make the syntax tree of a descriptor."""
    elements: list[Any] = [ast.Package(file.package)] if file.package else []
    public = set(file.public_dependency)
    elements += [ast.Import(name, public=index in public) for index, name in enumerate(file.dependency)]
    elements += _options(file.options)
    elements += [_enum(each) for each in file.enum_type]
    elements += [_message(each, file.syntax) for each in file.message_type]
    for service in file.service:
        methods = [
            ast.Method(
                each.name,
                ast.MessageType(each.input_type, each.client_streaming),
                ast.MessageType(each.output_type, each.server_streaming),
            )
            for each in service.method
        ]
        elements.append(ast.Service(service.name, list(methods)))
    return ast.File(syntax=file.syntax or "proto2", file_elements=elements)


def _message(message: Any, syntax: str) -> ast.Message:
    elements: list[Any] = list(_options(message.options))
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    oneofs = {index: ast.OneOf(each.name) for index, each in enumerate(message.oneof_decl)}
    placed = set()
    for field in message.field:
        made = _field(field, syntax, entries)
        if not field.HasField("oneof_index") or field.proto3_optional:
            elements.append(made)
            continue
        oneof = oneofs[field.oneof_index]
        oneof.elements.append(made)
        if field.oneof_index not in placed:
            placed.add(field.oneof_index)
            elements.append(oneof)
    ranges = [_range(each.start, each.end - 1) for each in message.reserved_range]
    elements += [ast.Reserved(ranges=ranges)] if ranges else []
    elements += [ast.Reserved(names=list(message.reserved_name))] if message.reserved_name else []
    extensions = [_range(each.start, each.end - 1) for each in message.extension_range]
    elements += [ast.ExtensionRange(extensions)] if extensions else []
    elements += [_enum(each) for each in message.enum_type]
    elements += [_message(each, syntax) for each in message.nested_type if not each.options.map_entry]
    return ast.Message(message.name, elements)


def _field(field: Any, syntax: str, entries: dict[str, Any]) -> Any:
    options = list(_options(field.options))
    if field.HasField("default_value"):
        options.append(ast.Option("default", _default(field)))
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == _Field.LABEL_REPEATED else None
    if entry is not None:
        key, value = (_type(each) for each in entry.field)
        return ast.MapField(field.name, field.number, key, value, options)
    cardinality = ast.FieldCardinality(_Field.Label.Name(field.label).removeprefix("LABEL_"))
    is_plain = cardinality == ast.FieldCardinality.OPTIONAL and (
        field.HasField("oneof_index") and not field.proto3_optional or syntax == "proto3" and not field.proto3_optional
    )
    return ast.Field(field.name, field.number, _type(field), None if is_plain else cardinality, options)


def _type(field: Any) -> str:
    return str(field.type_name) or _NAMES[field.type]


def _default(field: Any) -> Any:
    if field.type == _Field.TYPE_STRING:
        return field.default_value
    return ast.Identifier(field.default_value)


def _enum(enum: Any) -> ast.Enum:
    elements: list[Any] = list(_options(enum.options))
    elements += [ast.EnumValue(each.name, each.number, list(_options(each.options))) for each in enum.value]
    ranges = [_range(each.start, each.end) for each in enum.reserved_range]
    elements += [ast.EnumReserved(ranges=ranges)] if ranges else []
    elements += [ast.EnumReserved(names=list(enum.reserved_name))] if enum.reserved_name else []
    return ast.Enum(enum.name, elements)


def _options(options: Any) -> Iterator[ast.Option]:
    for field, value in options.ListFields():
        if field.is_extension or field.is_repeated or field.message_type is not None:
            continue
        if field.enum_type is not None:
            value = ast.Identifier(field.enum_type.values_by_number[value].name)
        yield ast.Option(field.name, value)


def _range(start: int, end: int) -> str:
    return str(start) if start == end else f"{start} to {end}"
