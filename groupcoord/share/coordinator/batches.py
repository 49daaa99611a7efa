"""State batches: ranges of offsets of a share partition, each with what became of its records.

A list of them is *in order* if its ranges are sorted, do not overlap, and no two that touch say the same. Of two batches
that speak of the same offset the one of the higher delivery count is right, and at the same count the one of the higher
delivery state: a record is only ever delivered again, or moved on from available to acknowledged or archived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeVar

NO_START_OFFSET = -1

_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


BatchT = TypeVar("BatchT")
"""A batch as it is kept, or as it is written in a request."""


class StateBatch(NamedTuple):
    """A range of offsets, both ends included, and what became of their records."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def are_in_order(batches: Sequence[StateBatch]) -> bool:
    """Whether a list is as `merged` leaves one."""
    if any(batch.last_offset < batch.first_offset for batch in batches):
        return False
    return all(
        before.last_offset < batch.first_offset and not _continues(before, batch) for before, batch in pairwise(batches)
    )


def in_parts(news: Iterable[BatchT], length: int) -> list[list[BatchT]]:
    """Batches in parts of this length that follow each other, so that each is merged with a short stretch of what is known."""
    batches = sorted(news, key=_first)
    return [batches[start : start + length] for start in range(0, len(batches), length)]


def merged(known: Sequence[StateBatch], news: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """What is known (in order) and what is new, in order, without anything before the start offset.

    Only the stretch that the news speak of is gone through: most of them are short, and about the end of a long list.
    """
    news = list(_from_start(news, start_offset))
    if start_offset != NO_START_OFFSET:
        known = known[bisect_left(known, start_offset, key=_last) :]
        known = list(_from_start(known[:1], start_offset)) + list(known[1:])
    if not news:
        return tuple(known)
    # Neighbours belong to the stretch, because they may say the same as what comes beside them.
    begin = bisect_left(known, min(map(_first, news)) - 1, key=_last)
    end = bisect_right(known, max(map(_last, news)) + 1, key=_first)
    stretch = known[begin:end]
    # Nearly always the news are in order, and often they are about records of which nothing was known.
    if not are_in_order(news):
        news = _in_order(news)
    if stretch:
        news = _overlaid(stretch, news)
    return (*known[:begin], *news, *known[end:])


def _from_start(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    for batch in batches:
        if start_offset == NO_START_OFFSET or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _in_order(batches: list[StateBatch]) -> list[StateBatch]:
    """Batches that may overlap, put in order by one sweep over the offsets at which any of them begins or ends."""
    batches.sort(key=_first)
    bounds = sorted({*map(_first, batches), *[batch.last_offset + 1 for batch in batches]})
    swept: list[StateBatch] = []
    # Those that the sweep has reached, the right one first. One that has ended stays until it comes up.
    reached: list[tuple[int, int, int]] = []
    waiting = iter(batches)
    batch = next(waiting, None)
    for offset, following in pairwise(bounds):
        while batch is not None and batch.first_offset == offset:
            heappush(reached, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            batch = next(waiting, None)
        while reached and reached[0][2] < offset:
            heappop(reached)
        if reached:
            count, state, _ = reached[0]
            _add(swept, StateBatch(offset, following - 1, -state, -count))
    return swept


def _overlaid(known: Sequence[StateBatch], news: Sequence[StateBatch]) -> list[StateBatch]:
    """Two lists in order as one, by one walk along both. What only one of them speaks of is taken as it is."""
    found: list[StateBatch] = []
    left, right = iter(known), iter(news)
    one, other = next(left, None), next(right, None)
    while one is not None and other is not None:
        if one.last_offset < other.first_offset:
            _add(found, one)
            one = next(left, None)
        elif other.last_offset < one.first_offset:
            _add(found, other)
            other = next(right, None)
        else:
            end = _overlap(found, one, other)
            one = _after(one, end) or next(left, None)
            other = _after(other, end) or next(right, None)
    for batch in ([one, *left] if one is not None else []) + ([other, *right] if other is not None else []):
        _add(found, batch)
    return found


def _overlap(found: list[StateBatch], one: StateBatch, other: StateBatch) -> int:
    """Add what two batches that overlap say up to the end of the overlap; returns that end."""
    if one.first_offset > other.first_offset:
        one, other = other, one
    first, last, state, count = other
    if one.first_offset < first:
        _add(found, StateBatch(one.first_offset, first - 1, one.delivery_state, one.delivery_count))
    end = min(one.last_offset, last)
    if (one.delivery_count, one.delivery_state) > (count, state):
        state, count = one.delivery_state, one.delivery_count
    _add(found, StateBatch(first, end, state, count))
    return end


def _after(batch: StateBatch, offset: int) -> StateBatch | None:
    """What is left of a batch behind an offset."""
    _, last, state, count = batch
    return StateBatch(offset + 1, last, state, count) if last > offset else None


def _add(swept: list[StateBatch], batch: StateBatch) -> None:
    """Add what comes next, as part of the batch before if it goes on with that."""
    if swept and _continues(swept[-1], batch):
        swept[-1] = StateBatch(swept[-1].first_offset, *batch[1:])
    else:
        swept.append(batch)


def _continues(before: StateBatch, batch: StateBatch) -> bool:
    return (
        before.last_offset + 1 == batch.first_offset
        and before.delivery_state == batch.delivery_state
        and before.delivery_count == batch.delivery_count
    )
