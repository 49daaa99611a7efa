"""Every refusal here was asked of Apache Kafka 4 with the same bytes; exceptions say so."""

import random
import struct
import tracemalloc
import zlib
from contextlib import suppress
from typing import NamedTuple
from unittest.mock import patch

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log import batch_checks, validator
from ottla.replication.log.batch_checks import (
    DOUBTFUL,
    AppendOrigin,
    CheckedRecords,
    TooManyForTheLoop,
    ValidationRules,
    check_produce_request_records,
    check_quickly,
    is_expensive,
    ordinary_header,
)
from ottla.replication.log.validator import InvalidRecords, check_thoroughly
from ottla.wire.checksum import crc32c
from ottla.wire.compression import XERIAL_HEADER, Compression, compress
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch, encode_record, encode_varint
from ottla.wire.record_walk import IS_NATIVE
from ottla.wire.records import (
    RECORDS_OFFSET,
    BatchHeader,
    Record,
    TimestampType,
    assign_offsets,
    crc_is_valid,
    read_header,
)
from ottla.wire.tests.effort import examples

NOW = 1_800_000_000_000
HOUR = 3_600_000
CODECS = list(Compression)
COMPRESSED = [codec for codec in CODECS if codec != Compression.NONE]
RECORD = encode_record(0, 0, None, b"v")
TWO_RECORDS = RECORD + encode_record(1, 0, None, b"v")
LOG_APPEND_TIME = ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
COMPACTED = ValidationRules(compacted=True)


def batch(
    area: bytes = RECORD,
    count: int = 1,
    *,
    base: int = 0,
    length: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch of anything, with the checksum that belongs to it unless another is given."""
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    checked += area
    front = struct.pack(
        ">qiibI",
        base,
        len(checked) + 9 if length is None else length,
        -1,
        magic,
        crc32c(checked) if crc is None else crc,
    )
    return front + checked


def checked_in_one_go(records: bytes, rules: ValidationRules = ValidationRules()) -> CheckedRecords | None:  # noqa: B008
    view = memoryview(bytearray(records))
    header = ordinary_header(view)
    checked = None if header is None else check_quickly(view, header, rules, now_ms=NOW)
    return None if checked is DOUBTFUL else checked


class Assigned(NamedTuple):
    """A checked batch with its offsets, as it is appended."""

    buffer: memoryview | bytearray
    header: BatchHeader
    max_timestamp: int
    log_append_time_ms: int


def assigned(checked: CheckedRecords, next_offset: int, leader_epoch: int) -> Assigned:
    assign_offsets(checked.buffer, 0, next_offset, leader_epoch)
    header = checked.header._replace(base_offset=next_offset, partition_leader_epoch=leader_epoch)
    return Assigned(checked.buffer, header, checked.max_timestamp, checked.log_append_time_ms)


def validate(records: bytes, rules: ValidationRules = ValidationRules(), **options):  # noqa: B008
    """The long way, and that the short ones agree with it wherever they have an opinion."""
    next_offset, leader_epoch = options.get("next_offset", 100), options.get("leader_epoch", 7)
    in_one_go = checked_in_one_go(records, rules)
    answer = verdict(records, rules)
    # The records of a compressed batch are not walked while they are decompressed.
    with patch("ottla.replication.log.validator.walk_compressed", return_value=None):
        assert verdict(records, rules) == answer
    try:
        checked = check_thoroughly(memoryview(bytearray(records)), rules, now_ms=NOW, topic_partition="orders-3")
        validated = assigned(checked, next_offset, leader_epoch)
    except KafkaError:
        assert in_one_go is None
        raise
    assert in_one_go is None or assigned(in_one_go, next_offset, leader_epoch) == validated
    return validated


def verdict(records: bytes, rules: ValidationRules) -> object:
    """What `check_thoroughly` says, to be compared."""
    try:
        checked = check_thoroughly(memoryview(bytearray(records)), rules, now_ms=NOW, topic_partition="orders-3")
    except KafkaError as error:
        return error.code, error.message, getattr(error, "record_errors", None)
    return (bytes(checked.buffer), *checked[1:])


def refusal(records: bytes, rules: ValidationRules = ValidationRules()) -> KafkaError:  # noqa: B008
    with pytest.raises(KafkaError) as caught:
        validate(records, rules)
    return caught.value


def body(*parts: bytes) -> bytes:
    joined = b"".join(parts)
    return encode_varint(len(joined)) + joined


# --- what the request may hold ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [
        (None, 9, ErrorCode.INVALID_RECORD),  # Kafka never answers this one
        (b"", 9, ErrorCode.INVALID_RECORD),
        (b"abc", 3, ErrorCode.INVALID_RECORD),
        (batch(length=1000), 9, ErrorCode.INVALID_RECORD),
        (batch(length=13), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(length=-1), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(magic=0), 9, ErrorCode.INVALID_RECORD),
        (batch(magic=1), 3, ErrorCode.INVALID_RECORD),
        (batch(magic=3), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(magic=-1), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), 9, ErrorCode.INVALID_RECORD),
        (batch() + batch(magic=9), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch() + bytes(20), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(attributes=4), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_requests_may_hold_one_batch_of_magic_2(records, version, code):
    with pytest.raises(KafkaError) as caught:
        check_produce_request_records(records, version)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("records", "version"),
    [
        (batch(), 3),
        (batch(attributes=4), 7),
        (batch() + bytes(10), 9),
        (batch() + batch()[:-1], 9),
        (encode_message_set([Record(0, NOW, None, b"v")], 1), 2),
        (b"", 2),
    ],
)
def test_requests_of_their_version_pass(records, version):
    check_produce_request_records(records, version)
    check_produce_request_records(memoryview(records), version)


# --- the batch --------------------------------------------------------------------------------------------------------

REFUSED_BATCHES = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "cut off": (batch()[:-1], ErrorCode.INVALID_RECORD),
    "base offset 5": (batch(base=5), ErrorCode.INVALID_RECORD),
    "base offset -1": (batch(base=-1), ErrorCode.INVALID_RECORD),
    "length 14": (batch(length=14), ErrorCode.CORRUPT_MESSAGE),
    "length 48": (batch(length=48), ErrorCode.CORRUPT_MESSAGE),
    "length one too high": (batch(length=len(RECORD) + 50) + b"\0", ErrorCode.CORRUPT_MESSAGE),
    "wrong checksum": (batch(crc=1), ErrorCode.CORRUPT_MESSAGE),
    "base offset and checksum": (batch(base=1, crc=1), ErrorCode.INVALID_RECORD),
    "codec and checksum": (batch(attributes=7, crc=1), ErrorCode.CORRUPT_MESSAGE),
    "codec 5": (batch(attributes=5), ErrorCode.UNKNOWN_SERVER_ERROR),
    "codec 7 and count": (batch(attributes=7, last_offset_delta=5), ErrorCode.UNKNOWN_SERVER_ERROR),
    "two batches": (batch() + batch(), ErrorCode.INVALID_RECORD),
    "control": (batch(attributes=0x20), ErrorCode.INVALID_RECORD),
    "no records": (batch(b"", 0), ErrorCode.INVALID_RECORD),
    "count 0": (batch(count=0, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "count -1": (batch(count=-1, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "last offset delta -1": (batch(last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "last offset delta 1": (batch(last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "last offset delta highest": (batch(last_offset_delta=2**31 - 1), ErrorCode.INVALID_RECORD),
    "count too high": (batch(RECORD, 2), ErrorCode.INVALID_RECORD),
    "count too low": (batch(TWO_RECORDS, 1), ErrorCode.INVALID_RECORD),
    "producer id without sequence": (batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", REFUSED_BATCHES)
def test_batch_is_refused(name):
    records, code = REFUSED_BATCHES[name]
    error = refusal(records)
    assert error.code == code
    assert not isinstance(error, InvalidRecords)  # so the client gets the code alone


@pytest.mark.parametrize(
    "options",
    [
        {"attributes": 0x7F80},
        {"attributes": 0x40},
        {"attributes": 0x10, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0},
        {"base_timestamp": 0},
        {"base_timestamp": -1},
        {"base_timestamp": -5, "max_timestamp": -1},
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -2, "producer_epoch": 0},
        {"base_sequence": 5},
    ],
    ids=str,
)
def test_batch_is_accepted_unchanged(options):
    sent = batch(**options)
    assert bytes(validate(sent).buffer)[16:] == sent[16:]


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_and_epoch_are_assigned_in_place(codec):
    buffer = bytearray(encode_batch([Record(0, NOW - index, b"k", b"v") for index in range(3)], compression=codec))
    view = memoryview(buffer)
    checked = check_thoroughly(view, ValidationRules(), now_ms=NOW)
    header = assigned(checked, 2**40, 9).header
    assert checked.buffer is view
    assert header == read_header(buffer)
    assert crc_is_valid(buffer, 0, len(buffer))
    assert (header.base_offset, header.partition_leader_epoch, header.records_count) == (2**40, 9, 3)
    assert (header.last_offset, checked.max_timestamp, checked.log_append_time_ms) == (2**40 + 2, NOW, -1)
    assert [record.offset for record in decode_records(buffer)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_an_ordinary_batch_is_checked_in_one_go():
    idempotent = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 9}
    for records in (batch(), batch(TWO_RECORDS, 2), batch(**idempotent), batch(attributes=0x10, **idempotent)):
        assert checked_in_one_go(records) is not None
        assert not is_expensive(memoryview(records))
        check_produce_request_records(memoryview(records), 3)
        validate(records)


@given(position=st.integers(0, 60), byte=st.integers(0, 255), mends_checksum=st.booleans(), rules=st.sampled_from(
    [ValidationRules(), COMPACTED, LOG_APPEND_TIME, ValidationRules(max_message_bytes=80)]
))  # fmt: skip
def test_any_byte_of_a_header_changed_is_seen_by_both_ways(position, byte, mends_checksum, rules):
    records = bytearray(batch(TWO_RECORDS, 2))
    records[position] = byte
    if mends_checksum:
        records[17:21] = crc32c(records[21:]).to_bytes(4, "big")
    with suppress(KafkaError):
        validate(bytes(records), rules)


def test_what_is_cut_off_behind_the_batch_is_not_appended():
    sent = batch()
    assert len(validate(sent + bytes(10)).buffer) == len(validate(sent + sent[:40]).buffer) == len(sent)


def test_a_read_only_buffer_is_copied():
    sent = batch()
    checked = check_thoroughly(memoryview(sent), ValidationRules(), now_ms=NOW)
    assert assigned(checked, 5, 1).header.base_offset == 5
    assert read_header(sent).base_offset == 0


def test_uncompressed_offset_deltas_are_taken_as_they_come():
    for deltas in ((5, 9), (1, 0)):
        area = b"".join(encode_record(delta, 0, None, b"v") for delta in deltas)
        assert [record.offset for record in decode_records(validate(batch(area, 2)).buffer)] == [
            100 + delta for delta in deltas
        ]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_offset_deltas_must_count_from_0(codec):
    area = encode_record(5, 0, None, b"v") + encode_record(9, 0, None, b"v")
    assert refusal(batch(compress(codec, area), 2, attributes=codec)).code == ErrorCode.UNKNOWN_SERVER_ERROR


# --- records ----------------------------------------------------------------------------------------------------------

ZERO, NULL = b"\0", b"\1"
BAD_RECORDS = {
    "length one too high": bytes((RECORD[0] + 2,)) + RECORD[1:],
    "length one too low": bytes((RECORD[0] - 2,)) + RECORD[1:],
    "negative length": encode_varint(-5) + RECORD[1:],
    "negative header count": body(ZERO, ZERO, ZERO, NULL, NULL, NULL),
    "missing headers": body(ZERO, ZERO, ZERO, NULL, NULL, b"\x0a"),
    "null header key": body(ZERO, ZERO, ZERO, NULL, NULL, b"\x02", NULL, NULL),
    "key too long": body(ZERO, ZERO, ZERO, b"\x7e", b"k", NULL, ZERO),
    "empty": ZERO,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", BAD_RECORDS)
def test_malformed_records_are_refused(codec, name):
    # Kafka overlooks the lengths of records in compressed batches; their consumers do not.
    error = refusal(batch(compress(codec, BAD_RECORDS[name]), 1, attributes=codec))
    assert error.code == ErrorCode.INVALID_RECORD
    assert not isinstance(error, InvalidRecords)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("area", [b"garbage bytes here", b"\0" * 20])
def test_garbage_instead_of_compressed_records_is_refused(codec, area):
    assert refusal(batch(area, 1, attributes=codec)).code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", COMPRESSED)
def test_wrong_counts_of_compressed_records_are_refused(codec):
    for count in (1, 3):
        assert refusal(batch(compress(codec, TWO_RECORDS), count, attributes=codec)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompression_is_bounded(codec):
    rules = ValidationRules(decompressed_bytes_max=10_000)
    area = compress(codec, encode_record(0, 0, None, bytes(20_000)))
    assert refusal(batch(area, 1, attributes=codec), rules).code == ErrorCode.MESSAGE_TOO_LARGE  # Kafka takes any size


@pytest.mark.parametrize("codec", CODECS)
def test_one_large_record_of_a_compressed_batch_is_refused(codec):
    first, second = encode_record(0, 0, None, bytes(90)), encode_record(1, 0, None, bytes(100))
    records = batch(compress(codec, first + second), 2, attributes=codec)
    size = len(second) - 2  # without its length, which takes two bytes
    assert validate(records, ValidationRules(record_bytes_max=size)).header.records_count == 2
    if codec:
        assert refusal(records, ValidationRules(record_bytes_max=size - 1)).code == ErrorCode.INVALID_RECORD
    else:
        assert validate(records, ValidationRules(record_bytes_max=1)).header.records_count == 2


# --- keys -------------------------------------------------------------------------------------------------------------

NO_KEY = "Compacted topic cannot accept message without key in topic partition orders-3"


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_topics_need_keys(codec):
    area = encode_record(0, 0, b"k", b"v") + encode_record(1, 0, None, b"v")
    error = refusal(batch(compress(codec, area), 2, attributes=codec), COMPACTED)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_RECORD
    assert error.record_errors == [(1, NO_KEY)]
    assert error.message == (
        "One or more records have been rejected due to 1 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{NO_KEY}')]"
    )
    assert validate(batch(encode_record(0, 0, b"", b"v")), COMPACTED)
    assert validate(batch(area, 2))


def test_all_bad_records_are_named_but_three_in_the_message():
    area = b"".join(encode_record(index, 0, None, b"v") for index in range(5))
    error = refusal(batch(area, 5), COMPACTED)
    assert isinstance(error, InvalidRecords) and error.message is not None
    assert [index for index, _ in error.record_errors] == [0, 1, 2, 3, 4]
    assert error.message.count("RecordError(") == 3
    assert "due to 5 record errors in total" in error.message


def test_a_thousand_bad_records_are_listed_and_all_are_counted():
    area = b"".join(encode_record(index, 0, None, b"v") for index in range(3_000))
    error = refusal(batch(area, 3_000), COMPACTED)
    assert isinstance(error, InvalidRecords) and error.message is not None
    assert [index for index, _ in error.record_errors] == list(range(1_000))
    assert "due to 3000 record errors in total" in error.message


def test_many_records_are_not_looked_at_one_by_one_on_the_event_loop():
    area = b"".join(encode_record(index, 0, None, b"v") for index in range(1_001))
    records = memoryview(bytearray(batch(area, 1_001)))
    with pytest.raises(TooManyForTheLoop):
        check_thoroughly(records, COMPACTED, now_ms=NOW, at_once=True)
    assert check_thoroughly(records, ValidationRules(), now_ms=NOW, at_once=True)  # the summary is enough


def test_malformed_records_come_before_missing_keys():
    area = RECORD + BAD_RECORDS["negative header count"]
    assert not isinstance(refusal(batch(area, 2), COMPACTED), InvalidRecords)


# --- timestamps -------------------------------------------------------------------------------------------------------


def out_of_range(timestamp: int, index: int, earliest: int) -> tuple[int, str]:
    return index, (
        f"Timestamp {timestamp} of message with offset {index} is out of range. "
        f"The timestamp should be within [{earliest}, {NOW + HOUR}]"
    )


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_in_the_future_are_refused(codec):
    area = RECORD + encode_record(1, HOUR + 1, None, b"v") + encode_record(2, HOUR, None, b"v")
    error = refusal(batch(compress(codec, area), 3, attributes=codec))
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert error.message == "One or more records have been rejected due to invalid timestamp"
    assert error.record_errors == [out_of_range(NOW + HOUR + 1, 1, NOW - (2**63 - 1))]


def test_timestamps_too_far_in_the_past_are_refused():
    rules = ValidationRules(timestamp_before_max_ms=1000)
    area = encode_record(0, -1000, None, b"v") + encode_record(1, -1001, None, b"v")
    error = refusal(batch(area, 2), rules)
    assert isinstance(error, InvalidRecords)
    assert error.record_errors == [out_of_range(NOW - 1001, 1, NOW - 1000)]
    assert validate(batch(base_timestamp=-1), rules)  # no timestamp is no old timestamp


def test_timestamps_that_overflow_are_refused():
    error = refusal(batch(encode_record(0, 2**63 - 1, None, b"v")))
    assert isinstance(error, InvalidRecords)
    assert error.record_errors == [out_of_range(NOW + 2**63 - 1 - 2**64, 0, NOW - (2**63 - 1))]


def test_a_bad_timestamp_decides_the_code_of_mixed_errors():
    area = RECORD + encode_record(1, 2 * HOUR, b"k", b"v")
    error = refusal(batch(area, 2), COMPACTED)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [5, -7, NOW + 10**9])
def test_a_wrong_maximum_timestamp_is_corrected(codec, claimed):
    area = RECORD + encode_record(1, -9, None, b"v")
    result = validate(batch(compress(codec, area), 2, attributes=codec, max_timestamp=claimed))
    assert result.max_timestamp == read_header(result.buffer).max_timestamp == result.header.max_timestamp == NOW
    assert crc_is_valid(result.buffer, 0, len(result.buffer))


def test_the_maximum_timestamp_is_never_below_none():
    assert validate(batch(base_timestamp=-5)).max_timestamp == -1
    overflown = batch(encode_record(0, 2**63 - 1, None, b"v"))
    assert validate(overflown, ValidationRules(timestamp_after_max_ms=2**63 - 1)).max_timestamp == -1


def test_any_timestamp_passes_without_limits():
    rules = ValidationRules(timestamp_after_max_ms=2**63 - 1)
    assert validate(batch(base_timestamp=NOW + 10**12), rules).max_timestamp == NOW + 10**12


# --- LogAppendTime ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_replaces_the_timestamps(codec):
    records = [Record(0, 5, None, b"v"), Record(0, NOW + 10**10, None, b"w")]
    result = validate(encode_batch(records, compression=codec), LOG_APPEND_TIME)
    assert result.log_append_time_ms == result.max_timestamp == NOW
    assert result.header.is_log_append_time
    assert crc_is_valid(result.buffer, 0, len(result.buffer))
    assert [record.timestamp for record in decode_records(result.buffer)] == [NOW, NOW]


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (Compression.NONE, "DefaultRecord(offset=0, timestamp=1800000000000, key=0 bytes, value=1 bytes)"),
        (Compression.GZIP, "PartialDefaultRecord(offset=0, timestamp=1800000000000, key=-1 bytes, value=1 bytes)"),
    ],
)
def test_clients_may_not_claim_log_append_time_on_such_topics(codec, text):
    error = refusal(batch(compress(codec, RECORD), attributes=8 | codec), LOG_APPEND_TIME)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    message = f"Invalid timestamp type in message {text}. Producer should not set timestamp type to LogAppendTime."
    assert error.record_errors == [(0, message)]


def test_a_claim_of_log_append_time_is_dropped_on_other_topics():
    result = validate(batch(attributes=8, base_timestamp=3, max_timestamp=NOW))
    assert (result.max_timestamp, result.log_append_time_ms) == (NOW, -1)
    assert not read_header(result.buffer).is_log_append_time


def test_a_claim_of_log_append_time_without_a_time_is_refused():
    assert refusal(batch(attributes=8, max_timestamp=-1)).code == ErrorCode.INVALID_TIMESTAMP
    assert refusal(batch(attributes=8, max_timestamp=NOW + 2 * HOUR)).code == ErrorCode.INVALID_TIMESTAMP


# --- other codecs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_batches_get_the_codec_of_the_topic(source, target):
    records = [Record(0, NOW - index, b"k", b"value " * 20, ((b"h", b"1"),)) for index in range(5)]
    sent = encode_batch(
        records, compression=source, producer_id=4, producer_epoch=2, base_sequence=9, is_transactional=True
    )
    result = validate(sent, ValidationRules(compression=target))
    header = result.header
    assert header == read_header(result.buffer)
    assert crc_is_valid(result.buffer, 0, len(result.buffer))
    assert (header.compression, header.base_offset, header.partition_leader_epoch) == (target, 100, 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 9)
    assert header.is_transactional and header.max_timestamp == result.max_timestamp == NOW
    assert list(decode_records(result.buffer)) == [
        record._replace(offset=100 + index) for index, record in enumerate(records)
    ]


def test_recompression_sets_log_append_time():
    rules = LOG_APPEND_TIME._replace(compression=Compression.ZSTD)
    result = validate(batch(TWO_RECORDS, 2), rules)
    assert result.header.is_log_append_time and result.header.compression is Compression.ZSTD
    assert (result.max_timestamp, result.log_append_time_ms) == (NOW, NOW)


@pytest.mark.parametrize("source", [Compression.NONE, Compression.LZ4])
def test_recompression_renumbers_the_records(source):
    area = encode_record(1, 0, None, b"a") + encode_record(0, 0, None, b"b")
    result = validate(
        batch(compress(source, area), 2, attributes=source), ValidationRules(compression=Compression.GZIP)
    )
    assert [(record.offset, record.value) for record in decode_records(result.buffer)] == [(100, b"a"), (101, b"b")]


def test_recompression_counts_times_from_the_first_record():
    area = encode_record(0, -9, None, b"a") + encode_record(1, 3, None, b"b")
    result = validate(batch(area, 2), ValidationRules(compression=Compression.GZIP))
    assert result.header.base_timestamp == NOW - 9
    assert [record.timestamp for record in decode_records(result.buffer)] == [NOW - 9, NOW + 3]


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-1, -1), (5, -7)])
def test_recompression_cannot_build_times_below_none(base, delta):
    area = RECORD + encode_record(1, delta, None, b"v")
    rules = ValidationRules(compression=Compression.GZIP, timestamp_after_max_ms=2**63 - 1)
    assert refusal(batch(area, 2, base_timestamp=base), rules).code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_recompression_keeps_the_one_timestamp_of_a_batch_that_claims_log_append_time():
    sent = batch(TWO_RECORDS, 2, attributes=8, base_timestamp=5, max_timestamp=NOW)
    result = validate(sent, ValidationRules(compression=Compression.GZIP))
    assert [record.timestamp for record in decode_records(result.buffer)] == [NOW, NOW]


@pytest.mark.parametrize(
    "options",
    [
        {"base_timestamp": -5},
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
        {"attributes": 0x10},
    ],
    ids=str,
)
def test_what_cannot_be_built_again_is_an_unknown_server_error(options):
    assert refusal(batch(**options), ValidationRules(compression=Compression.GZIP)).code == (
        ErrorCode.UNKNOWN_SERVER_ERROR
    )


def test_levels_reach_the_codec():
    area = b"".join(encode_record(index, 0, None, b"%d" % (index * 7919)) for index in range(500))
    sizes = [
        len(validate(batch(area, 500), ValidationRules(compression=Compression.ZSTD, compression_level=level)).buffer)
        for level in (-100, 19)
    ]
    assert sizes[0] > sizes[1]


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_batches_may_be_as_large_as_max_message_bytes():
    sent = batch()
    assert validate(sent, ValidationRules(max_message_bytes=len(sent)))
    small = ValidationRules(max_message_bytes=len(sent) - 1)
    assert refusal(sent, small).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(batch(crc=1), small).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(batch(base=1), small).code == ErrorCode.INVALID_RECORD


def test_batches_must_fit_after_recompression_too():
    sent = batch(compress(Compression.ZSTD, encode_record(0, 0, None, bytes(3000))), attributes=4)
    assert validate(sent, ValidationRules(max_message_bytes=1000))
    rules = ValidationRules(max_message_bytes=1000, compression=Compression.NONE)
    assert refusal(sent, rules).code == ErrorCode.MESSAGE_TOO_LARGE


# --- coordinators -----------------------------------------------------------------------------------------------------

COORDINATOR = ValidationRules(origin=AppendOrigin.COORDINATOR, compacted=True, compression=Compression.GZIP)


def test_coordinators_may_write_control_batches_which_stay_as_they_are():
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 1), timestamp_ms=NOW, producer_id=4, producer_epoch=0, base_offset=55
    )
    result = validate(marker, COORDINATOR)
    assert bytes(result.buffer)[16:] == marker[16:]
    assert result.header.base_offset == 100


def test_coordinators_are_still_checked_for_damage():
    assert refusal(batch(crc=1), COORDINATOR).code == ErrorCode.CORRUPT_MESSAGE
    assert refusal(batch(RECORD, 2), COORDINATOR).code == ErrorCode.INVALID_RECORD


# --- message sets of magic 0 and 1 ------------------------------------------------------------------------------------

OLD_RECORDS = [Record(index, NOW - index, b"k%d" % index, b"v") for index in range(3)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("target", [None, Compression.NONE, Compression.ZSTD])
def test_message_sets_become_one_batch(magic, source, target):
    result = validate(encode_message_set(OLD_RECORDS, magic, compression=source), ValidationRules(compression=target))
    header = result.header
    assert header == read_header(result.buffer)
    assert (header.magic, header.base_offset, header.records_count) == (2, 100, 3)
    assert header.compression == (source if target is None else target)
    assert crc_is_valid(result.buffer, 0, len(result.buffer))
    assert result.max_timestamp == header.max_timestamp == (NOW if magic else -1)
    assert list(decode_records(result.buffer)) == [
        record._replace(offset=100 + index, timestamp=record.timestamp if magic else -1)
        for index, record in enumerate(OLD_RECORDS)
    ]


def test_message_sets_get_log_append_time():
    result = validate(encode_message_set(OLD_RECORDS, 0), LOG_APPEND_TIME)
    assert [record.timestamp for record in decode_records(result.buffer)] == [NOW] * 3
    assert result.log_append_time_ms == NOW


def damaged(message_set: bytes) -> bytes:
    return message_set[:-1] + bytes((message_set[-1] ^ 1,))


def rewrapped(inner: bytes) -> bytes:
    """A gzip wrapper of magic 1 around anything."""
    outer = encode_message_set([Record(0, NOW, None, compress(Compression.GZIP, inner))], 1)
    body = outer[16:17] + b"\x01" + outer[18:]
    return outer[:12] + struct.pack(">I", zlib.crc32(body)) + body


def with_value_length(message: bytes, length: int) -> bytes:
    """A message of magic 1 with a value of one byte that says it were longer, and the checksum that belongs to it."""
    body = message[16:-5] + struct.pack(">i", length) + message[-1:]
    return message[:12] + struct.pack(">I", zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("message_set", "code"),
    [
        (damaged(encode_message_set(OLD_RECORDS, 1)), ErrorCode.CORRUPT_MESSAGE),
        (rewrapped(damaged(encode_message_set(OLD_RECORDS, 1))), ErrorCode.CORRUPT_MESSAGE),
        (rewrapped(encode_message_set(OLD_RECORDS, 0)), ErrorCode.INVALID_RECORD),
        (rewrapped(encode_message_set(OLD_RECORDS, 1)) * 2, ErrorCode.INVALID_RECORD),
        (encode_message_set(OLD_RECORDS, 1) + encode_message_set(OLD_RECORDS, 0), ErrorCode.INVALID_RECORD),
        (encode_message_set([Record(0, NOW + 2 * HOUR, None, b"v")], 1), ErrorCode.INVALID_TIMESTAMP),
        (encode_message_set([Record(0, -5, None, b"v")], 1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (with_value_length(encode_message_set([Record(0, NOW, None, b"v")], 1), 2), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_bad_message_sets_are_refused(message_set, code):
    assert refusal(message_set).code == code


def test_messages_for_compacted_topics_need_keys():
    error = refusal(encode_message_set([Record(0, NOW, b"k", b"v"), Record(1, NOW, None, b"v")], 1), COMPACTED)
    assert isinstance(error, InvalidRecords)
    assert error.record_errors == [(0, NO_KEY)]  # every plain message is a batch of its own
    inner = encode_message_set([Record(0, NOW, b"k", b"v"), Record(1, NOW, None, b"v")], 1)
    error = refusal(rewrapped(inner), COMPACTED)
    assert isinstance(error, InvalidRecords)
    assert error.record_errors == [(1, NO_KEY)]


def test_message_sizes_are_checked_one_by_one_and_then_together():
    message_set = encode_message_set([Record(index, NOW, b"k", bytes(300)) for index in range(4)], 1)
    assert refusal(message_set, ValidationRules(max_message_bytes=300)).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(message_set, ValidationRules(max_message_bytes=1000)).code == ErrorCode.MESSAGE_TOO_LARGE
    assert validate(message_set, ValidationRules(max_message_bytes=2000))


# --- where to run it --------------------------------------------------------------------------------------------------


def test_common_batches_are_checked_at_once():
    small = [Record(0, NOW, None, b"v" * 100)] * 100
    for codec in CODECS:
        assert not is_expensive(encode_batch(small, compression=codec))
    assert not is_expensive(encode_batch([Record(0, NOW, None, bytes(1_000_000 if IS_NATIVE else 60_000))]))
    assert not is_expensive(b"") and not is_expensive(bytes(61)) and not is_expensive(batch(attributes=7))
    assert not is_expensive(encode_message_set(OLD_RECORDS, 1))


def test_batches_that_may_take_long_are_for_a_thread():
    assert is_expensive(encode_batch([Record(0, NOW, None, bytes(4_000_000))], compression=Compression.ZSTD))
    assert is_expensive(encode_batch([Record(0, NOW, None, bytes(4_000_000))], compression=Compression.LZ4))
    assert is_expensive(encode_batch([Record(0, NOW, None, bytes(4_000_000))], compression=Compression.SNAPPY))
    assert is_expensive(encode_batch([Record(0, NOW, None, bytes(4_000_000))], compression=Compression.GZIP))
    assert is_expensive(batch(count=100_000))
    assert is_expensive(encode_message_set(OLD_RECORDS, 1, compression=Compression.GZIP))
    assert is_expensive(encode_message_set([Record(0, NOW, None, bytes(100_000))], 1))


def test_much_gzip_is_for_a_thread_unless_it_is_only_stored():
    text = b" ".join(random.Random(3).choices([b"word%d" % number for number in range(400)], k=60_000))
    noise = random.Random(3).randbytes(300_000)
    for value, level, takes_long in ((text, 6, True), (noise, 0, False), (bytes(300_000), 6, False)):
        sent = memoryview(
            bytearray(
                encode_batch([Record(0, NOW, None, value)], compression=Compression.GZIP, compression_level=level)
            )
        )
        assert is_expensive(sent) == (takes_long or not IS_NATIVE)
        if takes_long:
            assert checked_in_one_go(bytes(sent)) is None
        assert check_thoroughly(sent, ValidationRules(), now_ms=NOW).header.records_count == 1


def test_stored_gzip_that_is_longer_than_it_says_is_for_a_thread():
    empty_block = b"\0\0\0\xff\xff"
    member = compress(Compression.GZIP, RECORD, 0)
    assert not is_expensive(batch(member[:10] + empty_block * 1000 + member[10:], attributes=1))
    assert is_expensive(batch(member[:10] + empty_block * 300_000 + member[10:], attributes=1))


def test_gzip_of_empty_blocks_behind_a_stored_one_is_for_a_thread():
    """An empty block of ten bits takes as long as hundreds of bytes that are stored."""
    records = encode_batch([Record(0, NOW, None, random.Random(3).randbytes(50_000))])[RECORDS_OFFSET:]
    four_blocks = sum(2 << 10 * number for number in range(4)).to_bytes(5, "little")
    sizes = struct.pack("<HH", len(records), len(records) ^ 0xFFFF)
    trailer = struct.pack("<II", zlib.crc32(records), len(records))
    member = compress(Compression.GZIP, b"")[:10]
    for count, takes_long in ((1000, False), (100_000, True)):
        area = member + b"\0" + sizes + records + four_blocks * count + b"\1\0\0\xff\xff" + trailer
        sent = memoryview(bytearray(batch(area, attributes=1)))
        assert is_expensive(sent) == takes_long
        if takes_long:
            assert checked_in_one_go(bytes(sent)) is None
        assert check_thoroughly(sent, ValidationRules(), now_ms=NOW).header.records_count == 1


def test_very_many_blocks_are_for_a_thread():
    records = encode_batch([Record(0, NOW, None, bytes(100_000))])[RECORDS_OFFSET:]
    for block_bytes, takes_long in ((1000, False), (50, True)):
        blocks = [
            bytes(cramjam.snappy.compress_raw(records[at : at + block_bytes]))
            for at in range(0, len(records), block_bytes)
        ]
        area = XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        sent = memoryview(bytearray(batch(area, attributes=Compression.SNAPPY)))
        assert is_expensive(sent) == takes_long
        if takes_long:
            assert checked_in_one_go(bytes(sent)) is None
        assert check_thoroughly(sent, ValidationRules(), now_ms=NOW).header.records_count == 1


def test_much_gzip_is_not_looked_at_piece_by_piece_on_the_event_loop():
    damaged = memoryview(
        bytearray(batch(compress(Compression.GZIP, RECORD + random.Random(1).randbytes(50_000)), attributes=1))
    )
    for rules in (ValidationRules(), ValidationRules(decompressed_bytes_max=100_000)):
        with (
            patch("ottla.wire.compressed_walk._walk_in_pieces", side_effect=AssertionError),
            pytest.raises(TooManyForTheLoop),
        ):
            check_thoroughly(damaged, rules, now_ms=NOW, at_once=True)
    assert refusal(bytes(damaged)).code == ErrorCode.INVALID_RECORD


@pytest.mark.skipif(not IS_NATIVE, reason="the walk in Python is slower")
@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_a_batch_whose_codec_has_stored_the_records_is_checked_in_one_go(codec):
    noise = random.Random(codec).randbytes(3_000_000)
    records = [Record(index, NOW + index, None, noise[index * 1000 :][:1000]) for index in range(100)]
    sent = encode_batch(records, compression=codec)
    assert checked_in_one_go(sent) is not None
    assert checked_in_one_go(sent, ValidationRules(compression=codec)) is not None
    for rules in (
        COMPACTED,
        LOG_APPEND_TIME,
        ValidationRules(compression=Compression.GZIP),
        ValidationRules(max_message_bytes=100),
        ValidationRules(record_bytes_max=1000),
        ValidationRules(decompressed_bytes_max=5000),
    ):
        assert checked_in_one_go(sent, rules) is None
    late = encode_batch([Record(0, NOW + 2 * HOUR, None, noise[:1000])], compression=codec)
    assert checked_in_one_go(late) is None
    # What becomes long is not for the event loop, and neither are very many records.
    assert checked_in_one_go(encode_batch([Record(0, NOW, None, noise)], compression=codec)) is None
    assert checked_in_one_go(encode_batch([Record(0, NOW, None, b"")] * 30_000, compression=codec)) is None
    validate(sent)


def test_a_gzip_batch_that_lies_about_its_size_is_given_up_at_once_and_checked_in_a_thread():
    sent = bytearray(encode_batch([Record(0, NOW, None, bytes(4_000_000))], compression=Compression.GZIP))
    sent[-4:] = (1000).to_bytes(4, "little")
    struct.pack_into(">I", sent, 17, crc32c(sent[21:]))
    assert not is_expensive(sent)
    with pytest.raises(TooManyForTheLoop):
        check_thoroughly(memoryview(sent), ValidationRules(), now_ms=NOW, at_once=True)
    assert refusal(bytes(sent)).code == ErrorCode.UNKNOWN_SERVER_ERROR
    # What it holds is wrong, and to find out why may take long, too.
    damaged = batch(compress(Compression.GZIP, RECORD + random.Random(1).randbytes(5000)), attributes=1)
    with pytest.raises(TooManyForTheLoop):
        check_thoroughly(memoryview(bytearray(damaged)), ValidationRules(), now_ms=NOW, at_once=True)
    assert refusal(damaged).code == ErrorCode.INVALID_RECORD


def test_python_does_not_walk_over_very_many_headers_on_the_event_loop():
    headers = 100_000
    body = bytes((0, 0, 0, 1, 1)) + encode_varint(headers) + b"\0\1" * headers
    area = encode_varint(len(body)) + body
    with (
        patch.object(validator, "INLINE_WALKED_BYTES_MAX", 64 * 1024),
        patch.object(batch_checks, "INLINE_BYTES_MAX", 64 * 1024),
    ):
        assert is_expensive(batch(area, 1)) and ordinary_header(memoryview(batch(area, 1))) is None
        for codec in (Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
            sent = bytearray(batch(compress(codec, area), 1, attributes=codec))
            with pytest.raises(TooManyForTheLoop):
                check_thoroughly(memoryview(sent), ValidationRules(), now_ms=NOW, at_once=True)
            assert check_thoroughly(memoryview(sent), ValidationRules(), now_ms=NOW).buffer == sent
            # What is short is checked at once, although its blocks might hold more.
            sent = bytearray(encode_batch([Record(0, NOW, None, b"v")], compression=codec))
            assert check_thoroughly(memoryview(sent), ValidationRules(), now_ms=NOW, at_once=True)


@pytest.mark.skipif(not IS_NATIVE, reason="the walk in Python is slower")
def test_an_honest_gzip_batch_is_checked_at_once():
    sent = encode_batch([Record(0, NOW, None, bytes(1_000_000))], compression=Compression.GZIP)
    assert not is_expensive(sent)
    assert is_expensive(encode_batch([Record(0, NOW, None, bytes(1_100_000))], compression=Compression.GZIP))
    checked = check_thoroughly(memoryview(bytearray(sent)), ValidationRules(), now_ms=NOW, at_once=True)
    assert checked.buffer == sent
    # To build it anew takes longer.
    assert is_expensive(sent, ValidationRules(compression=Compression.LZ4))


def test_recompression_is_for_a_thread_sooner():
    sent = encode_batch([Record(0, NOW, None, bytes(50_000))])
    assert not is_expensive(sent, ValidationRules())
    assert not is_expensive(sent, ValidationRules(compression=Compression.NONE))
    assert is_expensive(sent, ValidationRules(compression=Compression.ZSTD))


# --- configuration ----------------------------------------------------------------------------------------------------


def test_rules_from_a_topic_configuration():
    assert ValidationRules.from_config(LogConfig()) == ValidationRules()
    rules = ValidationRules.from_config(
        LogConfig(
            cleanup_policy=("compact", "delete"),
            compression_type="lz4",
            compression_lz4_level=5,
            max_message_bytes=123,
            message_timestamp_type="LogAppendTime",
            message_timestamp_before_max_ms=4,
            message_timestamp_after_max_ms=5,
        ),
        AppendOrigin.COORDINATOR,
    )
    assert rules == ValidationRules(
        123, True, Compression.LZ4, 5, TimestampType.LOG_APPEND_TIME, 4, 5, AppendOrigin.COORDINATOR
    )


@pytest.mark.parametrize(
    ("name", "codec"),
    [("producer", None), ("uncompressed", Compression.NONE), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)],
)
def test_rules_know_every_compression_type(name, codec):
    assert ValidationRules.from_config(LogConfig(compression_type=name)).compression == codec


def test_rules_know_the_limit_for_single_records():
    assert ValidationRules.from_config(LogConfig(max_decompressed_message_bytes=7)).record_bytes_max == 7


def test_the_decompression_limit_grows_with_max_message_bytes():
    assert ValidationRules.from_config(LogConfig(max_message_bytes=1 << 30)).decompressed_bytes_max == 10 << 30


# --- anything ---------------------------------------------------------------------------------------------------------

ALL_RULES = [
    ValidationRules(),
    COMPACTED,
    LOG_APPEND_TIME,
    ValidationRules(compression=Compression.GZIP, timestamp_before_max_ms=1000),
    COORDINATOR,
]


@given(st.data())
@settings(max_examples=examples(150))
def test_damaged_batches_are_refused_with_a_kafka_error_or_make_a_good_batch(data):
    codec = data.draw(st.sampled_from(CODECS))
    area = bytearray(TWO_RECORDS + encode_record(2, 5, b"key", b"value", [(b"h", None)]))
    for _ in range(data.draw(st.integers(0, 2))):
        area[data.draw(st.integers(0, len(area) - 1))] = data.draw(st.integers(0, 255))
    stored = bytearray(compress(codec, area))
    for _ in range(data.draw(st.integers(0, 1))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    sent = batch(
        bytes(stored),
        data.draw(st.sampled_from([3, 3, 3, 2, -1])),
        attributes=codec | data.draw(st.sampled_from([0, 0, 8, 0x10, 0x40])),
        base_timestamp=data.draw(st.sampled_from([NOW, NOW, 0, -1, -(2**63), 2**63 - 1])),
    )
    rules = data.draw(st.sampled_from(ALL_RULES))
    is_expensive(sent, rules)
    try:
        result = validate(sent, rules)
    except KafkaError:
        return
    assert crc_is_valid(result.buffer, 0, len(result.buffer))
    assert read_header(result.buffer) == result.header
    assert len(list(decode_records(result.buffer))) == 3


@given(st.binary(max_size=150), st.sampled_from(ALL_RULES))
@settings(max_examples=examples(60))
def test_random_bytes_are_refused_with_a_kafka_error(records, rules):
    for version in (2, 9):
        is_expensive(records)
        with suppress(KafkaError):
            check_produce_request_records(records, version)
            validate(records, rules)


# --- very many headers ------------------------------------------------------------------------------------------------


def record_with_headers(count: int) -> bytes:
    """A record with empty headers, of two bytes each."""
    body = b"\0\2\0\1\1" + encode_varint(count) + b"\0\1" * count
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("rules", "base_timestamp"),
    [
        (COMPACTED, NOW),
        (ValidationRules(), NOW + 9 * HOUR),
        (ValidationRules(compression=Compression.LZ4), NOW),
        (LOG_APPEND_TIME, NOW),
    ],
)
def test_millions_of_headers_take_little_memory(rules: ValidationRules, base_timestamp: int):
    """A megabyte of them was sent as some hundred bytes, and as objects they would be 40 MB."""
    area = record_with_headers(500_000)
    sent = batch(
        compress(Compression.ZSTD, area), base_timestamp=base_timestamp, max_timestamp=base_timestamp + 1, attributes=4
    )
    assert len(sent) < 1000
    result = None
    tracemalloc.start()
    try:
        with suppress(InvalidRecords):
            result = check_thoroughly(memoryview(bytearray(sent)), rules, now_ms=NOW)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8_000_000
    assert (result is None) == (rules.compacted or base_timestamp != NOW)
    if result is not None:
        [record] = decode_records(result.buffer)
        assert record.headers == ((b"", None),) * 500_000
