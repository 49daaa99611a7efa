"""Kafka's types as constructs: the definition that everything else about encoding is derived from and tested against.

`resolve(cls, version)` turns a declared class into a plain construct tree, in which no version is left to decide. The
tree can be parsed and built as it is, slowly and readably; `generator.py` walks the same tree to write fast code.

Two encodings exist. Classic (non-flexible) versions prefix a string with an int16 and bytes, records and arrays with an
int32; -1 is null. Compact (flexible) versions prefix with an unsigned varint of length + 1; 0 is null; and every struct
ends in a section of tagged fields, which lets a version grow without a new number.

The remaining bytes bound every length, and values are decoded like in Kafka's generated code:
- any negative length is null, where null is allowed;
- an array never counts more elements than bytes are left;
- the declared size of a known tagged field is ignored; an unknown tagged field is skipped by its size;
- a section holds at most a thousand tags;
- a tag may repeat, and the last one wins; a tag that belongs to another version of the struct is refused;
- bytes after the message are ignored, and text that is not UTF-8 gets replacement characters.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import IO, Any

import construct

from ottla.wire.limits import STRING_BYTES_MAX, TAGS_PER_SECTION_MAX
from ottla.wire.schema import Array, Field, Primitive, Struct, VersionRange
from ottla.wire.text import JAVA_REPLACE, text_bytes

Path = str
Context = Any  # a construct.Container; construct has no types

FIXED: dict[str, construct.Construct] = {
    "int8": construct.Int8sb,
    "int16": construct.Int16sb,
    "uint16": construct.Int16ub,
    "int32": construct.Int32sb,
    "uint32": construct.Int32ub,
    "int64": construct.Int64sb,
    "float64": construct.Float64b,
    "bool": construct.Flag,
    "uuid": construct.Bytes(16),
}


def bytes_left(stream: IO[bytes]) -> int:
    """Return the number of unread bytes in a seekable stream."""
    position = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(position)
    return end - position


def wrap(value: int) -> int:
    """Wrap a number to the range of Java's int."""
    return (value + (1 << 31) & 0xFFFFFFFF) - (1 << 31)


class UnsignedVarint(construct.Construct):  # type: ignore[misc]
    """Unsigned varint: seven bits per byte, lowest first, at most five bytes. Larger values wrap like Java's int."""

    def _parse(self, stream: IO[bytes], context: Context, path: Path) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = construct.stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return wrap(value)
        raise construct.IntegerError("a varint of more than five bytes", path=path)

    def _build(self, obj: int, stream: IO[bytes], context: Context, path: Path) -> int:
        rest, encoded = obj, bytearray()
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        construct.stream_write(stream, bytes(encoded), len(encoded), path)
        return obj


VARINT = UnsignedVarint()


class _Prefixed(construct.Construct):  # type: ignore[misc]
    """Type whose values have a length or count in front. A negative length means null."""

    classic_prefix: construct.Construct = construct.Int32sb

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.compact, self.nullable = compact, nullable
        self.prefix = VARINT if compact else self.classic_prefix

    def _parse_length(self, stream: IO[bytes], context: Context, path: Path) -> int | None:
        length = wrap(self.prefix._parse(stream, context, path) - self.compact)
        # Looked at before anything is made, so that a few bytes cannot ask for much memory.
        if length > bytes_left(stream):
            raise construct.StreamError(f"length or count {length} exceeds the bytes that are left", path=path)
        if length >= 0:
            return length
        if not self.nullable:
            raise construct.StreamError("null where the field is not nullable", path=path)
        return None

    def _build_length(self, length: int, stream: IO[bytes], context: Context, path: Path) -> None:
        self.prefix._build(length + self.compact, stream, context, path)

    def _build_null(self, stream: IO[bytes], context: Context, path: Path) -> None:
        if not self.nullable:
            raise construct.StreamError("null where the field is not nullable", path=path)
        self._build_length(-1, stream, context, path)


class BytesType(_Prefixed):
    """Opaque bytes."""

    def _parse(self, stream: IO[bytes], context: Context, path: Path) -> Any:
        length = self._parse_length(stream, context, path)
        return None if length is None else self._from_bytes(construct.stream_read(stream, length, path), path)

    def _build(self, obj: Any, stream: IO[bytes], context: Context, path: Path) -> Any:
        if obj is None:
            self._build_null(stream, context, path)
            return obj
        raw = self._to_bytes(obj, path)
        self._build_length(len(raw), stream, context, path)
        construct.stream_write(stream, raw, len(raw), path)
        return obj

    def _from_bytes(self, raw: bytes, path: Path) -> Any:
        return raw

    def _to_bytes(self, obj: Any, path: Path) -> bytes:
        return bytes(obj)


class RecordsType(BytesType):
    """Record batches. They are decoded as a view of the input."""

    def _from_bytes(self, raw: bytes, path: Path) -> memoryview:
        return memoryview(raw)


class StringType(BytesType):
    """Text in UTF-8."""

    classic_prefix = construct.Int16sb

    def _from_bytes(self, raw: bytes, path: Path) -> str:
        return self._limited(raw, path).decode("utf-8", JAVA_REPLACE)

    def _to_bytes(self, obj: Any, path: Path) -> bytes:
        return self._limited(obj.encode(), path)

    @staticmethod
    def _limited(raw: bytes, path: Path) -> bytes:
        if len(raw) > STRING_BYTES_MAX:
            raise construct.StringError(f"a string of {len(raw)} bytes", path=path)
        return raw


class TextType(StringType):
    """Human-readable text, such as an error message. It is shortened if it is too long."""

    def _to_bytes(self, obj: Any, path: Path) -> bytes:
        return text_bytes(obj)


class ArrayType(_Prefixed):
    """Array: a count, and then the elements."""

    def __init__(self, item: construct.Construct, *, compact: bool, nullable: bool) -> None:
        super().__init__(compact=compact, nullable=nullable)
        self.item = item

    def _parse(self, stream: IO[bytes], context: Context, path: Path) -> list[Any] | None:
        count = self._parse_length(stream, context, path)
        if count is None:
            return None
        return [self.item._parse(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: IO[bytes], context: Context, path: Path) -> Any:
        if obj is None:
            self._build_null(stream, context, path)
            return obj
        self._build_length(len(obj), stream, context, path)
        for item in obj:
            self.item._build(item, stream, context, path)
        return obj


class NullableStruct(construct.Subconstruct):  # type: ignore[misc]
    """Struct with a presence byte in front: a negative byte means null, 1 means present."""

    def _parse(self, stream: IO[bytes], context: Context, path: Path) -> Any:
        marker = construct.Int8sb._parse(stream, context, path)
        return None if marker < 0 else self.subcon._parse(stream, context, path)

    def _build(self, obj: Any, stream: IO[bytes], context: Context, path: Path) -> Any:
        construct.Int8sb._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class TaggedFields(construct.Construct):  # type: ignore[misc]
    """Tagged fields at the end of a struct in flexible versions: a count, then tag, size and value of each.

    Fields with the default value are left out.
    """

    def __init__(self, known: dict[int, tuple[str, construct.Construct, Any]], foreign: Iterable[int]) -> None:
        super().__init__()
        self.known = known
        self.foreign = frozenset(foreign)

    def _parse(self, stream: IO[bytes], context: Context, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        count = VARINT._parse(stream, context, path)
        if count > TAGS_PER_SECTION_MAX:
            raise construct.CheckError(f"{count} tagged fields in one section", path=path)
        for _ in range(count):
            tag = VARINT._parse(stream, context, path)
            size = VARINT._parse(stream, context, path)
            if tag in self.known:
                name, subcon, _default = self.known[tag]
                values[name] = subcon._parse(stream, context, path)
            elif tag in self.foreign:
                raise construct.CheckError(f"tag {tag} does not belong to this version", path=path)
            elif not 0 <= size <= bytes_left(stream):
                raise construct.StreamError(f"tag {tag} has size {size}", path=path)
            else:
                construct.stream_read(stream, size, path)
        return values

    def _build(self, obj: dict[str, Any], stream: IO[bytes], context: Context, path: Path) -> dict[str, Any]:
        present = [entry for tag, entry in sorted(self.known.items()) if obj[entry[0]] != entry[2]]
        VARINT._build(len(present), stream, context, path)
        for tag, (name, subcon, default) in sorted(self.known.items()):
            if obj[name] != default:
                payload = io.BytesIO()
                subcon._build(obj[name], payload, context, path)
                raw = payload.getvalue()
                VARINT._build(tag, stream, context, path)
                VARINT._build(len(raw), stream, context, path)
                construct.stream_write(stream, raw, len(raw), path)
        return obj


TAGGED_FIELDS = "tagged_fields"


class StructType(construct.Adapter):  # type: ignore[misc]
    """Construct of a declared class at one version. Fields that the version does not have get their defaults."""

    def __init__(self, cls: type[Struct], subcon: construct.Construct) -> None:
        super().__init__(subcon)
        self.cls = cls

    def _decode(self, obj: Any, context: Context, path: Path) -> Struct:
        values = {name: field.initial() for name, field in self.cls.wire_fields.items()}
        values.update((name, obj[name]) for name in values if name in obj)
        values.update(obj.get(TAGGED_FIELDS, {}))
        return self.cls(**values)

    def _encode(self, obj: Struct, context: Context, path: Path) -> dict[str, Any]:
        values = {name: getattr(obj, name) for name in self.cls.wire_fields}
        return {**values, TAGGED_FIELDS: values}


def resolve(cls: type[Struct], version: int, flexible: bool) -> StructType:
    """Return the construct of `cls` at `version`. Nested structs use the version of the message around them."""
    subcons = []
    known: dict[int, tuple[str, construct.Construct, Any]] = {}
    foreign = set()
    for name, field in cls.wire_fields.items():
        if version not in VersionRange.parse(field.versions):
            if field.tag is not None:
                foreign.add(field.tag)
        elif field.tag is None:
            subcons.append(name / _resolve_field(field, version, flexible))
        else:
            known[field.tag] = name, _resolve_field(field, version, flexible), field.default
    if flexible:
        # A tag may belong to different fields in different versions. It is not foreign if this version has one of
        # them.
        subcons.append(TAGGED_FIELDS / TaggedFields(known, foreign - known.keys()))
    return StructType(cls, construct.Struct(*subcons))


def _resolve_field(field: Field, version: int, flexible: bool) -> construct.Construct:
    nullable = version in VersionRange.parse(field.nullable)
    if isinstance(field.type, Array):
        item = _resolve_type(field.type.item, version, flexible, nullable=False)
        return ArrayType(item, compact=flexible, nullable=nullable)
    return _resolve_type(field.type, version, flexible, nullable=nullable)


def _resolve_type(
    wire_type: Primitive | type[Struct], version: int, flexible: bool, *, nullable: bool
) -> construct.Construct:
    if not isinstance(wire_type, Primitive):
        struct = resolve(wire_type, version, flexible)
        return NullableStruct(struct) if nullable else struct
    sized = {"string": StringType, "text": TextType, "bytes": BytesType, "records": RecordsType}.get(wire_type.name)
    return FIXED[wire_type.name] if sized is None else sized(compact=flexible, nullable=nullable)
