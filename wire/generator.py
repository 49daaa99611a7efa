"""Writes straight-line Python that does what a construct tree does, some twenty times faster.

`generate(cls, version, kind)` resolves the class to its construct tree and walks it. The source it returns defines one
function and needs only the names of `runtime.py` and the declared classes:

    decode(buffer, position, end) -> object
    decode_prefix(buffer, position, end) -> (object, position)
    decode_bounded(buffer, position, end) -> object, unless it counts more than REQUEST_ELEMENTS_MAX
    encode(object, append)

This file has what both directions share; `generator_decode.py` and `generator_encode.py` have the walks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import calcsize
from typing import Any

import construct

from ottla.wire.schema import Struct
from ottla.wire.types import FIXED, NullableStruct, StringType, StructType, TaggedFields, UnsignedVarint

_LETTERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
_FORMATS = {id(FIXED[name]): letter for name, letter in {**_LETTERS, "bool": "?", "uuid": "16s"}.items()}

_LITERALS = (int, bool, float, str, bytes, type(None))


def generate(cls: type[Struct], version: int, kind: str) -> str:
    from ottla.wire.generator_decode import decoder_source
    from ottla.wire.generator_encode import encoder_source

    tree = cls.construct(version)
    if kind == "encode":
        return encoder_source(tree)
    return decoder_source(tree, kind, f"{cls.__name__} v{version}")


def fixed_format(subcon: construct.Construct) -> str | None:
    """Return the struct module's format letter for a type of fixed size; None for other types."""
    return _FORMATS.get(id(subcon))


def fixed_struct_format(subcon: construct.Construct) -> str | None:
    """Return the struct module's format for a struct; None unless all fields have fixed size and none is tagged."""
    if not isinstance(subcon, StructType):
        return None
    letters = []
    for _name, part in parts_of(subcon):
        # Room for tagged fields that are not there is one zero byte.
        letter = "B" if isinstance(part, TaggedFields) else fixed_format(part)
        if letter is None:
            return None
        letters.append(letter)
    return "".join(letters) or None


def parts_of(subcon: StructType) -> list[tuple[str, construct.Construct]]:
    """Return name and type of each field of a struct in wire order, and its tagged fields."""
    return [(renamed.name, renamed.subcon) for renamed in subcon.subcon.subcons]


def size_min(subcon: construct.Construct) -> int:
    """Return the minimum number of bytes that a value of this type takes."""
    letter = fixed_format(subcon)
    if letter is not None:
        return calcsize(">" + letter)
    if isinstance(subcon, StructType):
        return sum(size_min(part) for _name, part in parts_of(subcon))
    if isinstance(subcon, (TaggedFields, NullableStruct)) or isinstance(subcon.prefix, UnsignedVarint):
        return 1
    return 2 if isinstance(subcon, StringType) else 4


class Source:
    """Python source code under construction."""

    def __init__(self) -> None:
        self._globals: dict[str, str] = {}
        self._lines: list[str] = []
        self._indent = 0
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def mark(self) -> tuple[int, int]:
        """Remember this position so that a line can be inserted here later."""
        return len(self._lines), self._indent

    def line_at(self, mark: tuple[int, int], text: str) -> None:
        at, indent = mark
        self._lines.insert(at, "    " * indent + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._indent += 1
        before = len(self._lines)
        yield
        # Python wants at least one statement in a block.
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1

    def variable(self, hint: str) -> str:
        """Return a new local variable name."""
        self._count += 1
        return f"{hint}_{self._count}"

    def struct(self, letters: str, method: str) -> str:
        """Return the name of a global variable: `method` of a compiled struct with the format `letters`."""
        return self._global(f"Struct({'>' + letters!r}).{method}", method)

    def default(self, cls: type[Struct], field_name: str, value: Any) -> str:
        """Return an expression for a field's default value."""
        if type(value) in _LITERALS:
            return repr(value)
        if value == []:
            return "[]"
        shared = self._global(f"{cls.__name__}.wire_fields[{field_name!r}].initial()", "default")
        # The owner of the object may change a list, so each object needs its own.
        return f"{shared}[:]" if isinstance(value, list) else shared

    def _global(self, expression: str, hint: str) -> str:
        name = self._globals.get(expression)
        if name is None:
            name = self._globals[expression] = f"{hint}_{len(self._globals)}"
        return name

    def text(self) -> str:
        heads = [f"{name} = {expression}" for expression, name in self._globals.items()]
        return "\n".join((*heads, *self._lines, ""))
