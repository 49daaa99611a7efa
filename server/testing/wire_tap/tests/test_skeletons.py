"""A skeleton is its message without records, for every message with records, in every version, however it is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.wire_tap.kafka_names import messages_of
from ottla.server.testing.wire_tap.skeletons import HEAD_BYTES, SKELETON_BYTES_MAX, Kept, Skeleton, plan_of
from ottla.server.testing.wire_tap.tests.wire_talk import answer, request
from ottla.wire.headers import (
    decode_request_header,
    decode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Array, Message, Primitive, Records, Struct

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78
RECORDS = b"\xff\x80" * 700
CASES = [
    (messages.request if is_request else messages.response, version, is_request)
    for key, is_request in ((PRODUCE, True), (FETCH, False), (SHARE_FETCH, False))
    if (messages := messages_of(key)) is not None
    for version in range(messages.request.versions.first, messages.request.versions.last + 1)
]


def filled(cls: type[Struct], version: int, records: bytes | None) -> Any:
    """Return a struct with two elements in each array, numbers whose bytes have the highest bit set, and records."""
    made = cls.zero()
    for name, field in cls.wire_fields.items():
        if version in field.version_range:
            value = records or b"" if field.nullable == "none" else records
            setattr(made, name, _value(field.type, version, value))
    return made


def _value(kind: Any, version: int, records: bytes | None) -> Any:
    if isinstance(kind, Array):
        return [_value(kind.item, version, records) for _ in range(2)]
    if not isinstance(kind, Primitive):
        return filled(kind, version, records)
    if kind is Records:
        return records
    return {str: "name", int: -128, bytes: b"\x80" * 16, float: 1.0, bool: True}[type(kind.zero)]


def kept_of(message: Message, version: int, *, is_request: bool, cuts: list[int]) -> tuple[bytes, Kept]:
    frame = (request if is_request else answer)(message, version)[4:]
    cls = type(message)
    skeleton = Skeleton(plan_of(cls, version, is_request=is_request), len(frame), is_compact=version in cls.flexible)
    ends = sorted({min(each, len(frame)) for each in cuts} | {len(frame)})
    for start, end in zip([0, *ends], ends, strict=False):
        skeleton.take(memoryview(frame)[start:end])
    kept = skeleton.kept()
    assert isinstance(kept, Kept)
    return frame, kept


def decoded(cls: type[Message], version: int, frame: bytes, *, is_request: bool) -> Message:
    if is_request:
        _, start = decode_request_header(frame, 0, len(frame), request_header_version(cls, version))
    else:
        _, start = decode_response_header(frame, 0, len(frame), response_header_version(cls, version))
    return cls.decode(frame, version, start)


@pytest.mark.parametrize(("cls", "version", "is_request"), CASES)
@pytest.mark.parametrize("records", [RECORDS, b"", None])
def test_it_is_the_message_without_records(
    cls: type[Message], version: int, is_request: bool, records: bytes | None
) -> None:
    message, bare = filled(cls, version, records), filled(cls, version, records and b"")
    for cuts in ([], list(range(1, 9000, 3))):
        frame, kept = kept_of(message, version, is_request=is_request, cuts=cuts)
        assert kept.is_complete and frame.startswith(kept.prefix)
        assert (
            sum(cut.skipped for cut in kept.cuts) == len(frame) - len(kept.data) == frame.count(RECORDS) * len(RECORDS)
        )
        assert decoded(cls, version, kept.without_records(), is_request=is_request) == bare


@given(st.binary(max_size=2000), st.sampled_from(CASES), st.lists(st.integers(1, 2000), max_size=5))
def test_bytes_of_strangers_have_their_first_bytes_at_least(data: bytes, case: Any, cuts: list[int]) -> None:
    cls, version, is_request = case
    skeleton = Skeleton(plan_of(cls, version, is_request=is_request), len(data), is_compact=version in cls.flexible)
    ends = sorted({min(each, len(data)) for each in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        skeleton.take(memoryview(data)[start:end])
    kept = skeleton.kept()
    assert isinstance(kept, Kept) and data.startswith(kept.prefix)


def test_a_frame_of_very_many_small_things_keeps_little() -> None:
    skeleton = Skeleton(plan_of(CASES[0][0], 0, is_request=True), 1 << 30, is_compact=False)
    skeleton.take(memoryview(bytes(8) + b"\xff\xff" + bytes(6) + b"\0\xff\xff\xff"))
    for _ in range(20):
        skeleton.take(memoryview(bytes(SKELETON_BYTES_MAX // 4)))
    kept = skeleton.kept()
    assert isinstance(kept, Kept) and not kept.is_complete and len(kept.data) <= HEAD_BYTES


def test_a_gap_that_is_no_records_loses_the_skeleton() -> None:
    skeleton = Skeleton(plan_of(CASES[0][0], 0, is_request=True), 1000, is_compact=False)
    skeleton.skip(5)
    assert skeleton.kept() == Kept(b"")
