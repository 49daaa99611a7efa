"""Records of a page, found in the bytes of batches. It runs in a thread: to decompress and to search takes time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.admin.console.cells import HEX, cell, header_cells
from ottla.wire.control_batches import control_type_id
from ottla.wire.decompression import TooLargeDecompressed
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import decode_area, decode_records, records_area
from ottla.wire.records import MAGIC_V2, iter_batches
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    from ottla.server.admin.console.avro.registry import Framed
    from ottla.wire.records import BatchHeader, Record

DECODED_BYTES_MAX = 32 * 1024 * 1024  # a batch that becomes larger is shown as a whole, without its records
LEGACY_BYTES_MAX = 4 * 1024 * 1024  # the same of a message of magic 0 or 1, all of whose inner messages become objects
DECODED_IN_ALL_MAX = 64 * 1024 * 1024  # in one answer: a kilobyte of a log may hold 32 MiB
SHOWN_BYTES_MAX = 1024 * 1024  # of keys, values and headers in one answer
RECORDS_SCANNED_MAX = 200_000  # in one answer, each with its headers, which count as much
HEADERS_READ_MAX = 1_000  # of one record: more are neither counted nor searched
PIECE_BYTES = 256 * 1024
_MARKERS = {0: "abort", 1: "commit"}


class Filters(NamedTuple):
    """Conditions that a shown record has to meet, all of them. An empty text matches anything.

    Texts without capital letters match in either case.
    """

    contains: bytes = b""
    """Text in the key, the value or a header."""
    key: bytes = b""
    value: bytes = b""
    header: tuple[bytes, bytes] = b"", b""
    """Texts in the name and in the value of one header."""
    since: int = -1
    """Smallest timestamp in ms; -1: any."""
    before: int = -1
    """Timestamp in ms that is larger than the record's; -1: any."""

    def match(self, record: Record) -> bool:
        """Tell whether a record meets all conditions."""
        if 0 <= self.before <= record.timestamp or record.timestamp < self.since:
            return False
        if not (_is_in(self.key, record.key) and _is_in(self.value, record.value)):
            return False
        name, value = self.header
        if (name or value) and not any(_is_in(name, each) and _is_in(value, of) for each, of in record.headers):
            return False
        parts = (record.key, record.value, *(each for pair in record.headers for each in pair))
        return not self.contains or any(_is_in(self.contains, each) for each in parts)


EVERYTHING = Filters()


@dataclass
class Page:
    """Search criteria of a page of records, and the records found so far. `position`: the next offset to read."""

    position: int
    until: int
    limit: int
    cut: int
    form: str = "auto"
    framed: Framed | None = None
    """Framed values for the schema registry; None without one."""
    filters: Filters = EVERYTHING
    records: list[dict[str, Any]] = field(default_factory=list)
    scanned: int = 0
    shown_bytes: int = 0
    decoded_bytes: int = 0
    headers: int = 0
    """Number of headers read, of all records."""

    @property
    def is_full(self) -> bool:
        return (
            len(self.records) >= self.limit
            or self.shown_bytes >= SHOWN_BYTES_MAX
            or self.scanned + self.headers >= RECORDS_SCANNED_MAX
            or self.position >= self.until
        )

    @property
    def is_done(self) -> bool:
        """True if no further batch shall be read; a batch that is being read is nevertheless read to its end."""
        return self.is_full or self.decoded_bytes >= DECODED_IN_ALL_MAX

    def take(self, data: bytes) -> None:
        """Read the batches in `data`, a piece of the log, until the page is full."""
        for header, start, end in iter_batches(data):
            if self.is_done:
                return
            if header.last_offset >= self.position:
                self._take_batch(header, data[start:end])

    def _take_batch(self, header: BatchHeader, batch: bytes) -> None:
        try:
            records = self._decoded(header, batch)
        except TooLargeDecompressed:
            limit = _limit(header)
            self.decoded_bytes += limit  # for nothing
            self.show_whole(header, f"its records take more than {limit >> 20} MiB")
            return
        except KafkaError as error:
            self.show_whole(header, error.message or error.code.name)
            return
        self._take_records(header, records)

    def _decoded(self, header: BatchHeader, batch: bytes) -> Iterator[Record]:
        limit = _limit(header)
        if header.magic == MAGIC_V2:
            area = records_area(batch, header, limit=limit)
            self.decoded_bytes += len(area)
            return decode_area(area, header, in_place=True, headers_max=HEADERS_READ_MAX)
        records = decode_records(batch, limit=limit, in_place=True, header=header)
        self.decoded_bytes += limit if header.is_compressed else len(batch)
        return records

    def _take_records(self, header: BatchHeader, records: Iterator[Record]) -> None:
        give_way = paced()
        for record in records:
            give_way()
            if record.offset < self.position:
                continue
            if record.offset >= self.until:
                break
            self.scanned += 1
            self.headers += len(record.headers)
            if self.filters is EVERYTHING or self.filters.match(record):
                self._show(header, record)
            self.position = record.offset + 1
            if self.is_full:
                return
        # Compaction may have taken the last records of the batch.
        self.position = min(max(self.position, header.next_offset), self.until)

    def _show(self, header: BatchHeader, record: Record) -> None:
        shown: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": cell(record.key, self.cut, self.form),
            "value": cell(record.value, self.cut, self.form),
        }
        if self.framed is not None and self.form != HEX:
            self.framed.note(shown["key"], record.key)
            self.framed.note(shown["value"], record.value)
        if record.headers:
            shown |= {"headers": header_cells(record.headers, self.form), "headerCount": len(record.headers)}
        if header.is_log_append_time:
            shown["isAppendTime"] = True
        if header.is_transactional:
            shown["isTransactional"] = True
        if header.is_control:
            shown["marker"] = _marker(record)
        self.records.append(shown)
        self.shown_bytes += _length(shown)

    def show_whole(self, header: BatchHeader, reason: str) -> None:
        """Show a batch as one line because its records cannot be decoded; continue with the next batch."""
        self.records.append(
            {
                "offset": max(header.base_offset, 0),
                "timestamp": header.max_timestamp,
                "batch": {"last": header.last_offset, "size": header.size_in_bytes, "reason": reason[:500]},
            }
        )
        self.scanned += 1
        self.position = min(max(self.position + 1, header.next_offset), self.until)


def _limit(header: BatchHeader) -> int:
    return DECODED_BYTES_MAX if header.magic == MAGIC_V2 else LEGACY_BYTES_MAX


def _is_in(wanted: bytes, value: bytes | memoryview | None) -> bool:
    if not wanted or value is None:
        return not wanted
    is_exact = wanted.lower() != wanted
    # Piece by piece, because no other thread runs while bytes are copied. Pieces overlap, so nothing lies between two.
    for start in range(0, len(value), PIECE_BYTES):
        piece = bytes(value[start : start + PIECE_BYTES + len(wanted)])
        if wanted in (piece if is_exact else piece.lower()):
            return True
    return False


def _marker(record: Record) -> str:
    try:
        return _MARKERS.get(control_type_id(None if record.key is None else bytes(record.key)), "other")
    except KafkaError:
        return "other"


def _length(shown: dict[str, Any]) -> int:
    cells = [shown["key"], shown["value"], *(each for pair in shown.get("headers", ()) for each in pair)]
    return sum(len(each["text"]) for each in cells if each is not None)
