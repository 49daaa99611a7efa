"""Texts of Protobuf's schemas: a tree is written by the parser's own library; a descriptor becomes a tree first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from proto_schema_parser import ast
from proto_schema_parser.generator import Generator

_Field = pb.FieldDescriptorProto
_NAMES = {each.number: each.name.removeprefix("TYPE_").lower() for each in _Field.Type.DESCRIPTOR.values}


def written(tree: ast.File) -> str:
    """Write a tree."""
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
    """Copy of a tree without comments, with sorted imports and options."""
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
    """Make the tree of a descriptor."""
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
