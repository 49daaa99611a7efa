"""The logs that the replicas of a partition hold in the end, as bytes: each whole in itself, and all of them the same.

Followers copy their leader's batches as they are, so up to the high watermark all logs hold the same bytes, but for what
retention or a cleaner has taken from one and not yet from another: logs are compared from the first offset on that all of
them have, and compacted ones not byte by byte. What is behind the high watermark was never acknowledged and may be anything,
also the half of a batch that a SIGKILL left.

The leader's log also counts as a final reader: `events_of` tells it as events.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.server.testing.history.history import Event, ReachedEnd, Read, ReadBegan, told
from ottla.server.testing.history.rules import Report, Rule
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import crc_is_valid, iter_batches

RECORDS_IN_A_READ = 1000


class Replicas(NamedTuple):
    topic: str
    partition: int
    high_watermark: int | None
    """None if all that is whole in the leader's log is meant: it is the only replica."""

    logs: dict[str, bytes]
    """All segments of a replica in a row, by its name; the leader's first."""

    compacted: bool = False


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    start: int
    end: int
    is_control: bool


def read_log(data_dir: Path, topic: str, partition: int) -> bytes:
    """Return the bytes of all segments of a stopped broker's replica."""
    segments = sorted((data_dir / f"{topic}-{partition}").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def batches(log: bytes, high_watermark: int | None) -> Iterator[Batch]:
    for header, start, end in iter_batches(log):
        if high_watermark is not None and header.next_offset > high_watermark:
            return
        yield Batch(header.base_offset, header.next_offset, start, end, header.is_control)


def compare(replicas: Replicas, report: Report) -> None:
    """Report logs that are damaged, have holes or offsets twice, or differ from the leader's."""
    whole = {name: log for name, log in replicas.logs.items() if _is_in_order(name, replicas, report)}
    if replicas.compacted or len(whole) < 2:
        return
    firsts = [next(batches(log, replicas.high_watermark), None) for log in whole.values()]
    start = max((first.base_offset for first in firsts if first), default=0)
    leader, *followers = whole
    expected = _bytes_from(whole[leader], start, replicas.high_watermark)
    for name in followers:
        found = _bytes_from(whole[name], start, replicas.high_watermark)
        if found != expected:
            words = f"{leader} and {name} from offset {_first_difference(expected, found, start)} on"
            report.add(Rule.REPLICAS_DIFFER, (replicas.topic, replicas.partition), words)


def _is_in_order(name: str, replicas: Replicas, report: Report) -> bool:
    """Report damage, holes and repeated offsets of a log; return True if all its batches are whole."""
    log, where = replicas.logs[name], (replicas.topic, replicas.partition)
    expected: int | None = None
    position, is_whole = 0, True
    try:
        for batch in batches(log, replicas.high_watermark):
            position = batch.start
            if not crc_is_valid(log, batch.start, batch.end):
                report.add(Rule.DAMAGED, where, f"{name}: the batch of offset {batch.base_offset}, byte {position}")
                is_whole = False
            if expected is not None and batch.base_offset < expected:
                words = f"{name}: a batch of {batch.base_offset} where {expected} is next"
                report.add(Rule.TWO_VALUES, where, words)
            elif expected is not None and batch.base_offset > expected and not replicas.compacted:
                report.add(Rule.HOLE, where, f"{name}: from {expected} to {batch.base_offset}")
            expected = batch.next_offset
    except KafkaError as error:
        report.add(Rule.DAMAGED, where, f"{name}: after byte {position}: {error}")
        return False
    return is_whole


def _bytes_from(log: bytes, start: int, high_watermark: int | None) -> bytes:
    found = [batch for batch in batches(log, high_watermark) if batch.base_offset >= start]
    return log[found[0].start : found[-1].end] if found else b""


def _first_difference(left: bytes, right: bytes, start: int) -> int:
    """Return the base offset of the first batch that differs."""
    lefts, rights = list(batches(left, None)), list(batches(right, None))
    for one, other in zip(lefts, rights, strict=False):
        if left[one.start : one.end] != right[other.start : other.end]:
            return min(one.base_offset, other.base_offset)
    shorter = min(lefts, rights, key=len)
    return shorter[-1].next_offset if shorter else start


def events_of(replicas: Replicas) -> Iterator[Event]:
    """Yield the events of a final reader of the leader's log, up to where the log is damaged."""
    name, log = next(iter(replicas.logs.items()))
    if not _is_in_order(name, replicas, Report()):
        return
    reader, where = f"log of {name}", (replicas.topic, replicas.partition)
    end: int | None = None
    records: list[tuple[int, str]] = []
    for batch in batches(log, replicas.high_watermark):
        if end is None:
            yield ReadBegan(0.0, reader, *where, batch.base_offset, final=True)
        if not batch.is_control:
            records += [(record.offset, told(record.value)) for record in decode_records(log, batch.start)]
        end = batch.next_offset
        if len(records) >= RECORDS_IN_A_READ:
            yield Read(0.0, reader, *where, tuple(records))
            records = []
    if end is not None:
        if records:
            yield Read(0.0, reader, *where, tuple(records))
        yield ReachedEnd(0.0, reader, *where, end)
