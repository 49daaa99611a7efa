"""What a schema is made of, and how each kind is read from Avro's binary form, as in Avro's specification.

A value becomes what JSON has. Of a union the chosen branch is shown alone. Bytes become hex digits; dates, times of day with a
date and decimals become text if they are what their schema says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Protocol

TEXT_MAX = 256 * 1024
"""What a value may become: each of its parts counts as one, and by the characters of its names and texts."""
DEPTH_MAX = 64
LONG_BYTES_MAX = 10
DECIMAL_BYTES_MAX = 64

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EPOCH, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)


class AvroProblem(Exception):
    """A schema or a value that cannot be read; the text says why, and goes behind "because"."""


class Data:
    """The bytes of one value, and how much may still be made of them."""

    def __init__(self, data: bytes, give_way: Callable[[], None], text_max: int = TEXT_MAX) -> None:
        self._data, self.give_way, self._text_max = data, give_way, text_max
        self._position = self._depth = 0
        self.spent = 0
        """What was made so far, and what was tried."""

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    @property
    def rest(self) -> bytes:
        return self._data[self._position :]

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise AvroProblem("its bytes do not fit the schema")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def long(self) -> int:
        """A number in zigzag, seven bits a byte, the lowest first."""
        found = 0
        for index in range(LONG_BYTES_MAX):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise AvroProblem("its bytes do not fit the schema")

    def charge(self, cost: int = 1) -> None:
        """Something is made that takes so much text."""
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
    """A part of a schema."""

    def read(self, data: Data) -> Any:
        """The value of this kind that comes next. Raises AvroProblem."""


class Primitive:
    """A kind that has no parts. `show`: what becomes of a value that has a logical type."""

    def __init__(self, kind: str, show: Callable[[Any], Any] | None = None) -> None:
        self._read, self._show = _PRIMITIVES[kind], show

    def read(self, data: Data) -> Any:
        data.charge()
        found = self._read(data)
        return found if self._show is None else self._show(found)


class Fixed:
    """So many bytes."""

    def __init__(self, size: int, show: Callable[[Any], Any] | None = None) -> None:
        self._size, self._show = size, show

    def read(self, data: Data) -> Any:
        data.charge(1 + 2 * self._size)
        found = data.take(self._size)
        return found.hex() if self._show is None else self._show(found)


class Symbols:
    """One of some names."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = symbols

    def read(self, data: Data) -> str:
        symbol: str = _chosen(self._symbols, data)
        data.charge(1 + len(symbol))
        return symbol


class Record:
    """Fields in their order. They are filled in after it has a name, so that it may contain itself."""

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
    """An array, or a map if there are keys."""

    def __init__(self, item: Node, *, has_keys: bool) -> None:
        self._item, self._has_keys = item, has_keys

    def read(self, data: Data) -> Any:
        data.enter()
        data.charge()
        found = dict(self._pairs(data)) if self._has_keys else list(self._items(data))
        data.leave()
        return found

    def _pairs(self, data: Data) -> Any:
        for _ in _counted(data):
            yield _text(data), self._item.read(data)

    def _items(self, data: Data) -> Any:
        for _ in _counted(data):
            yield self._item.read(data)


class Union:
    """One of several kinds."""

    def __init__(self, branches: Sequence[Node]) -> None:
        self._branches = branches

    def read(self, data: Data) -> Any:
        node: Node = _chosen(self._branches, data)
        # A union may be of records that contain it, each of which counts for itself.
        return node.read(data)


def _counted(data: Data) -> Any:
    """Once for each item. They come in blocks, and before a block may stand how long it is."""
    while count := data.long():
        if count < 0:
            count = -count
            data.long()
        for _ in range(count):
            data.charge()
            yield None


def _chosen(options: Sequence[Any], data: Data) -> Any:
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
    """Days since 1970-01-01 as a date, or the number if there is no such date."""
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return days


def show_time(unit: str) -> Callable[[int], Any]:
    """Shows a number of `milliseconds` or `microseconds` since 1970 in UTC."""

    def show(number: int) -> Any:
        try:
            return (_EPOCH + timedelta(**{unit: number})).isoformat()
        except OverflowError:
            return number

    return show


def show_decimal(scale: int) -> Callable[[bytes], Any]:
    """Shows a number in two's complement, with `scale` digits behind the point."""

    def show(value: bytes) -> Any:
        if not value or len(value) > DECIMAL_BYTES_MAX:
            return value.hex()
        number = Decimal(int.from_bytes(value, "big", signed=True))
        # Without a limit of digits nothing is rounded.
        return f"{number.scaleb(-scale, context=Context(prec=200)):f}"

    return show
