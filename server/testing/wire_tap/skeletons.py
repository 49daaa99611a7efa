"""Skeletons of large frames: everything but the record batches, kept while the frame passes by in pieces.

A plan says in which order the fields of a message version lie in the frame. A walk along the plan asks for the next so many
bytes, or says how many bytes of records to skip. So the cost and the memory depend on the number of topics and partitions, not
on the records. A frame that does not follow the plan loses its skeleton and keeps its first bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, NamedTuple

from ottla.wire.schema import Array, Field, Message, Primitive, Records, Struct

SKELETON_BYTES_MAX = 256 * 1024
HEAD_BYTES = 256
"""Bytes that are kept of a frame of which nothing else is."""

LENGTH_OF_RECORDS = 0
_COMPACT = 0
_FIXED = {"int8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")

Plan = tuple[Any, ...]
"""Numbers of bytes of fixed fields, and (kind, argument, ...) for the others."""

Walk = Generator[int, bytes, None]
"""Yields how many bytes come next; a negative number: so many bytes of records, which are skipped. LENGTH_OF_RECORDS: the
length of records comes next."""


class Cut(NamedTuple):
    """Records that were left out: the bounds of their length field in the skeleton, and their number of bytes."""

    start: int
    end: int
    skipped: int


class Kept(NamedTuple):
    """Bytes that were kept of a frame."""

    data: bytes
    cuts: tuple[Cut, ...] = ()
    is_compact: bool = False
    """True if lengths are varints."""
    is_complete: bool = False
    """True if only records are missing."""

    def without_records(self) -> bytes:
        """Return the frame with empty records in place of those that were left out."""
        empty = b"\x01" if self.is_compact else bytes(4)
        pieces, at = [], 0
        for cut in self.cuts:
            pieces += [self.data[at : cut.start], empty]
            at = cut.end
        return b"".join([*pieces, self.data[at:]])

    @property
    def prefix(self) -> bytes:
        """First bytes of the frame as they were on the wire."""
        return self.data[: self.cuts[0].end] if self.cuts else self.data


@cache
def plan_of(cls: type[Message], version: int, *, is_request: bool) -> Plan:
    """Return the plan of a message version with its header. Raises ValueError if there is no such version."""
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    flexible = version in cls.flexible
    header: Plan = (8, ("sized", 2)) if is_request else (4,)
    return _joined((*header, *((("tags",),) if flexible else ()), *_struct_plan(cls, version, flexible)))


def _struct_plan(cls: type[Struct], version: int, flexible: bool) -> Plan:
    parts = [
        _field_plan(field, version, flexible)
        for field in cls.wire_fields.values()
        if version in field.version_range and field.tag is None
    ]
    return _joined((*parts, *((("tags",),) if flexible else ())))


def _field_plan(field: Field, version: int, flexible: bool) -> Any:
    kind = field.type
    if isinstance(kind, Array):
        prefix = _COMPACT if flexible else 4
        return ("array", prefix, _item_plan(kind.item, version, flexible))
    if isinstance(kind, Primitive):
        return _primitive_plan(kind, flexible)
    below = _struct_plan(kind, version, flexible)
    return ("optional", below) if field.nullable != "none" else ("struct", below)


def _item_plan(item: Primitive | type[Struct], version: int, flexible: bool) -> Plan:
    if isinstance(item, Primitive):
        return (_primitive_plan(item, flexible),)
    return _struct_plan(item, version, flexible)


def _primitive_plan(kind: Primitive, flexible: bool) -> Any:
    if (size := _FIXED.get(kind.name)) is not None:
        return size
    if kind is Records:
        return ("records", _COMPACT if flexible else 4)
    return ("sized", _COMPACT if flexible else 4 if kind.name == "bytes" else 2)


def _joined(parts: Plan) -> Plan:
    """Join neighbours of fixed size: fewer steps for each partition."""
    joined: list[Any] = []
    for part in parts:
        if isinstance(part, int) and joined and isinstance(joined[-1], int):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def _walk(plan: Plan, size: int) -> Walk:
    """Walk along a plan in a frame of `size` bytes. Raises ValueError if the frame does not follow it."""
    for part in plan:
        if isinstance(part, int):
            yield part
            continue
        kind = part[0]
        if kind == "tags":
            yield from _walk_tags(size)
        elif kind == "struct":
            yield from _walk(part[1], size)
        elif kind == "optional":
            if (yield 1)[0] < 0x80:
                yield from _walk(part[1], size)
        else:
            if kind == "records":
                yield LENGTH_OF_RECORDS
            length = yield from _walk_length(part[1])
            if length > size:
                raise ValueError("a length beyond the frame")
            if kind == "array":
                # A struct without fields takes no bytes, and nothing would bound their number.
                for _ in range(length if part[2] else 0):
                    yield from _walk(part[2], size)
            elif length > 0:
                yield -length if kind == "records" else length


def _walk_length(prefix: int) -> Generator[int, bytes, int]:
    if prefix == _COMPACT:
        return (yield from _walk_varint()) - 1
    data = yield prefix
    length: int = (_INT16 if prefix == 2 else _INT32).unpack(data)[0]
    return length


def _walk_varint() -> Generator[int, bytes, int]:
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("a varint of more than five bytes")


def _walk_tags(size: int) -> Walk:
    for _ in range((yield from _walk_varint())):
        yield from _walk_varint()
        length = yield from _walk_varint()
        if length > size:
            raise ValueError("a tagged field beyond the frame")
        if length:
            yield length


class WholeFrame:
    """Sink that keeps all bytes of a frame."""

    __slots__ = ("data",)
    needs_bytes = True

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, view: memoryview) -> None:
        """Take the next bytes of the frame."""
        self.data += view

    def skip(self, count: int) -> None:
        """Miss bytes that nobody has seen. Callers ask `needs_bytes` first."""
        raise AssertionError("a frame that is kept as a whole has a gap")

    def kept(self) -> bytes | Kept:
        """Return the frame."""
        return bytes(self.data)


class FrameHead:
    """Sink that keeps the first bytes of a frame."""

    __slots__ = ("data",)
    needs_bytes = False

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, view: memoryview) -> None:
        """Take the next bytes of the frame."""
        if (room := HEAD_BYTES - len(self.data)) > 0:
            self.data += view[:room]

    def skip(self, count: int) -> None:
        """Miss bytes that nobody has seen; they are beyond the head."""

    def kept(self) -> bytes | Kept:
        """Return the head."""
        return Kept(bytes(self.data))


class Skeleton:
    """Sink that keeps everything but the records of a frame."""

    __slots__ = ("_cuts", "_data", "_is_compact", "_is_lost", "_length_start", "_need", "_send", "_skip", "_walked")
    needs_bytes = False

    def __init__(self, plan: Plan, size: int, *, is_compact: bool) -> None:
        self._data = bytearray()
        self._cuts: list[Cut] = []
        self._is_compact, self._is_lost = is_compact, False
        self._walked = 0  # bytes of `_data` that the walk has seen
        self._skip = self._length_start = 0
        walk = _walk(plan, size)
        self._send: Callable[[bytes], int] = walk.send
        self._need = next(walk)

    def take(self, view: memoryview) -> None:
        """Take the next bytes of the frame."""
        at, end = 0, len(view)
        while at < end and not self._is_lost:
            if self._skip:
                passed = min(self._skip, end - at)
                self._skip -= passed
                at += passed
                continue
            missing = self._walked + self._need - len(self._data)
            piece = view[at : at + missing]
            self._data += piece
            at += len(piece)
            if len(piece) == missing:
                self._advance()
            if len(self._data) > SKELETON_BYTES_MAX:
                self._lose()

    def skip(self, count: int) -> None:
        """Miss bytes that nobody has seen, such as a region that the system sends; they have to be records."""
        if count > self._skip:
            self._lose()
        self._skip = max(0, self._skip - count)

    def _advance(self) -> None:
        start = self._walked
        self._walked += self._need
        try:
            need = self._send(bytes(self._data[start:]))
            while need <= 0:
                if need == LENGTH_OF_RECORDS:
                    self._length_start = self._walked
                else:
                    self._cuts.append(Cut(self._length_start, self._walked, -need))
                    self._skip = -need
                need = self._send(b"")
            self._need = need
        except StopIteration:
            self._need = 2 * SKELETON_BYTES_MAX  # bytes behind the message are kept as they are
        except ValueError:
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        del self._data[HEAD_BYTES:]
        self._cuts = [cut for cut in self._cuts if cut.end <= HEAD_BYTES]

    def kept(self) -> bytes | Kept:
        """Return the skeleton; if the frame did not follow its plan, its first bytes."""
        return Kept(bytes(self._data), tuple(self._cuts), self._is_compact, not self._is_lost)


Sink = WholeFrame | FrameHead | Skeleton
