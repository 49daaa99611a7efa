"""Values of Avro: from their JSON encoding to the binary form and back, in one walk over the schema.

The JSON encoding is that of Avro's specification: a union's value is `{"string": "a"}`, or null; bytes are a text whose characters are the
bytes. As Confluent's converter does, the reader shows the value of a union at the very top without its branch.

Words of errors are those of Avro's JsonDecoder in Java, which Confluent's proxy hands on.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.server.admin.console.avro.schemas import AvroProblem, Data, chosen, counted
from ottla.server.rest.schemas.codec import BadData
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    import avro.schema

    from ottla.server.registry.schemas.avro import AvroSchema

TEXT_FREE, TEXT_PER_BYTE, TEXT_MAX = 256 * 1024, 64, 32 << 20
"""Text that a value may become: its records' names are in the schema alone, so it is longer than the bytes."""

ITEM_COST = 5
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_FLOAT_DIGITS = (6, 7, 8, 9)
_NOT_FINITE = {
    "NaN": math.nan, "Infinity": math.inf, "INF": math.inf, "-Infinity": -math.inf, "-INF": -math.inf
}  # fmt: skip
_BITS = {"int": 32, "long": 64}


class AvroCodec:
    """Codec of one Avro schema."""

    def __init__(self, schema: avro.schema.Schema) -> None:
        self._root = _Compiler().node(schema)
        self.name = _label(schema) if schema.type in ("record", "error") else None

    def encode(self, data: Any) -> bytes:
        out = bytearray()
        self._root.write(data, out)
        return bytes(out)

    def decode(self, data: memoryview) -> Any:
        text_max = min(TEXT_FREE + TEXT_PER_BYTE * len(data), TEXT_MAX)
        source = Data(bytes(data), paced(), text_max)
        try:
            if isinstance(self._root, Union):
                return self._root.chosen(source).read(source)
            return self._root.read(source)
        except AvroProblem as problem:
            raise BadData(str(problem)) from None


def codec_of(parsed: AvroSchema) -> AvroCodec:
    """Make the codec of a parsed schema."""
    return AvroCodec(parsed.parsed)


class Node(Protocol):
    """Codec of one type in a schema."""

    def write(self, value: Any, out: bytearray) -> None:
        """Append `value`, a JSON value, to `out` in its encoded form. Raises BadData."""

    def read(self, data: Data) -> Any:
        """Read the next value from `data`; return it as JSON. Raises AvroProblem."""


# --- types without parts


class Null:
    """Codec of null."""

    def write(self, value: Any, out: bytearray) -> None:
        if value is not None:
            raise _expected("null", value)

    def read(self, data: Data) -> None:
        data.charge(ITEM_COST)


class Boolean:
    """Codec of booleans: one byte, 0 or 1."""

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, bool):
            raise _expected("boolean", value)
        out.append(value)

    def read(self, data: Data) -> bool:
        data.charge(ITEM_COST)
        return data.take(1) != b"\0"


class Integer:
    """Codec of int or long, in zigzag encoding."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._end = 1 << (_BITS[kind] - 1)

    def write(self, value: Any, out: bytearray) -> None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _expected(self._kind, value)
        if not -self._end <= value < self._end:
            limits = f"{-self._end} - {self._end - 1}"
            raise BadData(f"Numeric value ({str(value)[:40]}) out of range of {self._kind} ({limits})")
        _write_long(value, out)

    def read(self, data: Data) -> int:
        data.charge(1)
        return data.long()


class Float:
    """Codec of float or double."""

    def __init__(self, kind: str) -> None:
        self._kind, self._struct = kind, _FLOAT if kind == "float" else _DOUBLE

    def write(self, value: Any, out: bytearray) -> None:
        if isinstance(value, str) and value in _NOT_FINITE:
            value = _NOT_FINITE[value]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _expected(self._kind, value)
        try:
            out += self._struct.pack(value)
        except (OverflowError, struct.error):  # Java makes it infinite, too
            out += self._struct.pack(math.inf if value > 0 else -math.inf)

    def read(self, data: Data) -> float | str:
        data.charge(ITEM_COST)
        (found,) = self._struct.unpack(data.take(self._struct.size))
        if math.isnan(found):
            return "NaN"
        if math.isinf(found):
            return "Infinity" if found > 0 else "-Infinity"
        return _shortest(found) if self._struct is _FLOAT else float(found)


def _shortest(value: float) -> float:
    """Round a number to the fewest digits that give the same 32-bit float. Java prints floats so."""
    for digits in _FLOAT_DIGITS:
        short = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(short) == _FLOAT.pack(value):
                return short
        except OverflowError:
            continue
    return value


class Text:
    """Codec of strings: the length, then UTF-8."""

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, str):
            raise _expected("string", value)
        _write_text(value, out)

    def read(self, data: Data) -> str:
        return _read_text(data)


class Bytes:
    """Codec of bytes: the length, then the bytes; with `size`, a fixed number of bytes without a length."""

    def __init__(self, size: int | None = None) -> None:
        self._size = size

    def write(self, value: Any, out: bytearray) -> None:
        kind = "bytes" if self._size is None else "fixed"
        if not isinstance(value, str):
            raise _expected(kind, value)
        try:
            found = value.encode("latin-1")
        except UnicodeEncodeError:
            raise BadData(f"Expected {kind}. Got a character beyond U+00FF") from None
        if self._size is None:
            _write_long(len(found), out)
        elif len(found) != self._size:
            raise BadData(f"Expected fixed length {self._size}, but got{len(found)}")
        out += found

    def read(self, data: Data) -> str:
        found = data.take(data.long() if self._size is None else self._size)
        data.charge(1 + len(found))
        return found.decode("latin-1")


class Symbols:
    """Codec of enums."""

    def __init__(self, symbols: list[str]) -> None:
        self._symbols = symbols
        self._numbers = {each: index for index, each in enumerate(symbols)}

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, str):
            raise _expected("fixed", value)  # so says Java
        if value not in self._numbers:
            raise BadData(f"Unknown symbol in enum {value[:100]}")
        _write_long(self._numbers[value], out)

    def read(self, data: Data) -> str:
        found: str = chosen(self._symbols, data)
        data.charge(1 + len(found))
        return found


# --- types with parts


class Record:
    """Codec of records. Fields are added later than the record's name, so that a record may contain its own type."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, Node]] = []

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise _expected("record-start", value)
        for name, node in self.fields:
            if name not in value:
                raise BadData(f"Expected field name not found: {name}")
            node.write(value[name], out)
        if len(value) > len(self.fields):
            unknown = sorted(value.keys() - {name for name, _ in self.fields})
            raise BadData(f"Unknown fields: {[each[:100] for each in unknown[:10]]}")

    def read(self, data: Data) -> dict[str, Any]:
        data.enter()
        data.charge(ITEM_COST)
        found = {}
        for name, node in self.fields:
            data.charge(len(name))
            found[name] = node.read(data)
        data.leave()
        return found


class Array:
    """Codec of arrays, which are written in blocks."""

    def __init__(self) -> None:
        self.item: Node = Null()

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, list):
            raise _expected("array-start", value)
        if value:
            _write_long(len(value), out)
            for each in value:
                self.item.write(each, out)
        out.append(0)

    def read(self, data: Data) -> list[Any]:
        data.enter()
        data.charge()
        found = [self.item.read(data) for _ in counted(data)]
        data.leave()
        return found


class Map:
    """Codec of maps, which are written in blocks."""

    def __init__(self) -> None:
        self.item: Node = Null()

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise _expected("map-start", value)
        if value:
            _write_long(len(value), out)
            for name, each in value.items():
                _write_text(name, out)
                self.item.write(each, out)
        out.append(0)

    def read(self, data: Data) -> dict[str, Any]:
        data.enter()
        data.charge()
        found = {}
        for _ in counted(data):
            name = _read_text(data)
            found[name] = self.item.read(data)
        data.leave()
        return found


class Union:
    """Codec of unions: a value of one of several types. In JSON the value's type is named, except null's."""

    def __init__(self) -> None:
        self.branches: list[tuple[str, Node]] = []
        self._numbers: dict[str, int] = {}

    def fill(self, branches: list[tuple[str, Node]]) -> None:
        """Set the union's branches. This is a separate step, because a branch may refer to this union."""
        self.branches = branches
        self._numbers = {name: number for number, (name, _) in enumerate(branches)}

    def write(self, value: Any, out: bytearray) -> None:
        if value is None:
            label = "null"
        elif isinstance(value, dict) and len(value) == 1:
            [(label, value)] = value.items()
        else:
            raise _expected("start-union", value)
        number = self._numbers.get(label)
        if number is None:
            raise BadData(f"Unknown union branch {label[:100]}")
        _write_long(number, out)
        self.branches[number][1].write(value, out)

    def read(self, data: Data) -> Any:
        name, node = chosen(self.branches, data)
        found = node.read(data)
        if name == "null":
            return None
        data.charge(len(name))
        return {name: found}

    def chosen(self, data: Data) -> Node:
        """Read a branch's index and return the codec of this branch. Raises AvroProblem."""
        node: Node = chosen(self.branches, data)[1]
        return node


# --- schemas


class _Compiler:
    """Compiler of schemas to codecs; all uses of a named type share one codec."""

    def __init__(self) -> None:
        self._known: dict[str, Node] = {}

    def node(self, schema: avro.schema.Schema) -> Node:
        kind: str = schema.type
        if kind in _PRIMITIVES:
            primitive: Node = _PRIMITIVES[kind]()
            return primitive
        name = getattr(schema, "fullname", None)
        if name is not None and name in self._known:
            return self._known[name]
        made: Any = schema  # the library's classes differ in what they have
        if kind == "fixed":
            return self._named(name, Bytes(made.size))
        if kind == "enum":
            return self._named(name, Symbols(list(made.symbols)))
        if kind in ("record", "error"):
            record = Record()
            self._named(name, record)
            record.fields = [(each.name, self.node(each.type)) for each in made.fields]
            return record
        if kind == "array":
            array = Array()
            array.item = self.node(made.items)
            return array
        if kind == "map":
            mapping = Map()
            mapping.item = self.node(made.values)
            return mapping
        union = Union()
        union.fill([(_label(each), self.node(each)) for each in made.schemas])
        return union

    def _named(self, name: str | None, node: Node) -> Node:
        if name is not None:
            self._known[name] = node
        return node


def _label(schema: avro.schema.Schema) -> str:
    return str(getattr(schema, "fullname", None) or schema.type)


_PRIMITIVES: Mapping[str, Callable[[], Any]] = {
    "null": Null,
    "boolean": Boolean,
    "int": lambda: Integer("int"),
    "long": lambda: Integer("long"),
    "float": lambda: Float("float"),
    "double": lambda: Float("double"),
    "bytes": Bytes,
    "string": Text,
}


# --- parts of the binary form


def _write_long(value: int, out: bytearray) -> None:
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)


def _write_text(value: str, out: bytearray) -> None:
    try:
        found = value.encode()
    except UnicodeEncodeError:
        raise BadData("A string has half a surrogate pair") from None
    _write_long(len(found), out)
    out += found


def _read_text(data: Data) -> str:
    found = data.take(data.long())
    data.charge(1 + len(found))
    return found.decode("utf-8", "replace")


_TOKENS = {
    type(None): "VALUE_NULL",
    dict: "START_OBJECT",
    list: "START_ARRAY",
    str: "VALUE_STRING",
    int: "VALUE_NUMBER_INT",
    float: "VALUE_NUMBER_FLOAT",
}
"""Jackson's names of what JSON has."""


def _expected(what: str, value: Any) -> BadData:
    token = f"VALUE_{value}".upper() if isinstance(value, bool) else _TOKENS[type(value)]
    return BadData(f"Expected {what}. Got {token}")
