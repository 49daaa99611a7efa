"""The plain constructs, held to bytes worked out by hand."""

from typing import Any

import construct
import pytest

from ottla.wire.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Bytes,
    Field,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Primitive,
    Records,
    String,
    Struct,
    Uint16,
    Uint32,
    Uuid,
    field,
)


def construct_of(wire_type: Any, *, flexible: bool = False, nullable: bool = False) -> construct.Construct:
    """The construct of a struct with the one field `value`."""
    namespace = {"value": field(wire_type, nullable="0+" if nullable else "none")}
    return type(Struct)("One", (Struct,), namespace, flexible="0+" if flexible else "none").construct(0)


def both_ways(one: construct.Construct, value: Any, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert one.build(one.cls(value=value)) == raw
    assert one.parse(raw) == one.cls(value=value)


def refused(one: construct.Construct, encoded: str) -> None:
    with pytest.raises(construct.ConstructError):
        one.parse(bytes.fromhex(encoded))


@pytest.mark.parametrize(
    ("wire_type", "value", "encoded"),
    [
        (Int8, -2, "fe"),
        (Int16, -2, "fffe"),
        (Uint16, 65534, "fffe"),
        (Int32, -2, "fffffffe"),
        (Uint32, 4294967294, "fffffffe"),
        (Int64, -2, "fffffffffffffffe"),
        (Float64, 1.5, "3ff8000000000000"),
        (Bool, True, "01"),
        (Bool, False, "00"),
        (Uuid, bytes(range(16)), "000102030405060708090a0b0c0d0e0f"),
    ],
)
def test_fixed_types_are_big_endian_in_every_version(wire_type: Primitive, value: Any, encoded: str) -> None:
    both_ways(construct_of(wire_type), value, encoded)
    both_ways(construct_of(wire_type, flexible=True), value, encoded + "00")
    refused(construct_of(wire_type), encoded[:-2])


def test_any_byte_but_zero_is_true() -> None:
    assert construct_of(Bool).parse(b"\x80").value is True


@pytest.mark.parametrize(
    ("wire_type", "value", "classic", "compact"),
    [
        (String, "", "0000", "01"),
        (String, "aé", "0003 61c3a9", "04 61c3a9"),
        (String, "x" * 200, "00c8" + "78" * 200, "c901" + "78" * 200),
        (Bytes, b"ab", "00000002 6162", "03 6162"),
        (Records, b"ab", "00000002 6162", "03 6162"),
        (Array(Int16), [1, -1], "00000002 0001 ffff", "03 0001 ffff"),
        (Array(String), ["a", ""], "00000002 000161 0000", "03 0261 01"),
        (Array(Uuid), [ZERO_UUID], "00000001" + "00" * 16, "02" + "00" * 16),
    ],
)
def test_prefix_is_classic_or_compact(wire_type: Any, value: Any, classic: str, compact: str) -> None:
    for nullable in (False, True):
        both_ways(construct_of(wire_type, nullable=nullable), value, classic)
        both_ways(construct_of(wire_type, nullable=nullable, flexible=True), value, compact + "00")


@pytest.mark.parametrize("wire_type", [String, Bytes, Records, Array(Int32), Array(String)])
def test_null_is_minus_one_or_a_compact_zero(wire_type: Any) -> None:
    classic = "ffff" if wire_type is String else "ffffffff"
    both_ways(construct_of(wire_type, nullable=True), None, classic)
    both_ways(construct_of(wire_type, nullable=True, flexible=True), None, "0000")
    refused(construct_of(wire_type), classic)
    refused(construct_of(wire_type, flexible=True), "0000")


def test_any_negative_length_is_null_as_in_kafka() -> None:
    assert construct_of(Bytes, nullable=True).parse(b"\xff\xff\xff\xf6").value is None
    assert construct_of(Bytes, nullable=True, flexible=True).parse(b"\xff\xff\xff\xff\x0f\x00").value is None


def test_length_that_wraps_in_java_is_too_long_rather_than_null() -> None:
    refused(construct_of(Bytes, nullable=True, flexible=True), "8080808008 00")


@pytest.mark.parametrize("wire_type", [String, Bytes, Records, Array(Int8), Array(String)])
def test_more_than_the_bytes_that_are_left_is_refused(wire_type: Any) -> None:
    refused(construct_of(wire_type), ("0003" if wire_type is String else "00000003") + "0000")
    refused(construct_of(wire_type, flexible=True), "04" + "0000")
    refused(construct_of(wire_type, flexible=True), "ffffffff07" + "00" * 20)


def test_strings_end_at_32767_bytes() -> None:
    compact = construct_of(String, flexible=True)
    both_ways(compact, "x" * 32767, "808002" + "78" * 32767 + "00")
    refused(compact, "818002" + "78" * 32768 + "00")
    with pytest.raises(construct.StringError):
        compact.build(compact.cls(value="x" * 32768))


def test_varint_of_six_bytes_is_refused_and_an_overlong_one_is_not() -> None:
    bytes_type = construct_of(Bytes, flexible=True)
    refused(bytes_type, "808080808000 00")
    assert bytes_type.parse(bytes.fromhex("8280808000 41 00")).value == b"A"


def test_bytes_after_the_message_are_ignored() -> None:
    assert construct_of(Int8).parse(b"\x01\x02\x03").value == 1


class Part(Struct):
    number: int = field(Int8)
    label: str | None = field(String, nullable="0+", tag=3, default=None)


class Whole(Struct, versions="0-2", flexible="1+"):
    part: Part = field(Part)
    spare: Part | None = field(Part, nullable="0+", default=None)
    level: int = field(Int16, versions="1+", tag=1, default=7)
    extra: Part = field(Part, versions="2+", tag=0, default=Part(number=0))
    new: int = field(Int32, versions="2+", default=-1)


def whole(**values: Any) -> Whole:
    return Whole(part=Part(number=5), **values)


def test_struct_is_its_fields_and_a_nullable_one_has_a_marker() -> None:
    plain = Whole.construct(0)
    assert plain.build(whole()) == bytes.fromhex("05 ff")
    assert plain.build(whole(spare=Part(number=6))) == bytes.fromhex("05 01 06")
    assert plain.parse(b"\x05\x80") == whole()
    assert plain.parse(b"\x05\x7f\x06") == whole(spare=Part(number=6))


def test_tagged_fields_follow_in_the_order_of_their_tags_without_the_defaults() -> None:
    plain = Whole.construct(2)
    value = whole(level=8, extra=Part(number=1, label=""))
    extra = "01 01 03 01 01"
    encoded = bytes.fromhex("05 00 ff ffffffff 02" + "00 05" + extra + "01 02 0008")
    assert plain.build(value) == encoded
    assert plain.parse(encoded) == value
    assert plain.build(whole()) == bytes.fromhex("05 00 ff ffffffff 00")


def test_tagged_fields_come_in_any_order_and_the_last_of_a_tag_counts() -> None:
    parsed = Whole.construct(1).parse(bytes.fromhex("05 00 ff 03" + "01 02 0001" + "63 00" + "01 02 0009"))
    assert parsed == whole(level=9)


def test_declared_size_of_a_known_tag_is_not_looked_at_as_in_kafka() -> None:
    assert Whole.construct(1).parse(bytes.fromhex("05 00 ff 01" + "01 63 0009")) == whole(level=9)


def test_tag_of_another_version_is_refused() -> None:
    with pytest.raises(construct.CheckError):
        Whole.construct(1).parse(bytes.fromhex("05 00 ff 01" + "00 00"))


@pytest.mark.parametrize("tagged", ["01 63 05 00", "01 63 ffffffff0f", "ffffffff07 6300"])
def test_tagged_fields_that_lie_are_refused(tagged: str) -> None:
    with pytest.raises(construct.ConstructError):
        Whole.construct(1).parse(bytes.fromhex("05 00 ff" + tagged))


def test_fields_that_a_version_lacks_get_their_default() -> None:
    parsed = Whole.construct(0).parse(b"\x05\xff")
    assert (parsed.level, parsed.new, parsed.extra) == (7, -1, Part(number=0))


def test_field_can_tell_its_value_where_it_is_absent() -> None:
    assert Field(Array(Int8), "3+", "none", None, [1]).initial() == [1]
    assert field(Array(Int8)).initial() == []
    assert field(Uuid).initial() == ZERO_UUID
    assert field(Part).initial() == Part(number=0)
