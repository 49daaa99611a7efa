import struct
import tracemalloc
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.compression import Compression, compress
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.legacy_records import (
    decode_message,
    down_convert,
    encode_message_set,
    read_inner_messages,
)
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, TimestampType, crc_is_valid, iter_batches, read_header
from ottla.wire.tests.effort import examples, first

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # raised while kafka-python is imported
    from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

GOLDEN = {
    name: bytes.fromhex(text)
    for name, text in (
        line.split()
        for line in (Path(__file__).parent / "golden_records.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}
RECORDS = [
    Record(100, 1700000000000, b"k", b"hello hello hello hello"),
    Record(101, 1700000000123, None, b"world"),
    Record(102, 1699999999999, b"t", None),
    Record(103, 1700000000050, b"", b""),
]
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
SETS = [(magic, codec) for magic in (0, 1) for codec in CODECS]

optional_bytes = st.none() | st.binary(max_size=30)
records_lists = st.lists(
    st.builds(Record, st.just(0), st.integers(-1, 2**45), optional_bytes, optional_bytes, st.just(())),
    min_size=1,
    max_size=6,
)


def without_timestamps(records: list[Record]) -> list[Record]:
    return [record._replace(timestamp=-1) for record in records]


def as_magic(records: list[Record], magic: int) -> list[Record]:
    return records if magic else without_timestamps(records)


def decode_set(message_set: bytes) -> list[Record]:
    return [record for _, start, _ in iter_batches(message_set) for record in decode_message(message_set, start)]


def wrapper(inner: bytes, *, magic: int = 1, codec: int = 1, offset: int = 0, timestamp: int = 5) -> bytes:
    """A compressed message set around whatever is given."""
    value = struct.pack(">i", len(inner)) + inner
    body = bytes((magic, codec)) + (struct.pack(">q", timestamp) if magic else b"") + struct.pack(">i", -1) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


# --- against Java and kafka-python ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), SETS)
def test_message_sets_from_java_decode(magic, codec):
    message_set = GOLDEN[f"{magic}-{codec.name.lower()}"]
    assert decode_set(message_set) == as_magic(RECORDS, magic)
    for _, start, end in iter_batches(message_set):
        assert crc_is_valid(message_set, start, end)
        assert all(message.crc_is_valid for message in read_inner_messages(message_set, start, end))


@pytest.mark.parametrize("magic", [0, 1])
def test_encoding_gives_the_bytes_of_java(magic):
    assert encode_message_set(RECORDS, magic) == GOLDEN[f"{magic}-none"]


@pytest.mark.parametrize("magic", [0, 1])
def test_encoding_with_lz4_gives_a_frame_header_like_java(magic):
    ours, theirs = encode_message_set(RECORDS, magic, compression=Compression.LZ4), GOLDEN[f"{magic}-lz4"]
    start = theirs.index(b"\x04\x22\x4d\x18")
    assert ours[start : start + 7] == theirs[start : start + 7]  # with the broken checksum of KAFKA-3160 in magic 0


def test_log_append_time_of_a_wrapper_holds_for_its_messages():
    assert [record.timestamp for record in decode_set(GOLDEN["1-gzip-lat"])] == [1700000009999] * 2
    records = [Record(100, 1700000009999, b"k", b"v"), Record(101, 1700000009999, b"k", b"v2")]
    ours = encode_message_set(records, 1, compression=Compression.GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert read_header(ours).is_log_append_time
    assert decode_set(ours) == records


@pytest.mark.parametrize(("magic", "codec"), SETS)
@given(records=records_lists)
@settings(max_examples=examples(25))
def test_message_sets_round_trip(magic, codec, records):
    records = [record._replace(offset=50 + 3 * index) for index, record in enumerate(records)]
    assert decode_set(encode_message_set(records, magic, compression=codec)) == as_magic(records, magic)


@pytest.mark.parametrize("magic", [0, 1])
@given(records=records_lists)
@settings(max_examples=examples(25))
def test_kafka_python_reads_our_message_sets(magic, records):
    records = [record._replace(offset=index) for index, record in enumerate(records)]
    message_set = encode_message_set(records, magic, compression=Compression.GZIP)
    batch = LegacyRecordBatch(message_set, magic)
    assert batch.validate_crc()
    theirs = [
        Record(record.offset, -1 if magic == 0 else record.timestamp, record.key, record.value) for record in batch
    ]
    assert theirs == as_magic(records, magic)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_we_read_the_message_sets_of_kafka_python(magic, codec):
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for index, record in enumerate(RECORDS):
        builder.append(index, timestamp=record.timestamp, key=record.key, value=record.value)
    records = [record._replace(offset=index) for index, record in enumerate(RECORDS)]
    assert decode_set(bytes(builder.build())) == as_magic(records, magic)


# --- as batches -------------------------------------------------------------------------------------------------------


def test_messages_are_walked_like_batches():
    message_set = GOLDEN["1-none"] + GOLDEN["1-gzip"] + GOLDEN["2-none"] + GOLDEN["0-none"]
    headers = [header for header, _, _ in iter_batches(message_set)]
    assert [header.magic for header in headers] == [1] * 5 + [2] + [0] * 4
    assert [header.last_offset for header in headers] == [100, 101, 102, 103, 103, 103, 100, 101, 102, 103]
    assert [header.records_count for header in headers] == [1, 1, 1, 1, -1, 4, 1, 1, 1, 1]
    assert headers[4].compression is Compression.GZIP
    assert headers[4].max_timestamp == 1700000000123
    assert headers[-1].max_timestamp == -1
    assert not any(header.has_producer_id or header.is_transactional or header.is_control for header in headers[:5])


@pytest.mark.parametrize("position", [12, 16, 17, 30, -1])
def test_a_flipped_bit_invalidates_the_checksum(position):
    message_set = bytearray(GOLDEN["1-gzip"])
    message_set[position] ^= 1
    assert not crc_is_valid(message_set, 0, len(message_set))


# --- wrappers ---------------------------------------------------------------------------------------------------------


def inner_set(*offsets: int, magic: int = 1) -> bytes:
    return encode_message_set([Record(offset, 7, b"k", b"v") for offset in offsets], magic)


def gzipped(*offsets: int, magic: int = 1, offset: int = 0) -> bytes:
    return wrapper(compress(Compression.GZIP, inner_set(*offsets, magic=magic)), magic=magic, offset=offset)


def test_inner_offsets_count_back_from_the_wrapper_in_magic_1():
    assert [record.offset for record in decode_set(gzipped(0, 1, 2, offset=42))] == [40, 41, 42]
    assert [record.offset for record in decode_set(gzipped(0, 5, 7, offset=42))] == [35, 40, 42]  # compacted


def test_a_wrapper_offset_of_zero_lets_inner_offsets_stand():
    assert [record.offset for record in decode_set(gzipped(0, 1, 2, offset=0))] == [0, 1, 2]


def test_inner_offsets_are_absolute_in_magic_0():
    assert [record.offset for record in decode_set(gzipped(40, 41, magic=0, offset=41))] == [40, 41]


@pytest.mark.parametrize(
    ("message_set", "code"),
    [
        (gzipped(0, 1, 2, offset=1), ErrorCode.INVALID_RECORD),
        (wrapper(compress(Compression.GZIP, b"")), ErrorCode.INVALID_RECORD),
        (wrapper(compress(Compression.GZIP, gzipped(0))), ErrorCode.INVALID_RECORD),
        (wrapper(compress(Compression.ZSTD, inner_set(0)), codec=4), ErrorCode.INVALID_RECORD),
        (wrapper(inner_set(0), codec=5), ErrorCode.INVALID_RECORD),
        (wrapper(b"garbage"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (wrapper(compress(Compression.GZIP, encode_batch(RECORDS))), ErrorCode.INVALID_RECORD),
        (wrapper(compress(Compression.GZIP, bytes(40))), ErrorCode.CORRUPT_MESSAGE),
        (encode_message_set([Record(0, 0, b"key", b"v")], 1).replace(b"\0\3key", b"\7\3key"), ErrorCode.INVALID_RECORD),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
def test_malformed_sets_are_refused(message_set, code):
    with pytest.raises(KafkaError) as caught:
        decode_set(message_set)
    assert caught.value.code == code


def test_a_null_wrapper_is_refused():
    body = b"\x01\x01" + bytes(8) + struct.pack(">ii", -1, -1)
    message_set = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(KafkaError, match="null value"):
        decode_set(message_set)


def test_a_cut_off_inner_message_is_left_out():
    inner = inner_set(0, 1)
    assert len(decode_set(wrapper(compress(Compression.GZIP, inner[:-3])))) == 1


def test_wrappers_are_bounded():
    bomb = wrapper(compress(Compression.GZIP, encode_message_set([Record(0, 0, None, bytes(100_000))], 1)))
    with pytest.raises(KafkaError) as caught:
        decode_message(bomb, 0, limit=50_000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def damage(data: st.DataObject, message_set: bytes) -> bytearray:
    damaged = bytearray(message_set)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.sampled_from([0, 127, 128, 255]))
    return damaged


@pytest.mark.parametrize(("magic", "codec"), SETS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_damaged_sets_decode_or_raise_a_kafka_error(magic, codec, data):
    message_set = damage(data, GOLDEN[f"{magic}-{codec.name.lower()}"])
    for read in (decode_set, lambda damaged: down_convert(damaged, 0)):
        with suppress(KafkaError):
            read(message_set)
    with suppress(KafkaError):
        for _, start, end in iter_batches(message_set):
            crc_is_valid(message_set, start, end)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_damaged_batches_are_converted_or_raise_a_kafka_error(magic, codec, data):
    batch = damage(data, GOLDEN[f"2-{codec.name.lower()}"])
    with suppress(KafkaError):
        down_convert(batch, magic)


def test_offsets_and_timestamps_at_the_ends_of_their_range_convert():
    records = [Record(0, -(2**63), None, None), Record(0, 2**63 - 1, None, None)]
    message_set = down_convert(encode_batch(records, base_offset=2**63 - 2, compression=Compression.GZIP), 1)
    assert [record.timestamp for record in decode_set(message_set)] == [-(2**63), 2**63 - 1]


# --- conversion -------------------------------------------------------------------------------------------------------


def peak_of(convert):
    """What a conversion needs beside the pages that large data is decompressed into, in bytes."""
    tracemalloc.start()
    try:
        convert()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("sizes", first(1, [[24 << 20], [8 << 20] * 3]))
def test_long_records_are_not_copied_as_a_whole_when_they_are_converted(codec, sizes):
    """Each copy would take that memory again, and no other thread runs while it is made."""
    records = [Record(index, 0, b"k", bytes(size)) for index, size in enumerate(sizes)]
    batches = encode_batch(records, compression=codec)
    copies = 2.2 if codec is Compression.SNAPPY else 0.5  # its blocks are joined
    for convert in (lambda: down_convert(batches, 0), lambda: down_convert(batches, 1)):
        assert peak_of(convert) < copies * sum(sizes)
    assert decode_set(down_convert(batches, 1)) == as_magic(records, 1)


@pytest.mark.parametrize(("magic", "codec"), SETS)
def test_down_conversion_keeps_records_offsets_and_codec(magic, codec):
    records = [record._replace(headers=((b"h", b"1"),)) for record in RECORDS]
    batches = encode_batch(records, base_offset=100, compression=codec, producer_id=5, base_sequence=0)
    message_set = down_convert(batches, magic)
    assert decode_set(message_set) == as_magic(RECORDS, magic)
    for header, start, end in iter_batches(message_set):
        assert (header.magic, header.compression) == (magic, codec)
        assert crc_is_valid(message_set, start, end)


def test_down_conversion_leaves_control_batches_out():
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 0), timestamp_ms=1, producer_id=1, producer_epoch=0, base_offset=104
    )
    assert down_convert(marker, 1) == b""
    assert len(decode_set(down_convert(encode_batch(RECORDS) + marker, 1))) == 4


def test_down_conversion_starts_at_the_first_offset_unless_compressed():
    for codec, count in ((Compression.NONE, 2), (Compression.GZIP, 4)):
        batch = encode_batch(RECORDS, base_offset=100, compression=codec)
        assert len(decode_set(down_convert(batch, 1, first_offset=102))) == count


def test_down_conversion_passes_old_sets_through():
    assert down_convert(GOLDEN["0-none"] + GOLDEN["1-gzip"], 1) == GOLDEN["0-none"] + GOLDEN["1-gzip"]
    assert decode_set(down_convert(GOLDEN["1-gzip"], 0)) == without_timestamps(RECORDS)


def test_down_conversion_of_zstd_is_unsupported():
    with pytest.raises(KafkaError) as caught:
        down_convert(GOLDEN["2-zstd"], 1)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError):
        encode_message_set(RECORDS, 1, compression=Compression.ZSTD)


def test_a_zstd_batch_ends_what_came_before_it():
    assert down_convert(GOLDEN["1-gzip"] + GOLDEN["2-zstd"] + GOLDEN["1-gzip"], 1) == GOLDEN["1-gzip"]


def test_down_conversion_keeps_the_timestamp_type():
    header = next(iter_batches(down_convert(GOLDEN["2-lat"], 1)))[0]
    assert header.is_log_append_time and header.max_timestamp == 1700000009999


def test_an_empty_message_set_is_empty():
    assert encode_message_set([], 1) == down_convert(b"", 0) == b""


def test_headers_that_old_messages_have_not_take_no_memory():
    batch = encode_batch([Record(0, 1, b"k", b"v", ((b"", None),) * 300_000)], compression=Compression.GZIP)
    tracemalloc.start()
    try:
        converted = down_convert(batch, 1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 5_000_000
    assert list(decode_records(converted)) == [Record(0, 1, b"k", b"v")]
