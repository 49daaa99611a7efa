"""One log among others on a disk that fails, a ledger of what was promised about it, and what must hold whatever failed.

A `World` writes every record with a value of its own, so that each can be told from all others, and notes in its `Ledger`
what became of it:

    required    acknowledged, not to be dropped: there, once, at its offset
    optional    the log was asked to drop it, and that failed or was not asked durably: there or not, but at its offset
    refused     the append failed: nowhere (nor after a restart, unless the log directory went offline over it)

`check` holds a log against the ledger and against itself: offsets in order without a second batch for any, indexes, leader
epochs, producers and aborted transactions as the batches say.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.replication.config import LogConfig
from ottla.replication.log.cleaner import LogCleaner
from ottla.replication.log.compaction import Limits
from ottla.replication.log.faults import Fault as Kind
from ottla.replication.log.faults import classify
from ottla.replication.log.names import LOG_SUFFIX
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.producer_snapshots import marker_of
from ottla.replication.log.producers import ProducerStateManager
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.failing_calls import FailingCalls
from ottla.replication.log.tests.logs import find
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import BatchHeader, Record, crc_is_valid, iter_batches

ROOT = "/logs"
NOW_MS = 1_000_000
LEADER_EPOCH = 3
MARKER = b"marker"  # stands for the one record of every control batch


class Batch(NamedTuple):
    """A batch on its way into the log: its values, in order, and its bytes without an offset."""

    values: list[bytes]
    data: bytes

    def buffer(self) -> memoryview:
        return memoryview(bytearray(self.data))


class Ledger:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.required: dict[int, bytes] = {}
        self.ever: dict[int, set[bytes]] = {}  # what has ever been acknowledged at an offset
        self.refused: set[bytes] = set()
        self.uncertain: set[bytes] = set()  # refused while the directory went offline
        self.optional: set[int] = set()
        self.has_gaps = False

    def acknowledge(self, first_offset: int, values: Sequence[bytes]) -> None:
        for offset, value in enumerate(values, first_offset):
            assert offset not in self.required, f"offset {offset} is given out twice"
            self.required[offset] = value
            self.ever.setdefault(offset, set()).add(value)
            self.optional.discard(offset)
        self.refused.difference_update(values)

    def refuse(self, values: Sequence[bytes], *, is_offline: bool) -> None:
        if is_offline:
            self.uncertain.update(values)
        else:
            self.refused.update(set(values) - {MARKER})

    def make_optional(self, is_concerned: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.required if is_concerned(offset)]:
            self.optional.add(offset)
            del self.required[offset]

    def settle_optional(self, log_end_offset: int) -> None:
        """Records that were to be dropped and lie beyond the end have been dropped."""
        self.optional = {offset for offset in self.optional if offset < log_end_offset}


class World:
    """A log called topic-0 and another beside it. `failing` is where calls fail."""

    def __init__(self, calls: FailingCalls, *, open_files_max: int = 64, **config: Any) -> None:
        self.calls = calls
        self.storage = MemoryStorage(lambda: NOW_MS)
        self.storage.make_directory(ROOT)
        self.directory = LogDirectory(ROOT, self.storage, open_files_max=open_files_max)
        self.config = LogConfig(**{"segment_bytes": 700, "index_interval_bytes": 100, **config})
        self.log = self._create("topic")
        self.other = self._create("other")
        self.storage.sync_directory(ROOT)
        self.ledger = Ledger()
        self.open_files_max = open_files_max
        self.leader_epoch = LEADER_EPOCH
        self.keys: dict[bytes, bytes] = {}
        self._count = 0
        self._unsent: dict[str, Batch] = {}
        self.recovery_point = 0  # as the checkpoint has it
        self.is_loaded = True
        self._passes = 0
        self.cleaner = LogCleaner(_at_once, lambda: NOW_MS + self._passes * 3_600_000, lambda: None)

    def _create(self, topic: str) -> PartitionLog:
        return PartitionLog.create(self.directory, topic, 0, self.config, topic_id=bytes(16), now_ms=NOW_MS)

    # --- batches ------------------------------------------------------------------------------------------------------

    def values(self, count: int) -> list[bytes]:
        self._count += count
        return [b"record %d." % number for number in range(self._count - count, self._count)]

    def batch(
        self, count: int = 1, *, padding: int = 0, compression: Compression = Compression.NONE, **options: Any
    ) -> Batch:
        values = self.values(count)
        self.keys.update((value, b"key %d" % (index % 3)) for index, value in enumerate(values))
        records = [
            Record(index, self._timestamp(value), b"key %d" % (index % 3), value + b"x" * padding)
            for index, value in enumerate(values)
        ]
        return Batch(values, encode_batch(records, compression=compression, **options))

    @staticmethod
    def _timestamp(value: bytes) -> int:
        number = int(value[7:-1])
        return NOW_MS - 50_000 + number * 10 - (35 if number % 4 == 3 else 0)  # every fourth is late

    @staticmethod
    def marker(kind: ControlType, *, producer_id: int = 7, epoch: int = 0, **options: Any) -> Batch:
        data = encode_end_txn_marker(
            EndTxnMarker(kind, 0), timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=epoch, **options
        )
        return Batch([MARKER], data)

    # --- operations that note what they promise -----------------------------------------------------------------------

    def append(self, batch: Batch, origin: Any = None) -> int:
        """As leader. Refused batches are noted; the error goes on."""
        options = {} if origin is None else {"origin": origin}
        try:
            info = self.log.append_as_leader(
                batch.buffer(), leader_epoch=self.leader_epoch, now_ms=NOW_MS, guard=NOT_REQUIRED, **options
            )
        except KafkaError:
            self.ledger.refuse(batch.values, is_offline=not self.directory.is_online)
            raise
        assert not info.duplicate, f"{batch.values} counts as written before"
        self.ledger.acknowledge(info.first_offset, batch.values)
        return info.first_offset

    def resend(self, name: str, make: Callable[[], Batch], origin: Any = None) -> int:
        """Append a new batch, or the one of this name that was refused last time, as a producer does."""
        batch = self._unsent.pop(name, None) or make()
        self._unsent[name] = batch
        offset = self.append(batch, origin)
        del self._unsent[name]
        return offset

    def follow(self, batches: Sequence[Batch]) -> None:
        """Append what a leader sent; `batches` have offsets. They go together or not at all."""
        data = b"".join(batch.data for batch in batches)
        try:
            self.log.append_as_follower(memoryview(bytearray(data)), now_ms=NOW_MS)
        except KafkaError:
            for batch in batches:
                self.ledger.refuse(batch.values, is_offline=not self.directory.is_online)
            raise
        position = 0
        for batch in batches:
            header = next(iter_batches(batch.data))[0]
            self.ledger.acknowledge(header.base_offset, batch.values)
            position += len(batch.data)

    def truncate(self, offset: int) -> None:
        self.ledger.make_optional(lambda each: each >= offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.log.truncate_to(offset, now_ms=NOW_MS)
        self.ledger.optional = {each for each in self.ledger.optional if each < offset}

    def flush(self) -> None:
        self.log.flush()
        self.other.flush()
        self.recovery_point = self.log.recovery_point

    def restart(self) -> None:
        """Leave in order and come back: no file is open, and the log knows only the files."""
        for log in (self.log, self.other):
            log.flush()
            log.close()
        self.recovery_point = self.log.log_end_offset
        log_start_offset = self.log.log_start_offset
        self.directory = LogDirectory(ROOT, self.storage, open_files_max=self.open_files_max)
        options = LoadOptions(log_start_offset, self.recovery_point, True, NOW_MS)
        self.log = PartitionLog.load(self.directory, "topic-0", self.config, options)
        options = LoadOptions(0, self.other.log_end_offset, True, NOW_MS)
        self.other = PartitionLog.load(self.directory, "other-0", self.config, options)

    def reload(self, *, clean: bool) -> None:
        """Load the log through new objects, as a start of the broker does; the old ones are of no use any more."""
        self.is_loaded = False
        log_start_offset = self.log.log_start_offset
        directory = LogDirectory(ROOT, self.storage, open_files_max=self.open_files_max)
        options = LoadOptions(log_start_offset, self.recovery_point, clean, NOW_MS)
        log = PartitionLog.load(directory, "topic-0", self.config, options)
        self.log, self.directory, self.is_loaded = log, directory, True
        self.storage.fail = None
        self.other = PartitionLog.load(directory, "other-0", self.config, LoadOptions(0, 0, False, NOW_MS))

    def compact(self) -> None:
        """One pass of the cleaner over what can be cleaned."""
        log = self.log
        self._passes += 1  # each an hour later, when a pass that was put off is due
        found = self.cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
        if found is not None:
            self.ledger.has_gaps = True
            later: set[bytes] = set()
            for offset in sorted((o for o in self.ledger.required if o < found.uncleanable_offset), reverse=True):
                key = self.keys.get(self.ledger.required[offset], b"")
                if key in later:
                    self.ledger.make_optional(lambda each, offset=offset: each == offset)  # type: ignore[misc]
                later.add(key)
            _drive(self.cleaner.clean(found, Limits(1_000_000, 500)))

    # --- faults -------------------------------------------------------------------------------------------------------

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Calls are counted here, and fail as they are told to."""
        self.storage.fail = self.calls
        try:
            yield
        finally:
            self.storage.fail = None

    def evict(self) -> None:
        """Let no file of the log be open, where the cache is small."""
        if self.open_files_max == 1:
            for _ in range(3):
                self.other.append_as_leader(self._stray_batch(), leader_epoch=LEADER_EPOCH, now_ms=NOW_MS)
                self.other.save_indexes()

    @staticmethod
    def _stray_batch() -> memoryview:
        return memoryview(bytearray(encode_batch([Record(0, NOW_MS, b"key", b"other")])))

    # --- what comes after ---------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """A smaller append and one to another log: they work, or the directory is offline and says so."""
        small = self.batch(1)
        if self.directory.is_online:
            self.append(small)
            self.other.append_as_leader(self._stray_batch(), leader_epoch=LEADER_EPOCH, now_ms=NOW_MS)
            return
        for log in (self.log, self.other):
            with suppress_storage_error():
                log.append_as_leader(small.buffer(), leader_epoch=self.leader_epoch, now_ms=NOW_MS)
                raise AssertionError("an offline directory takes records")

    def check_everything(self, seed: int) -> None:
        """The log as it is, and as it comes back after a kill, a power cut and an orderly shutdown."""
        is_online = self.directory.is_online
        self.ledger.settle_optional(self.log.log_end_offset if is_online else 2**63)
        recovery_point = self.log.recovery_point if is_online and seed % 2 else self.recovery_point
        self._after_kill(recovery_point)
        for number in range(2):
            self._after_power_cut(recovery_point, Random(seed * 2 + number))
        if is_online:
            check(self.log, self.ledger)
            self._after_orderly_shutdown()

    def _options(self, recovery_point: int, *, clean: bool) -> LoadOptions:
        return LoadOptions(
            log_start_offset=self.log.log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=clean,
            now_ms=NOW_MS,
        )

    def load(self, storage: MemoryStorage, recovery_point: int, *, clean: bool) -> PartitionLog:
        directory = LogDirectory(ROOT, storage, open_files_max=self.open_files_max)
        name = next(name for name in storage.names(ROOT) if name.startswith("topic-0"))
        return PartitionLog.load(directory, name, self.config, self._options(recovery_point, clean=clean))

    def _after_kill(self, recovery_point: int) -> None:
        storage = self.storage.copy()
        storage.kill()
        with told("after a kill"):
            log = self.load(storage, recovery_point, clean=False)
            check(log, self.ledger, is_restarted=True)
            check_still_usable(log, self.leader_epoch)

    def _after_power_cut(self, recovery_point: int, random: Random) -> None:
        storage = self.storage.copy()
        storage.crash(random)
        with told("after a power cut"):
            log = self.load(storage, recovery_point, clean=False)
            check(log, self.ledger, durable_to=recovery_point)
            check_still_usable(log, self.leader_epoch)

    def _after_orderly_shutdown(self) -> None:
        with told("after an orderly shutdown"):
            self.log.flush()
            self.log.close()
            log = self.load(self.storage, self.log.recovery_point, clean=True)
            assert log.log_end_offset == self.log.log_end_offset
            check(log, self.ledger)
            check_still_usable(log, self.leader_epoch)


async def _at_once(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _drive(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits. It takes no turns, even on a slow machine."""
    with suppress(StopIteration), patch("ottla.wire.time_slice.SLICE_S", math.inf):
        work.send(None)
        raise AssertionError("it waits for something")


@contextmanager
def told(when: str) -> Iterator[None]:
    """Add to exceptions a note that says when they were raised."""
    try:
        yield
    except BaseException as error:
        error.add_note(when)
        raise


@contextmanager
def suppress_storage_error() -> Iterator[None]:
    """Suppress KAFKA_STORAGE_ERROR, which a broken disk may lead to, and no other error."""
    try:
        yield
    except KafkaError as error:
        assert error.code == ErrorCode.KAFKA_STORAGE_ERROR, error


# Calls after which files and memory may not agree any more, whatever the error: a sync that failed proves nothing later,
# and what is cut off or renamed half-way cannot be taken back. They need no descriptor and no room, so that such errors
# of them mean a disk that is broken.
IRREPARABLE = frozenset(("sync", "sync_directory", "truncate", "rename"))


def attempt(world: World, operation: Callable[[], object], *, is_judged: bool = True) -> bool:
    """Carry out an operation whose calls may fail; whether it succeeded. It may end with a storage error only.

    A single error that passes, or a disk that is full, does not take the directory offline; one that stays away is told.
    Of operations that are not judged the caller decides that.
    """
    try:
        with world.failing():
            operation()
        succeeded = True
    except (KafkaError, OSError) as error:
        assert isinstance(error, OSError) or error.code == ErrorCode.KAFKA_STORAGE_ERROR, error
        assert world.calls.failed, "an operation failed though no call did"
        succeeded = False
    calls = world.calls
    if len(calls.faults) == 1 and calls.failed and is_judged:
        is_broken = classify(OSError(calls.faults[0].errno, "")) is Kind.BROKEN
        if not is_broken and calls.failed[0].operation not in IRREPARABLE:
            assert world.directory.is_online, f"offline over {world.directory.failure}"
        if is_broken and not succeeded:
            assert not world.directory.is_online, "a broken disk is not offline"
    return succeeded


# --- what must hold ---------------------------------------------------------------------------------------------------


class Placed(NamedTuple):
    """A batch in a segment's file."""

    header: BatchHeader
    position: int
    data: bytes
    records: list[Record]


def placed_batches(log: PartitionLog) -> list[list[Placed]]:
    """The batches of each segment, straight from the files."""
    storage = log.log_directory.storage
    found = []
    for segment in log.segments:
        data = storage.read(segment.path(LOG_SUFFIX))
        assert len(data) == segment.size, f"{segment} has a file of {len(data)} bytes"
        batches, end_of_last = [], 0
        for header, start, end in iter_batches(data):
            assert crc_is_valid(data, start, end), f"checksum at {start} of {segment}"
            batches.append(Placed(header, start, data[start:end], list(decode_records(data[start:end]))))
            end_of_last = end
        assert end_of_last == len(data), f"{len(data) - end_of_last} bytes left over in {segment}"
        found.append(batches)
    return found


def check(log: PartitionLog, ledger: Ledger, *, is_restarted: bool = False, durable_to: int | None = None) -> None:
    """Everything that must hold of a log. `durable_to`: the power was cut, and only what is below was safe."""
    segments = placed_batches(log)
    batches = [placed for segment in segments for placed in segment]
    _check_offsets(log, segments, ledger)
    _check_ledger(log, batches, ledger, durable_to=durable_to, is_restarted=is_restarted)
    _check_reads(log, batches)
    _check_indexes(log, segments)
    _check_epochs(log, batches)
    _check_producers(log, batches, is_power_cut=durable_to is not None)


def _check_offsets(log: PartitionLog, segments: list[list[Placed]], ledger: Ledger) -> None:
    next_offset = log.segments[0].base_offset
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases)), f"segments at {bases}"
    for segment, batches, end in zip(log.segments, segments, [*bases[1:], log.log_end_offset], strict=True):
        for placed in batches:
            header = placed.header
            assert header.base_offset >= max(next_offset, segment.base_offset), f"{header} where {next_offset} was due"
            if not ledger.has_gaps:
                assert header.base_offset == next_offset, f"gap before {header}"
            next_offset = header.next_offset
        assert next_offset <= end, f"{segment} goes beyond {end}"
    if not ledger.has_gaps:
        assert next_offset == log.log_end_offset, f"batches end at {next_offset}, the log at {log.log_end_offset}"


def _check_ledger(
    log: PartitionLog, batches: Sequence[Placed], ledger: Ledger, *, durable_to: int | None, is_restarted: bool
) -> None:
    present: dict[int, bytes] = {}
    for placed in batches:
        for record in placed.records:
            present[record.offset] = MARKER if placed.header.is_control else (record.value or b"").rstrip(b"x")
    refused = ledger.refused.intersection(present.values())
    assert not refused, f"{refused} were refused"
    seen: set[bytes] = set()
    for offset, value in present.items():
        if value in ledger.uncertain and value != ledger.required.get(offset):
            assert value not in seen, f"{value!r} is there twice"
            seen.add(value)
            assert offset not in ledger.required, f"{value!r} in place of {ledger.required[offset]!r}"
            continue
        allowed = ledger.ever.get(offset, set())
        assert value in allowed, f"offset {offset} has {value!r}, not one of {allowed}"
        if durable_to is None and offset in ledger.required:
            assert value == ledger.required[offset], f"offset {offset} has {value!r} again"
        if durable_to is None and offset not in ledger.required:
            assert offset in ledger.optional, f"{value!r} at {offset} was dropped and is there again"
    for offset, value in ledger.required.items():
        if offset >= log.log_start_offset and (durable_to is None or offset < durable_to):
            assert present.get(offset) == value, f"offset {offset} has {present.get(offset)!r} instead of {value!r}"
    highest = max(ledger.required, default=-1)
    assert durable_to is not None or is_restarted or log.log_end_offset > highest, f"ends at {log.log_end_offset}"


def _check_reads(log: PartitionLog, batches: Sequence[Placed]) -> None:
    by_base = {placed.header.base_offset: placed for placed in batches}
    offset, seen = log.log_start_offset, []
    while offset < log.log_end_offset:
        read = log.read(offset, 250, upper_bound=log.log_end_offset, at_least_one_batch=True)
        data = read.region if isinstance(read.region, bytes) else read.region.read()
        headers = [header for header, _, _ in iter_batches(data)]
        if not headers:
            break
        for header, start, end in iter_batches(data):
            assert data[start:end] == by_base[header.base_offset].data
        seen += [header.base_offset for header in headers]
        offset = headers[-1].next_offset
    expected = [each.header.base_offset for each in batches if each.header.next_offset > log.log_start_offset]
    assert seen == expected, f"read {seen} instead of {expected}"


def _check_indexes(log: PartitionLog, segments: list[list[Placed]]) -> None:
    ends_of = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset + 1]
    for segment, batches, end_of in zip(log.segments, segments, ends_of, strict=True):
        if end_of <= log.log_start_offset:
            continue  # nobody reads there any more, and it is given up with the next look of retention
        last_at = {placed.position: placed.header.last_offset for placed in batches}
        index = segment.offset_index
        for slot in range(index.entries):
            relative_offset, position = index.entry(slot)
            assert last_at.get(position) == segment.base_offset + relative_offset, f"index entry {slot} of {segment}"
        latest, highest_at = -1, {}
        for placed in batches:
            latest = max(latest, placed.header.max_timestamp)
            highest_at[placed.header.last_offset] = latest
        times = segment.time_index
        for slot in range(times.entries):
            timestamp, relative_offset = times.entry(slot)
            offset = segment.base_offset + relative_offset
            assert highest_at.get(offset) == timestamp, f"time index entry {slot} of {segment}: {timestamp} at {offset}"
        assert segment.max_timestamp == latest, f"largest timestamp of {segment}"
        ends = [placed.header.last_offset for placed in batches]
        for offset in range(segment.base_offset, (ends[-1] if ends else segment.base_offset) + 2):
            slot = bisect_left(ends, offset)
            expected = batches[slot].position if slot < len(batches) else None
            assert segment.locate(offset) == expected, f"place of offset {offset} in {segment}"
    _check_timestamps(log, [placed for batches in segments for placed in batches])


def _check_timestamps(log: PartitionLog, batches: Sequence[Placed]) -> None:
    records = [record for placed in batches for record in placed.records if record.offset >= log.log_start_offset]
    timestamps = sorted({record.timestamp for record in records})
    for timestamp in [*timestamps[:: max(1, len(timestamps) // 5)], NOW_MS * 2]:
        found = find(log, timestamp)
        expected = next((record.offset for record in records if record.timestamp >= timestamp), None)
        assert (None if found is None else found.offset) == expected, f"first record from {timestamp} on"


def _check_epochs(log: PartitionLog, batches: Sequence[Placed]) -> None:
    for placed in batches:
        header = placed.header
        if header.base_offset >= log.log_start_offset:
            known = log.epoch_for_offset(header.base_offset)
            assert known == header.partition_leader_epoch, f"epoch {known} of {header}"
    if batches:
        assert log.latest_leader_epoch >= batches[-1].header.partition_leader_epoch


def _check_producers(log: PartitionLog, batches: Sequence[Placed], *, is_power_cut: bool) -> None:
    reference = ProducerStateManager()
    aborted = []
    for placed in batches:
        header = placed.header
        if header.base_offset < log.log_start_offset:
            continue
        aborted += reference.apply(
            reference.note(header, marker_of(header, placed.data) if header.is_control else None)
        )
    known = log.producers
    if log.log_start_offset == 0:
        assert set(known) == set(reference.producers), f"producers {sorted(known)}"
        for producer_id, entry in reference.producers.items():
            assert _essence(known[producer_id]) == _essence(entry), f"{_essence(known[producer_id])} {_essence(entry)}"
        found = log.aborted_transactions(log.log_start_offset, log.log_end_offset).transactions
        expected = [each for each in aborted if each.last_offset >= log.log_start_offset]
        assert [each[:3] for each in found] == [each[:3] for each in expected], f"aborted transactions {found}"
        return
    for producer_id, entry in reference.producers.items():  # more may be known, from records that are gone
        if is_power_cut and not entry.batches:
            continue  # as with Kafka, the last snapshot may not have reached the disk, and earlier ones were given up
        assert producer_id in known, f"producer {producer_id} is forgotten"
        assert known[producer_id].epoch == entry.epoch
        if entry.batches:
            assert _essence(known[producer_id])[3] == _essence(entry)[3], f"producer {producer_id}"


def _essence(entry: Any) -> tuple[Any, ...]:
    # Of its last batches only the newest survives a snapshot, with the time of the marker that came after it.
    return entry.epoch, entry.last_sequence, entry.current_txn_first_offset, [each[:3] for each in entry.batches[-1:]]


def check_still_usable(log: PartitionLog, leader_epoch: int) -> None:
    """Records can be appended, and the next offset is free."""
    before = log.log_end_offset
    batch = memoryview(bytearray(encode_batch([Record(0, NOW_MS, b"key", b"afterwards")])))
    info = log.append_as_leader(batch, leader_epoch=leader_epoch + 1, now_ms=NOW_MS)
    assert info.first_offset == before
    with suppress(StopIteration):
        read = log.read(before, 10_000, upper_bound=log.log_end_offset, at_least_one_batch=True)
        data = read.region if isinstance(read.region, bytes) else read.region.read()
        assert next(iter_batches(data))[0].base_offset == before
