"""Every declared message, and values for it: both are made from the declarations, so that no message is forgotten."""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import strategies as st

import ottla.wire.messages
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import ZERO_UUID, Array, Field, Message, Primitive, Struct, VersionRange

EMBEDDED: tuple[type[Struct], ...] = (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
Strategies = Mapping[str, st.SearchStrategy[Any]]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def modules() -> Iterator[Any]:
    for module in pkgutil.iter_modules(ottla.wire.messages.__path__):
        yield importlib.import_module(f"ottla.wire.messages.{module.name}")


def messages() -> list[type[Message]]:
    declared = [value for module in modules() for value in vars(module).values() if isinstance(value, type)]
    return sorted(
        {cls for cls in declared if issubclass(cls, Message) and cls is not Message},
        key=lambda cls: (cls.api_key, cls.__name__),
    )


def versions(cls: type[Struct]) -> range:
    return range(cls.versions.first, cls.versions.last + 1)


def cases() -> list[Any]:
    """One test case for every version of every message and of every struct that is embedded as bytes.

    A quick run does the first and the last version.
    """
    return [
        pytest.param(cls, version, id=f"{cls.__name__}-v{version}", marks=_marks(cls, version))
        for cls in (*messages(), *EMBEDDED)
        for version in versions(cls)
    ]


def _marks(cls: type[Struct], version: int) -> Sequence[pytest.MarkDecorator]:
    return () if version in (cls.versions.first, cls.versions.last) else [pytest.mark.thorough]


def fields_at(cls: type[Struct], version: int) -> list[tuple[str, Field]]:
    fields = cls.wire_fields.items()
    return [(name, field) for name, field in fields if version in VersionRange.parse(field.versions)]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


BLOBS = st.binary(max_size=12) | st.just(bytes(range(200)))
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uint16": st.integers(0, (1 << 16) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("größer" * 30),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("größer" * 30),
    "bytes": BLOBS,
    "records": BLOBS,
}


def values(cls: type[Struct], version: int, special: Strategies | None = None) -> st.SearchStrategy[Any]:
    """Instances of `cls` that `version` can carry; `special` strategies are found by the names of fields."""
    return _values(cls, version, tuple((special or {}).items()))


@cache
def _values(
    cls: type[Struct], version: int, special: tuple[tuple[str, st.SearchStrategy[Any]], ...]
) -> st.SearchStrategy[Any]:
    """Kept, because hypothesis looks through the whole of a strategy that it has not met, which takes longer than a test."""
    named = dict(special)
    chosen = {name: st.just(field.initial()) for name, field in cls.wire_fields.items()}
    for name, field in fields_at(cls, version):
        chosen[name] = named[name] if name in named else _field_values(field, version, named)
    return st.fixed_dictionaries(chosen).map(lambda drawn: cls(**drawn))


def _field_values(field: Field, version: int, special: Strategies) -> st.SearchStrategy[Any]:
    if isinstance(field.type, Array):
        strategy = st.lists(_type_values(field.type.item, version, special), max_size=2)
    else:
        strategy = _type_values(field.type, version, special)
    if version in VersionRange.parse(field.nullable):
        strategy = st.none() | strategy
    # A tagged field that has its default is not written at all: let that happen often.
    return strategy if field.tag is None else st.just(field.initial()) | strategy


def _type_values(wire_type: Primitive | type[Struct], version: int, special: Strategies) -> st.SearchStrategy[Any]:
    if isinstance(wire_type, Primitive):
        return PRIMITIVES[wire_type.name]
    return values(wire_type, version, special)
