"""The state of one share partition at the share coordinator: its offsets, its epochs and its state batches.

A state batch is a range of offsets with the delivery state of its records. A list of them is *in order* if its ranges are
sorted, do not overlap, and no two that touch are equal in state and count. Of two batches with the same offset the one of
the higher delivery count is right, and at the same count the one of the higher delivery state: a record is only ever
delivered again, or moved on from available to acknowledged or archived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeVar

from ottla.groupcoord.share.coordinator.records import (
    UNINITIALIZED_COUNT,
    RecordedBatch,
    ShareSnapshotValue,
    ShareUpdateValue,
)

# ---------------------------------------------------------------------- state batches


NO_START_OFFSET = -1

_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


BatchT = TypeVar("BatchT")
"""A batch in the state or in a request."""

NO_TIMESTAMP = 0
NO_LEADER_EPOCH = -1
_new_batch = tuple.__new__  # past NamedTuple's keyword handling


class StateBatch(NamedTuple):
    """Range of offsets, both ends included, with the delivery state and delivery count of its records."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def are_in_order(batches: Sequence[StateBatch]) -> bool:
    """Return True if the batches have the form that `merged` returns: sorted, disjoint, joined where possible."""
    if any(batch.last_offset < batch.first_offset for batch in batches):
        return False
    return all(
        before.last_offset < batch.first_offset and not _continues(before, batch) for before, batch in pairwise(batches)
    )


def in_parts(new: Iterable[BatchT], length: int) -> list[list[BatchT]]:
    """Return the batches sorted, in lists of `length`. Each list covers a narrow range of offsets."""
    batches = sorted(new, key=_first)
    return [batches[start : start + length] for start in range(0, len(batches), length)]


def merged(known: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Merge new batches into known ones (in order), and drop all offsets before the start offset.

    Only known batches near the new ones are visited: most writes are short and near the end of a long list.
    """
    new = list(_from_start(new, start_offset))
    if start_offset != NO_START_OFFSET:
        known = known[bisect_left(known, start_offset, key=_last) :]
        known = list(_from_start(known[:1], start_offset)) + list(known[1:])
    if not new:
        return tuple(known)
    # Neighbours belong to the stretch, because they may be like the new batch beside them.
    begin = bisect_left(known, min(map(_first, new)) - 1, key=_last)
    end = bisect_right(known, max(map(_last, new)) + 1, key=_first)
    stretch = known[begin:end]
    # Nearly always the new batches are in order, and often they are about records that were not known.
    if not are_in_order(new):
        new = _in_order(new)
    if stretch:
        new = _overlaid(stretch, new)
    return (*known[:begin], *new, *known[end:])


def _from_start(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    for batch in batches:
        if start_offset == NO_START_OFFSET or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _in_order(batches: list[StateBatch]) -> list[StateBatch]:
    """Sort batches and resolve overlaps in one sweep; the highest delivery count and state win."""
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


def _overlaid(known: Sequence[StateBatch], new: Sequence[StateBatch]) -> list[StateBatch]:
    """Merge two sorted lists of batches in one pass; in overlaps the highest delivery count and state win."""
    found: list[StateBatch] = []
    left, right = iter(known), iter(new)
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
    """Append two overlapping batches to `found`, up to the last offset that both have; return that offset."""
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
    _, last, state, count = batch
    return StateBatch(offset + 1, last, state, count) if last > offset else None


def _add(swept: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch to `swept`. If possible, extend the last batch instead."""
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


# ---------------------------------------------------------------------- states of share partitions


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    """State of one share partition; immutable, so that a change can be reverted."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    create_timestamp: int
    write_timestamp: int
    leader_epoch_max: int
    """The highest leader epoch of any record. A new initialization resets `leader_epoch`, and not this."""
    update_count: int = 0
    """Updates since a snapshot was last due. Only a snapshot that was due resets the count."""

    @property
    def is_quiet(self) -> bool:
        """True if the last snapshot was written because of its age: the share partition is rarely written."""
        return self.create_timestamp != self.write_timestamp

    def snapshot(self) -> ShareSnapshotValue:
        """Return the snapshot value of this state."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.create_timestamp,
            write_timestamp=self.write_timestamp,
            state_batches=recorded_batches(self.state_batches),
        )


def initial_snapshot(
    before: SharePartitionState | None, *, state_epoch: int, start_offset: int, timestamp_ms: int
) -> ShareSnapshotValue:
    """Return the snapshot value that initializes a share partition, or resets it to another start offset."""
    return ShareSnapshotValue(
        snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        # Without a start nothing was delivered. With one, nothing was delivered beyond it.
        delivery_complete_count=UNINITIALIZED_COUNT if start_offset == NO_START_OFFSET else 0,
        create_timestamp=timestamp_ms,
        write_timestamp=timestamp_ms,
        state_batches=[],
    )


def after_snapshot(
    before: SharePartitionState | None, value: ShareSnapshotValue, updates_per_snapshot: int
) -> SharePartitionState:
    """Return the state of a share partition after a snapshot record."""
    update_count = 0 if before is None else before.update_count
    leader_epoch_max = value.leader_epoch if before is None else max(before.leader_epoch_max, value.leader_epoch)
    return SharePartitionState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=_snapshot_batches(value.state_batches),
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
        leader_epoch_max=leader_epoch_max,
        update_count=0 if update_count >= updates_per_snapshot else update_count,
    )


def after_update(before: SharePartitionState | None, value: ShareUpdateValue) -> SharePartitionState:
    """Return the state of a share partition after an update record."""
    if before is None:
        # Its snapshot was lost. Kafka goes on with what is left, so that the share partition does not stand still.
        return SharePartitionState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=0,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=_snapshot_batches(value.state_batches),
            create_timestamp=NO_TIMESTAMP,
            write_timestamp=NO_TIMESTAMP,
            leader_epoch_max=value.leader_epoch,
            update_count=1,
        )
    start_offset = before.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
    return replace(
        before,
        leader_epoch=before.leader_epoch if value.leader_epoch == NO_LEADER_EPOCH else value.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=merged(before.state_batches, read_batches(value.state_batches), start_offset),
        leader_epoch_max=max(before.leader_epoch_max, value.leader_epoch),
        update_count=before.update_count + 1,
    )


def read_batches(batches: Iterable[RecordedBatch]) -> list[StateBatch]:
    """Convert a record's batches to state batches. A range that ends before it begins is skipped: Kafka writes none."""
    found = (
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )
    return [each for each in found if each.first_offset <= each.last_offset]


def recorded_batches(batches: Sequence[StateBatch]) -> list[RecordedBatch]:
    """Convert state batches to the form of a record."""
    return [
        RecordedBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _snapshot_batches(batches: Iterable[RecordedBatch]) -> tuple[StateBatch, ...]:
    """Convert a snapshot's batches to state batches, in one pass if they are in order. There may be 10,000."""
    found: list[StateBatch] = []
    are_sorted = True
    end, last_state = -1, (-1, -1)
    for each in batches:
        first, last, state, count = each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
        if first > last:
            continue
        if first <= end + 1 and found and (first <= end or (state, count) == last_state):
            are_sorted = False
        found.append(_new_batch(StateBatch, (first, last, state, count)))
        end, last_state = last, (state, count)
    return tuple(found) if are_sorted else merged((), found, NO_START_OFFSET)
