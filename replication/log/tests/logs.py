"""What the tests of logs share: batches, logs in memory, and reading everything back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.replication.config import LogConfig
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory, Storage
from ottla.replication.log.time_search import TimestampedOffset, TimestampSearch
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import BatchHeader, Record, crc_is_valid, iter_batches

TOPIC_ID = bytes(range(16))
NOW_MS = 1_000_000
ROOT = "/logs"
NAME = "topic-0"


def batch(*timestamps: int, value: bytes = b"value", **options: Any) -> memoryview:
    """A batch with one record per timestamp, as a producer sends it."""
    records = [Record(index, timestamp, b"key", value) for index, timestamp in enumerate(timestamps or (NOW_MS,))]
    return memoryview(bytearray(encode_batch(records, **options)))


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **options: Any) -> memoryview:
    """A batch of an idempotent or transactional producer."""
    return batch(*(NOW_MS,) * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def keyed(*pairs: tuple[bytes, bytes | None], timestamp: int = NOW_MS, **options: Any) -> memoryview:
    """Batch of records with these keys and values."""
    records = [Record(index, timestamp, key, value) for index, (key, value) in enumerate(pairs)]
    return memoryview(bytearray(encode_batch(records, **options)))


def marker(
    kind: ControlType = ControlType.COMMIT, *, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0
) -> memoryview:
    """The batch a transaction coordinator ends a transaction with."""
    return memoryview(
        bytearray(
            encode_end_txn_marker(
                EndTxnMarker(kind, coordinator_epoch),
                timestamp_ms=NOW_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )
    )


def log_directory(storage: Storage | None = None, path: str = ROOT, *, open_files_max: int = 64) -> LogDirectory:
    """A log directory, in memory unless told otherwise."""
    storage = MemoryStorage() if storage is None else storage
    if not storage.is_directory(path):
        storage.make_directory(path)
    return LogDirectory(path, storage, open_files_max=open_files_max)


def new_log(directory: LogDirectory | None = None, **config: Any) -> PartitionLog:
    """An empty log."""
    return PartitionLog.create(
        directory or log_directory(), "topic", 0, LogConfig(**config), topic_id=TOPIC_ID, now_ms=NOW_MS
    )


def load(
    log: PartitionLog,
    *,
    clean: bool = True,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    now_ms: int = NOW_MS,
    is_recovery_point_known: bool = True,
    first_dirty_offset: int = -1,
) -> PartitionLog:
    """The same log after a restart, through new objects; checkpoints as they would have been."""
    directory = LogDirectory(log.log_directory.path, log.log_directory.storage)
    options = LoadOptions(
        log_start_offset=log.log_start_offset if log_start_offset is None else log_start_offset,
        recovery_point=log.recovery_point if recovery_point is None else recovery_point,
        is_recovery_point_known=is_recovery_point_known,
        first_dirty_offset=first_dirty_offset,
        had_clean_shutdown=clean,
        now_ms=now_ms,
    )
    return PartitionLog.load(directory, log.directory.rpartition("/")[2], log.config, options)


def append(log: PartitionLog, *records: memoryview, epoch: int = 0, now_ms: int = NOW_MS) -> list[int]:
    """Append as leader what is checked thoroughly before; the base offsets. Transactions need not be verified."""
    return [
        log.append_as_leader(
            each,
            leader_epoch=epoch,
            now_ms=now_ms,
            checked=log.check_thoroughly(each, now_ms=now_ms),
            guard=NOT_REQUIRED,
        ).first_offset
        for each in records
    ]


def batches_of(data: bytes | memoryview) -> list[BatchHeader]:
    """Headers of the batches in `data`, each of which must be good and nothing left over."""
    headers = []
    position = 0
    for header, start, end in iter_batches(data):
        assert crc_is_valid(data, start, end)
        headers.append(header)
        position = end
    assert position == len(data)
    return headers


def contents(region: Any) -> bytes:
    """Bytes of what a read returned."""
    return region if isinstance(region, bytes) else region.read()


def read_batches(
    log: PartitionLog, start: int | None = None, *, upper_bound: int | None = None, max_bytes: int = 10_000
) -> list[BatchHeader]:
    """Every batch from `start` on, fetched piece by piece as a consumer does."""
    offset = log.log_start_offset if start is None else start
    bound = log.log_end_offset if upper_bound is None else upper_bound
    found: list[BatchHeader] = []
    while True:
        read = log.read(offset, max_bytes, upper_bound=bound, at_least_one_batch=True)
        headers = batches_of(contents(read.region))
        assert all(header.next_offset <= read.end_offset for header in headers)
        if not headers:
            return found
        found += headers
        offset = headers[-1].next_offset


def read_records(log: PartitionLog, start: int | None = None) -> list[Record]:
    """Every record."""
    offset = log.log_start_offset if start is None else start
    data = contents(log.read(offset, 2**31, upper_bound=log.log_end_offset).region)
    found = []
    while data:
        records = list(decode_records(data))
        found += [record for record in records if record.offset >= offset]
        header = next(iter_batches(data))[0]
        data = data[header.size_in_bytes :] if header.next_offset < log.log_end_offset else b""
        if not data and header.next_offset < log.log_end_offset:
            data = contents(log.read(header.next_offset, 2**31, upper_bound=log.log_end_offset).region)
    return found


def find(
    log: PartitionLog, timestamp: int, *, in_thread: Callable[[], None] = lambda: None
) -> TimestampedOffset | None:
    """The first record that is not older, or (MAX_TIMESTAMP) the latest; `in_thread` is called where a thread would work."""
    search = TimestampSearch(log, timestamp)
    while not search.advance():
        in_thread()
        search.run()
    return search.found


def offsets(headers: Iterable[BatchHeader]) -> list[int]:
    """Base offsets of batches."""
    return [header.base_offset for header in headers]


def segment_bases(log: PartitionLog) -> list[int]:
    """Base offsets of a log's segments."""
    return [segment.base_offset for segment in log.segments]
