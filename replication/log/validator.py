"""The thorough half of the verdict about a produced batch: the checks of Kafka's UnifiedLog.append and LogValidator.

In Kafka's order, with Kafka's codes (each was asked of a real broker):

1. The request (`check_produce_request_records`): exactly one batch of magic 2 from Produce v3 on, zstd only from v7 on.
2. The batch: base offset 0, no larger than max.message.bytes, a valid checksum, a known codec; offset range and count
   agree; no control batch and no producer id without sequence from a client.
3. Its records, decompressed within a limit: exactly as many as the header says and not a byte more, and in a compressed
   batch none larger than max.decompressed.message.bytes, else INVALID_RECORD.
4. Each record: a key where the topic is compacted, a timestamp in range. These are the only refusals that say which
   records they mean (`InvalidRecords`); one bad record refuses the batch.
5. What the topic wants changed: the maximum timestamp and its type are corrected in place, another codec means a new
   batch, which must fit max.message.bytes as well.

The records of a compressed batch that stays as it is are walked while they are decompressed; whatever that finds is decompressed
as a whole, to say what it is. All of this is `check_thoroughly`. It may take long, needs no lock and knows no offsets: it can run in
a thread where `is_expensive` says so. `batch_checks.py` has the quick half, which finds nearly all batches good.
`PartitionLog` then gives offsets and a leader epoch, in a microsecond, to the buffer that the client sent or to the one made from
it.

Where Kafka has accidents, clients see the same codes: a codec that fails or does not exist, and compressed records with
offset deltas other than 0..n-1 are UNKNOWN_SERVER_ERROR; uncompressed ones with such deltas are accepted as they are.
Where Kafka is careless, this is not: a record in a compressed batch must be as long as it says, although Kafka skips
over most lengths there, because such a batch would stop every consumer that reads it; and what decompresses to more than the
limit is refused.

Message sets of magic 0 and 1 (Produce v0-2) become one batch with the codec the topic wants.
"""

from __future__ import annotations

from ottla.replication.log.batch_checks import (
    FAR,
    INLINE_WALKED_BYTES_MAX,
    LONG_MAX,
    AppendOrigin,
    CheckedRecords,
    TooManyForTheLoop,
    ValidationRules,
)
from ottla.wire.checksum import crc32c
from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.compression import Compression
from ottla.wire.decompression import TooLargeDecompressed
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import iter_records, lent_records_area, walkable
from ottla.wire.record_encoding import build_batch, encode_batch
from ottla.wire.record_walk import Buffer, read_varint, read_varlong
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    RecordsSummary,
    assign_timestamps,
    batch_size,
    check_records,
    corrupt,
    crc_is_valid,
    invalid,
    iter_batches,
    read_header,
    wrap_int64,
)

# All but the timestamp type, which the topic decides, and the bits that mean nothing.
_KEPT_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
# Bytes of a record at most: its length, timestamp and offset may have taken more than they need.
SAVED_BY_COUNTING_ANEW = 17
ONE_BY_ONE_INLINE_MAX = 1_000
RECORD_ERRORS_MAX = 1_000  # listed for one batch; twenty thousand would make an answer of megabytes
_new_tuple = tuple.__new__


def check_thoroughly(
    records: memoryview, rules: ValidationRules, *, now_ms: int, topic_partition: str = "", at_once: bool = False
) -> CheckedRecords:
    """Check everything in a batch except offsets. Raises KafkaError if the batch is refused.

    A writable buffer is changed in place, a read-only one is copied. With `at_once` raises `TooManyForTheLoop` if
    records must be decompressed twice, or very many checked one by one; coordinators' batches never raise it.
    """
    at_once = at_once and rules.origin is AppendOrigin.CLIENT
    size = batch_size(records, 0, len(records))
    if not size:
        raise invalid("Record batch has no batches at all")
    if records[MAGIC_OFFSET] != MAGIC_V2:
        return _check_message_set(records, rules, now_ms, topic_partition)
    # The order of the steps below is Kafka's. It decides which error a client sees for a batch with several faults.
    header = _check_batch(records, size, rules)
    source = header.attributes & COMPRESSION_MASK
    if source:
        max_timestamp = _checked_while_decompressed(records, size, header, rules, now_ms, at_once)
        if max_timestamp is not None:
            return _in_place(records, size, header, rules, now_ms if rules.timestamp_type else max_timestamp)
    with lent_records_area(records[:size], header, 0, rules.decompressed_bytes_max) as area:
        return _check_area(area, records, size, header, rules, now_ms, topic_partition, at_once)


def _checked_while_decompressed(
    records: memoryview, size: int, header: BatchHeader, rules: ValidationRules, now_ms: int, at_once: bool
) -> int | None:
    """Check a compressed batch while decompressing it; return its highest timestamp.

    Returns None if the batch is invalid or must be changed; `_check_area` then finds out which.
    """
    codec = Compression(header.attributes & COMPRESSION_MASK)
    if rules.compression not in (None, codec):
        return None
    # `is_expensive` has guessed that it is not longer.
    limit = min(INLINE_WALKED_BYTES_MAX, rules.decompressed_bytes_max) if at_once else rules.decompressed_bytes_max
    max_timestamp = None
    if rules.record_bytes_max >= limit:
        area = records[RECORDS_OFFSET:size]
        try:
            walked = walk_compressed(codec, area, limit, header.records_count, is_once=at_once)
        except TooLargeDecompressed:
            if at_once:
                raise TooManyForTheLoop from None
            raise
        summary = None if walked is None else _new_tuple(RecordsSummary, walked)
        if summary is not None and summary.offsets_are_consecutive:
            max_timestamp = _highest_timestamp(header, summary, rules, now_ms)
    if max_timestamp is None and at_once:
        raise TooManyForTheLoop
    return max_timestamp


def _check_area(
    area: Buffer,
    records: memoryview,
    size: int,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    topic_partition: str,
    at_once: bool,
) -> CheckedRecords:
    # Step 1: the records are whole and as many as the header says.
    summary = check_records(area, header.records_count)
    source = header.attributes & COMPRESSION_MASK
    if source:
        _check_record_sizes(area, rules)
    # Control records keep their form: a reader must not need a codec for them.
    target = source if rules.compression is None or header.attributes & CONTROL_FLAG else rules.compression
    stays = source == target
    # Step 2: keys and timestamps. The walk knows the smallest and the largest time and whether a key is missing, so
    # single records are looked at only if something is wrong, or may be.
    max_timestamp = _highest_timestamp(header, summary, rules, now_ms)
    if max_timestamp is None:
        # Produce hands such a batch to a thread.
        if at_once and header.records_count > ONE_BY_ONE_INLINE_MAX:
            raise TooManyForTheLoop
        max_timestamp = _check_each_record(area, header, rules, now_ms, topic_partition, bool(source) and stays)
    # Step 3: what the topic wants changed. LogAppendTime replaces the producer's times by the time of the append.
    if rules.timestamp_type:
        max_timestamp = now_ms
    if not stays:
        rebuilt = _rebuilt(area, header, summary, rules, Compression(target), max_timestamp)
        return _checked(rebuilt, rules, max_timestamp)
    # Kafka refuses this only where the batch keeps its codec; one that is built again is numbered again.
    if source and not summary.offsets_are_consecutive:
        raise _unexpected("Offsets of compressed records do not count from 0")
    return _in_place(records, size, header, rules, max_timestamp)


def _unexpected(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


# --- the batch --------------------------------------------------------------------------------------------------------


def _check_batch(records: memoryview, size: int, rules: ValidationRules) -> BatchHeader:
    is_client = rules.origin is AppendOrigin.CLIENT
    if size < RECORDS_OFFSET:
        raise corrupt(f"Record batch is corrupt (the size {size} is smaller than the overhead {RECORDS_OFFSET})")
    header = read_header(records)
    if is_client and header.base_offset != 0:
        raise invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    _check_size(size, rules)
    # Only after the size: summing up an oversized batch would be work for nothing.
    if crc32c(records[ATTRIBUTES_OFFSET:size]) != header.crc:
        raise corrupt(f"Record is corrupt (stored crc = {header.crc})")
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise _unexpected(f"Unknown compression type id: {header.attributes & COMPRESSION_MASK}")
    if size != len(records) and batch_size(records, size, len(records)):
        raise invalid("There is more than one batch")
    # Coordinators may write control batches, which clients may not.
    if is_client:
        _check_client_batch(header)
    return header


def _check_client_batch(header: BatchHeader) -> None:
    count = header.records_count
    if header.last_offset_delta < 0:
        raise invalid(f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]")
    if count <= 0:
        raise invalid(f"Invalid reported count for record batch: {count}")
    # The log takes the next offset from the delta, and consumers count on it.
    if header.last_offset_delta + 1 != count:
        raise invalid(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records {count}"
        )
    if header.attributes & CONTROL_FLAG:
        raise invalid("Clients are not allowed to write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise invalid(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
        )


def _check_size(size: int, rules: ValidationRules) -> None:
    if size > rules.max_message_bytes:
        limit = f"the maximum configured value of {rules.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {size} bytes exceeds {limit}")


# --- its records ------------------------------------------------------------------------------------------------------


def _check_record_sizes(area: Buffer, rules: ValidationRules) -> None:
    """Raise KafkaError if a record exceeds the topic's size limit; the records must be valid."""
    limit, position = rules.record_bytes_max, 0
    # Nearly never: by default the limit is beyond what is decompressed at all.
    while position + limit < len(area):
        length, position = read_varint(area, position)
        if length > limit:
            raise invalid(f"A record of {length} bytes exceeds the maximum of {limit}")
        position += length


def _highest_timestamp(header: BatchHeader, summary: RecordsSummary, rules: ValidationRules, now_ms: int) -> int | None:
    """Return the batch's highest timestamp if `summary` proves all records valid; None: check each record."""
    is_log_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    if is_log_append_time:
        # With this flag the header's time is that of all records, whatever their deltas say.
        lowest = highest = header.max_timestamp
    else:
        lowest = header.base_timestamp + summary.min_timestamp_delta
        highest = header.base_timestamp + summary.max_timestamp_delta
    if rules.timestamp_type:
        is_suspicious = is_log_append_time != 0
    else:
        is_suspicious = (
            # FAR keeps Python's unbounded numbers from differing with Java's, which wrap: near the ends each record is
            # looked at.
            lowest < max(now_ms - rules.timestamp_before_max_ms, -FAR)
            or highest > min(now_ms + rules.timestamp_after_max_ms, FAR)
            or (is_log_append_time != 0 and highest == NO_TIMESTAMP)
        )
    if not is_suspicious and not (rules.compacted and summary.has_null_key):
        # A producer may send times below -1, which mean no time either.
        return max(highest, NO_TIMESTAMP)
    return None


def _check_each_record(
    area: Buffer,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    topic_partition: str,
    is_partial: bool,
) -> int:
    """Check key and timestamp of each record; return the highest timestamp. Raises InvalidRecords."""
    is_log_append_time = header.is_log_append_time
    errors = RecordErrors(rules, now_ms, topic_partition)
    highest = NO_TIMESTAMP
    # All records are looked at even after an error, because the answer names each of them.
    # Without their headers, of which a record of a few compressed bytes may have millions.
    for index, record in enumerate(iter_records(walkable(area), header, headers_max=0)):
        errors.check(index, record, is_log_append_time, is_partial)
        highest = max(highest, record.timestamp)
    errors.raise_if_any()
    return highest


# --- what the topic wants changed -------------------------------------------------------------------------------------


def _in_place(
    records: memoryview, size: int, header: BatchHeader, rules: ValidationRules, max_timestamp: int
) -> CheckedRecords:
    buffer: memoryview | bytearray = records
    # The offsets are written into the buffer, and this one does not allow that.
    if records.readonly:
        buffer = bytearray(records[:size])
    # What is cut off behind the batch must not get into the log.
    elif size != len(records):
        buffer = records[:size]
    flag = LOG_APPEND_TIME_FLAG if rules.timestamp_type else 0
    # Most batches are right as they are. A change costs another checksum over the whole batch.
    if header.attributes & LOG_APPEND_TIME_FLAG != flag or header.max_timestamp != max_timestamp:
        assign_timestamps(buffer, 0, size, header.attributes & _KEPT_ATTRIBUTES | flag, max_timestamp)
        header = read_header(buffer)
    return _new_tuple(CheckedRecords, (buffer, header, max_timestamp, max_timestamp if flag else NO_TIMESTAMP))


def _rebuilt(
    area: Buffer,
    header: BatchHeader,
    summary: RecordsSummary,
    rules: ValidationRules,
    codec: Compression,
    max_timestamp: int,
) -> bytes:
    """Encode the batch again with codec `codec`; records keep their bytes unless offsets or timestamps are wrong."""
    _check_producer(header)
    is_log_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    _check_buildable_timestamps(area, header, summary)
    # Refused before it is built: the batch would take as much memory again as its records.
    if codec == Compression.NONE:
        _check_size(RECORDS_OFFSET + len(area) - SAVED_BY_COUNTING_ANEW * header.records_count, rules)
    attributes = header.attributes & TRANSACTIONAL_FLAG | (LOG_APPEND_TIME_FLAG if rules.timestamp_type else 0)
    # Offsets and times count as those of a new batch do, so none of the records has to become an object.
    if summary.offsets_are_consecutive and not is_log_append_time and not _first_timestamp_delta(area):
        header = header._replace(base_offset=0, attributes=attributes, max_timestamp=max_timestamp)
        return build_batch(area, header, codec, rules.compression_level)
    return encode_batch(
        iter_records(walkable(area), header, raw_headers=True),
        compression=codec,
        compression_level=rules.compression_level,
        timestamp_type=rules.timestamp_type,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )


def _check_buildable_timestamps(area: Buffer, header: BatchHeader, summary: RecordsSummary) -> None:
    base = header.base_timestamp
    if header.attributes & LOG_APPEND_TIME_FLAG:
        is_good = header.max_timestamp >= NO_TIMESTAMP
    elif base + summary.min_timestamp_delta >= NO_TIMESTAMP and base + summary.max_timestamp_delta <= LONG_MAX:
        return
    else:
        # Only where a sum leaves 64 bits: as in Java it wraps, and may be good again.
        records = iter_records(walkable(area), header, headers_max=0)
        is_good = all(record.timestamp >= NO_TIMESTAMP for record in records)
    if not is_good:
        raise _unexpected("Invalid negative timestamp")


def _first_timestamp_delta(area: Buffer) -> int:
    """Return the first record's timestamp delta; it is not 0 if the client did not count from its first record."""
    _, position = read_varint(area, 0)
    return read_varlong(area, position + 1)[0]


def _check_producer(header: BatchHeader) -> None:
    """Check producer id, epoch and sequence as Kafka's MemoryRecordsBuilder does."""
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise _unexpected("Cannot write transactional messages without a valid producer ID")
    elif header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0:
        raise _unexpected("Invalid negative producer epoch or sequence number")


def _checked(batch: bytes, rules: ValidationRules, max_timestamp: int) -> CheckedRecords:
    _check_size(len(batch), rules)
    return CheckedRecords(
        bytearray(batch), read_header(batch), max_timestamp, max_timestamp if rules.timestamp_type else NO_TIMESTAMP
    )


# --- message sets -----------------------------------------------------------------------------------------------------


def _check_message_set(
    records: memoryview, rules: ValidationRules, now_ms: int, topic_partition: str
) -> CheckedRecords:
    """Check a message set (magic 0 or 1), and convert it to one batch."""
    found = list(iter_batches(records))
    # First what Kafka checks of all entries, then the messages in them.
    source = 0
    for header, start, end in found:
        _check_size(end - start, rules)
        if not crc_is_valid(records, start, end):
            raise corrupt(f"Record is corrupt (stored crc = {header.crc})")
        codec = header.attributes & COMPRESSION_MASK
        if codec > Compression.ZSTD:
            raise _unexpected(f"Unknown compression type id: {codec}")
        _check_key_and_value(records, start, end)
        source = codec or source
    if source and len(found) > 1:
        raise invalid("Compressed outer record has more than one batch")

    accepted: list[Record] = []
    for header, start, end in found:
        if header.magic != found[0][0].magic:
            raise invalid(f"Batch magic {header.magic} is not the same as the first batch's magic byte")
        accepted += _check_messages(records, header, start, end, RecordErrors(rules, now_ms, topic_partition), rules)
    if any(record.timestamp < NO_TIMESTAMP for record in accepted):
        raise _unexpected("Invalid negative timestamp")
    max_timestamp = now_ms if rules.timestamp_type else max(record.timestamp for record in accepted)
    codec = Compression(source) if rules.compression is None else rules.compression
    # A lower bound of the size, before anything is built.
    if codec == Compression.NONE:
        _check_size(sum([len(each.key or b"") + len(each.value or b"") for each in accepted]), rules)
    batch = encode_batch(
        accepted,
        compression=codec,
        compression_level=rules.compression_level,
        timestamp_type=rules.timestamp_type,
        max_timestamp=max_timestamp,
    )
    return _checked(batch, rules, max_timestamp)


def _check_key_and_value(records: memoryview, start: int, end: int) -> None:
    from ottla.wire.legacy_records import read_message

    try:
        read_message(records, start, end, in_place=True)
    except KafkaError as error:
        raise _unexpected("Found invalid record structure") from error


def _check_messages(
    records: memoryview,
    header: BatchHeader,
    start: int,
    end: int,
    errors: RecordErrors,
    rules: ValidationRules,
) -> list[Record]:
    """Check one entry of a message set; return its messages, several if it is a wrapper (each has a checksum)."""
    from ottla.wire.legacy_records import read_inner_messages

    messages = read_inner_messages(records, start, end, rules.decompressed_bytes_max, in_place=True)
    for index, message in enumerate(messages):
        if message.magic != header.magic:
            errors.add(index, f"A record's magic {message.magic} does not match outer magic {header.magic}")
        elif not message.crc_is_valid:
            raise corrupt("Record is corrupt")
        else:
            errors.check(index, message.as_record(), header.is_log_append_time)
    errors.raise_if_any()
    return [message.as_record() for message in messages]


# --- refusals of single records ---------------------------------------------------------------------------------------


class InvalidRecords(KafkaError):
    """Error for refused records; its message and (batch_index, message) pairs go to the client (Produce v8+)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class RecordErrors:
    """Collector of errors of single records, in Kafka's words, which clients display.

    Keeps the first `RECORD_ERRORS_MAX` errors and counts all. Clients show the general message for the other records.
    """

    def __init__(self, rules: ValidationRules, now_ms: int, topic_partition: str) -> None:
        self._rules = rules
        self._now_ms = now_ms
        self._topic_partition = topic_partition
        self._errors: list[tuple[int, str]] = []
        self._count = 0
        self._code = ErrorCode.INVALID_RECORD

    def check(self, index: int, record: Record, is_log_append_time: bool, is_partial: bool = False) -> None:
        if self._rules.compacted and record.key is None:
            # A record without a key gets this error alone, whatever its time is.
            self.add(
                index, f"Compacted topic cannot accept message without key in topic partition {self._topic_partition}"
            )
            return
        reason = self._timestamp_error(record, is_log_append_time, is_partial)
        if reason is not None:
            self.add(index, reason)
            self._code = ErrorCode.INVALID_TIMESTAMP

    def add(self, index: int, reason: str) -> None:
        self._count += 1
        if self._count <= RECORD_ERRORS_MAX:
            self._errors.append((index, reason))

    def _timestamp_error(self, record: Record, is_log_append_time: bool, is_partial: bool) -> str | None:
        before, after = self._rules.timestamp_before_max_ms, self._rules.timestamp_after_max_ms
        if not self._rules.timestamp_type and record.timestamp != NO_TIMESTAMP:
            # As a Java long: without the wrap, times at the ends of the range would be judged otherwise than by Kafka.
            age_ms = wrap_int64(self._now_ms - record.timestamp)
            if age_ms <= before and wrap_int64(-age_ms) <= after:
                return None
            earliest, latest = wrap_int64(self._now_ms - before), wrap_int64(self._now_ms + after)
            return (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]"
            )
        if is_log_append_time:
            text = java_text(record, is_partial=is_partial)
            return f"Invalid timestamp type in message {text}. Producer should not set timestamp type to LogAppendTime."
        return None

    def raise_if_any(self) -> None:
        if not self._errors:
            return
        if self._code == ErrorCode.INVALID_TIMESTAMP:
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            shown = ", ".join(
                f"RecordError(batchIndex={index}, message='{reason}')" for index, reason in self._errors[:3]
            )
            message = (
                f"One or more records have been rejected due to {self._count} record errors in total, "
                f"and only showing the first three errors at most: [{shown}]"
            )
        raise InvalidRecords(self._code, message, self._errors)


def java_text(record: Record, *, is_partial: bool) -> str:
    """Return Kafka's text for a record in messages to clients."""
    # Kafka reads the records of a compressed batch without their keys and values, and clients see the difference in
    # this text.
    name, null_size = ("PartialDefaultRecord", -1) if is_partial else ("DefaultRecord", 0)
    key_size, value_size = (null_size if data is None else len(data) for data in (record.key, record.value))
    return (
        f"{name}(offset={record.offset}, timestamp={record.timestamp}, key={key_size} bytes, value={value_size} bytes)"
    )
