"""Which segments retention gives up, and how many it looks at for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log.segment import Segment
from ottla.replication.log.segmented_log import expired_segments

SIZE = 10


@dataclass
class Given:
    """Stands for a segment of ten offsets, and counts who looks at it."""

    number: int
    size: int = SIZE
    looks: list[int] = field(default_factory=list)

    @property
    def base_offset(self) -> int:
        self.looks.append(self.number)
        return self.number * 10

    def largest_timestamp(self) -> int:
        return self.number


def expired(
    segments: Sequence[Given], *, start: int = 0, high_watermark: int, limit: int = 2**31, **config: int
) -> int:
    end = len(segments) * 10 if segments[-1].size else (len(segments) - 1) * 10
    return expired_segments(
        cast("Sequence[Segment]", segments),
        LogConfig(**{"retention_ms": -1, **config}),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=high_watermark,
        now_ms=1_000_000,
        limit=limit,
    ).total


@given(
    count=st.integers(1, 6),
    is_last_empty=st.booleans(),
    start=st.integers(0, 60),
    high_watermark=st.integers(0, 60),
    kept_bytes=st.integers(-1, 70),
)
def test_what_goes_is_what_looking_at_every_segment_would_give_up(
    count: int, is_last_empty: bool, start: int, high_watermark: int, kept_bytes: int
) -> None:
    segments = [Given(number) for number in range(count)]
    end = count * 10
    if is_last_empty:
        segments[-1].size = 0
        end -= 10
    expected = 0
    for segment in segments:
        segment_end = min(end, segment.number * 10 + 10)
        is_last = segment is segments[-1]
        excess = sum(each.size for each in segments[expected:]) - kept_bytes
        is_below_start = segment_end <= start and not is_last
        is_too_much = kept_bytes >= 0 and excess >= segment.size
        if segment_end > high_watermark or (is_last and is_last_empty) or not (is_below_start or is_too_much):
            break
        expected += 1
    found = expired(segments, start=start, high_watermark=high_watermark, retention_bytes=kept_bytes)
    assert found == expected


def test_a_log_of_very_many_segments_is_not_looked_through_for_each_few_of_them() -> None:
    looks: list[int] = []
    segments = [Given(number, looks=looks) for number in range(10_000)]
    assert expired(segments, high_watermark=100_000, retention_ms=1, limit=16) == 16
    assert len(looks) < 100
