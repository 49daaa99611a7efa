"""Declarations: versions, constructors, equality, defaults, and what they cost."""

import subprocess
import sys
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.schema import (
    Array,
    Int16,
    Int32,
    Message,
    Records,
    String,
    Struct,
    VersionRange,
    field,
)


class Endpoint(Struct):
    host: str = field(String)
    port: int = field(Int32, default=9092)


class ThingResponse(Message, key=910, versions="1-4", flexible="3+"):
    throttle_time_ms: int = field(Int32, versions="2+", default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="2+", nullable="2+", default=None)
    endpoints: list[Endpoint] = field(Array(Endpoint))
    controller: Endpoint = field(Endpoint, versions="3+", tag=0, default=Endpoint(host="nobody"))
    tags: list[str] = field(Array(String), versions="3+", default=["a"])


class EchoResponse(Message, key=911, versions="0"):
    text: str = field(String)


@pytest.mark.parametrize(
    ("text", "first", "last", "shown"),
    [("3", 3, 3, "3-3"), ("0-4", 0, 4, "0-4"), ("9+", 9, 32767, "9+"), ("none", 0, -1, "none")],
)
def test_version_range_is_spelt_as_kafka_spells_it(text: str, first: int, last: int, shown: str) -> None:
    versions = VersionRange.parse(text)
    assert (versions.first, versions.last, str(versions)) == (first, last, shown)
    assert versions == VersionRange(first, last)
    assert hash(versions) == hash(VersionRange(first, last))
    assert versions != text
    assert [number for number in (first - 1, first, last, last + 1) if number in versions] == (
        [] if first > last else [first, last]
    )


def test_class_knows_its_key_and_versions() -> None:
    assert ThingResponse.api_key == 910
    assert ThingResponse.versions == VersionRange(1, 4)
    assert 2 not in ThingResponse.flexible
    assert 3 in ThingResponse.flexible
    assert repr(ThingResponse) == "ThingResponse"


def test_constructor_takes_keywords_and_fills_in_defaults() -> None:
    response = ThingResponse(error_code=3, endpoints=[])
    assert (response.throttle_time_ms, response.error_message, response.tags) == (0, None, ["a"])
    assert response.controller == Endpoint(host="nobody", port=9092)


@pytest.mark.parametrize("values", [{}, {"error_code": 1}, {"error_code": 1, "endpoints": [], "unknown": 1}])
def test_constructor_refuses_missing_and_unknown_fields(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        ThingResponse(**values)


def test_instances_have_slots_only() -> None:
    with pytest.raises(AttributeError):
        Endpoint(host="a").prot = 9  # type: ignore[attr-defined]


def test_declared_struct_is_not_extended_and_hides_nothing() -> None:
    with pytest.raises(AssertionError, match="extends"):
        type(Struct)("More", (Endpoint,), {})
    with pytest.raises(AssertionError, match="hides"):
        type(Struct)("Other", (Struct,), {"decode": field(Int32)})


def test_default_lists_are_not_shared() -> None:
    first, second = (ThingResponse(error_code=0, endpoints=[]) for _ in range(2))
    first.tags.append("b")
    assert second.tags == ["a"]
    assert ThingResponse.decode(bytes(6), 1).tags == ["a"]


def test_default_struct_is_shared_and_refuses_changes() -> None:
    first, second = (ThingResponse(error_code=0, endpoints=[]) for _ in range(2))
    assert first.controller is second.controller
    with pytest.raises(TypeError, match="shared default"):
        first.controller.port = 1
    first.controller = Endpoint(host="mine")
    first.controller.port = 1
    assert second.controller == Endpoint(host="nobody")


def test_equal_if_the_same_class_has_equal_values() -> None:
    assert Endpoint(host="a") == Endpoint(host="a", port=9092)
    assert Endpoint(host="a") != Endpoint(host="b")
    assert Endpoint(host="a") != EchoResponse(text="a")
    assert Endpoint(host="a") != "a"
    with pytest.raises(TypeError):
        hash(Endpoint(host="a"))


def test_repr_shows_what_is_not_the_default() -> None:
    class Batch(Struct):
        records: bytes | None = field(Records, nullable="0+")

    assert repr(Endpoint(host="a")) == "Endpoint(host='a')"
    assert repr(ThingResponse(error_code=5, endpoints=[Endpoint(host="a", port=1)])) == (
        "ThingResponse(error_code=5, endpoints=[Endpoint(host='a', port=1)])"
    )
    assert repr(Batch(records=b"secret")) == "Batch(records=<6 bytes>)"
    assert repr(Batch(records=None)) == "Batch(records=None)"


@pytest.mark.parametrize("version", range(1, 5))
def test_encodes_and_decodes_within_a_buffer(version: int) -> None:
    response = ThingResponse(error_code=5, endpoints=[Endpoint(host="a", port=1)])
    encoded = response.encode(version)
    buffer = bytearray(b"zz" + encoded + b"more")
    assert ThingResponse.decode(buffer, version, 2) == response
    assert ThingResponse.decode_prefix(buffer, version, 2, 2 + len(encoded)) == (response, 2 + len(encoded))
    assert ThingResponse.decoder(version)(buffer, 2, len(buffer)) == response
    parts: list[bytes] = []
    ThingResponse.encoder(version)(response, parts.append)
    assert b"".join(parts) == encoded
    with pytest.raises(ProtocolViolation, match="ThingResponse"):
        ThingResponse.decode(buffer, version, 2, 1 + len(encoded))


@pytest.mark.parametrize("version", [0, 5])
def test_other_versions_are_not_supported(version: int) -> None:
    with pytest.raises(KafkaError) as raised:
        ThingResponse.decode(b"", version)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError):
        ThingResponse(error_code=5, endpoints=[]).encode(version)


def test_declaration_names_all_that_was_declared() -> None:
    declaration = ThingResponse.declaration()
    assert list(ThingResponse.structs()) == ["ThingResponse", "Endpoint"]
    for part in ("versions 1-4 flexible 3+", "tag 0", "Endpoint(host='nobody')", "[]Endpoint", "9092", "nullable 2+"):
        assert part in declaration


def test_declaring_imports_neither_construct_nor_the_generator() -> None:
    program = (
        "import sys; from ottla.wire.schema import *;"
        "print(type(Struct)('A', (Struct,), {'a': field(Int32, default=5)})(), *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("A() ")
    assert not set(run.stdout.split()) & {"construct", "ottla.wire.types", "ottla.wire.generator", "dataclasses"}
