"""Reads a schema in Avro's JSON form, as in Avro's specification, and then values of it. Both run in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ottla.server.console.avro.nodes import (
    PRIMITIVES,
    AvroProblem,
    Data,
    Fixed,
    Many,
    Node,
    Primitive,
    Record,
    Symbols,
    Union,
    show_date,
    show_decimal,
    show_hex,
    show_time,
)
from ottla.wire.foreign_json import parse_json
from ottla.wire.threads import paced

SCHEMA_DEPTH_MAX = 64
FIXED_BYTES_MAX, SCALE_MAX = 1 << 20, 100
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_TIMES = {"timestamp-millis": "milliseconds", "timestamp-micros": "microseconds"}


class Schema:
    """One schema. `name`: of its outermost type."""

    def __init__(self, name: str, root: Node) -> None:
        self.name, self._root = name, root

    def decode(self, data: Data) -> str:
        """A value as JSON. Raises AvroProblem."""
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
    """Raises AvroProblem for what is no schema."""
    try:
        # Numbers of a schema are small; of a long one the text is kept, which then is no number.
        parsed = parse_json(text, parse_int=_integer)
    except ValueError:
        raise AvroProblem("the schema is no JSON") from None
    root = _Parser().node(parsed, "", 0)
    return Schema(_name_of(parsed), root)


def _integer(text: str) -> Any:
    return int(text) if len(text) < 20 else text


def _name_of(parsed: Any) -> str:
    found = parsed.get("name") or parsed.get("type") if isinstance(parsed, dict) else parsed
    return found if isinstance(found, str) else "union"


class _Parser:
    """Keeps the names that one schema gives to its types. A type may be used inside itself, and behind itself."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._give_way = paced()

    def node(self, parsed: Any, namespace: str, depth: int) -> Node:
        """`namespace`: of the type around it."""
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
    """What shows a value of a logical type; None: it is shown as it is. A logical type that does not fit counts as none."""
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
    """The full name of a type, and the namespace of what is in it."""
    name, own = parsed.get("name"), parsed.get("namespace")
    if not isinstance(name, str):
        raise AvroProblem("a type of the schema has no name")
    full = _full(name, own if isinstance(own, str) else namespace)
    return full, full.rpartition(".")[0]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
