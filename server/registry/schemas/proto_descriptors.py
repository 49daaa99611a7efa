"""Descriptors of Protobuf's schemas: made from the tree of a text, so that two schemas can be compared, and clients can have them.

Options that a schema defines itself are in the text alone: a descriptor holds them only with the extension that defines them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from google.protobuf import descriptor_pb2 as pb
from proto_schema_parser import ast

from ottla.server.registry.schemas.format import InvalidText

_Field = pb.FieldDescriptorProto
SCALARS: Mapping[str, int] = {
    each.name.removeprefix("TYPE_").lower(): each.number
    for each in _Field.Type.DESCRIPTOR.values
    if each.name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_KEYS = frozenset(SCALARS) - {"float", "double", "bytes"}
_FIELD_MAX = (1 << 29) - 1
_ENUM_MAX = (1 << 31) - 1
Symbols = dict[str, int]
"""Types by full name: TYPE_MESSAGE or TYPE_ENUM."""


def symbols_of(file: Any) -> Iterator[tuple[str, int]]:
    """Yield the full names and kinds of all types in a file."""
    yield from _symbols(file.message_type, file.enum_type, file.package)


def _symbols(messages: Iterable[Any], enums: Iterable[Any], scope: str) -> Iterator[tuple[str, int]]:
    for each in enums:
        yield _joined(scope, each.name), _Field.TYPE_ENUM
    for each in messages:
        full = _joined(scope, each.name)
        yield full, _Field.TYPE_MESSAGE
        yield from _symbols(each.nested_type, each.enum_type, full)


def describe(tree: ast.File, name: str, imported: Iterable[Any]) -> Any:
    """Make the descriptor of a file from its syntax tree. Raises InvalidText if an undefined type is used."""
    return _Describing(tree, name, imported).file


class _Describing:
    def __init__(self, tree: ast.File, name: str, imported: Iterable[Any]) -> None:
        self.file = pb.FileDescriptorProto(name=name)
        self._is_proto3 = tree.syntax == "proto3"
        if tree.syntax == "proto3":
            self.file.syntax = "proto3"
        elif tree.edition is not None:
            self.file.syntax = "editions"
            self.file.edition = cast(Any, pb.Edition).Value(f"EDITION_{tree.edition.strip(chr(34))}")
        for each in _of(tree.file_elements, ast.Package):
            self.file.package = each.name
        for index, each in enumerate(_of(tree.file_elements, ast.Import)):
            self.file.dependency.append(each.name)
            if each.public:
                self.file.public_dependency.append(index)
        self._declare(tree.file_elements, self.file, self.file.package)
        self._symbols: Symbols = dict(symbols_of(self.file))
        for file in imported:
            self._symbols |= dict(symbols_of(file))
        self._fill_file(tree)

    # --- names first, because a type may be used before it is defined

    def _declare(self, elements: Iterable[Any], owner: Any, scope: str) -> None:
        messages = owner.message_type if isinstance(owner, pb.FileDescriptorProto) else owner.nested_type
        for each in elements:
            if isinstance(each, ast.Message | ast.Group):
                made = messages.add(name=each.name)
                self._declare(each.elements, made, _joined(scope, each.name))
            elif isinstance(each, ast.Enum):
                owner.enum_type.add(name=each.name)
            elif isinstance(each, ast.OneOf):
                self._declare(each.elements, owner, scope)

    def _fill_file(self, tree: ast.File) -> None:
        package = self.file.package
        self._fill_types(tree.file_elements, self.file.message_type, self.file.enum_type, package)
        self._fill_extensions(tree.file_elements, self.file.extension, package)
        _set_options(self.file, _of(tree.file_elements, ast.Option))
        for service in _of(tree.file_elements, ast.Service):
            made = self.file.service.add(name=service.name)
            _set_options(made, _of(service.elements, ast.Option))
            for method in _of(service.elements, ast.Method):
                made.method.add(
                    name=method.name,
                    input_type=self._resolved(method.input_type.type, package)[0],
                    output_type=self._resolved(method.output_type.type, package)[0],
                    client_streaming=method.input_type.stream,
                    server_streaming=method.output_type.stream,
                )

    def _fill_types(self, elements: Iterable[Any], messages: Any, enums: Any, scope: str) -> None:
        made_messages, made_enums = iter(messages), iter(enums)
        for each in _with_oneofs(elements):
            if isinstance(each, ast.Message | ast.Group):
                self._fill_message(each.elements, next(made_messages), _joined(scope, each.name))
            elif isinstance(each, ast.Enum):
                _fill_enum(each, next(made_enums))

    def _fill_message(self, elements: list[Any], made: Any, scope: str) -> None:
        self._fill_types(elements, list(made.nested_type), list(made.enum_type), scope)
        _set_options(made, _of(elements, ast.Option))
        optionals = []
        for each in elements:
            if isinstance(each, ast.Field | ast.MapField | ast.Group):
                field = self._add_field(made, each, scope)
                if self._is_proto3 and getattr(each, "cardinality", None) == ast.FieldCardinality.OPTIONAL:
                    optionals.append(field)
            elif isinstance(each, ast.OneOf):
                made.oneof_decl.add(name=each.name)
                for part in each.elements:
                    if isinstance(part, ast.Field | ast.Group):
                        self._add_field(made, part, scope).oneof_index = len(made.oneof_decl) - 1
            elif isinstance(each, ast.Reserved):
                made.reserved_name.extend(each.names)
                for start, end in map(_range, each.ranges):
                    made.reserved_range.add(start=start, end=min(end, _FIELD_MAX) + 1)
            elif isinstance(each, ast.ExtensionRange):
                for start, end in map(_range, each.ranges):
                    made.extension_range.add(start=start, end=min(end, _FIELD_MAX) + 1)
        self._fill_extensions(elements, made.extension, scope)
        for field in optionals:
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")

    def _add_field(self, owner: Any, tree: Any, scope: str) -> Any:
        field = owner.field.add(name=tree.name, number=tree.number, label=_Field.LABEL_OPTIONAL)
        if isinstance(tree, ast.MapField):
            self._fill_map(owner, field, tree, scope)
        elif isinstance(tree, ast.Group):
            field.name = tree.name.lower()
            field.type, field.type_name = _Field.TYPE_GROUP, f".{_joined(scope, tree.name)}"
        else:
            self._set_type(field, tree.type, scope)
        cardinality = getattr(tree, "cardinality", None)
        if cardinality is not None:
            field.label = cast(Any, _Field.Label).Value(f"LABEL_{cardinality.value}")
        field.json_name = _camel(field.name)
        for option in getattr(tree, "options", ()):
            if option.name == "json_name":
                field.json_name = str(option.value)
            elif option.name == "default":
                field.default_value = _text(option.value)
            else:
                _set_option(field.options, option)
        return field

    def _fill_map(self, owner: Any, field: Any, tree: ast.MapField, scope: str) -> None:
        if tree.key_type not in _KEYS:
            raise InvalidText(f"{tree.key_type} cannot be the key of a map")
        name = _camel(f"_{tree.name}") + "Entry"
        entry = owner.nested_type.add(name=name)
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, json_name="key")
        self._set_type(key, tree.key_type, scope)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL, json_name="value")
        self._set_type(value, tree.value_type, scope)
        field.label = _Field.LABEL_REPEATED
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_joined(scope, name)}"

    def _fill_extensions(self, elements: Iterable[Any], extensions: Any, scope: str) -> None:
        for each in _of(elements, ast.Extension):
            extendee, _ = self._resolved(each.typeName, scope)
            for tree in _of(each.elements, ast.Field):
                field = extensions.add(
                    name=tree.name, number=tree.number, extendee=extendee, label=_Field.LABEL_OPTIONAL
                )
                self._set_type(field, tree.type, scope)
                if tree.cardinality is not None:
                    field.label = cast(Any, _Field.Label).Value(f"LABEL_{tree.cardinality.value}")

    def _set_type(self, field: Any, name: str, scope: str) -> None:
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name, field.type = self._resolved(name, scope)

    def _resolved(self, name: str, scope: str) -> tuple[str, int]:
        """Resolve a type name like protoc, from the innermost scope outwards. Raises InvalidText."""
        if name.startswith("."):
            candidates: Iterable[str] = [name[1:]]
        else:
            parts = scope.split(".") if scope else []
            candidates = (_joined(".".join(parts[:count]), name) for count in range(len(parts), -1, -1))
        for each in candidates:
            if each in self._symbols:
                return f".{each}", self._symbols[each]
        raise InvalidText(f'"{name}" is not defined')


def _fill_enum(tree: ast.Enum, made: Any) -> None:
    _set_options(made, _of(tree.elements, ast.Option))
    for each in tree.elements:
        if isinstance(each, ast.EnumValue):
            value = made.value.add(name=each.name, number=each.number)
            for option in each.options:
                _set_option(value.options, option)
        elif isinstance(each, ast.EnumReserved):
            made.reserved_name.extend(each.names)
            for start, end in map(_range, each.ranges):
                made.reserved_range.add(start=start, end=min(end, _ENUM_MAX))


def _of(elements: Iterable[Any], kind: Any) -> list[Any]:
    return [each for each in elements if isinstance(each, kind)]


def _with_oneofs(elements: Iterable[Any]) -> Iterator[Any]:
    for each in elements:
        yield each
        if isinstance(each, ast.OneOf):
            yield from each.elements


def _set_options(made: Any, options: Iterable[ast.Option]) -> None:
    for each in options:
        _set_option(made.options, each)


def _set_option(options: Any, option: ast.Option) -> None:
    """Set an option if Protobuf defines it; other options remain only in the schema's text. Raises InvalidText."""
    field = options.DESCRIPTOR.fields_by_name.get(option.name)
    if field is None or field.is_repeated or field.message_type is not None:
        return
    value: Any = option.value
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(_text(value))
        if known is None:
            raise InvalidText(f"{_text(value)} is no value of the option {option.name}")
        value = known.number
    try:
        setattr(options, option.name, value)
    except (TypeError, ValueError):
        raise InvalidText(f"{_text(value)} is no value of the option {option.name}") from None


def _text(value: object) -> str:
    if isinstance(value, ast.Identifier):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(" to ")
    try:
        start = int(first, 0)
        return start, start if not last else _ENUM_MAX if last.strip() == "max" else int(last, 0)
    except ValueError:
        raise InvalidText(f"{text!r} is no range of numbers") from None


def _camel(name: str) -> str:
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
