"""Ordinary batches of one producer that came together, to be appended in one write.

A write costs some microseconds whatever its size, and so does every step from a request to the segment. Nothing is decided here
that is not decided for each batch alone: the tests hold both ways to the same logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from ottla.replication.log.producers import SEQUENCE_MAX
from ottla.replication.log.rolling import should_roll
from ottla.replication.log.scan import CorruptSegment
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog
    from ottla.replication.log.validator import CheckedRecords
    from ottla.wire.records import BatchHeader


def follows(before: BatchHeader, header: BatchHeader) -> bool:
    """Whether a batch is the next one of the producer that sent the one before. Without ids nothing is numbered."""
    if header.producer_id < 0:
        return before.producer_id < 0
    next_sequence = (before.base_sequence + before.last_offset_delta + 1) & SEQUENCE_MAX
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == next_sequence
    )


class Several(NamedTuple):
    """Batches that are checked, and what they are together: so many records in `size` bytes."""

    checked: Sequence[CheckedRecords]
    size: int
    records: int
    max_timestamp: int

    @classmethod
    def of(cls, checked: Sequence[CheckedRecords]) -> Self:
        size = records = 0
        max_timestamp = -1
        for buffer, header, each_max, _ in checked:
            size += len(buffer)
            records += header[6] + 1
            max_timestamp = max(max_timestamp, each_max)
        return cls(checked, size, records, max_timestamp)

    @property
    def more(self) -> list[memoryview | bytearray]:
        """All but the first of the buffers."""
        return [each[0] for each in self.checked[1:]]

    def has_room(self, log: PartitionLog, now_ms: int) -> bool:
        """Whether they go to the segment that is written to now, whose indexes have room even if each gets an entry."""
        segment, config = log.segments[-1], log.config
        last_offset = log.log_end_offset + self.records - 1
        return (
            # The age of a segment is counted from its first batch, so that one goes alone.
            segment.size > 0
            and segment.has_index_room(len(self.checked), config)
            and not should_roll(segment, config, self.size, self.max_timestamp, last_offset, now_ms)
        )

    def assign(self, next_offset: int, leader_epoch: int) -> list[BatchHeader]:
        """Give each its offsets, and return the headers as they stand in the buffers then."""
        headers = []
        for each in self.checked:
            validated = each.assign(next_offset, leader_epoch)
            headers.append(validated[1][0])
            next_offset = validated[3] + 1
        return headers

    def take_back(self) -> None:
        """After `assign`: nothing is appended, and the batches stand in their buffers as they came."""
        for each in self.checked:
            each.take_back()


def append_several(
    log: PartitionLog, checked: Sequence[CheckedRecords], *, leader_epoch: int, now_ms: int
) -> int | None:
    """Append batches, each of which follows the one before (`follows`), in one write. Returns the first offset.

    None: nothing was done. They have to go one by one, as where something is to be refused or a segment may end.
    """
    several, first, first_header = Several.of(checked), log.log_end_offset, checked[0].header
    try:
        if log.log_directory.failure is not None or not several.has_room(log, now_ms):
            return None
    except (OSError, CorruptSegment, KafkaError):
        return None
    producers = log.producer_state() if first_header.producer_id >= 0 else None
    entry = producers.in_order([first_header]) if producers is not None else None
    if producers is not None and entry is None:
        return None
    headers = several.assign(first, leader_epoch)
    try:
        log.write(checked[0].buffer, headers, several.max_timestamp, now_ms, several.more)
    except KafkaError:
        several.take_back()
        return None
    if producers is not None and entry is not None:
        for header in headers:
            entry.add(header)
        producers.map_end_offset = log.log_end_offset
    if leader_epoch != log.latest_leader_epoch:
        log.assign_epoch(leader_epoch, first)
    return first
