"""The log of one replica: segments in order, and what is known about the records in them.

Theory
    Offsets rise without end; the log holds [log_start_offset, log_end_offset) in segments of which only the last is
    written to. Everything below `recovery_point` is on the disk for certain. An append is one write to the last segment;
    indexes, leader epochs and producer state follow in memory, so a write that fails leaves the log as it was (what it
    left in the file is cut off; if even that fails, or if the disk is broken rather than full, the whole log directory
    goes offline and every call answers KAFKA_STORAGE_ERROR).

Who may call what, where
    One task owns a log and calls it without awaiting in between: the event loop. Nothing here waits for the disk to have
    written. What does is split in three, so that a thread never touches the log itself:

        job = log.prepare_flush()      on the loop: which open files, up to which offset
        job.run()                      in a thread: syncs those files, and nothing else
        log.finish_flush(job)          on the loop: the recovery point moves

    Segments below the last one do not change, so a thread may read their files too (the cleaner does). Loading happens
    in a thread because nobody else knows the log yet. `flush()` and `close()` do all of it at once, for shutdown and tests.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.aborted_transactions import AbortedTransaction
from ottla.replication.log.checkpoints import encode_epochs, encode_partition_metadata
from ottla.replication.log.compaction import Source
from ottla.replication.log.epochs import LeaderEpochs
from ottla.replication.log.flush import FlushJob
from ottla.replication.log.log_reader import EMPTY, LogReader, base_offset_of, guarded
from ottla.replication.log.names import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    parse_partition_directory,
    partition_directory_name,
    partition_path,
    path_in,
)
from ottla.replication.log.producers import BatchMetadata, MarkerVersion, ProducerEntry, ProducerStateManager
from ottla.replication.log.recovery import LoadedLog, LoadOptions, load_log, marker_of, producers_at
from ottla.replication.log.replicated import EPOCH_MAX, check_replicated
from ottla.replication.log.retention import expired_count
from ottla.replication.log.segment import Segment
from ottla.replication.log.snapshots import ProducerSnapshots
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.validator import (
    AppendOrigin,
    CheckedRecords,
    ValidatedBatches,
    ValidationRules,
    check_produced,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import BatchHeader
from ottla.wire.settings import LONG_MAX

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

DAY_MS = 86_400_000


class AppendInfo(NamedTuple):
    """What became of an append. `flush_due`: acknowledge only when the partition says it is on disk."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    flush_due: bool
    rolled: bool


class PartitionLog(LogReader):
    """One replica's log. The module docstring says what may be called where."""

    __slots__ = (
        "_client_rules",
        "_config",
        "_epochs",
        "_producers",
        "_snapshots",
        "directory",
        "first_dirty_offset",
        "is_flush_required",
        "partition",
        "recovery_point",
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
        super().__init__(
            log_directory,
            partition_directory_name(topic, partition),
            parts.segments,
            log_start_offset=parts.log_start_offset,
            log_end_offset=parts.log_end_offset,
        )
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = parts.topic_id
        self.recovery_point = parts.recovery_point
        self.first_dirty_offset = -1  # below it the log is compacted; -1: nobody knows
        self._epochs = parts.epochs
        self._producers = parts.producers
        self._snapshots = parts.snapshots
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
        """Make the directory of a new, empty log, called `name` if given. OSError if the disk will not have it."""
        storage = log_directory.storage
        directory = partition_path(log_directory.path, name or partition_directory_name(topic, partition))
        storage.make_directory(directory)
        try:
            segment = Segment.create(log_directory.files, directory, log_start_offset, created_ms=now_ms)
            storage.write(path_in(directory, LEADER_EPOCH_CHECKPOINT), EMPTY)
            if topic_id is not None:
                storage.write(path_in(directory, PARTITION_METADATA), encode_partition_metadata(topic_id))
        except OSError:
            storage.remove_tree(directory)
            raise
        snapshots = ProducerSnapshots(storage, directory)
        parts = LoadedLog(
            [segment], log_start_offset, log_start_offset, log_start_offset, LeaderEpochs(), None, snapshots, topic_id
        )
        return cls(log_directory, directory, topic, partition, config, parts)

    @classmethod
    def load(cls, log_directory: LogDirectory, name: str, config: LogConfig, options: LoadOptions) -> PartitionLog:
        """Bring back the log in directory `name`, repairing what needs it. OSError if the disk fails."""
        parsed = parse_partition_directory(name)
        assert parsed is not None, name
        directory = partition_path(log_directory.path, name)
        parts = load_log(log_directory, directory, config, options)
        return cls(log_directory, directory, parsed.topic, parsed.partition, config, parts)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def config(self) -> LogConfig:
        """The topic's settings; may be replaced at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._client_rules: ValidationRules | None = None
        self.is_flush_required = config.flush_messages < LONG_MAX or config.flush_ms < LONG_MAX

    @property
    def latest_leader_epoch(self) -> int:
        """The epoch of the last record, or of the leader elected since; -1 before the first."""
        return self._epochs.latest_epoch

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the oldest transaction that is undecided or whose marker is above the high watermark."""
        producers = self._producers
        if producers is None:
            return None
        offset = producers.first_unstable_offset
        return None if offset is None else max(offset, self.log_start_offset)

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
    ) -> AppendInfo:
        """Check a batch, unless it is `checked` already, give it offsets and write it. KafkaError: nothing was appended."""
        if self.log_directory.failure is not None:
            raise self.log_directory.error()
        if checked is None:
            checked = self.check_produced(records, now_ms=now_ms, origin=origin, at_once=True)
        validated = checked.assign(self.log_end_offset, leader_epoch)
        batches = validated.batches
        if batches[0].producer_id < 0 and len(batches) == 1:
            rolled = self._write(validated.buffer, batches, validated.max_timestamp, now_ms)
        else:
            appended = self._append_with_producers(validated, origin, transaction_version, now_ms)
            if isinstance(appended, BatchMetadata):
                return AppendInfo(
                    appended.first_offset,
                    appended.last_offset,
                    appended.timestamp,
                    self.log_start_offset,
                    True,
                    self.is_flush_required,
                    False,
                )
            rolled = appended
        epochs = self._epochs
        if leader_epoch != epochs.latest_epoch:
            epochs.assign(leader_epoch, validated.first_offset)
        return AppendInfo(
            validated.first_offset,
            validated.last_offset,
            validated.log_append_time_ms,
            self.log_start_offset,
            False,
            self.is_flush_required,
            rolled,
        )

    def validation_rules(self, origin: AppendOrigin = AppendOrigin.CLIENT) -> ValidationRules:
        """What batches are checked against."""
        if origin is not AppendOrigin.CLIENT:
            return ValidationRules.from_config(self._config, origin)
        rules = self._client_rules
        if rules is None:
            rules = self._client_rules = ValidationRules.from_config(self._config, origin)
        return rules

    def check_produced(
        self, records: memoryview, *, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT, at_once: bool = False
    ) -> CheckedRecords:
        """Everything about a batch that needs no offsets. It touches nothing, so a thread may do it."""
        rules = self.validation_rules(origin)
        return check_produced(records, rules, now_ms=now_ms, topic_partition=self.name, at_once=at_once)

    def _append_with_producers(
        self, validated: ValidatedBatches, origin: AppendOrigin, transaction_version: int, now_ms: int
    ) -> BatchMetadata | bool:
        batches = validated.batches
        producers = self._known_producers()
        is_client = origin is AppendOrigin.CLIENT
        if is_client and (entry := producers.in_order(batches)) is not None:
            rolled = self._write(validated.buffer, batches, validated.max_timestamp, now_ms)
            entry.add(batches[0])
            producers.map_end_offset = self.log_end_offset
            return rolled
        if is_client and (duplicate := producers.duplicate(batches)) is not None:
            return duplicate
        first = batches[0]
        marker = marker_of(first, validated.buffer) if first.is_control else None
        if marker is not None:
            assert len(batches) == 1, "a marker comes alone"
            update = producers.check_marker(first, marker, MarkerVersion(min(transaction_version, 2)))
        else:
            update = producers.check(batches, is_client=is_client)
        rolled = self._write(validated.buffer, batches, validated.max_timestamp, now_ms)
        self._note_aborted(producers.apply(update))
        producers.map_end_offset = self.log_end_offset
        return rolled

    def append_as_follower(self, records: memoryview, *, leader_epoch: int = EPOCH_MAX, now_ms: int) -> AppendInfo:
        """Write what the leader of this epoch sent. KafkaError: nothing was appended."""
        self.log_directory.check_online()
        size, batches, markers = check_replicated(records, self.log_end_offset, leader_epoch, self.name)
        if not batches:
            return AppendInfo(-1, self.log_end_offset - 1, -1, self.log_start_offset, False, False, False)
        max_timestamp = max(batch.max_timestamp for batch in batches)
        rolled = self._write(records[:size], batches, max_timestamp, now_ms)
        for batch, marker in zip(batches, markers, strict=True):
            if batch.partition_leader_epoch >= 0:
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                producers = self._known_producers()
                self._note_aborted(producers.apply(producers.note(batch, marker)))
        if self._producers is not None:
            self._producers.map_end_offset = self.log_end_offset
        first, last = batches[0].base_offset, self.log_end_offset - 1
        return AppendInfo(first, last, -1, self.log_start_offset, False, self.is_flush_required, rolled)

    def _write(
        self, buffer: memoryview | bytes | bytearray, batches: Sequence[BatchHeader], max_timestamp: int, now_ms: int
    ) -> bool:
        """Write to the last segment, or to a new one; returns whether it is new."""
        config = self._config
        size_bytes = len(buffer)
        if size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append to partition {self.name},"
                f" which exceeds the maximum configured segment size of {config.segment_bytes}.",
            )
        segment = self._segments[-1]
        last = batches[-1]
        last_offset = last.base_offset + last.last_offset_delta
        rolled = False
        try:
            if segment.should_roll(
                config, size_bytes=size_bytes, max_timestamp=max_timestamp, last_offset=last_offset, now_ms=now_ms
            ):
                rolled = self._roll(now_ms, batches[0].base_offset)
                segment = self._segments[-1]
            segment.append(buffer, batches, config)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        self.log_end_offset = last_offset + 1
        return rolled

    def _append_failed(self, segment: Segment, error: OSError) -> KafkaError:
        try:
            segment.undo_append()
        except OSError as second_error:
            return self.log_directory.take_offline(second_error)
        return self.storage_error(error)

    def _known_producers(self) -> ProducerStateManager:
        producers = self._producers
        if producers is None:
            producers = self._producers = ProducerStateManager()
            producers.map_end_offset = self.log_end_offset
        return producers

    def _note_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        for transaction in aborted:
            try:
                self._segments[-1].append_aborted(transaction)
            except OSError as error:
                # The marker is in the log but not in the index, which would show aborted records to consumers.
                raise self.log_directory.take_offline(error) from error

    # --- epochs, producers --------------------------------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch at or below `epoch` and its end offset; (-1, -1) if that cannot be said."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch of the record at `offset`."""
        return self._epochs.epoch_for_offset(offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader of this epoch begins to write at `start_offset`."""
        self._epochs.assign(epoch, start_offset)

    @property
    def epochs_are_dirty(self) -> bool:
        """Whether the leader-epoch-checkpoint is older than what is known."""
        return self._epochs.is_dirty

    def epochs_to_write(self) -> tuple[str, bytes]:
        """Path and contents of the leader-epoch-checkpoint, which counts as written from now on."""
        self._epochs.is_dirty = False
        return path_in(self.directory, LEADER_EPOCH_CHECKPOINT), encode_epochs(self._epochs.entries)

    def note_epochs_unwritten(self) -> None:
        """What `epochs_to_write` gave could not be written: it has to be written again."""
        self._epochs.is_dirty = True

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is on all in-sync replicas."""
        if self._producers is not None:
            self._producers.on_high_watermark(high_watermark)

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """State of every producer id that is remembered."""
        return {} if self._producers is None else self._producers.producers

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idle producers; returns how many."""
        return 0 if self._producers is None else self._producers.remove_expired(now_ms, expiration_ms)

    # --- the ends of the log ------------------------------------------------------------------------------------------

    def increase_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are not to be read any more; returns whether that is news."""
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset, f"log start offset {offset} beyond {self.log_end_offset}"
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        if self._producers is not None:
            self._producers.on_log_start_offset(offset)
        return True

    @guarded
    def roll(self, now_ms: int) -> bool:
        """Begin a new segment, unless the last one is empty."""
        return self._roll(now_ms, self.log_end_offset)

    def _roll(self, now_ms: int, base_offset: int) -> bool:
        active = self._segments[-1]
        if base_offset == active.base_offset:
            return False
        assert base_offset > active.base_offset, f"roll at {base_offset} below {active.base_offset}"
        active.seal()
        self._snapshots.take(base_offset, self._producers)
        self._segments.append(
            Segment.create(self.log_directory.files, self.directory, base_offset, created_ms=now_ms)
        )
        return True

    @guarded
    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Drop all records from `offset` on; returns whether there were any."""
        assert offset >= 0
        self._epochs.truncate_from_end(min(offset, self.log_end_offset))
        if offset >= self.log_end_offset:
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        keep = bisect_right(self._segments, offset, key=base_offset_of)
        self._give_up(self._segments[keep:], now_ms)
        del self._segments[keep:]
        self._segments[-1].truncate_to(offset, now_ms)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.first_dirty_offset = min(self.first_dirty_offset, self._segments[-1].base_offset)
        self._reload_producers(now_ms)
        return True

    @guarded
    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None, now_ms: int) -> None:
        """Drop everything and go on as an empty log at `offset`; what is below `log_start_offset` is not to be read."""
        self._give_up(self._segments, now_ms)
        self._snapshots.remove_outside(1, 0)
        self._segments = [Segment.create(self.log_directory.files, self.directory, offset, created_ms=now_ms)]
        self.log_end_offset = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.recovery_point = min(self.recovery_point, offset)
        self._epochs.clear()
        self._producers = None

    def _reload_producers(self, now_ms: int) -> None:
        self._snapshots.remove_outside(self.log_start_offset, self.log_end_offset)
        if self._producers is not None:
            self._producers = producers_at(
                self.log_end_offset,
                self._segments,
                self._snapshots,
                log_start_offset=self.log_start_offset,
                now_ms=now_ms,
                expiration_ms=DAY_MS,
            )

    @guarded
    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Give up segments that retention does not cover any more; returns how many."""
        count = expired_count(
            self._segments,
            self._config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return 0
        if count == len(self._segments):
            self._roll(now_ms, self.log_end_offset)
        self.increase_log_start_offset(self._segments[count].base_offset)
        self._give_up(self._segments[:count], now_ms)
        del self._segments[:count]
        return count

    def _give_up(self, segments: Sequence[Segment], now_ms: int, *, keep_snapshot: bool = False) -> None:
        self.layout += 1
        due_ms = now_ms + self._config.file_delete_delay_ms
        for segment in segments:
            segment.release_files()
            segment.change_suffix(DELETED_SUFFIX)
            paths = segment.paths()
            snapshot = None if keep_snapshot else self._snapshots.mark_deleted(segment.base_offset)
            for path in paths if snapshot is None else (*paths, snapshot):
                self.log_directory.remove_later(path, due_ms)

    @guarded
    def replace_segments(self, sources: Sequence[Source], cleaned: Segment, *, now_ms: int) -> bool:
        """Swap a compacted segment in for the ones it was made of; False if those are not what they were."""
        bases = [segment.base_offset for segment in self._segments[:-1]]
        if sources[0].base_offset not in bases:
            return False
        first = bases.index(sources[0].base_offset)
        old = self._segments[first : first + len(sources)]
        if [(each.base_offset, each.size) for each in old] != [(each.base_offset, each.size) for each in sources]:
            return False
        cleaned.change_suffix(SWAP_SUFFIX)
        for segment in old[1:]:
            self._give_up([segment], now_ms)
        self._give_up([old[0]], now_ms, keep_snapshot=True)
        cleaned.change_suffix("")
        cleaned.use_files(self.log_directory.files)
        cleaned.defers_repair = old[0].defers_repair
        self._segments[first : first + len(sources)] = [cleaned]
        return True

    # --- durability ---------------------------------------------------------------------------------------------------

    @guarded
    def prepare_flush(self, *, include_active: bool = True) -> FlushJob | None:
        """What a thread has to sync for the log to be durable to its end, or to the start of the last segment."""
        active = self._segments[-1]
        offset = self.log_end_offset if include_active else active.base_offset
        if offset <= self.recovery_point:
            return None
        first = max(0, bisect_right(self._segments, self.recovery_point, key=base_offset_of) - 1)
        files = [lazy.open() for segment in self._segments[first:-1] for lazy in segment.files_to_sync()]
        if include_active:
            files.append(active.log_file.open())  # its indexes are made anew after a crash in any case
        has_new_files = self._segments[-1].base_offset >= self.recovery_point
        epochs = self.epochs_to_write() if self._epochs.is_dirty else None
        directories = (self.directory, self.log_directory.path) if has_new_files else ()
        return FlushJob(self.log_directory.storage, offset, files, directories, epochs)

    def finish_flush(self, job: FlushJob) -> None:
        """`job` has run: what it covers is durable."""
        self.recovery_point = max(self.recovery_point, min(job.offset, self.log_end_offset))

    @guarded
    def flush(self) -> None:
        """Make the log durable to its end, here and now."""
        job = self.prepare_flush()
        if job is not None:
            job.run()
            self.finish_flush(job)

    @guarded
    def close(self) -> None:
        """Leave the directory as an orderly shutdown does. Call `flush` first; the log stays readable."""
        for segment in self._segments:
            segment.close()
        if self._producers is not None or self._snapshots.offsets:
            self._snapshots.take(self.log_end_offset, self._producers)
        if self._epochs.is_dirty:
            self.log_directory.storage.replace(*self.epochs_to_write())

    def release_files(self) -> None:
        """Let go of all files; they open again when they are needed."""
        for segment in self._segments:
            segment.release_files()

    def save_indexes(self) -> None:
        """Write out what the active indexes hold in memory, for a log that has gone quiet."""
        with contextlib.suppress(OSError):  # not needed before the segment is finished
            self._segments[-1].save_indexes()

    @guarded
    def rename_directory(self, name: str) -> None:
        """Move the whole log to another name in the same log directory."""
        directory = partition_path(self.log_directory.path, name)
        self.log_directory.storage.rename(self.directory, directory)
        self.layout += 1
        self.directory = directory
        self._snapshots.directory = directory
        self._epochs.is_dirty = True  # a flush under way misses the directory
        for segment in self._segments:
            segment.move_to(directory)

    def take_over_from(self, log: PartitionLog) -> None:
        """Go on as `log`, which is not used any more: this one has its records, and now all else it knows."""
        self.config = log.config
        self.log_end_offset = log.log_end_offset  # there may be nothing between the last batch and the end
        self.increase_log_start_offset(log.log_start_offset)
        self._epochs, self._producers = log._epochs, log._producers
        self._epochs.is_dirty = True
        if self._producers is not None:  # the records of some may be gone
            with contextlib.suppress(OSError):
                self._snapshots.take(self.log_end_offset, self._producers)

    @guarded
    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic's id down, where it is not known yet."""
        path = path_in(self.directory, PARTITION_METADATA)
        self.log_directory.storage.write(path, encode_partition_metadata(topic_id))
        self.topic_id = topic_id


