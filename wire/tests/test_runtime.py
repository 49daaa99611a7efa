"""Unsigned varints and sections of tagged fields."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.wire.errors import ProtocolViolation
from ottla.wire.runtime import encode_varint, read_length, read_varint, skip_tagged_fields
from ottla.wire.types import VARINT


@given(st.integers(0, (1 << 31) - 1))
@example(127)
@example(128)
@example(16383)
@example(16384)
def test_varint_round_trip_agrees_with_the_construct(value: int) -> None:
    encoded = encode_varint(value)
    assert encoded == VARINT.build(value)
    assert read_varint(b"z" + encoded + b"z", 1) == (value, 1 + len(encoded))


@given(st.binary(min_size=5, max_size=8))
@example(b"\x80\x80\x80\x80\x08")
@example(b"\xff\xff\xff\xff\x7f")
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\x80\x80\x80\x80\x00")
@example(b"\x80\x80\x80\x80\x80\x00")
def test_any_bytes_read_as_the_construct_reads_them(encoded: bytes) -> None:
    try:
        value, end = read_varint(encoded, 0)
    except ProtocolViolation:
        assert all(byte > 127 for byte in encoded[:5])
        return
    assert VARINT.parse(encoded[:end]) == value
    assert -(1 << 31) <= value < 1 << 31


def test_length_beyond_javas_int_is_negative_except_the_one_that_wraps_twice() -> None:
    assert read_length(b"\xff\xff\xff\xff\x0f", 0) == (-1, 5)
    assert read_length(b"\x80\x80\x80\x80\x08", 0) == (1 << 31, 5)
    assert read_varint(b"\x80\x80\x80\x80\x08", 0) == (-(1 << 31), 5)


def test_tagged_fields_are_skipped_to_their_end() -> None:
    section = bytes([2, 0, 1, 65]) + bytes([200, 1, 2, 66, 67])
    assert skip_tagged_fields(b"zz" + section + b"zz", 2, 2 + len(section)) == 2 + len(section)


@pytest.mark.parametrize("end", range(9))
def test_tagged_fields_beyond_the_end_are_refused_though_the_buffer_goes_on(end: int) -> None:
    section = bytes([2, 0, 1, 65]) + bytes([200, 1, 2, 66, 67])
    with pytest.raises(ProtocolViolation):
        skip_tagged_fields(section + bytes(20), 0, end)
    with pytest.raises(ProtocolViolation):
        skip_tagged_fields(section[:end], 0, end)


def test_billions_of_tagged_fields_are_refused_without_counting_them() -> None:
    with pytest.raises(ProtocolViolation):
        skip_tagged_fields(b"\xff\xff\xff\xff\x07" + bytes(1000), 0, 1005)
