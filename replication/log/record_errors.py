"""What is wrong with single records of a batch, in Kafka's words."""

from typing import Protocol

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import NO_TIMESTAMP, Record, TimestampType, wrap_int64

RECORD_ERRORS_MAX = 1_000  # listed for one batch; twenty thousand would make an answer of megabytes


class RecordRules(Protocol):
    """What a topic asks of single records; see `ValidationRules`."""

    @property
    def compacted(self) -> bool:
        """Whether each needs a key."""

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose times count."""

    @property
    def timestamp_before_max_ms(self) -> int:
        """How old a record may be."""

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far in the future."""


class InvalidRecords(KafkaError):
    """Refused for single records: the message and the (batch_index, message) pairs go to the client (Produce v8+)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class RecordErrors:
    """Collects what is wrong, in Kafka's words, since clients show them.

    It lists `RECORD_ERRORS_MAX` of them, and counts all. A client takes the general message for those not listed.
    """

    def __init__(self, rules: RecordRules, now_ms: int, topic_partition: str) -> None:
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
            text = _java_text(record, is_partial)
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


def _java_text(record: Record, is_partial: bool) -> str:
    # Kafka reads the records of a compressed batch without their keys and values, and clients see the difference in
    # this text.
    name, null_size = ("PartialDefaultRecord", -1) if is_partial else ("DefaultRecord", 0)
    key_size, value_size = (null_size if data is None else len(data) for data in (record.key, record.value))
    return (
        f"{name}(offset={record.offset}, timestamp={record.timestamp}, key={key_size} bytes, value={value_size} bytes)"
    )
