"""Producer state at an offset of a log: the newest good snapshot, and the batches after it.

A snapshot holds one batch of each producer, but a producer may send again any of the last five. So the batches shortly before
the snapshot are read as well.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.producers import WINDOW, ProducerStateManager
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.wire.control_batches import EndTxnMarker, end_txn_marker_in
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.producer_snapshots import ProducerSnapshots
    from ottla.replication.log.storage import Buffer
    from ottla.wire.records import BatchHeader

logger = logging.getLogger(__name__)

EARLIER_BYTES = 256 * 1024
EARLIER_RECORDS = (10_000, 1_000, 100, 10)
RETRIES_MS = 15 * 60_000  # longer than clients try by default


def marker_of(header: BatchHeader, batch: Buffer) -> EndTxnMarker | None:
    """Return the transaction marker in a batch; None for other batches and for batches emptied by compaction."""
    if not header.is_control or header.producer_id < 0:
        return None
    return end_txn_marker_in(batch)


def producers_at(
    offset: int,
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    *,
    log_start_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> ProducerStateManager:
    """Return the producer state as it would be if the log ended at `offset`."""
    producers = ProducerStateManager()
    # A list of its own: snapshots beyond `offset` are of no use here, but still belong to the log.
    usable = snapshots.up_to(offset)
    loaded = usable.load_latest(now_ms=now_ms, expiration_ms=expiration_ms)
    # Damaged ones are gone. A later flush would otherwise rely on them and not write them again.
    snapshots.forget(o for o in snapshots.offsets if o <= offset and o not in usable.offsets)
    if loaded is None:
        # Without a snapshot everything that is left of the log is read.
        producers.map_end_offset = log_start_offset
    else:
        producers.load(loaded[1], loaded[0])
        _fill_windows(producers, segments, now_ms)
    start = max(producers.map_end_offset, log_start_offset)
    for segment, end in zip(segments, [*(s.base_offset for s in segments[1:]), 2**63], strict=True):
        if end > start and segment.base_offset < offset and segment.size:
            try:
                _replay(producers, segment, start, offset)
            # The log is in service. Its caller has a thread repair the segment, and comes again.
            except DamagedIndexes:
                raise
            except (CorruptSegment, KafkaError) as error:
                # A log whose records can be served is not refused because a producer may have to begin again.
                logger.error("Producers may be missing, as %r cannot be read: %s", segment, error)
    producers.map_end_offset = offset
    return producers


def _fill_windows(producers: ProducerStateManager, segments: Sequence[Segment], now_ms: int) -> None:
    """Restore each producer's batches from before the snapshot, so that resent ones are recognized.

    As in Kafka, batches that are not found count as unknown.
    """
    end, left = producers.map_end_offset, EARLIER_BYTES
    # With their default settings clients have given up by now, so a start need not read for them.
    if now_ms - max([each.last_timestamp for each in producers.producers.values()], default=0) > RETRIES_MS:
        return
    headers: list[BatchHeader] = []
    try:
        for segment in reversed([each for each in segments if each.size and each.base_offset < end]):
            start = _start_of_tail(segment, end, left)
            batches = scan_batches(segment.log_file.open(), start, segment.size, LARGE_SCAN_BYTES)
            # Segments come from the end to the beginning, and their batches have to be in the order of the log.
            headers[:0] = [header for header, _ in takewhile(lambda found: found[0].base_offset < end, batches)]
            left -= segment.size - start
            known = Counter([header.producer_id for header in headers])
            # Enough was read, or the rest of this segment was passed over, or the last batches of all producers are
            # known.
            if left <= 0 or start or all(known[producer_id] >= WINDOW for producer_id in producers.producers):
                break
    except (CorruptIndex, CorruptSegment, KafkaError) as error:
        logger.warning("Retries of producers may not be known, as the end of the log cannot be read: %s", error)
    else:
        producers.remember_earlier(headers)


def _start_of_tail(segment: Segment, end: int, size: int) -> int:
    """Return a position at most `size` bytes before the segment's end; the end itself if finding one is expensive."""
    if segment.size <= size:
        return 0
    # Batches cannot be read backwards. So a place is tried that is many offsets before the end, then nearer ones.
    for records in EARLIER_RECORDS:
        position = segment.locate(max(segment.base_offset, end - records))
        if position is not None and segment.size - position <= size:
            return position
    return segment.size


def _replay(producers: ProducerStateManager, segment: Segment, start: int, end: int) -> None:
    position = segment.locate(max(start, segment.base_offset))
    if position is None:
        return
    file = segment.log_file.open()
    for header, at in scan_batches(file, position, segment.size, LARGE_SCAN_BYTES):
        if header.last_offset >= end:  # what holds `end` is not part of a log that ends there
            return
        if header.producer_id >= 0 and header.base_offset >= start:
            marker = marker_of(header, file.read_at(at, header.size_in_bytes)) if header.is_control else None
            producers.apply(producers.note(header, marker))
