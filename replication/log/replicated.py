"""What a follower checks of the batches its leader sends."""

from __future__ import annotations

from typing import NamedTuple

from ottla.replication.log.recovery import marker_of
from ottla.wire.control_batches import EndTxnMarker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import BatchHeader, crc_is_valid, iter_batches

EPOCH_MAX = 0x7FFFFFFF  # any leader's batches are taken


class ReplicatedBatches(NamedTuple):
    """Whole batches at the beginning of a fetched piece of log; `markers` go with `batches`."""

    size: int
    batches: list[BatchHeader]
    markers: list[EndTxnMarker | None]


def check_replicated(records: memoryview, next_offset: int, leader_epoch: int, name: str) -> ReplicatedBatches:
    """Checksums, and offsets from `next_offset` on in order. A batch that is cut off at the end is left out.

    So is what begins with a batch of a later epoch than that of the fetch: a leader that was deposed while it answered
    may send what its successor has already put in place of its own records (KAFKA-18723).
    """
    found = ReplicatedBatches(0, [], [])
    size = 0
    for header, start, end in iter_batches(records):
        if header.partition_leader_epoch > leader_epoch:
            break
        if not crc_is_valid(records, start, end):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Batch at offset {header.base_offset} fails its checksum")
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Unexpected offset in append to {name}: {header.base_offset} is below {next_offset}",
            )
        next_offset = header.next_offset
        size = end
        found.batches.append(header)
        found.markers.append(marker_of(header, records[start:end]) if header.is_control else None)
    return found._replace(size=size)
