"""Record batches whose every field can be wrong, offering them, and reading back what is in the log then."""

import gzip
import struct
from collections.abc import Callable
from typing import Any

from compat_tests.differential.asking import produce
from compat_tests.differential.conversation import COORDINATOR_IS_COMING, Talk, Topic
from compat_tests.support.raw import varint

from ottla.wire.checksum import crc32c
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest

NO_LIMIT = str(2**63 - 1)
ALL_BYTES = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TIME = 1_000_000


def record(
    *,
    length: int | None = None,
    attributes: int = 0,
    time_delta: int = 0,
    offset_delta: int = 0,
    key: bytes | None = b"key",
    key_length: int | None = None,
    value: bytes | None = b"value",
    value_length: int | None = None,
    headers: bytes = b"",
    header_count: int = 0,
    rest: bytes = b"",
) -> bytes:
    """One record of magic 2; lengths and the count are right unless given. `headers` are encoded ones."""
    body = bytes([attributes]) + varint(time_delta) + varint(offset_delta)
    body += _bytes(key, key_length) + _bytes(value, value_length) + varint(header_count) + headers + rest
    return varint(len(body) if length is None else length) + body


def _bytes(data: bytes | None, length: int | None) -> bytes:
    natural = -1 if data is None else len(data)
    return varint(natural if length is None else length) + (data or b"")


def header(
    key: bytes | None, value: bytes | None, key_length: int | None = None, value_length: int | None = None
) -> bytes:
    return _bytes(key, key_length) + _bytes(value, value_length)


TWO_RECORDS = record() + record(offset_delta=1, time_delta=1)
USUAL = {
    "base_offset": 0,
    "length": None,
    "leader_epoch": -1,
    "magic": 2,
    "crc": None,
    "attributes": 0,
    "last_offset_delta": 1,
    "base_timestamp": TIME,
    "max_timestamp": TIME + 1,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "count": 2,
}

ONE = {"count": 1, "last_offset_delta": 0, "max_timestamp": TIME}


def batch(area: bytes = TWO_RECORDS, compress: Callable[[bytes], bytes] = bytes, **fields: int) -> bytes:
    """A batch of magic 2 with these header fields in place of the usual ones; lengths and checksum fit unless given."""
    given = USUAL | fields
    names = ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp")
    names += ("producer_id", "producer_epoch", "base_sequence", "count")
    covered = struct.pack(">hiqqqhii", *(given[name] for name in names)) + compress(area)
    length = len(covered) + 9 if given["length"] is None else given["length"]
    crc = crc32c(covered) if given["crc"] is None else given["crc"]
    return struct.pack(">qiibI", given["base_offset"], length, given["leader_epoch"], given["magic"], crc) + covered


def one(area: bytes, **fields: int) -> bytes:
    """A batch of what calls itself one record."""
    return batch(area, **(ONE | fields))


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def offer(talk: Talk, topic: Topic, records: bytes | None, label: str, partition: int = 0) -> Any:
    """Produces in the telling's version; notes the answer for the one partition without what is the same for all."""
    answer = talk.do(produce(topic, records, partition), talk.version)
    [told] = answer.responses[0].partition_responses
    noted = {"error_code": told.error_code, "base_offset": told.base_offset}
    noted |= {"log_append_time_ms": told.log_append_time_ms} if told.log_append_time_ms != -1 else {}
    noted |= {"error_message": told.error_message} if told.error_message is not None else {}
    if told.record_errors:
        noted["record_errors"] = [[each.batch_index, each.batch_index_error_message] for each in told.record_errors]
    talk.note(label, noted)
    return told


def fetch(topic: Topic, offset: int = 0, partition: int = 0, max_bytes: int = ALL_BYTES) -> FetchRequest:
    """Everything from an offset on, for any version."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[wanted])]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=ALL_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )


def read_back(talk: Talk, topic: Topic, partition: int = 0, version: int | None = None, offset: int = 0) -> None:
    """Notes the batches of a partition as the log has them, or as that version of Fetch is given them."""
    label = "in the log" if version is None else f"in the log, by Fetch v{version}"
    answer = talk.do(fetch(topic, offset, partition), version)
    [told] = answer.responses[0].partitions
    talk.note(label, told.error_code)
    talk.note_records(label, bytes(told.records or b""))


def transactional_id(talk: Talk) -> str:
    """A new one, whose coordinator is ready where there is one."""
    name = talk.name("transaction")
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    talk.until(request, lambda answer: answer.coordinators[0].error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE)
    loading = InitProducerIdRequest(transactional_id=talk.name("other"), transaction_timeout_ms=60_000)
    talk.until(loading, lambda answer: answer.error_code not in COORDINATOR_IS_COMING)
    return name


def new_producer(talk: Talk) -> int:
    """The id of a new idempotent producer. A broker that was just started has to be given some first."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = talk.until(request, lambda answer: answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert answer.error_code == 0, answer
    return int(answer.producer_id)
