import struct
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.control_batches import (
    ControlType,
    EndTxnMarker,
    control_type_id,
    decode_end_txn_marker,
    encode_end_txn_marker,
    end_txn_marker_in,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.record_decoding import decode_records, first_record, records_area
from ottla.wire.record_encoding import build_batch, encode_batch, encode_pairs, encode_record, encode_varint
from ottla.wire.record_walk import keys_and_values, read_varint, read_varlong
from ottla.wire.records import (
    BatchHeader,
    Record,
    RecordsSummary,
    TimestampType,
    assign_offsets,
    assign_timestamps,
    batch_size,
    check_records,
    crc_is_valid,
    increment_sequence,
    iter_batches,
    read_header,
)
from ottla.wire.tests.effort import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # raised while kafka-python is imported
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

GOLDEN = {
    name: bytes.fromhex(text)
    for name, text in (
        line.split()
        for line in (Path(__file__).parent / "golden_records.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}
GOLDEN_RECORDS = [
    Record(100, 1700000000000, b"k", b"hello hello hello hello", ((b"h", b"1"), (b"", None))),
    Record(101, 1700000000123, None, b"world"),
    Record(102, 1699999999999, b"t", None),
    Record(103, 1700000000050, b"", b""),
]
CODECS = list(Compression)

optional_bytes = st.none() | st.binary(max_size=40)
records_lists = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 2**45),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.binary(max_size=10), optional_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


# --- header -----------------------------------------------------------------------------------------------------------


def test_header_of_a_batch_from_java():
    header = read_header(GOLDEN["2-none"])
    assert header == BatchHeader(
        base_offset=100,
        batch_length=0x72,
        partition_leader_epoch=5,
        magic=2,
        crc=0x910C0207,
        attributes=0x10,
        last_offset_delta=3,
        base_timestamp=1700000000000,
        max_timestamp=1700000000123,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=13,
        records_count=4,
    )
    assert (header.last_offset, header.next_offset, header.last_sequence) == (103, 104, 16)
    assert header.size_in_bytes == len(GOLDEN["2-none"])
    assert header.compression is Compression.NONE
    assert header.is_transactional and header.has_producer_id
    assert not (header.is_control or header.is_log_append_time or header.is_compressed)
    assert header.delete_horizon_ms is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_header_is_read_at_any_position_of_any_buffer(kind):
    batch = GOLDEN["2-lz4"]
    assert read_header(kind(b"front" + batch + b"behind"), 5) == read_header(batch)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_header_with_an_unknown_codec_has_no_compression(codec):
    header = read_header(GOLDEN["2-none"])._replace(attributes=codec)
    with pytest.raises(ValueError):
        _ = header.compression


def test_sequences_wrap_to_zero():
    assert increment_sequence(2147483647, 1) == 0
    assert increment_sequence(2147483640, 10) == 2
    assert read_header(GOLDEN["2-none"])._replace(base_sequence=-1).last_sequence == -1


def test_delete_horizon_stands_in_place_of_the_base_timestamp():
    records = numbered([Record(0, 5000, b"k", b"v"), Record(0, 7000, b"l", b"w")])
    batch = encode_batch(records, delete_horizon_ms=123456)
    assert read_header(batch).delete_horizon_ms == 123456
    assert list(decode_records(batch)) == records


def test_iteration_yields_every_whole_batch():
    batches = [GOLDEN["2-none"], GOLDEN["2-zstd"], GOLDEN["commit"]]
    found = list(iter_batches(b"".join(batches)))
    assert [header for header, _, _ in found] == [read_header(batch) for batch in batches]
    assert [end - start for _, start, end in found] == [len(batch) for batch in batches]


@pytest.mark.parametrize("cut", [1, 30, 100, len(GOLDEN["2-none"]) - 11, len(GOLDEN["2-none"]) - 1])
def test_iteration_leaves_out_a_cut_off_batch(cut):
    batch = GOLDEN["2-none"]
    assert len(list(iter_batches(batch + batch[:-cut]))) == 1


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_iteration_refuses_impossible_lengths(length):
    batch = bytearray(GOLDEN["2-none"])
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(KafkaError, match=f"Record size {length} is less") as caught:
        list(iter_batches(batch))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_iteration_refuses_unknown_magic(magic):
    batch = bytearray(GOLDEN["2-none"])
    batch[16] = magic
    with pytest.raises(KafkaError, match="Invalid magic") as caught:
        list(iter_batches(batch))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_iteration_refuses_a_batch_smaller_than_its_header():
    batch = bytearray(GOLDEN["2-none"][:60])
    struct.pack_into(">i", batch, 8, 48)
    with pytest.raises(KafkaError) as caught:
        list(iter_batches(batch))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=120))
@settings(max_examples=examples(100))
def test_iteration_of_random_bytes_ends_or_refuses(data):
    try:
        for _, start, end in iter_batches(data):
            assert 0 <= start < end <= len(data)
    except KafkaError as error:
        assert error.code == ErrorCode.CORRUPT_MESSAGE


def test_batch_size_of_nothing_and_of_a_bare_front_is_zero():
    assert batch_size(b"", 0, 0) == 0
    assert batch_size(GOLDEN["2-none"], 0, 16) == 0


# --- checksum and assignment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith(("0", "1"))])
def test_checksums_from_java_are_valid(name):
    batch = GOLDEN[name]
    assert crc_is_valid(batch, 0, len(batch))
    assert crc_is_valid(memoryview(b"xx" + batch + b"yy"), 2, 2 + len(batch))


@pytest.mark.parametrize("position", [17, 20, 21, 30, 60, 61, 100, -1])
def test_a_flipped_bit_invalidates_the_checksum(position):
    batch = bytearray(GOLDEN["2-none"])
    batch[position] ^= 1
    assert not crc_is_valid(batch, 0, len(batch))


def test_assigned_offsets_leave_the_checksum_valid():
    buffer = bytearray(b"..." + GOLDEN["2-gzip"] + b"...")
    assign_offsets(memoryview(buffer), 3, 2**40, 17)
    before, after = read_header(GOLDEN["2-gzip"]), read_header(buffer, 3)
    assert after == before._replace(base_offset=2**40, partition_leader_epoch=17)
    assert crc_is_valid(buffer, 3, len(buffer) - 3)
    assert (buffer[:3], buffer[-3:]) == (b"...", b"...")


def test_assigned_timestamps_renew_the_checksum():
    buffer = bytearray(GOLDEN["2-none"])
    assign_timestamps(buffer, 0, len(buffer), 0x18, 1800000000000)
    header = read_header(buffer)
    assert (header.is_log_append_time, header.max_timestamp) == (True, 1800000000000)
    assert crc_is_valid(buffer, 0, len(buffer))
    assert {record.timestamp for record in decode_records(buffer)} == {1800000000000}


# --- the walk (its C and Python forms are compared in test_native.py) -------------------------------------------------


def test_summary_of_a_batch():
    area = encode_record(0, 5, b"k", b"v") + encode_record(1, -7, None, None) + encode_record(2, 5, b"", b"")
    assert check_records(area, 3) == RecordsSummary(
        min_timestamp_delta=-7,
        max_timestamp_delta=5,
        max_timestamp_offset_delta=0,
        has_null_key=True,
        offsets_are_consecutive=True,
    )


def test_summary_of_no_records():
    assert check_records(b"", 0) == RecordsSummary(0, 0, -1, False, True)


def test_walk_of_a_part_of_a_buffer():
    area = encode_record(0, 0, b"k", b"v")
    assert check_records(b"abc" + area + b"def", 1, 3, 3 + len(area)).has_null_key is False


def record_of(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return encode_varint(len(body)) + body


ZERO, NULL = b"\x00", b"\x01"
GOOD = encode_record(0, 0, b"k", b"v", [(b"h", None)])
BAD_AREAS = {
    "nothing": b"",
    "length beyond the area": b"\x40" + GOOD[1:],
    "length one too high": bytes((GOOD[0] + 2,)) + GOOD[1:] + ZERO,
    "length one too low": bytes((GOOD[0] - 2,)) + GOOD[1:],
    "negative length": b"\x01" + GOOD[1:],
    "length of 6 bytes": b"\x80\x80\x80\x80\x80\x00" + GOOD,
    "length zero": b"\x00",
    "only attributes": record_of(ZERO),
    "no offset": record_of(ZERO, ZERO),
    "no key": record_of(ZERO, ZERO, ZERO),
    "no value": record_of(ZERO, ZERO, ZERO, NULL),
    "no header count": record_of(ZERO, ZERO, ZERO, NULL, NULL),
    "key too long": record_of(ZERO, ZERO, ZERO, b"\x40", b"k", NULL, ZERO),
    "value too long": record_of(ZERO, ZERO, ZERO, NULL, b"\x40", b"v", ZERO),
    "key longer than anything": record_of(ZERO, ZERO, ZERO, encode_varint(2**31 - 1), NULL, ZERO),
    "timestamp of 11 bytes": record_of(ZERO, b"\x80" * 10 + b"\x01", ZERO, NULL, NULL, ZERO),
    "offset of 6 bytes": record_of(ZERO, ZERO, b"\x80" * 5 + b"\x01", NULL, NULL, ZERO),
    "negative header count": record_of(ZERO, ZERO, ZERO, NULL, NULL, NULL),
    "too many headers": record_of(ZERO, ZERO, ZERO, NULL, NULL, b"\x04", ZERO, ZERO),
    "headers without end": record_of(ZERO, ZERO, ZERO, NULL, NULL, encode_varint(2**31 - 1)),
    "null header key": record_of(ZERO, ZERO, ZERO, NULL, NULL, b"\x02", NULL, NULL),
    "header value too long": record_of(ZERO, ZERO, ZERO, NULL, NULL, b"\x02", ZERO, b"\x40"),
    "bytes behind the headers": record_of(ZERO, ZERO, ZERO, NULL, NULL, ZERO, ZERO),
    "two records": GOOD + GOOD,
    "a byte behind the record": GOOD + ZERO,
}


@pytest.mark.parametrize("name", BAD_AREAS)
def test_walk_refuses(name):
    with pytest.raises(KafkaError) as caught:
        check_records(BAD_AREAS[name], 1)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "area",
    [
        record_of(b"\xff", ZERO, ZERO, NULL, NULL, ZERO),  # attributes nobody knows
        record_of(ZERO, ZERO, ZERO, b"\x03", b"\x11", ZERO),  # lengths of -2 and -9 are null
        record_of(ZERO, b"\x80" * 9 + b"\x01", b"\x80\x80\x80\x80\x7f", NULL, NULL, ZERO),  # bits beyond 64 and 32
        record_of(ZERO, b"\x80\x00", b"\x80\x00", NULL, NULL, b"\x80\x00"),  # longer than need be
        b"\x8c\x00" + record_of(ZERO, ZERO, ZERO, NULL, NULL, ZERO)[1:],
    ],
)
def test_walk_accepts_what_kafka_accepts(area):
    assert check_records(area, 1)


# --- varints ----------------------------------------------------------------------------------------------------------


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value):
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == read_varlong(encoded, 0) == (value, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value):
    encoded = encode_varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))


def test_varints_keep_their_low_bits():
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0) == (-(2**31), 5)
    assert read_varlong(b"\xff" * 9 + b"\x7f", 0) == (-(2**63), 10)


# --- records as objects -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_batches_from_java_decode(codec):
    assert list(decode_records(GOLDEN[f"2-{codec.name.lower()}"])) == GOLDEN_RECORDS


def test_encoding_gives_the_bytes_of_java():
    batch = encode_batch(
        GOLDEN_RECORDS,
        base_offset=100,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=13,
        is_transactional=True,
        leader_epoch=5,
    )
    assert batch == GOLDEN["2-none"]


def test_log_append_time_rules_every_timestamp():
    assert [record.timestamp for record in decode_records(GOLDEN["2-lat"])] == [1700000009999] * 2
    batch = encode_batch(
        [Record(0, 1700000000000, b"k", b"v"), Record(0, 1700000000001, b"k", b"v2")],
        base_offset=100,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=1700000009999,
    )
    assert batch == GOLDEN["2-lat"]


@given(records_lists, st.sampled_from(CODECS), st.integers(0, 2**50))
@settings(max_examples=examples(60))
def test_encoded_batches_decode_to_their_records(records, codec, base_offset):
    batch = encode_batch(records, base_offset=base_offset, compression=codec)
    header = read_header(batch)
    assert crc_is_valid(batch, 0, len(batch))
    assert (header.compression, header.size_in_bytes, header.records_count) == (codec, len(batch), len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert list(decode_records(batch)) == numbered(records, base_offset)


@given(records=records_lists, codec=st.sampled_from(CODECS), headers_max=st.integers(0, 3))
@settings(max_examples=examples(60))
def test_headers_are_left_out_or_taken_over_as_they_are(records, codec, headers_max):
    """Whoever does not want them has the same records without them, or writes the same batch once more."""
    sent = encode_batch(records, compression=codec)
    some = decode_records(sent, headers_max=headers_max)
    assert list(some) == [each._replace(headers=each.headers[:headers_max]) for each in decode_records(sent)]
    assert encode_batch(decode_records(sent, raw_headers=True), compression=codec) == sent


@given(
    records_lists,
    st.sampled_from(CODECS),
    st.sampled_from([0, 60, 130, 20_000]),
    st.integers(-(2**40), 2**40),
)
@settings(max_examples=examples(80))
def test_keys_and_values_are_those_of_the_records(records, codec, longer, distance):
    """Numbers of one byte, of two and of more: lengths, offsets and times that are far from the batch's own."""
    records = [
        each._replace(
            offset=abs(distance) % 2**30 + index,
            timestamp=each.timestamp + index * distance,
            value=each.value and each.value + bytes(longer),
            key=each.key and each.key + bytes(longer if index % 2 else 0),
        )
        for index, each in enumerate(records)
    ]
    for batch in (encode_batch(records, compression=codec, keep_offsets=True), encode_batch(records, base_offset=7)):
        header = read_header(batch)
        found = [(each.offset, each.key, each.value) for each in decode_records(batch)]
        area = bytes(records_area(batch, header))
        assert list(keys_and_values(area, header.records_count, header.base_offset)) == found


def with_text_headers(records: list[Record]) -> list[Record]:
    """kafka-python takes header keys for UTF-8."""
    return [
        record._replace(headers=tuple((key.hex().encode(), value) for key, value in record.headers))
        for record in records
    ]


@given(records_lists)
@settings(max_examples=examples(50))
def test_kafka_python_reads_our_batches(records):
    records = numbered(with_text_headers(records), 7)
    batch = DefaultRecordBatch(encode_batch(records, base_offset=7, producer_id=3, producer_epoch=0))
    assert batch.validate_crc()
    theirs = [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((key.encode(), value) for key, value in record.headers),
        )
        for record in batch
    ]
    assert theirs == records


@given(records_lists)
@settings(max_examples=examples(50))
def test_we_read_the_batches_of_kafka_python(records):
    records = numbered(with_text_headers(records))
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=9,
        producer_epoch=1,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for record in records:
        headers = [(key.decode(), value) for key, value in record.headers]
        builder.append(record.offset, record.timestamp, record.key, record.value, headers)
    assert list(decode_records(bytes(builder.build()))) == records


def test_decoding_takes_one_batch_out_of_a_buffer():
    first, second = GOLDEN["2-none"], GOLDEN["2-lz4"]
    assert list(decode_records(first + second, len(first))) == GOLDEN_RECORDS


def test_a_batch_emptied_by_compaction_has_no_records():
    batch = encode_batch([], base_offset=40, last_offset_delta=9, max_timestamp=77, producer_id=1, base_sequence=3)
    header = read_header(batch)
    assert (header.last_offset, header.max_timestamp, header.base_timestamp, header.records_count) == (49, 77, -1, 0)
    assert list(decode_records(batch)) == []


def test_compaction_keeps_offsets_and_the_last_offset_delta():
    records = [Record(12, 1, b"a", b"1"), Record(15, 2, b"b", None)]
    batch = encode_batch(records, base_offset=10, keep_offsets=True, last_offset_delta=9)
    assert read_header(batch).last_offset == 19
    assert list(decode_records(batch)) == records
    assert read_header(encode_batch(records, base_offset=10, keep_offsets=True)).last_offset == 15


def test_foreign_deltas_wrap_as_java_longs_do():
    area = encode_record(0, 2**63 - 1, None, None)
    header = read_header(encode_batch([Record(0, 1700000000000, None, None)]))
    (record,) = decode_records(build_batch(area, header, Compression.NONE))
    assert record.timestamp == 1700000000000 + 2**63 - 1 - 2**64


def test_decoding_is_bounded():
    batch = encode_batch([Record(0, 0, None, bytes(200_000))], compression=Compression.ZSTD)
    with pytest.raises(KafkaError) as caught:
        decode_records(batch, limit=100_000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_damaged_batches_decode_or_raise_a_kafka_error(codec, data):
    batch = bytearray(GOLDEN[f"2-{codec.name.lower()}"])
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with suppress(KafkaError):
        list(decode_records(batch))


@pytest.mark.parametrize("name", ["2-none", "2-gzip"])
def test_a_wrong_count_is_refused(name):
    for count in (-1, 1, 3, 5, 2**31 - 1):
        batch = bytearray(GOLDEN[name])
        struct.pack_into(">i", batch, 57, count)
        with pytest.raises(KafkaError):
            decode_records(batch)


def test_unknown_codec_is_an_unknown_server_error_as_in_kafka():
    batch = bytearray(GOLDEN["2-none"])
    batch[22] = 5
    with pytest.raises(KafkaError, match="Unknown compression type id: 5") as caught:
        decode_records(batch)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_building_keeps_the_area_and_renews_length_codec_and_checksum():
    header = read_header(GOLDEN["2-gzip"])
    area = records_area(GOLDEN["2-gzip"], header)
    assert build_batch(area, header, Compression.NONE) == GOLDEN["2-none"]


# --- control batches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control_type", list(ControlType))
def test_end_txn_marker_has_the_bytes_of_java(control_type):
    marker = EndTxnMarker(control_type, 9)
    batch = encode_end_txn_marker(
        marker, timestamp_ms=1700000000000, producer_id=4000, producer_epoch=7, base_offset=42, leader_epoch=3
    )
    assert batch == GOLDEN[control_type.name.lower()]
    assert read_header(batch).is_control and read_header(batch).is_transactional
    (record,) = decode_records(batch)
    assert decode_end_txn_marker(record) == end_txn_marker_in(batch) == marker


@given(
    key=st.none()
    | st.binary(max_size=6)
    | st.builds(struct.pack, st.just(">hh"), st.integers(-1, 1), st.integers(-1, 3)),
    value=st.none()
    | st.binary(max_size=8)
    | st.builds(struct.pack, st.just(">hi"), st.integers(-1, 1), st.integers(-5, 2**31 - 1)),
    headers=st.sampled_from([(), ((b"", None),)]),
)
def test_a_marker_is_found_in_its_batch_as_in_its_record(key, value, headers):
    record = Record(0, 0, key, value, headers)
    try:
        expected = decode_end_txn_marker(record)
    except KafkaError:
        expected = None
    assert end_txn_marker_in(encode_batch([record], producer_id=4000, producer_epoch=7, is_control=True)) == expected


@given(
    pairs=st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=200),
    timestamp_ms=st.integers(0, 2**62),
)
def test_pairs_are_encoded_as_records_are(pairs, timestamp_ms):
    assert encode_pairs(pairs, timestamp_ms) == encode_batch([Record(0, timestamp_ms, *pair) for pair in pairs])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x01"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x01"),
        (b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x01"),
        (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x01"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x01"),
    ],
)
def test_malformed_markers_are_refused(key, value):
    with pytest.raises(KafkaError):
        decode_end_txn_marker(Record(0, 0, key, value))


def test_markers_of_later_versions_are_read_by_what_is_known():
    record = Record(0, 0, b"\x00\x05\x00\x01more", b"\x00\x05\x00\x00\x00\x09more")
    assert decode_end_txn_marker(record) == EndTxnMarker(ControlType.COMMIT, 9)
    assert control_type_id(b"\x00\x00\x00\x06") == 6


def test_the_checksum_is_crc32c_of_attributes_to_end():
    batch = GOLDEN["2-snappy"]
    assert read_header(batch).crc == crc32c(batch[21:])


@settings(max_examples=examples(200))
@given(
    timestamps=st.lists(st.sampled_from([0, 1, 60, 64, 70, 9_000, 2**40, 2**62, -5, -(2**40)]), min_size=1, max_size=8),
    sizes=st.lists(st.sampled_from([0, 40, 70, 9_000, 20_000]), min_size=8, max_size=8),
    timestamp_type=st.sampled_from(list(TimestampType)),
    magic=st.sampled_from([1, 2]),
    start=st.integers(0, 8),
    is_exact=st.booleans(),
    data=st.data(),
)
def test_the_first_record_of_a_time_is_the_one_that_decoding_finds(
    timestamps, sizes, timestamp_type, magic, start, is_exact, data
):
    records = [Record(index, each, None, b"x" * sizes[index]) for index, each in enumerate(timestamps)]
    if magic == 2:
        batch = encode_batch(records, base_offset=100, timestamp_type=timestamp_type, compression=Compression.GZIP)
    else:
        batch = encode_message_set(records, 1, compression=Compression.GZIP, timestamp_type=timestamp_type)
    decoded = list(decode_records(batch))
    wanted = data.draw(st.sampled_from([*timestamps, max(timestamps) + 1, *(each.timestamp for each in decoded)]))
    start_offset = decoded[0].offset + start
    expected = [
        (each.timestamp, each.offset)
        for each in decoded
        if each.offset >= start_offset and (each.timestamp == wanted if is_exact else each.timestamp >= wanted)
    ]
    if is_exact and start:  # which nobody asks for
        return
    assert first_record(batch, wanted, start_offset, is_exact=is_exact) == (expected[0] if expected else None)


def test_the_first_record_of_a_time_is_sought_only_in_good_batches():
    batch = bytearray(encode_batch([Record(0, 5, None, b"value")]))
    batch[-1] = 7
    with pytest.raises(KafkaError) as caught:
        first_record(batch, 5)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert first_record(encode_batch([], last_offset_delta=3), 0) is None
