"""The log of one replica (Kafka's UnifiedLog): segments in order, and the state of epochs and producers that follows from them.

Theory
    Offsets rise without end; the log holds [log_start_offset, log_end_offset) in segments of which only the last is
    written to. An append plans, then writes, as every change does (`segmented_log.py`): whatever can be refused is refused
    before the one write, and what is known of the records (indexes, leader epochs, producers) follows in memory and is
    written later. Where the disk is broken the whole log directory goes offline, and every call answers KAFKA_STORAGE_ERROR.

    What only reads is in `log_reader.py`, and how a log gets to the disk in `durable_log.py`.

Who may call what, where
    One task owns a log and calls it without awaiting in between: the event loop. Nothing here waits for the disk to have
    written; `durable_log.py` says how that is split between the loop and threads.

    Segments below the last one do not change, so a thread may read their files too (the cleaner does). Loading happens in a
    thread, which is safe because no other code refers to the log yet. `flush()` and `close()` wait for the disk, for shutdown
    and tests.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.batch_checks import AppendOrigin, CheckedRecords, ValidationRules
from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.checkpoints import encode_partition_metadata
from ottla.replication.log.index import RELATIVE_OFFSET_MAX
from ottla.replication.log.leader_epochs import LeaderEpochs
from ottla.replication.log.log_reader import guarded, translated
from ottla.replication.log.names import (
    DELETE_MARK,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    marked_directory_name,
    parse_partition_directory,
    partition_directory_name,
    partition_path,
    path_in,
)
from ottla.replication.log.producer_snapshots import ProducerSnapshots, encoded_producers, marker_of
from ottla.replication.log.producers import BatchMetadata, MarkerVersion, ProducerEntry, ProducerStateManager
from ottla.replication.log.recovery import LoadedLog, LoadOptions, load_log
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.segmented_log import SegmentedLog
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.transaction_index import AbortedTransaction
from ottla.replication.log.validator import check_thoroughly
from ottla.replication.random_ids import random_uuid
from ottla.wire.checksum import crc32c
from ottla.wire.control_batches import EndTxnMarker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import NO_TIMESTAMP, BatchHeader, crc_is_valid, iter_batches, unpack_header
from ottla.wire.settings import LONG_MAX

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.log.verification import VerificationGuard

EPOCH_MAX = 0x7FFFFFFF  # any leader's batches are taken
_FRONT = struct.Struct(">qii")  # base offset, length, leader epoch: nothing that the checksum covers
new_tuple = tuple.__new__  # past NamedTuple's keyword handling


class AppendInfo(NamedTuple):
    """Result of an append. If `flush_due`, acknowledge it only after the partition reports that it is on disk."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    flush_due: bool


class PartitionLog(SegmentedLog):
    """Log of one replica; the module's docstring says which methods may run in which thread."""

    __slots__ = (
        "_coordinator_rules",
        "client_rules",
        "has_schema_checks",
        "is_flush_required",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log_directory: LogDirectory,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        parts: LoadedLog,
    ) -> None:
        super().__init__(log_directory, directory, partition_directory_name(topic, partition), config, parts)
        self.topic = topic
        self.partition = partition
        self.topic_id = parts.topic_id
        self.config = config

    @classmethod
    def create(
        cls,
        log_directory: LogDirectory,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: bytes | None,
        now_ms: int,
        log_start_offset: int = 0,
        name: str | None = None,
    ) -> PartitionLog:
        """Create an empty log in a directory called `name`, or after the partition. Raises OSError."""
        name = name or partition_directory_name(topic, partition)
        segment = create_log_directory(
            log_directory, name, topic, partition, topic_id=topic_id, log_start_offset=log_start_offset, now_ms=now_ms
        )
        directory = partition_path(log_directory.path, name)
        start = log_start_offset
        snapshots = ProducerSnapshots(log_directory.storage, directory)
        parts = LoadedLog([segment], start, start, start, LeaderEpochs(), None, snapshots, topic_id)
        return cls(log_directory, directory, topic, partition, config, parts)

    @classmethod
    def load(cls, log_directory: LogDirectory, name: str, config: LogConfig, options: LoadOptions) -> PartitionLog:
        """Load the log in directory `name`, and repair it if necessary. Raises OSError if the disk fails."""
        parsed = parse_partition_directory(name)
        assert parsed is not None, name
        directory = path_in(log_directory.path, name)
        parts = load_log(log_directory, directory, config, options)
        return cls(log_directory, directory, parsed.topic, parsed.partition, config, parts)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def config(self) -> LogConfig:
        """Topic settings in force; may be replaced at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        # Made again when the next batch comes: rules are the same for all batches until the settings change.
        self.client_rules: ValidationRules | None = None
        self._coordinator_rules: ValidationRules | None = None
        # Kept as attributes, because every append and every acknowledgement asks.
        self.is_flush_required = config.flush_messages < LONG_MAX or config.flush_ms < LONG_MAX
        self.has_schema_checks = config.validates_schemas

    @property
    def latest_leader_epoch(self) -> int:
        """Epoch of the last record or of a leader elected since; -1 before the first epoch."""
        return self._epochs.latest_epoch

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that has not ended below the high watermark; None if there is none."""
        producers = self._producers
        if producers is None:
            return None
        offset = producers.first_unstable_offset
        # Records of an open transaction may have been deleted, and no reader may be held before the start of the log.
        return None if offset is None else max(offset, self.log_start_offset)

    @property
    def oldest_transaction(self) -> ProducerEntry | None:
        """Producer whose open transaction began first; None if no transaction is open."""
        producers = self._producers
        if producers is None or not producers.ongoing:
            return None
        return producers.producers.get(next(iter(producers.ongoing.values())))

    # --- appending ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: CheckedRecords | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append a batch; check it unless `checked` is given. Raises KafkaError; the batch can then be retried.

        Batches of coordinators come from this broker, so that their checksums and records need no check.
        """
        # Looked at directly and not by `guarded`, which costs a call more for each append.
        if self.log_directory.failure is not None:
            raise self.log_directory.error()
        if checked is None and origin is AppendOrigin.COORDINATOR:
            checked = self._check_own(records)
        if checked is None:
            checked = self.check_thoroughly(records, now_ms=now_ms, origin=origin, at_once=True)
        buffer, header, max_timestamp, log_append_time_ms = checked
        # The offset is taken here and used up in `write`, without a wait in between. So no other append can get the
        # same one.
        first = self.log_end_offset
        _FRONT.pack_into(buffer, 0, first, header[1], leader_epoch)
        # Put together by hand: `_replace` would cost every batch more.
        batch = new_tuple(BatchHeader, (first, header[1], leader_epoch) + header[3:])
        duplicate = None
        try:
            # Without a producer id, which is field 9, there is no sequence to check and no transaction to note.
            if batch[9] < 0:
                self.write(buffer, (batch,), max_timestamp, now_ms)
            else:
                duplicate = self._append_with_producers(checked, batch, origin, transaction_version, guard, now_ms)
        except KafkaError:
            _FRONT.pack_into(buffer, 0, *header[:3])  # as it was, for the next try
            raise
        start, flush_due = self.log_start_offset, self.is_flush_required
        # A duplicate is answered as its original was, which may not be on the disk yet.
        if duplicate is not None:
            return AppendInfo(
                duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, start, True, flush_due
            )
        # The leader notes its epoch when it is elected, so this rarely finds news.
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first)
        last = first + batch[6]  # `batch.last_offset`, without a call
        return new_tuple(AppendInfo, (first, last, log_append_time_ms, start, False, flush_due))

    def validation_rules(self, origin: AppendOrigin = AppendOrigin.CLIENT) -> ValidationRules:
        """Return the validation rules for batches of this origin under the present topic settings."""
        if origin is AppendOrigin.CLIENT:
            rules = self.client_rules
            if rules is None:
                rules = self.client_rules = ValidationRules.from_config(self._config, origin)
            return rules
        rules = self._coordinator_rules
        if rules is None:
            rules = self._coordinator_rules = ValidationRules.from_config(self._config, AppendOrigin.COORDINATOR)
        return rules

    def _check_own(self, records: memoryview) -> CheckedRecords | None:
        """Check only the size of a batch that this broker has encoded.

        Returns None if the topic requires changes to the batch, or refuses it.
        """
        rules = self.validation_rules(AppendOrigin.COORDINATOR)
        if rules.compression or rules.timestamp_type or records.readonly or len(records) > rules.max_message_bytes:
            return None
        header = new_tuple(BatchHeader, unpack_header(records))
        return CheckedRecords(records, header, header.max_timestamp, NO_TIMESTAMP)

    def check_thoroughly(
        self, records: memoryview, *, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT, at_once: bool = False
    ) -> CheckedRecords:
        """Check everything in a batch that does not depend on offsets; thread-safe, because it does not use the log.

        With `at_once` raises `TooManyForTheLoop` if the check would take too long on the event loop.
        """
        rules = self.validation_rules(origin)
        return check_thoroughly(records, rules, now_ms=now_ms, topic_partition=self.name, at_once=at_once)

    def _append_with_producers(
        self,
        checked: CheckedRecords,
        batch: BatchHeader,
        origin: AppendOrigin,
        transaction_version: int,
        guard: VerificationGuard | None,
        now_ms: int,
    ) -> BatchMetadata | None:
        """Append a batch with a producer id; if it is a duplicate, append nothing and return the original batch."""
        producers = self.producer_state()
        is_client = origin is AppendOrigin.CLIENT
        # The producer's next batch, as nearly always: nothing can be refused, so no update has to be kept aside.
        if is_client and (entry := producers.in_order(batch)) is not None:
            self.write(checked.buffer, (batch,), checked.max_timestamp, now_ms)
            entry.add(batch)
            producers.map_end_offset = self.log_end_offset
            return None
        # Before the check of sequences: a batch that comes again would be out of order.
        if is_client and (duplicate := producers.duplicate(batch)) is not None:
            return duplicate
        # Everything that can be refused is found out before the write; after it there are only changes in memory.
        marker = marker_of(batch, checked.buffer) if batch.is_control else None
        if marker is not None:
            update = producers.check_marker(batch, marker, MarkerVersion.of(transaction_version))
        else:
            update = producers.check(batch, is_client=is_client, guard=guard)
        self.write(checked.buffer, (batch,), checked.max_timestamp, now_ms)
        self._note_aborted(producers.apply(update))
        producers.map_end_offset = self.log_end_offset
        return None

    def append_as_follower(self, records: memoryview, *, leader_epoch: int = EPOCH_MAX, now_ms: int) -> AppendInfo:
        """Append batches from the leader of `leader_epoch`. Raises KafkaError if nothing was appended."""
        self.log_directory.check_online()
        size, batches, markers = check_replicated(records, self.log_end_offset, leader_epoch, self.name)
        # The leader may have sent only a part of a batch, or batches of a later epoch.
        if not batches:
            return AppendInfo(-1, self.log_end_offset - 1, -1, self.log_start_offset, False, False)
        max_timestamp = max(batch.max_timestamp for batch in batches)
        # All batches with one write, as the leader sent them: both logs have the same bytes.
        self.write(records[:size], batches, max_timestamp, now_ms)
        for batch, marker in zip(batches, markers, strict=True):
            # A follower learns of epochs from the batches, so that it can answer for them when it leads.
            if batch.partition_leader_epoch >= 0:
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            # The leader has checked the sequences. This replica only remembers them, for the time when it leads.
            if batch.producer_id >= 0:
                producers = self.producer_state()
                self._note_aborted(producers.apply(producers.note(batch, marker)))
        if self._producers is not None:
            self._producers.map_end_offset = self.log_end_offset
        first, last = batches[0].base_offset, self.log_end_offset - 1
        return AppendInfo(first, last, -1, self.log_start_offset, False, self.is_flush_required)

    def write(
        self,
        buffer: memoryview | bytes | bytearray,
        batches: Sequence[BatchHeader],
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Write batches to the active segment, or to a new one if necessary."""
        config = self._config
        size_bytes = len(buffer)
        # A batch is never split, so it would fit into no segment.
        if size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append to partition {self.name},"
                f" which exceeds the maximum configured segment size of {config.segment_bytes}.",
            )
        segment = self._segments[-1]
        last = batches[-1]
        last_offset = last[0] + last[6]  # `last.last_offset`, without a call
        try:
            if should_roll(segment, config, size_bytes, max_timestamp, last_offset, now_ms):
                self._roll(now_ms, self._next_base_offset(batches[0].base_offset, last_offset))
                segment = self._segments[-1]
            segment.append(buffer, batches, config)
        # A thread makes the indexes again; until then the producer hears of a storage error and tries again.
        except DamagedIndexes as damage:
            self.on_damage(self, damage.segment)
            raise
        except (OSError, CorruptSegment) as error:
            raise translated(self, error) from error
        self.log_end_offset = last_offset + 1  # from here on the records are there, and nothing that follows can fail

    def _next_base_offset(self, first_offset: int, last_offset: int) -> int:
        # Segments follow without a gap, also where a follower's batches do not: recovery can tell one that lost its
        # end.
        end = self.log_end_offset
        return end if last_offset - end <= RELATIVE_OFFSET_MAX else first_offset

    def producer_state(self) -> ProducerStateManager:
        """Return the log's producer state, created if missing; callers must not change it."""
        producers = self._producers
        if producers is None:
            producers = self._producers = ProducerStateManager()
            producers.map_end_offset = self.log_end_offset
        return producers

    def _note_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        for transaction in aborted:
            self._segments[-1].append_aborted(transaction)

    # --- epochs, producers --------------------------------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch at or below `epoch` and its end offset; (-1, -1) if unknown."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the leader epoch of the record at `offset`; None if unknown."""
        return self._epochs.epoch_for_offset(offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that a leader begins to write in `epoch` at `start_offset`."""
        self._epochs.assign(epoch, start_offset)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Record that all in-sync replicas hold everything below `high_watermark`."""
        if self._producers is not None:
            self._producers.on_high_watermark(high_watermark)

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """States of all known producers by producer id."""
        return {} if self._producers is None else self._producers.producers

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget expired producers step by step; each step yields the number of forgotten producers."""
        return iter(()) if self._producers is None else self._producers.remove_expired(now_ms, expiration_ms)

    # --- the directory ------------------------------------------------------------------------------------------------

    @guarded
    def close(self) -> None:
        """Complete the files for a clean shutdown. Call `flush` first; the log stays readable."""
        for segment in self._segments:
            segment.close()
        if self._needs_producer_snapshot:
            self._snapshots.take(self.log_end_offset, self._producers)
        if self._epochs.is_dirty:
            self.epochs_to_write().write(self.log_directory.storage)

    @property
    def _needs_producer_snapshot(self) -> bool:
        # A log that never had a producer needs no snapshot. One that has old snapshots does, or a restart would begin
        # with the producers of one of those.
        return self._producers is not None or bool(self._snapshots.offsets)

    def producer_snapshot(self) -> tuple[str, bytes] | None:
        """Return the path and the contents of the producer snapshot that `close` would leave; None for none."""
        if not self._needs_producer_snapshot:
            return None
        return self._snapshots.path(self.log_end_offset), encoded_producers(self._producers)

    @guarded
    def rename_directory(self, name: str) -> None:
        """Rename the log's directory within its log directory."""
        directory = partition_path(self.log_directory.path, name)
        self.log_directory.storage.rename(self.directory, directory)
        self.moved_to(directory)

    def take_over_from(self, log: PartitionLog) -> None:
        """Adopt the state of `log`, whose records this log has copied; `log` must not be used afterwards."""
        self.config = log.config
        self.log_end_offset = log.log_end_offset  # there may be nothing between the last batch and the end
        self.increase_log_start_offset(log.log_start_offset)
        self._epochs, self._producers = log._epochs, log._producers
        # Their file lies in the other log's directory, so it has to be written here.
        self._epochs.mark_dirty()

    @guarded
    def note_producers_of(self, log: PartitionLog) -> None:
        """Save the producer state of `log`, which this log replaces.

        Some producers' records may be deleted, so that this log could not restore their states.
        """
        if log._producers is not None:
            self._snapshots.take(log.log_end_offset, log._producers, may_wait=True)

    @guarded
    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic id of a partition that has none."""
        path = path_in(self.directory, PARTITION_METADATA)
        self.log_directory.storage.write(path, encode_partition_metadata(topic_id))
        self.topic_id = topic_id
        self._name_changes += 1  # the next flush syncs it, also if one is under way


def create_log_directory(
    log_directory: LogDirectory,
    name: str,
    topic: str,
    partition: int,
    *,
    topic_id: bytes | None,
    log_start_offset: int,
    now_ms: int,
) -> Segment:
    """Create the directory `name` of an empty log; return its segment. After an OSError no such directory remains.

    The directory gets its name when it is complete, so that no half-made log has a valid name. Until then it has a
    unique name like that of a deleted partition: threads create several logs at a time, and long topic names are
    truncated. Leftovers of a failed attempt are removed like a deleted partition, at the next start at the latest.
    """
    storage = log_directory.storage
    directory = partition_path(log_directory.path, name)
    # A rename onto an empty directory succeeds, so the name has to be free before.
    if storage.exists(directory):
        raise FileExistsError(errno.EEXIST, "The log exists", directory)
    # Phase 1: everything under a name that no start takes for a log.
    unfinished = partition_path(
        log_directory.path, marked_directory_name(topic, partition, random_uuid().hex(), DELETE_MARK)
    )
    storage.make_directory(unfinished)
    try:
        segment = Segment.create(log_directory.files, unfinished, log_start_offset, created_ms=now_ms)
        storage.write(path_in(unfinished, LEADER_EPOCH_CHECKPOINT), b"")
        if topic_id is not None:
            storage.write(path_in(unfinished, PARTITION_METADATA), encode_partition_metadata(topic_id))
        # Phase 2: one atomic step from no log to a whole one.
        storage.rename(unfinished, directory)
    except OSError:
        try:
            storage.remove_tree(unfinished)
        except OSError:
            # What cannot be removed now is tried again soon, and at the next start because of its name.
            log_directory.remove_later(unfinished, now_ms)
        raise
    # The segment knows its files by the old name; a later open needs the new one.
    segment.move_to(directory)
    return segment


class ReplicatedBatches(NamedTuple):
    """Complete batches at the beginning of fetched data; `markers` has an entry for each of `batches`."""

    size: int
    batches: list[BatchHeader]
    markers: list[EndTxnMarker | None]


def check_replicated(records: memoryview, next_offset: int, leader_epoch: int, name: str) -> ReplicatedBatches:
    """Check a leader's batches: checksums, and rising offsets from `next_offset` on. Raises KafkaError.

    Leaves out an incomplete last batch, and all batches from an epoch later than `leader_epoch` on: a leader deposed
    during the fetch may send records that its successor has already replaced (KAFKA-18723).
    """
    found = ReplicatedBatches(0, [], [])
    size = 0
    for header, start, end in iter_batches(records):
        if header.partition_leader_epoch > leader_epoch:
            break
        if not crc_is_valid(records, start, end):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Batch at offset {header.base_offset} fails its checksum")
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Unexpected offset in append to {name}: {header.base_offset} is below {next_offset}",
            )
        next_offset = header.next_offset
        size = end
        found.batches.append(header)
        found.markers.append(marker_of(header, records[start:end]) if header.is_control else None)
    return found._replace(size=size)


def should_roll(
    segment: Segment, config: LogConfig, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
) -> bool:
    """Tell whether an append of this size, timestamp and last offset needs a new segment; may read the log."""
    if (
        segment.size > config.segment_bytes - size_bytes
        # segment.index.bytes bounds the indexes, as in Kafka. They store offsets relative to the segment, in 31 bits.
        or segment.indexes_are_full
        or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    ):
        return True
    # An empty segment cannot be too old: rolling it would only make another empty one.
    if not segment.size:
        return False
    # Measured in the records' own time where they have one, so that replicas roll alike.
    first = segment.known_first_timestamp
    if first is None:
        first = segment.first_batch_timestamp()
    waited_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    # Every append asks. Only here and there is it near enough to the limit that the limit has to be known exactly.
    may_be = waited_ms > config.segment_ms or waited_ms > config.max_compaction_lag_ms or config.segment_jitter_ms > 0
    return may_be and waited_ms > _age_max_ms(segment, config)


def _age_max_ms(segment: Segment, config: LogConfig) -> int:
    age_ms = config.segment_ms
    if config.is_compacted:  # nothing is compacted before its segment is rolled
        age_ms = min(age_ms, config.max_compaction_lag_ms)
    # Taken from the path and not from a random number: it is the same after a restart, and spreads the rolls of many
    # partitions.
    if config.segment_jitter_ms:
        age_ms -= crc32c(segment.log_file.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)
    return age_ms
