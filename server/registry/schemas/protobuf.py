"""Protobuf: proto2, proto3 and editions, parsed by `proto-schema-parser` and checked by `protobuf` itself.

A schema may be sent as its text, or as the base64 of its descriptor, as the serializers of some languages do. The canonical text has the
format of the parser's library, and keeps comments. Clients that cannot parse a text ask for the form "serialized".
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from ottla.server.registry.schemas.format import InvalidText, ParsedSchema
from ottla.server.registry.schemas.proto_descriptors import describe
from ottla.server.registry.schemas.proto_rules import Known, differences, messages_of
from ottla.server.registry.schemas.proto_text import plain, tree_of, written

NAME = "default.proto"
NESTING_MAX = 60
TEXT_MAX = 100_000
"""Characters of a text: its parser takes a second for some ten thousand."""

IMPORTS_MAX = 1000
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_BUILT_IN = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in (
            "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
            "wrappers",
        )
    },
}  # fmt: skip
"""Files that Protobuf itself has."""


class ProtobufSchema:
    """A parsed schema of Protobuf."""

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
        """All messages that it can use, by full name."""
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
        """Descriptor without the details that its text form loses."""
        file = pb.FileDescriptorProto()
        file.CopyFrom(describe(plain(self._tree), NAME, self.imported))
        data: bytes = file.SerializeToString(deterministic=True)
        return data


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a schema. The names of references are those of imports. Raises InvalidText."""
    known: dict[str, Any] = {}
    for name, each in references.items():
        tree, file = _read(each)
        known[name] = _described(tree, file, name, known)
    tree, file = _read(text)
    is_described = file is not None
    made = _described(tree, file, NAME, known)
    imported = list(_imported(made, known))
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
    probe = pb.FileDescriptorProto(dependency=names)
    return list(_imported(probe, known))


def _imported(file: Any, known: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all imported files, dependencies first. Raises InvalidText."""
    done: set[str] = set()
    waiting = [(each, False) for each in reversed(file.dependency)]
    while waiting:
        name, is_ready = waiting.pop()
        if name in done:
            continue
        found = known.get(name) or _built_in(name)
        if found is None:
            raise InvalidText(f'the import "{name}" is none of the references')
        if is_ready or not found.dependency:
            done.add(name)
            yield found
        elif len(waiting) > IMPORTS_MAX:
            raise InvalidText("its imports lead in a circle, or are too many")
        else:
            waiting.append((name, True))
            waiting += [(each, False) for each in found.dependency if each not in done]


@lru_cache(maxsize=32)
def _built_in(name: str) -> Any:
    module = _BUILT_IN.get(name)
    if module is None:
        return None
    found = pb.FileDescriptorProto()
    import_module(module).DESCRIPTOR.CopyToProto(found)
    return found


def _check(file: Any, imported: list[Any]) -> None:
    """Have Protobuf build the schema. Raises InvalidText."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for each in (*imported, file):
            pool.Add(each)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidText(str(error)[:500]) from None


def _read(text: str) -> tuple[ast.File, Any]:
    """Parse a text or a base64 descriptor; returns the tree and, in the latter case, the descriptor. Raises InvalidText."""
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
    """Error collector that raises InvalidText at the first error, which the library would print."""

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
    if not any(isinstance(each, ast.Message | ast.Enum) for each in tree.file_elements):
        raise InvalidText("it defines neither a message nor an enum")
    return tree
