"""Down-conversion for clients that know no record batches (Fetch v0-3): message sets of magic 0 or 1, made in a thread.

To convert a batch every record is read, and perhaps decompressed and compressed. So only very little is converted on the
event loop, and the rest in a thread. The thread reads one batch after the other from the files and holds the records of
one at a time.

A message set is often longer than the batch it comes from. The response still keeps to the sizes of the request, as far as
whole batches allow. A partition gives at most a megabyte; a client that wants more gets it with its next fetch. If the log
is truncated while the thread reads, the partition gives nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.log_reader import translated
from ottla.replication.log.storage import FileRegion, NotCached, only_cached
from ottla.server.api.fetch.partition_answers import failed_read
from ottla.server.api.fetch.responses import response_in_slices, response_to
from ottla.server.api.fetch.waiting import wait_in_slices
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError, KeptError
from ottla.wire.legacy_records import down_convert
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.records import iter_batches
from ottla.wire.time_slice import let_others_run

if TYPE_CHECKING:
    from ottla.replication.log.log_reader import LogReader
    from ottla.server.api.fetch.reading import Reading

PARTITION_BYTES_MAX = 1024 * 1024
# No more than this is converted on the event loop, because every record has to be read for it.
LITTLE_BYTES = 16 * 1024
LITTLE_RECORDS = 250

MAGIC_1_SINCE = 2
_conversions_in_threads = trio.CapacityLimiter(1)
"""Number of threads for conversions: one, because the records of a batch may take hundreds of megabytes."""


class Conversion:
    """Down-conversion of one partition's records.

    `layout`: layout of the log when the records were read. `room`: bytes that the request allows for the partition.
    """

    def __init__(self, log: LogReader, layout: int, region: FileRegion, first_offset: int, room: int) -> None:
        self.region, self._log = region, log
        self._layout, self._first_offset = layout, first_offset
        self._room = min(room, PARTITION_BYTES_MAX)
        self._records = b""
        self._failure = KeptError()

    def run(self, magic: int, room: int, *, must_give: bool) -> int:
        """Convert whole batches of at most `room` bytes in total; return the converted size. Call this in a thread.

        `must_give`: convert the first batch even if it is longer than `room`.
        """
        try:
            self._records = b"".join(self._converted(magic, min(room, self._room), must_give))
        except (OSError, KafkaError, CorruptSegment) as error:
            self._failure.keep(error)
        return len(self._records)

    def _converted(self, magic: int, room: int, must_give: bool) -> list[bytes]:
        file, start = self.region.file, self.region.position
        found: list[bytes] = []
        for header, position in scan_batches(file, start, start + len(self.region), LARGE_SCAN_BYTES):
            # Old clients know no transaction markers and would take them for records.
            if header.is_control:
                continue
            try:
                converted = down_convert(
                    file.read_at(position, header.size_in_bytes), magic, first_offset=self._first_offset
                )
            except KafkaError as error:
                # Batches before a zstd batch are good. The client gets the error when its next fetch begins at that
                # batch.
                if error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and found:
                    break
                raise
            # One batch is given though it is too long, or a client with a small limit would never get past it.
            if len(converted) > room and (found or not must_give):
                break
            found.append(converted)
            room -= len(converted)
            # Else this thread would keep the interpreter lock from the event loop for milliseconds at a time.
            let_others_run()
        return found

    def finish(self) -> bytes:
        """Return the converted message set. Raises KafkaError if the conversion failed."""
        # This comes before the failure: errors in files that were truncated or removed meanwhile mean nothing.
        if self._log.layout != self._layout:
            return b""
        try:
            self._failure.raise_it()
        except (OSError, CorruptSegment) as error:
            raise translated(self._log, error) from error
        return self._records


class DownConversion:
    """Down-conversions of one response; the event loop adds and finishes them, and a thread may run them."""

    def __init__(self, magic: int, bytes_max: int) -> None:
        self._magic, self._bytes_max = magic, bytes_max
        self._conversions: list[Conversion] = []

    def add(self, conversion: Conversion) -> None:
        """Add the conversion of one partition."""
        self._conversions.append(conversion)

    def is_little(self) -> bool:
        """True if the conversions are small enough to run on the event loop."""
        if sum(len(each.region) for each in self._conversions) > LITTLE_BYTES:
            return False
        # The sizes are small enough by now to read the regions here. A page that is not in memory raises NotCached.
        headers = [header for each in self._conversions for header, _, _ in iter_batches(each.region.read())]
        is_compressed = any(header.is_compressed for header in headers)
        return not is_compressed and sum(header.records_count for header in headers) <= LITTLE_RECORDS

    def run(self) -> None:
        """Run all conversions; call `Conversion.finish` for each result."""
        given = 0
        for each in self._conversions:
            # A partition has to give a batch only if none was given yet. The others keep to the room that is left.
            given += each.run(self._magic, max(self._bytes_max - given, 0), must_give=not given)


def converted(reading: Reading) -> Worked[FetchResponse]:
    """Return the response to a client that cannot read record batches, or a coroutine for it if conversion is long."""
    if len(reading.opened.targets) > PARTITIONS_PER_SLICE:
        return _convert_later(reading, is_read=False)
    try:
        with only_cached:
            reading.read_all()
            if reading.is_final:
                conversion, places = _conversion(reading)
                # A hop to a thread would cost more than to convert a few small records.
                if conversion.is_little():
                    conversion.run()
                    _take_converted(reading, places)
                    return response_to(reading)
    except NotCached:
        return _convert_later(reading, is_read=False)
    # Everything was read, so it is not read again: the fetch waits, or there is too much to convert here.
    return _convert_later(reading, is_read=True)


async def _convert_later(reading: Reading, *, is_read: bool) -> FetchResponse:
    if not is_read:
        await reading.read_in_slices()
    await wait_in_slices(reading)
    conversion, places = _conversion(reading)
    await trio.to_thread.run_sync(conversion.run, limiter=_conversions_in_threads)
    _take_converted(reading, places)
    return await response_in_slices(reading)


def _conversion(reading: Reading) -> tuple[DownConversion, dict[int, Conversion]]:
    """Return the down-conversion of all reads. Also return its parts, one per partition, by the index of the read."""
    conversion = DownConversion(0 if reading.reader.version < MAGIC_1_SINCE else 1, reading.bytes_max)
    places: dict[int, Conversion] = {}
    for place, read in enumerate(reading.reads):
        region: Any = read.data.records
        if isinstance(region, FileRegion) and read.partition is not None:
            asked, log = read.target.asked, read.partition.log
            each = Conversion(log, read.layout, region, asked.fetch_offset, asked.partition_max_bytes)
            conversion.add(each)
            places[place] = each
    return conversion, places


def _take_converted(reading: Reading, places: dict[int, Conversion]) -> None:
    for place, conversion in places.items():
        read = reading.reads[place]
        try:
            read.data.records = conversion.finish()
        except KafkaError as error:
            # A partition that cannot be converted fails alone. The others keep what they have.
            refused = failed_read(reading.reader.broker, reading.reader.version, read.target, error.code)
            refused.records = None
            reading.reads[place] = read._replace(data=refused)
