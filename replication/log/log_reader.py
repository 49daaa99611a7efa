"""Reads of a log that do not change it: slices and aborted transactions. Timestamps: `time_search.py`.

`LogReader` is the part of `PartitionLog` that only looks. It holds the segments and the offsets they cover. Over it are
`DurableLog`, which flushes, `SegmentedLog`, which rolls, cuts and deletes, and `PartitionLog`, which appends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.storage import FileRegion, LogDirectory
from ottla.replication.log.transaction_index import AbortedInRange
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import LONG_MAX

EMPTY = b""
new_tuple = tuple.__new__  # past NamedTuple's keyword handling


class LogRead(NamedTuple):
    """Part of a log, as read; all records in `region` are below `end_offset`.

    `bytes_available` is the number of bytes that a read without limit would get from this segment.
    `is_behind` is True if later segments have more.
    """

    region: FileRegion | bytes
    end_offset: int
    bytes_available: int = 0
    is_behind: bool = False


Method = TypeVar("Method", bound=Callable[..., Any])


OnDamage = Callable[["LogReader", Segment], None]


def _ignore(log: LogReader, segment: Segment) -> None:
    """Ignore a damaged segment: the thread that loads or copies this log repairs it."""


def guarded(method: Method) -> Method:
    """Convert file errors of a method into KafkaError; take the directory offline if the disk is broken.

    After a transient error files and memory agree; a method that cannot ensure this raises `Irreparable`.
    """

    @wraps(method)
    def call(self: LogReader, *args: Any, **kwargs: Any) -> Any:
        # Files of a failed disk are not touched, and all readers get the same error.
        self.log_directory.check_online()
        if self.is_given_up:
            raise self.gone()
        try:
            return method(self, *args, **kwargs)
        except DamagedIndexes as damage:
            # A thread repairs the segment. This caller gets an error with which its client tries again.
            self.on_damage(self, damage.segment)
            raise
        except (OSError, CorruptSegment, CorruptIndex) as error:
            raise translated(self, error) from error

    return call  # type: ignore[return-value]


def translated(log: LogReader, error: Exception) -> KafkaError:
    """Return the KafkaError to raise for an `error` of files or batches."""
    if isinstance(error, OSError):
        return log.storage_error(error)
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.name}: {error}")


class LogReader:
    """Reader of a log: finds and reads the batches in its segments."""

    __slots__ = (
        "_segments",
        "is_given_up",
        "layout",
        "log_directory",
        "log_end_offset",
        "log_start_offset",
        "name",
        "on_damage",
    )

    def __init__(
        self,
        log_directory: LogDirectory,
        name: str,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.log_directory = log_directory
        self.name = name  # topic-partition, for messages
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._segments = segments
        self.on_damage: OnDamage = _ignore
        self.is_given_up = False
        self.layout = 0  # counts the changes to what was written: cuts, deletions, other files in place of old ones

    @property
    def size_in_bytes(self) -> int:
        """Size of all segments in bytes."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        """Segments in order, oldest first; the last one is the active segment."""
        return self._segments

    def enter_service(self, on_damage: OnDamage) -> None:
        """Serve reads on the event loop from now on; large damaged segments are reported to `on_damage`."""
        self.on_damage = on_damage
        for segment in self._segments:
            segment.defers_repair = True

    def give_up(self) -> None:
        """Stop serving the log; from now on threads may rename and remove its files."""
        self.is_given_up = True
        self.layout += 1  # the result of the thread is unused, also if it fails

    def gone(self) -> KafkaError:
        """Return the error for requests to a deleted log."""
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")

    def storage_error(self, error: OSError) -> KafkaError:
        """Return the error for a request that met `error`; take the directory offline if the disk is broken."""
        if self.is_given_up and isinstance(error, FileNotFoundError):
            return self.gone()
        return self.log_directory.judge(error, self.name)

    def read(self, start_offset: int, max_bytes: int, *, upper_bound: int, at_least_one_batch: bool = False) -> LogRead:
        """Read at most `max_bytes` of complete batches below `upper_bound`, from the batch with `start_offset` on.

        The first batch may begin below `start_offset`. With `at_least_one_batch` the first batch is returned even if it
        is larger than `max_bytes`. Raises OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset] and, as in
        Kafka, UNKNOWN_SERVER_ERROR for a negative `max_bytes` if there is something to read.
        """
        if start_offset < self.log_start_offset or start_offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {start_offset} for partition {self.name},"
                f" but we only have [{self.log_start_offset}, {self.log_end_offset}]",
            )
        # A reader at the end needs no file, so this method does without `guarded`.
        if start_offset >= upper_bound or (max_bytes == 0 and not at_least_one_batch):
            return new_tuple(LogRead, (EMPTY, start_offset, 0, False))
        # After the line above: Kafka fails over a negative limit only where there is something to read.
        if max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max size {max_bytes} for log read")
        return self._read(start_offset, max_bytes, upper_bound, at_least_one_batch)

    @guarded
    def _read(self, start_offset: int, max_bytes: int, upper_bound: int, at_least_one_batch: bool) -> LogRead:
        segments = self._segments
        index = bisect_right(segments, start_offset, key=base_offset_of) - 1 if len(segments) > 1 else 0
        while index < len(segments):
            segment = segments[index]
            index += 1
            segment_end = segments[index].base_offset if index < len(segments) else self.log_end_offset
            if segment.base_offset >= upper_bound:
                break
            position = segment.locate(start_offset)
            if position is None:
                continue  # compaction left a gap at the segment's end
            # The bound has a position only if it lies in this segment. Otherwise the segment may be read to its end.
            end = None if upper_bound >= segment_end else segment.locate(upper_bound)
            end = segment.size if end is None else end
            region, end_offset = segment.read(position, max_bytes, end, at_least_one_batch=at_least_one_batch)
            # Where compaction left a gap, the next batch begins beyond the bound. The slice must not claim to reach
            # so far.
            bound = min(upper_bound, segment_end)
            end_offset = bound if end_offset is None else min(end_offset, bound)
            return new_tuple(LogRead, (region or EMPTY, end_offset, end - position, upper_bound > segment_end))
        return LogRead(EMPTY, start_offset)

    @guarded
    def aborted_transactions(self, start_offset: int, end_offset: int, at_most: int = LONG_MAX) -> AbortedInRange:
        """Return the aborted transactions with records in [start_offset, end_offset).

        If there are more than `at_most`, the result covers a shorter range; see `AbortedInRange`.
        """
        found = AbortedInRange(start_offset, end_offset, at_most)
        index = max(0, bisect_right(self._segments, start_offset, key=base_offset_of) - 1)
        # The marker of a transaction, and with it the entry, may lie in a later segment than its records.
        for segment in self._segments[index:]:
            if segment.txn_index is not None and segment.txn_index.collect(found):
                break
        return found


def base_offset_of(segment: Segment) -> int:
    """Return a segment's base offset, as the key of a bisection."""
    return segment.base_offset
