"""Requests built to be expensive, from the wire declarations alone: so every request that is ever served is besieged.

A *shape* says how many elements arrays have at each depth: all in the outermost array, all in the innermost, or as many in
each. The number is chosen so that the request is as large as wanted.
"""

import struct
from functools import lru_cache
from typing import Any

from compat_tests.siege.subjects import FIXED, Subject

from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import request_header_version
from ottla.wire.limits import REQUEST_WITHOUT_RECORDS_BYTES_MAX
from ottla.wire.runtime import encode_varint
from ottla.wire.schema import Array, Field, Float64, Message, Primitive, Records, Struct, VersionRange

SHAPES = ("wide", "deep", "square")
CLIENT_ID = b"siege"
COUNT_MAX = 300_000
HEADER_ROOM_BYTES = 100


def shapes(request: type[Message], version: int) -> tuple[str, ...]:
    """The shapes that differ. All shapes of a request are the same bytes if none of its arrays is within another."""
    return SHAPES if _depth(request, version) > 1 else SHAPES[:1]


def filled(request: type[Message], version: int, subject: Subject, shape: str, size_bytes: int) -> bytes:
    """The body of a request of about `size_bytes`, at least one element in every array."""
    return _body(request, version, subject, shape, _count_for(request, version, subject, shape, size_bytes))


def fullest(request: type[Message], version: int, subject: Subject, shape: str) -> bytes:
    """The body with about as many elements as the broker accepts, where one more pass over them is dearest."""
    least, beyond = 1, _count_for(request, version, subject, shape, REQUEST_WITHOUT_RECORDS_BYTES_MAX) + 1
    body = _body(request, version, subject, shape, least)
    while beyond - least > 1 + least // 20:
        count = (least + beyond) // 2
        tried = _body(request, version, subject, shape, count)
        if _is_accepted(request, version, tried):
            least, body = count, tried
        else:
            beyond = count
    return body


def _count_for(request: type[Message], version: int, subject: Subject, shape: str, size_bytes: int) -> int:
    """How many elements the arrays need for the body to be so long."""
    smallest = _body(request, version, subject, shape, 1)
    per_element = max(1, len(_body(request, version, subject, shape, 9)) - len(smallest)) / 8
    depth = _depth(request, version)
    if shape == "square" and depth > 1:
        per_element /= 3  # what nine squared elements cost each is more than what one does
        return max(1, int((size_bytes / max(per_element, 1)) ** (1 / depth)))
    return max(1, min(COUNT_MAX, int(size_bytes / per_element)))


def _is_accepted(request: type[Message], version: int, body: bytes) -> bool:
    if len(body) > REQUEST_WITHOUT_RECORDS_BYTES_MAX - HEADER_ROOM_BYTES:
        return False
    try:
        request.bounded_decoder(version)(body, 0, len(body))
    except ProtocolViolation:
        return False
    return True


def _body(request: type[Message], version: int, subject: Subject, shape: str, count: int) -> bytes:
    return _Filler(version, subject, shape, count, _depth(request, version)).fill(request, 0, 0).encode(version)


def _depth(cls: type[Struct], version: int) -> int:
    """How many arrays lie inside each other."""
    depths = [0]
    for each in cls.wire_fields.values():
        if not _is_present(each, version):
            continue
        item = each.type.item if isinstance(each.type, Array) else each.type
        inner = _depth(item, version) if isinstance(item, type) else 0
        depths.append(inner + isinstance(each.type, Array))
    return max(depths)


def _is_present(field: Field, version: int) -> bool:
    return version in VersionRange.parse(field.versions)


class _Filler:
    def __init__(self, version: int, subject: Subject, shape: str, count: int, depth: int) -> None:
        self._version = version
        self._subject = subject
        self._counts = [
            count if shape == "square" or level == (0 if shape == "wide" else depth - 1) else 1
            for level in range(max(depth, 1))
        ]

    def fill(self, cls: type[Struct], level: int, number: int) -> Any:
        values = {
            name: self._value(cls, name, field, level, number)
            for name, field in cls.wire_fields.items()
            if _is_present(field, self._version)
        }
        absent = {
            name: field.initial() for name, field in cls.wire_fields.items() if not _is_present(field, self._version)
        }
        return cls(**values, **absent)

    def _value(self, cls: type[Struct], name: str, field: Field, level: int, number: int) -> Any:
        wire_type = field.type
        if isinstance(wire_type, Array):
            return self._elements(cls, name, wire_type.item, level, number)
        if isinstance(wire_type, type):
            return self.fill(wire_type, level, number)
        return self._primitive(cls, name, wire_type, number)

    def _elements(self, cls: type[Struct], name: str, item: Any, level: int, number: int) -> list[Any]:
        numbers = range(number, number + self._counts[min(level, len(self._counts) - 1)])
        if not isinstance(item, type):
            return [self._primitive(cls, name, item, each) for each in numbers]
        if self._subject.name == "existing":
            return [self.fill(item, level + 1, 0)] * len(numbers)
        return [self.fill(item, level + 1, each) for each in numbers]

    def _primitive(self, cls: type[Struct], name: str, wire_type: Primitive, number: int) -> Any:
        if name in FIXED and name not in self._subject.free:
            return FIXED[name]
        if wire_type is Records:
            return b""
        if wire_type is Float64:
            return 1000.0 + number
        return self._subject.value(cls, name, wire_type, number)


# --- frames -----------------------------------------------------------------------------------------------------------


def framed(request: type[Message], version: int, body: bytes, *, header_tags: bytes = b"\0") -> bytes:
    """A whole frame around a body; `header_tags` is the header's tag section, where its version has one."""
    header = struct.pack(">hhi", request.api_key, version, 1)
    header_version = request_header_version(request, version)
    if header_version > 0:
        header += struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID
    if header_version > 1:
        header += header_tags
    return struct.pack(">i", len(header) + len(body)) + header + body


@lru_cache(maxsize=8)
def tag_section(count: int, bytes_each: int = 0) -> bytes:
    """A tag section of so many unknown tags, numbered from 1000 on. Kept, because every request gets the same few."""
    parts = [encode_varint(count)]
    content = encode_varint(bytes_each) + bytes(bytes_each)
    parts += [encode_varint(1000 + number) + content for number in range(count)]
    return b"".join(parts)
