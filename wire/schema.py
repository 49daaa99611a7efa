"""Declarations of messages: one class per struct, for all versions of the protocol.

    class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
        throttle_time_ms: int = field(Int32, versions="1+", default=0)
        error_code: int = field(Int16)

Fields are in wire order; `versions`, `nullable`, `tag` and `default` have the meaning of Kafka's message definitions. A
field without `default` must be given to the constructor. A field whose type is a struct class holds an instance of it.

Importing a declaration only records it. Constructors, constructs and codecs are made when they are first used, because a
broker declares some hundred classes and a process that was just started uses a dozen.

A `default` that is a struct is one shared instance that refuses changes: give a field another struct instead of
changing the one it started with. A `default` list is a new list in every instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from ottla.wire import codecs

if TYPE_CHECKING:
    from construct import Construct

Buffer = bytes | bytearray | memoryview
Decoder = Callable[[bytes | bytearray, int, int], Any]
Encoder = Callable[[Any, Callable[[Any], Any]], None]

ZERO_UUID = bytes(16)
VERSION_MAX = 32767


class VersionRange:
    """Versions from `first` to `last`, both included. `parse` reads Kafka's notation: `3`, `0-4`, `9+` or `none`."""

    __slots__ = ("first", "last")
    _parsed: ClassVar[dict[str, VersionRange]] = {}

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        known = cls._parsed.get(text)
        if known is None:
            known = cls._parsed[text] = cls._read(text)
        return known

    @classmethod
    def _read(cls, text: str) -> VersionRange:
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def newest_common(self, other: VersionRange | None, at_most: int) -> int | None:
        """Return the newest version, up to `at_most`, that `other` has, too; None if there is none, or no `other`."""
        if other is None:
            return None
        newest = min(self.last, other.last, at_most)
        return newest if newest >= max(self.first, other.first) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionRange) and (self.first, self.last) == (other.first, other.last)

    def __hash__(self) -> int:
        return hash((self.first, self.last))

    def __repr__(self) -> str:
        return f"VersionRange({self.first}, {self.last})"

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        return f"{self.first}+" if self.last == VERSION_MAX else f"{self.first}-{self.last}"


class Primitive:
    """Elementary type of Kafka's protocol. `types.py` has its construct under the same name."""

    __slots__ = ("name", "zero")

    def __init__(self, name: str, zero: Any) -> None:
        self.name, self.zero = name, zero

    def __repr__(self) -> str:
        return self.name


Int8 = Primitive("int8", 0)
Int16 = Primitive("int16", 0)
Uint16 = Primitive("uint16", 0)
Int32 = Primitive("int32", 0)
Uint32 = Primitive("uint32", 0)
Int64 = Primitive("int64", 0)
Float64 = Primitive("float64", 0.0)
Bool = Primitive("bool", False)
Uuid = Primitive("uuid", ZERO_UUID)
String = Primitive("string", "")
Text = Primitive("text", "")
"""A string for people, such as an error's message. It may quote names of a request, so it is cut when it is encoded."""
Bytes = Primitive("bytes", b"")
Records = Primitive("records", b"")


class Array:
    """Array type. Its elements are of a primitive type, or structs."""

    __slots__ = ("item",)

    def __init__(self, item: Primitive | type[Struct]) -> None:
        self.item = item

    def __repr__(self) -> str:
        return f"[]{self.item!r}"


REQUIRED: Any = type("Required", (), {"__slots__": (), "__repr__": lambda self: "required"})()


class Field:
    """Declared field of a struct. `versions` and `nullable` are parsed when a version's codec is made."""

    __slots__ = ("default", "nullable", "tag", "type", "versions")

    def __init__(
        self, wire_type: Primitive | Array | type[Struct], versions: str, nullable: str, tag: int | None, default: Any
    ) -> None:
        self.type = wire_type
        self.versions, self.nullable, self.tag = versions, nullable, tag
        self.default = _frozen(default) if isinstance(default, Struct) else default

    @property
    def version_range(self) -> VersionRange:
        return VersionRange.parse(self.versions)

    def initial(self) -> Any:
        """Return the field's value in versions without the field: its default or, as in Kafka, the zero of its type."""
        if self.default is not REQUIRED:
            return list(self.default) if isinstance(self.default, list) else self.default
        if isinstance(self.type, Primitive):
            return self.type.zero
        return [] if isinstance(self.type, Array) else _frozen(self.type.zero())

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f" tag {self.tag}"
        return f"{self.type!r} {self.versions} nullable {self.nullable}{tag} default {self.default!r}"


def field(
    wire_type: Primitive | Array | type[Struct],
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int | None = None,
    default: Any = REQUIRED,
) -> Any:
    """Declare a field of a `Struct` or `Message`. `versions` and `nullable` are ranges in Kafka's notation."""
    return Field(wire_type, versions, nullable, tag, default)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Metaclass that turns declared fields into slots."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, key: int = -1,
        versions: str = "0+", flexible: str = "none",
    ) -> StructMeta:  # fmt: skip
        fields = {name: value for name, value in namespace.items() if isinstance(value, Field)}
        for field_name in fields:
            assert not any(hasattr(base, field_name) for base in bases), f"{name}.{field_name} hides what it inherits"
            del namespace[field_name]
        assert not any(getattr(base, "wire_fields", None) for base in bases), f"{name} extends a declared struct"
        cls: Any = super().__new__(mcs, name, bases, {"__slots__": tuple(fields), **namespace})
        cls.wire_fields = fields
        cls.versions = VersionRange.parse(versions)
        cls.flexible = VersionRange.parse(flexible)
        if key >= 0:
            cls.api_key = key
        made: StructMeta = cls
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_options: Any) -> None:
        super().__init__(name, bases, namespace)

    def __repr__(cls) -> str:
        return cls.__name__


class Struct(metaclass=StructMeta):
    """Base class of declared structs: parts of messages or, with `versions=`, records that are stored as bytes."""

    wire_fields: ClassVar[dict[str, Field]]
    versions: ClassVar[VersionRange]
    flexible: ClassVar[VersionRange]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        # Only the first object of a class comes here: this replaces itself by the constructor that it compiles.
        setattr(cls, "__init__", _constructor(cls))  # noqa: B010 - a plain assignment to __init__ is a type error
        cls.__init__(self, **values)

    @classmethod
    def decode(cls, buffer: bytes | bytearray, version: int, start: int = 0, end: int | None = None) -> Self:
        """Decode a struct from `buffer[start:end]`; bytes after the struct are ignored."""
        decoded: Self = codecs.codec(cls, version, "decode")(buffer, start, len(buffer) if end is None else end)
        return decoded

    @classmethod
    def decode_prefix(
        cls, buffer: bytes | bytearray, version: int, start: int = 0, end: int | None = None
    ) -> tuple[Self, int]:
        """Decode a struct at `start`. Return it and the position of its end."""
        decoded: tuple[Self, int] = codecs.codec(cls, version, "decode_prefix")(
            buffer, start, len(buffer) if end is None else end
        )
        return decoded

    def encode(self, version: int) -> bytes:
        return b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[Any]:
        """Encode in pieces, so that the buffer or file region of a records field is passed on without a copy."""
        parts: list[Any] = []
        codecs.codec(type(self), version, "encode")(self, parts.append)
        return parts

    @classmethod
    def decoder(cls, version: int) -> Decoder:
        """Return the function `(buffer, start, end) -> object` behind `decode`; `end` must be within the buffer."""
        return codecs.codec(cls, version, "decode")

    @classmethod
    def bounded_decoder(cls, version: int) -> Decoder:
        """Return a decoder for large frames, which also limits the number of elements."""
        return codecs.codec(cls, version, "decode_bounded")

    @classmethod
    def encoder(cls, version: int) -> Encoder:
        """Return the function `(object, append)` behind `encode_parts`; it passes each piece to `append`."""
        return codecs.codec(cls, version, "encode")

    @classmethod
    def construct(cls, version: int) -> Construct:
        """Return the generic codec of a version, slow and readable, from which the fast codec is generated."""
        from ottla.wire.types import resolve

        return resolve(cls, version, version in cls.flexible)

    @classmethod
    def structs(cls) -> dict[str, type[Struct]]:
        """Return this class and all structs inside it, by name."""
        found: dict[str, type[Struct]] = {cls.__name__: cls}
        for field in cls.wire_fields.values():
            part = field.type.item if isinstance(field.type, Array) else field.type
            if isinstance(part, type):
                for name, struct in part.structs().items():
                    known = found.setdefault(name, struct)
                    assert known is struct, f"two structs named {name} in {cls.__name__}"
        return found

    @classmethod
    def declaration(cls) -> str:
        """Return the declarations of this class and the structs inside it as text."""
        lines = [f"versions {cls.versions} flexible {cls.flexible}"]
        for name, struct in cls.structs().items():
            lines.append(f"{name}: {struct.wire_fields}")
        return "\n".join(lines)

    @classmethod
    def zero(cls) -> Self:
        """Return an instance whose fields have their defaults, or the zeros of their types."""
        return cls(**{name: field.initial() for name, field in cls.wire_fields.items()})

    def __eq__(self, other: object) -> bool:
        # A shared default is of a subclass that has the same fields, and must be equal all the same.
        if not isinstance(other, Struct) or other.wire_fields is not self.wire_fields:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.wire_fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._shown())})"

    def _shown(self) -> list[str]:
        shown = []
        for name, field in self.wire_fields.items():
            value = getattr(self, name)
            if field.type is Records and value is not None:
                shown.append(f"{name}=<{len(value)} bytes>")
            elif value != field.default:
                shown.append(f"{name}={value!r}")
        return shown


class Message(Struct):
    """Base class of declared requests and responses."""

    api_key: ClassVar[int]


def holds_records(cls: type[Struct]) -> bool:
    """Tell whether a message has a records field at any level. If so, its encoding may contain file regions."""
    for each in cls.wire_fields.values():
        item = each.type.item if isinstance(each.type, Array) else each.type
        if item is Records or (isinstance(item, type) and holds_records(item)):
            return True
    return False


def _constructor(cls: type[Struct]) -> Callable[..., None]:
    """Generate the `__init__` of a class, with its fields as keyword parameters."""
    defaults: dict[str, Any] = {}
    parameters, assignments = [], []
    for name, field in cls.wire_fields.items():
        value = name
        if field.default is REQUIRED:
            parameters.append(name)
        else:
            default = f"default_{name}"
            defaults[default] = field.default
            parameters.append(f"{name}={default}")
            if isinstance(field.default, list):
                value = f"{default}[:] if {name} is {default} else {name}"
        assignments.append(f"    self.{name} = {value}\n")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n{''.join(assignments) or '    pass'}"
    exec(source, defaults)  # noqa: S102 - nothing foreign in it
    constructor: Callable[..., None] = defaults["__init__"]
    return constructor


def _refuse_change(self: Struct, name: str, value: Any) -> None:
    raise TypeError(f"this {type(self).__name__} is a shared default: assign a new one instead of setting {name}")


def _frozen(value: Struct) -> Struct:
    """Make an instance read-only, so that it can be shared as a default."""
    cls = type(value)
    if cls.__setattr__ is not _refuse_change:
        namespace = {"__slots__": (), "__setattr__": _refuse_change, "__init__": cls.__init__}
        # Past StructMeta, which forbids subclasses of a declared struct.
        frozen: Any = type.__new__(StructMeta, cls.__name__, (cls,), namespace)
        value.__class__ = frozen
    return value
