"""Records for clients of old: batches converted down to message sets of magic 0 or 1, in a thread (Fetch v0-3).

To convert a batch is to read every record, and maybe to decompress and to compress. So only very little is converted on the
event loop, and the rest in a thread. The thread reads one batch after the other from the files and holds the records of
one at a time.

A message set is often longer than the batch it comes from. The answer still keeps to the sizes that the request asks for,
as far as whole batches allow. A partition gives at most a megabyte; a client that wants more gets it with its next fetch.
If the log is cut off while the thread reads, the partition gives nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.log.log_reader import translated
from ottla.replication.log.scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.storage import FileRegion
from ottla.wire.errors import ErrorCode, KafkaError, KeptError
from ottla.wire.legacy_records import down_convert
from ottla.wire.records import iter_batches
from ottla.wire.threads import let_others_run

if TYPE_CHECKING:
    from ottla.replication.log.log_reader import LogReader

PARTITION_BYTES_MAX = 1024 * 1024
# No more than this is converted on the event loop, because every record has to be read for it.
LITTLE_BYTES = 16 * 1024
LITTLE_RECORDS = 250


class Conversion:
    """What one partition gives to the answer. `layout`: that of the log when it was read. `room`: how much is asked for."""

    def __init__(self, log: LogReader, layout: int, region: FileRegion, first_offset: int, room: int) -> None:
        self.region = region
        self._log = log
        self._layout = layout
        self._first_offset = first_offset
        self._room = min(room, PARTITION_BYTES_MAX)
        self._records = b""
        self._failure = KeptError()

    def run(self, magic: int, room: int, *, must_give: bool) -> int:
        """In a thread: convert as many whole batches as there is room for, with `must_give` at least one. Returns their size."""
        try:
            self._records = b"".join(self._converted(magic, min(room, self._room), must_give))
        except (OSError, KafkaError, CorruptSegment) as error:
            self._failure.keep(error)
        return len(self._records)

    def _converted(self, magic: int, room: int, must_give: bool) -> list[bytes]:
        file, start = self.region.file, self.region.position
        found: list[bytes] = []
        for header, position in scan_batches(file, start, start + len(self.region), LARGE_SCAN_BYTES):
            # Clients of old know no markers of transactions and would take them for records.
            if header.is_control:
                continue
            try:
                converted = down_convert(
                    file.read_at(position, header.size_in_bytes), magic, first_offset=self._first_offset
                )
            except KafkaError as error:
                # What lies before a zstd batch is good. The client gets the error when its next fetch begins at that
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
        """The message set. KafkaError: there is none."""
        # This comes before the failure: what the thread met in files that were cut or removed meanwhile means
        # nothing.
        if self._log.layout != self._layout:
            return b""
        try:
            self._failure.raise_it()
        except (OSError, CorruptSegment) as error:
            raise translated(self._log, error) from error
        return self._records


class DownConversion:
    """The conversions of one answer. Made and finished on the event loop."""

    def __init__(self, magic: int, bytes_max: int) -> None:
        self._magic = magic
        self._bytes_max = bytes_max
        self._conversions: list[Conversion] = []

    def add(self, conversion: Conversion) -> None:
        """Convert this, too."""
        self._conversions.append(conversion)

    def is_little(self) -> bool:
        """Whether no thread is needed."""
        if sum(len(each.region) for each in self._conversions) > LITTLE_BYTES:
            return False
        # The sizes are small enough by now to read the regions here. A page that is not in memory raises NotCached.
        headers = [header for each in self._conversions for header, _, _ in iter_batches(each.region.read())]
        is_compressed = any(header.is_compressed for header in headers)
        return not is_compressed and sum(header.records_count for header in headers) <= LITTLE_RECORDS

    def run(self) -> None:
        """Convert everything; `finish` of each conversion tells what came out."""
        given = 0
        for each in self._conversions:
            # Only as long as nothing was given a partition has to give a batch. The others keep to what is left.
            given += each.run(self._magic, max(self._bytes_max - given, 0), must_give=not given)
