"""Avro schemas, and values of them read from Avro's binary form, as in Avro's specification. Both are read in a thread.

A value becomes JSON. Of a union the chosen branch is shown alone. Bytes become hex digits; dates, times of day with a
date and decimals become text if they are valid.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, ClassVar, Protocol

from ottla.wire.foreign_json import parse_json
from ottla.wire.time_slice import paced

TEXT_MAX = 256 * 1024
"""Limit of a value's text: each of its parts counts as one, and by the characters of its names and texts."""
DEPTH_MAX = 64
LONG_BYTES_MAX = 10
DECIMAL_BYTES_MAX = 64

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EPOCH, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)


class AvroProblem(Exception):
    """Schema or value that cannot be decoded. The text is the reason, as in "..., because ..."."""


class Data:
    """Unread bytes of one value, with a limit for the text that decoding makes of them."""

    def __init__(self, data: bytes, give_way: Callable[[], None], text_max: int = TEXT_MAX) -> None:
        self._data, self.give_way, self._text_max = data, give_way, text_max
        self._position = self._depth = 0
        self.spent = 0
        """Text made so far, failed attempts included."""

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    @property
    def rest(self) -> bytes:
        return self._data[self._position :]

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise AvroProblem("its bytes do not fit the schema")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def long(self) -> int:
        """Read an Avro long: zigzag, seven bits a byte, lowest bits first."""
        found = 0
        for index in range(LONG_BYTES_MAX):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise AvroProblem("its bytes do not fit the schema")

    def charge(self, cost: int = 1) -> None:
        """Subtract `cost` from the text budget. Raises AvroProblem if the budget is exceeded."""
        self.give_way()
        self.spent += cost
        if self.spent > self._text_max:
            raise AvroProblem("it becomes too much text")

    def enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise AvroProblem(f"it is deeper than {DEPTH_MAX} levels")

    def leave(self) -> None:
        self._depth -= 1


class Node(Protocol):
    """Decoder of one type in a schema."""

    def read(self, data: Data) -> Any:
        """Read the next value of `data`. Raises AvroProblem."""


class Primitive:
    """Decoder of a primitive type. `show` converts values of a logical type."""

    def __init__(self, kind: str, show: Callable[[Any], Any] | None = None) -> None:
        self._read, self._show = _PRIMITIVES[kind], show

    def read(self, data: Data) -> Any:
        data.charge()
        found = self._read(data)
        return found if self._show is None else self._show(found)


class Fixed:
    """Decoder of an Avro fixed: a fixed number of bytes."""

    def __init__(self, size: int, show: Callable[[Any], Any] | None = None) -> None:
        self._size, self._show = size, show

    def read(self, data: Data) -> Any:
        data.charge(1 + 2 * self._size)
        found = data.take(self._size)
        return found.hex() if self._show is None else self._show(found)


class Symbols:
    """Decoder of an Avro enum."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = symbols

    def read(self, data: Data) -> str:
        symbol: str = chosen(self._symbols, data)
        data.charge(1 + len(symbol))
        return symbol


class Record:
    """Decoder of an Avro record. Fields are added after the record has a name, so that a record may contain itself."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, Node]] = []

    def read(self, data: Data) -> dict[str, Any]:
        data.enter()
        found = {}
        data.charge()
        for name, node in self.fields:
            data.charge(len(name))
            found[name] = node.read(data)
        data.leave()
        return found


class Many:
    """Decoder of an Avro array; if `has_keys`, of an Avro map."""

    def __init__(self, item: Node, *, has_keys: bool) -> None:
        self._item, self._has_keys = item, has_keys

    def read(self, data: Data) -> Any:
        data.enter()
        data.charge()
        found = dict(self._pairs(data)) if self._has_keys else list(self._items(data))
        data.leave()
        return found

    def _pairs(self, data: Data) -> Any:
        for _ in counted(data):
            yield _text(data), self._item.read(data)

    def _items(self, data: Data) -> Any:
        for _ in counted(data):
            yield self._item.read(data)


class Union:
    """Decoder of an Avro union: one of several types."""

    def __init__(self, branches: Sequence[Node]) -> None:
        self._branches = branches

    def read(self, data: Data) -> Any:
        node: Node = chosen(self._branches, data)
        # A union may be of records that contain it, each of which counts for itself.
        return node.read(data)


def counted(data: Data) -> Iterator[None]:
    """Yield None before each item of an Avro array or map. The caller reads the item; block sizes are skipped."""
    while count := data.long():
        if count < 0:
            count = -count
            data.long()
        for _ in range(count):
            data.charge()
            yield None


def chosen(options: Sequence[Any], data: Data) -> Any:
    """Read an index from `data`; return the option at this index. Raises AvroProblem."""
    index = data.long()
    if not 0 <= index < len(options):
        raise AvroProblem("its bytes do not fit the schema")
    return options[index]


def _boolean(data: Data) -> bool:
    byte = data.take(1)[0]
    if byte > 1:
        raise AvroProblem("its bytes do not fit the schema")
    return byte == 1


def _bytes(data: Data) -> bytes:
    found = data.take(data.long())
    data.charge(2 * len(found))
    return found


def _text(data: Data) -> str:
    found = data.take(data.long())
    data.charge(len(found))
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise AvroProblem("its bytes do not fit the schema") from None


_PRIMITIVES: dict[str, Callable[[Data], Any]] = {
    "null": lambda data: None,
    "boolean": _boolean,
    "int": Data.long,
    "long": Data.long,
    "float": lambda data: _FLOAT.unpack(data.take(4))[0],
    "double": lambda data: _DOUBLE.unpack(data.take(8))[0],
    "bytes": _bytes,
    "string": _text,
}
PRIMITIVES = frozenset(_PRIMITIVES)


# ---------------------------------------------------------------------- logical types


def show_hex(value: bytes) -> str:
    return value.hex()


def show_date(days: int) -> Any:
    """Format days since 1970-01-01 as a date; return the number if no such date exists."""
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return days


def show_time(unit: str) -> Callable[[int], Any]:
    """Return a function that formats a timestamp in UTC. `unit`: milliseconds or microseconds since 1970."""

    def show(number: int) -> Any:
        try:
            return (_EPOCH + timedelta(**{unit: number})).isoformat()
        except OverflowError:
            return number

    return show


def show_decimal(scale: int) -> Callable[[bytes], Any]:
    """Return a function that formats the bytes of a decimal. `scale`: number of digits behind the point."""

    def show(value: bytes) -> Any:
        if not value or len(value) > DECIMAL_BYTES_MAX:
            return value.hex()
        number = Decimal(int.from_bytes(value, "big", signed=True))
        # Without a limit of digits nothing is rounded.
        return f"{number.scaleb(-scale, context=Context(prec=200)):f}"

    return show


SCHEMA_DEPTH_MAX = 64
FIXED_BYTES_MAX, SCALE_MAX = 1 << 20, 100
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_TIMES = {"timestamp-millis": "milliseconds", "timestamp-micros": "microseconds"}


class Schema:
    """Decoder of values of one schema. `name`: the name of the schema's outermost type."""

    def __init__(self, name: str, root: Node) -> None:
        self.name, self._root = name, root

    def decode(self, data: Data) -> str:
        """Decode one value to JSON. Raises AvroProblem."""
        found = self._root.read(data)
        if not data.is_at_end:
            raise AvroProblem("there are bytes behind it")
        pieces = []
        # Piece by piece: made at once it may hold the interpreter for 50 ms.
        for piece in _JSON.iterencode(found):
            data.give_way()
            pieces.append(piece)
        return "".join(pieces)


def parse_schema(text: str) -> Schema:
    """Parse the text of an Avro schema. Raises AvroProblem."""
    try:
        # Numbers of a schema are small; of a long one the text is kept, which then is no number.
        parsed = parse_json(text, parse_int=lambda text: int(text) if len(text) < 20 else text)
    except ValueError:
        raise AvroProblem("the schema is no JSON") from None
    root = _Parser().node(parsed, "", 0)
    return Schema(_name_of(parsed), root)


def _name_of(parsed: Any) -> str:
    if isinstance(parsed, dict) and isinstance(parsed.get("name"), str):
        return _named(parsed, "")[0]
    found = parsed.get("type") if isinstance(parsed, dict) else parsed
    return found if isinstance(found, str) else "union"


class _Parser:
    """Parser of one schema. It remembers named types, because fields and later definitions may refer to them."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._give_way = paced()

    def node(self, parsed: Any, namespace: str, depth: int) -> Node:
        """Make the decoder of the type `parsed`. `namespace`: namespace of the enclosing type."""
        self._give_way()
        if depth > SCHEMA_DEPTH_MAX:
            raise AvroProblem(f"the schema is deeper than {SCHEMA_DEPTH_MAX} levels")
        if isinstance(parsed, str):
            return self._known(parsed, namespace)
        if isinstance(parsed, list):
            return self._union(parsed, namespace, depth)
        if not isinstance(parsed, dict):
            raise AvroProblem("the schema has something that is no type")
        kind = parsed.get("type")
        if not isinstance(kind, str):
            return self.node(kind, namespace, depth + 1)
        read = self._KINDS.get(kind)
        if read is not None:
            return read(self, parsed, namespace, depth)
        return _primitive(kind, parsed) if kind in PRIMITIVES else self._known(kind, namespace)

    def _union(self, parsed: list[Any], namespace: str, depth: int) -> Node:
        branches = [self.node(each, namespace, depth + 1) for each in parsed]
        if any(isinstance(each, Union) for each in branches):
            raise AvroProblem("a union of the schema has another in it")
        return Union(branches)

    def _known(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            return _primitive(name, {})
        found = self._named.get(_full(name, namespace)) or self._named.get(name)
        if found is None:
            raise AvroProblem(f"the schema does not say what {name[:100]!r} is")
        return found

    def _record(self, parsed: Mapping[str, Any], namespace: str, depth: int) -> Node:
        record, (name, inner) = Record(), _named(parsed, namespace)
        self._named[name] = record
        fields = parsed.get("fields")
        if not isinstance(fields, list):
            raise AvroProblem("a record of the schema has no fields")
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise AvroProblem("a field of the schema has no name")
            record.fields.append((each["name"], self.node(each.get("type"), inner, depth + 1)))
        return record

    def _enum(self, parsed: Mapping[str, Any], namespace: str, depth: int) -> Node:
        symbols = parsed.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise AvroProblem("an enum of the schema has no symbols")
        node = self._named[_named(parsed, namespace)[0]] = Symbols(symbols)
        return node

    def _fixed(self, parsed: Mapping[str, Any], namespace: str, depth: int) -> Node:
        size = parsed.get("size")
        if not isinstance(size, int) or not 0 <= size <= FIXED_BYTES_MAX:
            raise AvroProblem("the size of a type of the schema is none")
        node = self._named[_named(parsed, namespace)[0]] = Fixed(size, _shown("fixed", parsed))
        return node

    def _array(self, parsed: Mapping[str, Any], namespace: str, depth: int) -> Node:
        return Many(self.node(parsed.get("items"), namespace, depth + 1), has_keys=False)

    def _map(self, parsed: Mapping[str, Any], namespace: str, depth: int) -> Node:
        return Many(self.node(parsed.get("values"), namespace, depth + 1), has_keys=True)

    _KINDS: ClassVar[Mapping[str, Callable[..., Node]]] = {
        "record": _record,
        "error": _record,
        "enum": _enum,
        "fixed": _fixed,
        "array": _array,
        "map": _map,
    }


def _primitive(kind: str, parsed: Mapping[str, Any]) -> Node:
    return Primitive(kind, _shown(kind, parsed))


def _shown(kind: str, parsed: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """Return the function that formats values of a type; None: no format. Invalid logical types are ignored."""
    logical, scale = parsed.get("logicalType"), parsed.get("scale", 0)
    if not isinstance(logical, str):
        logical = None
    if kind == "int" and logical == "date":
        return show_date
    if kind == "long" and logical in _TIMES:
        return show_time(_TIMES[logical])
    is_decimal = logical == "decimal" and isinstance(scale, int) and 0 <= scale <= SCALE_MAX
    if kind in ("bytes", "fixed") and is_decimal:
        return show_decimal(scale)
    return show_hex if kind == "bytes" else None


def _named(parsed: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a type and the namespace for the types inside."""
    name, own = parsed.get("name"), parsed.get("namespace")
    if not isinstance(name, str):
        raise AvroProblem("a type of the schema has no name")
    full = _full(name, own if isinstance(own, str) else namespace)
    return full, full.rpartition(".")[0]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
