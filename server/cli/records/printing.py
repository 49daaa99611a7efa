"""Print batches of records: by generated code where possible, else record by record.

`batch_printer` compiles a function for one format string that walks the records' bytes and steps over what the format does not name,
without making record objects. That is several times as fast as printing record by record, and lets a command in Python keep up with
kcat. Each format has two such functions: one for any batch, and one for regular batches, which nearly all are: offsets count up by
one and times differ by less than 64 ms, so that both have known sizes.

Arguments of a compiled function:

    area             bytes; the records of one batch, uncompressed, checked by `check_records`, followed by PADDING
    count            of records
    base_offset, base_timestamp      of the batch's header
    append_time      None, or the time that all records have
    topic, partition as bytes
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterator
from functools import cache
from typing import Any, NamedTuple

from ottla.server.cli.client.consumer import Batch, corrupt
from ottla.server.cli.records.formats import Format, Place, PrintRecord, Undecodable
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import decode_records, records_area
from ottla.wire.record_walk import read_varint, read_varlong
from ottla.wire.records import MAGIC_V2, RecordsSummary, check_records, wrap_int64

PrintBatch = Callable[[bytes, int, int, int, int | None, bytes, bytes], bytes]

_FUNCTION = """\
def print_batch(area, count, base_offset, base_timestamp, append_time, topic, partition):
    parts = []
    add = parts.append
    position = 0
    for _ in range(count):
        {length}
        end = position + length
        position += 1
        {timestamp}
        {offset}
        {key}
        {value}
        add({record})
        position = end
    return {joined}
"""

_REGULAR = """\
def print_batch(area, count, base_offset, base_timestamp, append_time, topic, partition):
    parts = []
    add = parts.append
    position = 0
    spans = []
    for first, last in spans_of(count):
        # An offset's delta is below 64, below 8192, or takes three bytes; a batch has not so many records that it took four.
        size_of_offset = 1 if first < 64 else 2 if first < 8192 else 3
        fixed = 2 + size_of_offset
        peek = peeks[size_of_offset]
        before_value = fixed + 5
        for index in range(first, last):
            {guessed}
            if (low := area[position]) < 128:
                position += 1
                end = position + (low >> 1)
            elif (high := area[position + 1]) < 128:
                position += 2
                end = position + ((low & 127 | high << 7) >> 1)
            else:
                length, position = read_varint(area, position)
                end = position + length
            {timestamp}
            {offset}
            position += fixed
            {key}
            {value}
            add({record})
            position = end
        spans.append({joined})
        parts.clear()
    return b"".join(spans)
"""
REGULAR_RECORDS_MAX = 1048576
SPAN_RECORDS = 508
"""A divisor of 8192 - 64, where offsets begin to take three bytes."""

PADDING = bytes(12)
"""Bytes behind the last record: a look at the first bytes of a short one must not go beyond the end."""

# Most records that are only asked for their value have no key, and a record and a value of 64 bytes to 8 KiB, whose lengths
# take two bytes. One look then tells all three; whatever else it is is read number by number.
_GUESSED_VALUE = """\
record_length, key_length, value_length = peek(area, position)
            if key_length == 1 and (length := two_byte_lengths[record_length]) and (size := two_byte_lengths[value_length]):
                position += before_value
                add(area[position:position + size])
                position += length - before_value + 2
                continue"""
_PEEKS = {size: struct.Struct(f"<H{2 + size}xBH").unpack_from for size in (1, 2, 3)}


def _spans_of(count: int) -> Iterator[tuple[int, int]]:
    """Yield index ranges of records. In a range all offset deltas are varints of equal length.

    Ranges are short, so that their data fit into the processor's cache.
    """
    yield 0, min(64, count)
    for first in range(64, count, SPAN_RECORDS):
        yield first, min(first + SPAN_RECORDS, count)


@cache
def _two_byte_lengths() -> list[int]:
    """Return a table of the lengths that two-byte varints encode; 0 for those that are not positive.

    Index: the two bytes as a little-endian number.
    """
    lengths = [0] * 65536
    for high in range(1, 128):
        for low in range(128, 256, 2):
            lengths[low | high << 8] = (low & 127 | high << 7) >> 1
    return lengths


# Nearly all of these numbers take one byte or two, and a call for each of them would take longer than all the rest.
_NUMBER = """\
if (low := area[position]) < 128:
            {name} = {one}
            position += 1
        elif (high := area[position + 1]) < 128:
            low = low & 127 | high << 7
            {name} = {one}
            position += 2
        else:
            {name}, position = {read}(area, position)"""
_SKIPPED = """\
while area[position] > 127:
            position += 1
        position += 1"""
_UNSIGNED, _SIGNED = "low >> 1", "(low >> 1) ^ -(low & 1)"
_LENGTH = _NUMBER.format(name="length", one=_UNSIGNED, read="read_varint")
_BYTES = (
    _NUMBER.format(name="size", one=_SIGNED, read="read_varint")
    + """
        {name} = {null} if size < 0 else area[position:position + size]
        {name}_size = size
        if size > 0:
            position += size"""
)
_SKIPPED_BYTES = (
    _NUMBER.format(name="size", one=_SIGNED, read="read_varint")
    + """
        if size > 0:
            position += size"""
)
_TIMESTAMP = (
    _NUMBER.format(name="timestamp", one=_SIGNED, read="read_varlong")
    + """
        timestamp = wrap_int64(base_timestamp + timestamp) if append_time is None else append_time"""
)
_OFFSET = (
    _NUMBER.format(name="offset", one=_SIGNED, read="read_varint")
    + """
        offset = wrap_int64(base_offset + offset)"""
)
# As `_SKIPPED_BYTES`, for what mostly is null or short.
_STEPPED_OVER = """\
if (low := area[position]) < 2:
            position += 1
        elif low < 128:
            position += 1 if low & 1 else 1 + (low >> 1)
        else:
            size, position = read_varint(area, position)
            if size > 0:
                position += size"""
# As `_BYTES` without what comes behind.
_CUT = """\
if (low := area[position]) < 128:
            position += 1
            value = {null} if low & 1 else area[position:position + (low >> 1)]
        elif (high := area[position + 1]) < 128:
            position += 2
            size = low & 127 | high << 7
            value = {null} if size & 1 else area[position:position + (size >> 1)]
        else:
            size, position = read_varint(area, position)
            value = {null} if size < 0 else area[position:position + size]"""
_REGULAR_TIMESTAMP = (
    "timestamp = wrap_int64(base_timestamp + (area[position + 1] >> 1)) if append_time is None else append_time"
)
_REGULAR_OFFSET = "offset = wrap_int64(base_offset + index)"
_EXPRESSIONS = {
    "s": ("%b", "value"),
    "S": ("%d", "value_size"),
    "R": ("%b", "value_size.to_bytes(4, 'big', signed=True)"),
    "k": ("%b", "key"),
    "K": ("%d", "key_size"),
    "T": ("%d", "timestamp"),
    "o": ("%d", "offset"),
    "t": ("%b", "topic"),
    "p": ("%b", "partition"),
}


class BatchPrinter(NamedTuple):
    """Functions that print a whole batch in one format. `regular`: fast, for regular batches; `any`: for all."""

    regular: PrintBatch
    any: PrintBatch

    def of(self, summary: RecordsSummary, count: int) -> PrintBatch:
        """Return the function for a batch of `count` records; `summary` comes from `check_records`."""
        is_regular = (
            summary.offsets_are_consecutive
            and summary.min_timestamp_delta >= 0
            and summary.max_timestamp_delta < 64
            and count <= REGULAR_RECORDS_MAX
        )
        return self.regular if is_regular else self.any


def batch_printer(chosen: Format) -> BatchPrinter | None:
    """Compile the functions for an output format. Return None if it prints headers: they need decoded records."""
    named = "".join(piece.field for piece in chosen.pieces)
    if "h" in named:
        return None
    return BatchPrinter(_compiled(_regular_source(chosen, named)), _compiled(_source(chosen, named)))


def _compiled(source: str) -> PrintBatch:
    namespace: dict[str, Any] = {
        "read_varint": read_varint,
        "read_varlong": read_varlong,
        "wrap_int64": wrap_int64,
        "peeks": _PEEKS,
        "spans_of": _spans_of,
        "two_byte_lengths": _two_byte_lengths(),
    }
    exec(source, namespace)  # noqa: S102 - of the user's format only literals made by repr() are in it
    function: PrintBatch = namespace["print_batch"]
    return function


def _source(chosen: Format, named: str) -> str:
    record, joined = _record_and_join(chosen)
    value_is_wanted = _has_any(named, "sSR")
    null = repr(chosen.null)
    skipped_key = _SKIPPED_BYTES if value_is_wanted else "pass"
    return _FUNCTION.format(
        length=_LENGTH,
        timestamp=_TIMESTAMP if "T" in named else _SKIPPED,
        offset=_OFFSET if "o" in named else _SKIPPED,
        key=_BYTES.format(name="key", null=null) if _has_any(named, "kK") else skipped_key,
        value=_BYTES.format(name="value", null=null) if value_is_wanted else "pass",
        record=record,
        joined=joined,
    )


def _regular_source(chosen: Format, named: str) -> str:
    record, joined = _record_and_join(chosen)
    null = repr(chosen.null)

    as_bytes = {name: _BYTES.format(name=name, null=null) for name in ("key", "value")}
    value = as_bytes["value"] if _has_any(named, "SR") else _CUT.format(null=null) if "s" in named else "pass"
    skipped_key = "pass" if value == "pass" else _STEPPED_OVER
    parts = {"key": as_bytes["key"] if _has_any(named, "kK") else skipped_key, "value": value}
    is_value_alone = record == "value"
    return _REGULAR.format(
        guessed=_GUESSED_VALUE if is_value_alone else "pass",
        timestamp=_REGULAR_TIMESTAMP if "T" in named else "pass",
        offset=_REGULAR_OFFSET if "o" in named else "pass",
        # One level deeper than in `_FUNCTION`, for which they are written.
        **{name: text.replace("\n", "\n    ") for name, text in parts.items()},
        record=record,
        joined=joined,
    )


def _has_any(named: str, fields: str) -> bool:
    return any(each in named for each in fields)


def _record_and_join(chosen: Format) -> tuple[str, str]:
    """Return the source code of two expressions: one makes the text of a record, the other joins all texts."""
    pieces = chosen.pieces
    # Values and a delimiter are what mostly is asked for, and need no new bytes for each record.
    if len(pieces) == 2 and pieces[0].field in ("s", "k") and not pieces[1].field:
        end = repr(pieces[1].text)
        return _EXPRESSIONS[pieces[0].field][1], f"{end}.join(parts) + {end}"
    template = b"".join(
        _EXPRESSIONS[piece.field][0].encode() if piece.field else piece.text.replace(b"%", b"%%") for piece in pieces
    )
    values = "".join(f"{_EXPRESSIONS[piece.field][1]}, " for piece in pieces if piece.field)
    return f"{template!r} % ({values})", "b''.join(parts)"


class RecordPrinter:
    """Printer of records. It stops after `count_max` records (None: never) and counts them."""

    def __init__(self, print_record: PrintRecord, print_batch: BatchPrinter | None, count_max: int | None) -> None:
        self.count = 0
        self.failure: Undecodable | None = None
        """Failure of the first record that could not be decoded; what was printed ends before it."""
        self._print_record, self._print_batch, self._count_max = print_record, print_batch, count_max

    @property
    def is_done(self) -> bool:
        return self._count_max is not None and self.count >= self._count_max

    def printed(self, batch: Batch, before: int | None) -> bytes:
        """Return a batch's records as text, those with offsets below `before` (None: all). Raises RequestFailed."""
        try:
            if self._print_batch is not None and self._is_wanted_whole(batch, before):
                return self._whole(batch, self._print_batch)
            return b"".join(text for _, text in self.each(batch, before))
        except KafkaError as error:
            raise corrupt(batch.place, error) from None

    def _is_wanted_whole(self, batch: Batch, before: int | None) -> bool:
        header = batch.header
        return (
            header.magic == MAGIC_V2
            and header.base_offset >= batch.first_offset
            and (before is None or header.next_offset <= before)
            and (self._count_max is None or self.count + header.records_count <= self._count_max)
        )

    def _whole(self, batch: Batch, print_batch: BatchPrinter) -> bytes:
        header = batch.header
        area = b"".join((records_area(batch.buffer, header, batch.start), PADDING))
        if header.records_count == 0:  # compaction has left the batch alone
            return b""
        summary = check_records(area, header.records_count, 0, len(area) - len(PADDING))
        self.count += header.records_count
        topic, partition = batch.place
        append_time = header.max_timestamp if header.is_log_append_time else None
        return print_batch.of(summary, header.records_count)(
            area,
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            append_time,
            topic.encode(),
            b"%d" % partition,
        )

    def each(
        self, batch: Batch, before: int | None, among: Container[int] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and text of each wanted record, until the limit is reached. Raises RequestFailed.

        `before`: end of the wanted offsets, `among`: the only wanted offsets; None: all.
        """
        try:
            texts = self._texts(batch, before, among)
            while not self.is_done and (found := next(texts, None)) is not None:
                self.count += 1
                yield found
        except KafkaError as error:
            raise corrupt(batch.place, error) from None

    def _texts(
        self, batch: Batch, before: int | None, among: Container[int] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield offset and text of each wanted record, up to the first that cannot be decoded (`failure`)."""
        place = Place(*batch.place, batch.broker, batch.header.is_log_append_time)
        for record in decode_records(batch.buffer, batch.start, header=batch.header):
            if record.offset < batch.first_offset or (before is not None and record.offset >= before):
                continue
            if among is not None and record.offset not in among:
                continue
            try:
                text = self._print_record(record, place)
            except Undecodable as failure:
                self.failure = failure
                return
            yield record.offset, text

    def next_offset(self, batch: Batch, before: int | None, size: int) -> int:
        """Return the offset after the last record that is whole in the first `size` bytes of the batch's text."""
        found = max(batch.first_offset, batch.header.base_offset)
        for offset, text in self._texts(batch, before):
            size -= len(text)
            if size < 0:
                break
            found = offset + 1
        return found
