"""What the share coordinator knows of one share partition, and how records change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ottla.groupcoord.share.coordinator.batches import NO_START_OFFSET, StateBatch, merged
from ottla.groupcoord.share.coordinator.records import (
    UNINITIALIZED_COUNT,
    RecordedBatch,
    ShareSnapshotValue,
    ShareUpdateValue,
)

NO_TIMESTAMP = 0
NO_LEADER_EPOCH = -1
_new_batch = tuple.__new__  # past NamedTuple's keyword handling


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    """A share partition as its records have it. Never changed: another one takes its place, and may be undone."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    create_timestamp: int
    write_timestamp: int
    leader_epoch_max: int
    """The highest that any record had. A new initialization sets `leader_epoch` back, and not this."""
    update_count: int = 0
    """Updates since snapshots were last due. Only a snapshot that was due starts the count anew."""

    @property
    def is_quiet(self) -> bool:
        """Whether the last snapshot was written because nothing had happened for long."""
        return self.create_timestamp != self.write_timestamp

    def snapshot(self) -> ShareSnapshotValue:
        """The record that says all of this."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.create_timestamp,
            write_timestamp=self.write_timestamp,
            state_batches=recorded(self.state_batches),
        )


def initial_snapshot(
    before: SharePartitionState | None, *, state_epoch: int, start_offset: int, timestamp_ms: int
) -> ShareSnapshotValue:
    """The record that begins a share partition, or begins it anew at another offset."""
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
    """What is known once a snapshot is read."""
    update_count = 0 if before is None else before.update_count
    leader_epoch_max = value.leader_epoch if before is None else max(before.leader_epoch_max, value.leader_epoch)
    return SharePartitionState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=_in_order(value.state_batches),
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
        leader_epoch_max=leader_epoch_max,
        update_count=0 if update_count >= updates_per_snapshot else update_count,
    )


def after_update(before: SharePartitionState | None, value: ShareUpdateValue) -> SharePartitionState:
    """What is known once an update is read."""
    if before is None:
        # Its snapshot was lost. Kafka goes on with what is left, so that the share partition does not stand still.
        return SharePartitionState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=0,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=_in_order(value.state_batches),
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
        state_batches=merged(before.state_batches, told(value.state_batches), start_offset),
        leader_epoch_max=max(before.leader_epoch_max, value.leader_epoch),
        update_count=before.update_count + 1,
    )


def told(batches: Iterable[RecordedBatch]) -> list[StateBatch]:
    """What a record says of offsets. What makes no sense is left out: Kafka writes no such thing."""
    found = (
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )
    return [each for each in found if each.first_offset <= each.last_offset]


def recorded(batches: Sequence[StateBatch]) -> list[RecordedBatch]:
    """What a record is to say of offsets."""
    return [
        RecordedBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _in_order(batches: Iterable[RecordedBatch]) -> tuple[StateBatch, ...]:
    """What a snapshot says. One walk, for there may be ten thousand batches, and nearly always they are in order."""
    found: list[StateBatch] = []
    are_sorted = True
    end, said = -1, (-1, -1)
    for each in batches:
        first, last, state, count = each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
        if first > last:
            continue
        if first <= end + 1 and found and (first <= end or (state, count) == said):
            are_sorted = False
        found.append(_new_batch(StateBatch, (first, last, state, count)))
        end, said = last, (state, count)
    return tuple(found) if are_sorted else merged((), found, NO_START_OFFSET)
