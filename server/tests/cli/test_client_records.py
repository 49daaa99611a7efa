"""Records as commands print, cut and encode them."""

import contextlib
import os
import struct
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.cli.client.batches import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    batch_of,
    batches,
    header_block,
    nullable,
    pairs_area,
    records_in,
    values_area,
)
from ottla.server.cli.client.consumer import Batch, Consumer
from ottla.server.cli.client.output import SHOWN_BYTES_MAX, Progress, RequestFailed, UsageError, shown_bytes, shown_text
from ottla.server.cli.records.formats import (
    FIELDS,
    Place,
    json_printer,
    parse_format,
    raw_printer,
    shown_printer,
    unescaped,
    usual_format,
)
from ottla.server.cli.records.printing import RecordPrinter, batch_printer
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.messages.fetch import AbortedTransaction, PartitionData
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, TimestampType, crc_is_valid, read_header
from ottla.wire.tests.effort import examples

blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.binary(max_size=5), blobs), max_size=3).map(tuple)
records = st.lists(
    st.builds(Record, st.just(0), st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300), blobs, blobs, headers),
    min_size=1,
    max_size=20,
)
formats = st.lists(
    st.sampled_from([f"%{each}" for each in FIELDS] + ["%%", "\\n", "x", "'\\\\", "{0}", "é", "\\x00"]), max_size=6
).map("".join)


def batch_in(data: bytes, first_offset: int = 0) -> Batch:
    return Batch(("topic", 7), 3, read_header(data), memoryview(data), 0, len(data), first_offset)


@settings(max_examples=examples(60), deadline=None)
@given(records, formats, st.booleans(), st.integers(0, 1 << 40), st.sampled_from(Compression), st.booleans())
def test_a_whole_batch_is_printed_as_its_records_are(some, text, null, base, codec, appended):
    kind = TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME
    data = encode_batch(some, base_offset=base, compression=codec, timestamp_type=kind)
    chosen = parse_format(text, is_null_shown=null)
    whole = RecordPrinter(raw_printer(chosen), batch_printer(chosen), None)
    single = RecordPrinter(raw_printer(chosen), None, None)
    assert whole.printed(batch_in(data), None) == single.printed(batch_in(data), None)
    assert whole.count == single.count == len(some)


@settings(max_examples=examples(60), deadline=None)
@given(
    records, st.integers(0, 30), st.integers(0, 5000), st.none() | st.integers(1, 30), st.none() | st.integers(0, 30)
)
def test_the_records_that_are_whole_in_what_was_written(some, first, size, count_max, before):
    """An interrupted write is told how many bytes it has written, and the next offset follows from them."""
    batch = batch_in(encode_batch(some, base_offset=5), first)
    printer = RecordPrinter(raw_printer(parse_format("%k=%s\\n")), None, count_max)
    whole = printer.printed(batch, before)
    wanted = [each for each in range(5, 5 + len(some)) if each >= first and (before is None or each < before)]
    singles = [b"%b=%b\n" % (some[each - 5].key or b"", some[each - 5].value or b"") for each in wanted][:count_max]
    assert whole == b"".join(singles)
    size = min(size, len(whole))
    written = sum(len(b"".join(singles[: index + 1])) <= size for index in range(len(singles)))
    # Where nothing is wanted nothing is written either.
    begin = wanted[0] if wanted else max(first, 5)
    assert printer.next_offset(batch, before, size) == begin + written


@pytest.mark.parametrize("shift", [0, 64, 8192])
def test_long_batches_are_printed_as_their_records_are(shift):
    """Offsets, times, keys and values of all sizes, in batches that count up by one."""
    some = [Record(0, index % 64, bytes(index % 5) or None, bytes(index % 300)) for index in range(8500)]
    some[100] = Record(0, 1, bytes(9000), bytes(20_000))
    some[200] = Record(0, 1, b"k", None)
    some[300] = Record(0, shift, None, b"v")
    batch = batch_in(encode_batch(some))
    for text in ("%s\\n", "%k\\n", "%o %T %k=%s\\n", "%K %S %R"):
        chosen = parse_format(text, is_null_shown=True)
        single = RecordPrinter(raw_printer(chosen), None, None)
        assert RecordPrinter(raw_printer(chosen), batch_printer(chosen), None).printed(batch, None) == single.printed(
            batch, None
        )


@settings(max_examples=examples(60), deadline=None)
@given(records, st.integers(0, 25), st.none() | st.integers(0, 25), st.none() | st.integers(1, 25))
def test_only_what_was_asked_for_is_printed(some, first, before, count_max):
    data = encode_batch(some)
    chosen = parse_format("%o ")
    printer = RecordPrinter(raw_printer(chosen), batch_printer(chosen), count_max)
    wanted = [each for each in range(len(some)) if each >= first and (before is None or each < before)][:count_max]
    assert printer.printed(batch_in(data, first), before) == b"".join(b"%d " % each for each in wanted)
    assert printer.is_done == (count_max is not None and len(wanted) >= count_max)


def test_no_record_is_printed_once_the_limit_is_reached():
    """A share group's leaders may answer with several batches before the command ends."""
    printer = RecordPrinter(raw_printer(parse_format("%o ")), None, 3)
    batches = [batch_in(encode_batch([Record(0, 0, None, b"")] * 2, base_offset=base)) for base in (0, 2, 4)]
    assert [list(printer.each(each, None)) for each in batches] == [[(0, b"0 "), (1, b"1 ")], [(2, b"2 ")], []]
    assert printer.count == 3


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=400), st.integers(0, 50), st.sampled_from(Compression))
def test_foreign_records_are_printed_or_refused(area, count, codec):
    """The checksum is right, because whoever wrote the batch has made it."""
    data = batch_of(area, count, 0, codec)
    chosen = parse_format("%o %T %k %s %h")
    for print_batch in (batch_printer(parse_format("%o %T %k %s")), None):
        with contextlib.suppress(RequestFailed):
            assert len(RecordPrinter(raw_printer(chosen), print_batch, None).printed(batch_in(data), None)) < 100_000


@settings(max_examples=examples(60), deadline=None)
@given(st.text(max_size=30))
def test_any_format_is_understood_or_refused(text):
    with contextlib.suppress(UsageError):
        printed = raw_printer(parse_format(text))(Record(1, 2, b"k", None), Place("t", 0, 1, False))
        assert len(printed) <= 8 * len(text)


def test_fields_are_kcats():
    record = Record(5, 99, b"k", None, ((b"a", b"b"), (b"c", None)))
    place = Place("topic", 3, 1, False)
    text = "%t[%p]%o %T %k %K %s %S %h|%R|%%|\\x41\\x4\\q\\n"
    wanted = b"topic[3]5 99 k 1  -1 a=b,c=NULL|\xff\xff\xff\xff|%|A\x04q\n"
    assert raw_printer(parse_format(text))(record, place) == wanted
    assert raw_printer(usual_format(b"\n", b":", is_null_shown=True))(record, place) == b"k:NULL\n"
    assert raw_printer(usual_format(b"\n", None))(record, place) == b"\n"
    assert raw_printer(usual_format(b"", b""))(Record(5, 99, b"k", b"v"), place) == b"kv"
    for wrong in ("%", "%q", "\\xg"):
        with pytest.raises(UsageError, match="-f: "):
            parse_format(wrong)
    assert unescaped("\\t\\r\\n\\x7c::\\", "-D") == b"\t\r\n|::\\"


def test_an_object_has_kcats_names():
    record = Record(5, 99, b"k\xff\x1b", None, ((b"a", b"b"), (b"c", None)))
    printed = json_printer(b"\n")(record, Place("topic", 3, 1, True))
    assert printed == (
        b'{"topic":"topic","partition":3,"offset":5,"tstype":"logappend","ts":99,"broker":1,'
        b'"headers":["a","b","c",null],"key":"k\\udcff\\u001b","payload":null}\n'
    )


# --- terminals


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=300))
def test_a_terminal_gets_nothing_to_obey(data):
    for shown in (shown_bytes(data), shown_text(data.decode("latin-1")), shown_text(data.decode("utf-8", "replace"))):
        assert not any(ord(each) < 32 and each not in "\t\n" or 127 <= ord(each) < 160 for each in shown)
        assert not set(shown) & set("\u202a\u202e\u2066\u2028\u200f")


def test_control_characters_are_shown():
    assert shown_bytes(b"\x1b]0;owned\x07\x1b[2J\r\n\tfine \xc2\x9b31m \xff \xe2\x80\xae") == (
        "\\x1b]0;owned\\x07\\x1b[2J\\x0d\n\tfine \\x9b31m \\xff \\u202e"
    )


def test_huge_values_are_cut_with_their_size():
    record = Record(0, 0, b"k", b"x" * 1_000_000)
    shown = shown_printer(parse_format("%k=%s\\n"))(record, Place("t", 0, 0, False))
    assert shown == b"k=" + b"x" * SHOWN_BYTES_MAX + b"... (1,000,000 bytes)\n"
    assert shown_printer(parse_format("%R%o"))(record, Place("t", 0, 0, False)) == b"\\x00\\x0fB@0"


def test_progress_is_one_line_of_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("ottla.server.cli.client.output.INTERVAL_S", 0.0)
    quiet = Progress()  # stderr is no terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = Progress()
    for progress in (quiet, Progress(is_quiet=True), shown):
        progress.note(1_000_000, 99_000_000)
    line = capsys.readouterr().err
    assert line.startswith("\r1,000,000 records, 99.0 MB, ") and "\n" not in line
    shown.end()
    assert capsys.readouterr().err == "\r" + " " * (len(line) - 1) + "\r"


# --- cutting and encoding


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=30), st.sampled_from([b"\n", b"ab", b"\0\0\0"]))
def test_records_are_cut_however_they_come(pieces, delimiter):
    data = b"".join(pieces)
    reading, writing = os.pipe()

    def write() -> None:
        for each in pieces:
            os.write(writing, each)
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    found = [each for some in records_in(reading, delimiter, lambda: None) for each in some]
    thread.join()
    os.close(reading)
    assert found == [each for each in data.split(delimiter) if each]


def test_what_is_there_is_written_before_more_is_waited_for():
    reading, writing = os.pipe()
    waits = []
    cut = records_in(reading, b"\n", lambda: waits.append(1))
    os.write(writing, b"one\ntw")
    assert next(cut) == [b"one"]
    os.write(writing, b"o\n")
    assert next(cut) == [b"two"]
    os.close(writing)
    assert list(cut) == []
    os.close(reading)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 2 * BATCH_BYTES_MAX), max_size=6), st.integers(0, 3 * BATCH_RECORDS_MAX))
def test_batches_have_what_one_may_have(sizes, small):
    some = [bytes(size) for size in sizes] + [b"x"] * small
    found = list(batches(some))
    assert [each for batch in found for each in batch] == [each for each in some if each]
    for batch in found:
        assert 0 < len(batch) <= BATCH_RECORDS_MAX
        assert len(batch) == 1 or sum(map(len, batch)) <= BATCH_BYTES_MAX


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(blobs, blobs), min_size=1, max_size=200), headers, blobs, st.sampled_from(Compression))
def test_batches_hold_their_records(pairs, some_headers, key, codec):
    block = header_block(some_headers)
    data = batch_of(pairs_area(pairs, block), len(pairs), 1234, codec)
    assert crc_is_valid(data, 0, len(data))
    wanted = [Record(index, 1234, *pair, some_headers) for index, pair in enumerate(pairs)]
    assert list(decode_records(data)) == wanted
    values = [value or b"" for _, value in pairs]
    data = batch_of(values_area(values, nullable(key), block), len(values), 1234, codec)
    wanted = [Record(index, 1234, key, value, some_headers) for index, value in enumerate(values)]
    assert list(decode_records(data)) == wanted


def test_long_batches_and_long_values():
    values = [b"x" * (index % 300) for index in range(BATCH_RECORDS_MAX)] + [bytes(100_000)]
    for area in (values_area(values, b"\x01", b"\0"), pairs_area([(None, each) for each in values], b"\0")):
        assert [each.value for each in decode_records(batch_of(area, len(values), 0, Compression.NONE))] == values


# --- reading


def fetched(data: bytes, isolation: int, aborted: list[AbortedTransaction]) -> list[int]:
    """First offsets of the batches that a reader gets."""
    place = ("topic", 0)
    consumer = Consumer(SimpleNamespace(check=lambda *_: None), {place: 0}, isolation)
    part = PartitionData(
        partition_index=0, error_code=0, high_watermark=1000, aborted_transactions=aborted, records=memoryview(data)
    )
    return [each.header.base_offset for each in consumer._batches(place, 1, part) if isinstance(each, Batch)]


def test_aborted_transactions_are_left_out():
    def batch(offset: int, producer_id: int = -1, transactional: bool = True) -> bytes:
        return encode_batch(
            [Record(0, 0, None, b"x")],
            base_offset=offset,
            producer_id=producer_id,
            is_transactional=transactional and producer_id >= 0,
        )

    def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
        end = EndTxnMarker(kind, 0)
        return encode_end_txn_marker(end, timestamp_ms=0, producer_id=producer_id, producer_epoch=0, base_offset=offset)

    data = b"".join(
        (
            batch(0, 1),
            batch(1, 2),
            batch(2),
            marker(3, 1, ControlType.ABORT),
            batch(4, 1),
            marker(5, 2, ControlType.COMMIT),
            batch(6, 1, transactional=False),
            marker(7, 1, ControlType.COMMIT),
            batch(8, 1),
            marker(9, 1, ControlType.ABORT),
        )
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=8), AbortedTransaction(producer_id=1, first_offset=0)]
    assert fetched(data, 1, aborted) == [1, 2, 4, 6]
    assert fetched(data, 0, aborted) == [0, 1, 2, 4, 6, 8]


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=40), st.integers(0, 1))
def test_foreign_batches_are_read_or_refused(junk, cut, isolation):
    good = encode_batch([Record(0, 0, None, b"x")])
    for data in (junk, good + junk, good[: len(cut)] + cut + good[2 * len(cut) :], struct.pack(">qi", 0, 49) + junk):
        with contextlib.suppress(RequestFailed):
            assert len(fetched(data, isolation, [AbortedTransaction(producer_id=-1, first_offset=0)])) <= 10
