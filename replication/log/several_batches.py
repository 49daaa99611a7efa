"""Ordinary batches of one producer that came together, to be appended in one write.

A write costs some microseconds whatever its size, and so does every step from a request to the segment. Nothing is decided here
that is not decided for each batch alone: the tests hold both ways to the same logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from ottla.replication.log.producers import SEQUENCE_MAX

if TYPE_CHECKING:
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
