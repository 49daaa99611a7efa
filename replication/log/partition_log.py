"""The log of one replica: segments in order, and what is known about the records in them.

Theory
    Offsets rise without end; the log holds [log_start_offset, log_end_offset) in segments of which only the last is
    written to. Every operation plans, then writes: it first reads and opens whatever it needs, and what fails there has
    changed nothing. Then follow the calls that decide, in an order in which files and memory agree after each. What is
    known of the records (indexes, leader epochs, producers) follows in memory and is written later. Where a call fails
    that can be neither undone nor left at that, the whole log directory goes offline and every call answers
    KAFKA_STORAGE_ERROR.

Who may call what, where
    One task owns a log and calls it without awaiting in between: the event loop. Nothing here waits for the disk to have
    written; `durable_log.py` says how that is split between the loop and threads.

    Segments below the last one do not change, so a thread may read their files too (the cleaner does). Loading happens
    in a thread because nobody else knows the log yet. `flush()` and `close()` do all of it at once, for shutdown and tests.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.aborted_transactions import AbortedTransaction
from ottla.replication.log.checkpoints import encode_partition_metadata
from ottla.replication.log.compaction import Source
from ottla.replication.log.creation import create_log_directory
from ottla.replication.log.durable_log import DurableLog
from ottla.replication.log.epochs import LeaderEpochs
from ottla.replication.log.faults import Irreparable
from ottla.replication.log.index import RELATIVE_OFFSET_MAX
from ottla.replication.log.log_reader import base_offset_of, guarded, translated
from ottla.replication.log.names import (
    CLEANED_SUFFIX,
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
from ottla.replication.log.rolling import should_roll
from ottla.replication.log.scan import CorruptSegment
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.segment_files import remove_files, remove_unfinished
from ottla.replication.log.snapshots import ProducerSnapshots
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.truncation import DAY_MS, Truncation
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
    from ottla.replication.log.verification import VerificationGuard

SEGMENTS_MAX = 2**31
new_tuple = tuple.__new__  # past NamedTuple's keyword handling


class AppendInfo(NamedTuple):
    """What became of an append. `flush_due`: acknowledge only when the partition says it is on disk."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    flush_due: bool


class PartitionLog(DurableLog):
    """One replica's log. The module docstring says what may be called where."""

    __slots__ = (
        "_client_rules",
        "_config",
        "_coordinator_rules",
        "_producers",
        "first_dirty_offset",
        "has_rolled",
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
        super().__init__(
            log_directory,
            directory,
            partition_directory_name(topic, partition),
            parts.segments,
            log_start_offset=parts.log_start_offset,
            log_end_offset=parts.log_end_offset,
            recovery_point=parts.recovery_point,
            epochs=parts.epochs,
            snapshots=parts.snapshots,
        )
        self.topic = topic
        self.partition = partition
        self.topic_id = parts.topic_id
        self.first_dirty_offset = -1  # below it the log is compacted; -1: nobody knows
        self.has_rolled = False
        """Whether a segment was finished whose flush nobody has asked for. Kept here, because the append may fail after that."""
        self._producers = parts.producers
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
        """Bring back the log in directory `name`, repairing what needs it. OSError if the disk fails."""
        parsed = parse_partition_directory(name)
        assert parsed is not None, name
        directory = path_in(log_directory.path, name)
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
        # Made again when the next batch comes: rules are the same for all batches until the settings change.
        self._client_rules: ValidationRules | None = None
        self._coordinator_rules: ValidationRules | None = None
        # Kept as an attribute, because every append and every acknowledgement asks.
        self.is_flush_required = config.flush_messages < LONG_MAX or config.flush_ms < LONG_MAX

    @property
    def latest_leader_epoch(self) -> int:
        """The epoch of the last record, or of the leader elected since; -1 before the first."""
        return self._epochs.latest_epoch()

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the oldest transaction that is undecided or whose marker is above the high watermark."""
        producers = self._producers
        if producers is None:
            return None
        offset = producers.first_unstable_offset
        # Records of an open transaction may have been deleted, and no reader may be held before the start of the log.
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
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Check a batch, unless it is `checked` already, give it offsets and write it. KafkaError: nothing was appended."""
        # Looked at directly and not by `guarded`, which costs a call more for each append.
        if self.log_directory.failure is not None:
            raise self.log_directory.error()
        if checked is None:
            checked = self.check_produced(records, now_ms=now_ms, origin=origin, at_once=True)
        # The offset is taken here and used up in `write`, without a wait in between. So no other append can get the
        # same one.
        validated = checked.assign(self.log_end_offset, leader_epoch)
        # Taken apart at once: the names of a tuple are looked up more slowly than other attributes.
        buffer, batches, first, last, max_timestamp, _, append_time_ms = validated
        # Without a producer id there is no sequence to check and no transaction to note.
        if batches[0].producer_id < 0 and len(batches) == 1:
            self.write(buffer, batches, max_timestamp, now_ms)
        else:
            appended = self._append_with_producers(validated, origin, transaction_version, guard, now_ms)
            if appended is not None:
                # A duplicate is answered as its original was. It may not be on the disk yet, so `flush_due` is the same
                # as well.
                first, last, start = appended.first_offset, appended.last_offset, self.log_start_offset
                return AppendInfo(first, last, appended.timestamp, start, True, self.is_flush_required)
        epochs = self._epochs
        # The leader notes its epoch when it is elected, so this rarely finds news.
        if leader_epoch != epochs.latest_epoch():
            epochs.assign(leader_epoch, first)
        info = first, last, append_time_ms, self.log_start_offset, False, self.is_flush_required
        return new_tuple(AppendInfo, info)

    def validation_rules(self, origin: AppendOrigin = AppendOrigin.CLIENT) -> ValidationRules:
        """What batches are checked against."""
        if origin is AppendOrigin.CLIENT:
            rules = self._client_rules
            if rules is None:
                rules = self._client_rules = ValidationRules.from_config(self._config, origin)
            return rules
        rules = self._coordinator_rules
        if rules is None:
            rules = self._coordinator_rules = ValidationRules.from_config(self._config, AppendOrigin.COORDINATOR)
        return rules

    def check_produced(
        self, records: memoryview, *, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT, at_once: bool = False
    ) -> CheckedRecords:
        """Everything about a batch that needs no offsets. It touches nothing, so a thread may do it."""
        rules = self.validation_rules(origin)
        return check_produced(records, rules, now_ms=now_ms, topic_partition=self.name, at_once=at_once)

    def _append_with_producers(
        self,
        validated: ValidatedBatches,
        origin: AppendOrigin,
        transaction_version: int,
        guard: VerificationGuard | None,
        now_ms: int,
    ) -> BatchMetadata | None:
        """None; or the batch as it was appended before, if this is a duplicate."""
        batches = validated.batches
        producers = self.producer_state()
        is_client = origin is AppendOrigin.CLIENT
        # The producer's next batch, as nearly always: nothing can be refused, so no update has to be kept aside.
        if is_client and (entry := producers.in_order(batches)) is not None:
            self.write(validated.buffer, batches, validated.max_timestamp, now_ms)
            entry.add(batches[0])
            producers.map_end_offset = self.log_end_offset
            return None
        # Before the check of sequences: a batch that comes again would be out of order.
        if is_client and (duplicate := producers.duplicate(batches)) is not None:
            return duplicate
        first = batches[0]
        # Everything that can be refused is found out before the write; after it there are only changes in memory.
        marker = marker_of(first, validated.buffer) if first.is_control else None
        if marker is not None:
            assert len(batches) == 1, "a marker comes alone"
            update = producers.check_marker(first, marker, MarkerVersion.of(transaction_version))
        else:
            update = producers.check(batches, is_client=is_client, guard=guard)
        self.write(validated.buffer, batches, validated.max_timestamp, now_ms)
        self._note_aborted(producers.apply(update))
        producers.map_end_offset = self.log_end_offset
        return None

    def append_as_follower(self, records: memoryview, *, leader_epoch: int = EPOCH_MAX, now_ms: int) -> AppendInfo:
        """Write what the leader of this epoch sent. KafkaError: nothing was appended."""
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
        more: Sequence[memoryview | bytearray] = (),
    ) -> None:
        """Write to the last segment, or to a new one. The last batches may be in `more` buffers."""
        config = self._config
        size_bytes = len(buffer) + sum(map(len, more)) if more else len(buffer)
        # A batch is never split, so it would fit into no segment.
        if size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append to partition {self.name},"
                f" which exceeds the maximum configured segment size of {config.segment_bytes}.",
            )
        segment = self._segments[-1]
        last = batches[-1]
        last_offset = last.base_offset + last.last_offset_delta
        try:
            if should_roll(segment, config, size_bytes, max_timestamp, last_offset, now_ms):
                self._roll(now_ms, self._next_base_offset(batches[0].base_offset, last_offset))
                segment = self._segments[-1]
            segment.append(buffer, batches, config, more)
        # A thread makes the indexes anew; until then the producer hears of a storage error and tries again.
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
        """What is known of producers, to be looked at and asked only."""
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
        """The largest known epoch at or below `epoch` and its end offset; (-1, -1) if that cannot be said."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The leader epoch of the record at `offset`."""
        return self._epochs.epoch_for_offset(offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader of this epoch begins to write at `start_offset`."""
        self._epochs.assign(epoch, start_offset)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is on all in-sync replicas."""
        if self._producers is not None:
            self._producers.on_high_watermark(high_watermark)

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """State of every producer id that is remembered."""
        return {} if self._producers is None else self._producers.producers

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget idle producers, a piece of them with each step; gives how many they were."""
        return iter(()) if self._producers is None else self._producers.remove_expired(now_ms, expiration_ms)

    # --- the ends of the log ------------------------------------------------------------------------------------------

    def increase_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are not to be read any more; returns whether that is news."""
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset, f"log start offset {offset} beyond {self.log_end_offset}"
        self.log_start_offset = offset
        # A reader that asks for an epoch below the start would be sent to records that are gone.
        self._epochs.truncate_from_start(offset)
        if self._producers is not None:
            self._producers.on_log_start_offset(offset)
        return True

    @guarded
    def roll(self, now_ms: int) -> bool:
        """Begin a new segment, unless the last one is empty."""
        return self._roll(now_ms, self.log_end_offset)

    def _roll(self, now_ms: int, base_offset: int) -> bool:
        """Begin a new segment. OSError: there is none, and the last one goes on."""
        active = self._segments[-1]
        if base_offset == active.base_offset:
            return False
        assert base_offset > active.base_offset, f"roll at {base_offset} below {active.base_offset}"
        # First all that can fail. If the disk is full here, the log goes on in the old segment. The snapshot may wait
        # for a flush, because the append that rolls waits for this.
        self._snapshots.take(base_offset, self._producers, may_wait=True)
        fresh = Segment.create(self.log_directory.files, self.directory, base_offset, created_ms=now_ms)
        fresh.defers_repair = active.defers_repair
        with contextlib.suppress(OSError):  # all is in memory; the flush of the segment saves it again
            active.seal()
        self._segments.append(fresh)
        self._name_changes += 1
        # The next flush has to sync the indexes of the old segment as well.
        self._has_sealed = self.has_rolled = True
        return True

    def prepare_truncation(self, offset: int, *, now_ms: int) -> Truncation | None:
        """What a thread has to read before `truncate_to`; None if that is little."""
        # Without producers nothing has to be read; outside of the segments there is nothing to read.
        if self._producers is None or not self._segments[0].base_offset <= offset < self.log_end_offset:
            return None
        return Truncation.of(self, self._snapshots, len(self._producers.producers), offset, now_ms)

    @guarded
    def truncate_to(self, offset: int, *, now_ms: int, truncation: Truncation | None = None) -> bool:
        """Drop all records from `offset` on; returns whether there were any."""
        assert offset >= 0
        # The leader's log is no shorter, but an epoch without records may be one that the leader never had.
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        keep = bisect_right(self._segments, offset, key=base_offset_of)
        # Plan first: the place of the cut, and what is known of producers there. These reads may fail while all records
        # are still there.
        cut = self._segments[keep - 1].plan_cut(offset)
        log_start_offset = min(self.log_start_offset, offset)
        producers = None if truncation is None else truncation.producers_at(offset)
        self._snapshots.remove_outside(log_start_offset, offset)  # first: those that are left hold for the records that are left
        if self._producers is not None and producers is None:
            producers = self._producers_at(offset, log_start_offset, now_ms)
        # Carry out: later segments first, so that the log never has a gap. A failure after the first of them leaves a
        # log that is cut only in part, which nobody can undo.
        is_cut = self._drop_segments(keep, now_ms)
        try:
            self._segments[-1].cut(cut, now_ms)
        except OSError as error:
            if not is_cut:
                raise
            raise Irreparable(f"{self.name} is cut only in part", error) from error
        # Only memory from here on.
        self._note_cut(offset, first_dirty_offset=self._segments[-1].base_offset)
        self.log_start_offset = log_start_offset
        self._epochs.truncate_from_end(offset)
        self._producers = producers
        return True

    def _drop_segments(self, keep: int, now_ms: int) -> bool:
        """Give up all but the first segments, the last one first: what is there is the beginning of the log at any time."""
        is_cut = False
        while len(self._segments) > keep:
            try:
                self._give_up(self._segments[-1], now_ms)
            except OSError as error:
                if not is_cut:
                    raise
                raise Irreparable(f"{self.name} is cut only in part", error) from error
            del self._segments[-1]
            is_cut = True
        return is_cut

    def _note_cut(self, offset: int, *, first_dirty_offset: int) -> None:
        # A flush that is under way has synced records that are gone. It sees by this count that it must not move the
        # recovery point.
        self._cuts += 1
        self.layout += 1
        self.log_end_offset = offset
        # The checkpoints on the disk still have the old offsets. After a crash they would vouch for records that were
        # written later and never synced, or never compacted: a deletion marker among those would go before the value.
        if offset < self.recovery_point or first_dirty_offset < self.first_dirty_offset:
            self.recovery_point = min(self.recovery_point, offset)
            self.first_dirty_offset = min(self.first_dirty_offset, first_dirty_offset)
            if self.log_directory.on_cut is not None:
                self.log_directory.on_cut()

    @guarded
    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None, now_ms: int) -> None:
        """Drop everything and go on as an empty log at `offset`; what is below `log_start_offset` is not to be read."""
        # An old segment may have the new one's name, so that is made beside it. What is called so does not count at a
        # start.
        files = self.log_directory.files
        fresh = Segment.create(files, self.directory, offset, created_ms=now_ms, suffix=CLEANED_SUFFIX)
        try:
            # All of them: none says anything about a log that begins at another offset.
            self._snapshots.remove_outside(1, 0)
            self._give_up(self._segments[-1], now_ms)
        except OSError:
            remove_unfinished(files.storage, fresh.paths())
            raise
        try:
            # The last one first, as in any cut. From here on there is no way back.
            for segment in reversed(self._segments[:-1]):
                self._give_up(segment, now_ms)
            fresh.change_suffix("")
        except OSError as error:
            raise Irreparable(f"{self.name} cannot begin anew at {offset}", error) from error
        fresh.defers_repair = self._segments[-1].defers_repair
        self._segments = [fresh]
        self._note_cut(offset, first_dirty_offset=offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._epochs.clear()
        self._producers = None

    def _producers_at(self, offset: int, log_start_offset: int, now_ms: int) -> ProducerStateManager:
        bounds = {"log_start_offset": log_start_offset, "now_ms": now_ms, "expiration_ms": DAY_MS}
        return producers_at(offset, self._segments, self._snapshots, **bounds)

    @guarded
    def delete_old_segments(
        self, now_ms: int, high_watermark: int, *, limit: int = SEGMENTS_MAX, is_enough: Callable[[], bool] = lambda: False
    ) -> int:
        """Give up segments that retention does not cover any more, until there are `limit` or it `is_enough`; returns how many."""
        count = expired_count(
            self._segments,
            self._config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
            limit=limit,
        )
        if not count:
            return 0
        # A log always has a segment to write to, so a new one comes before the last old one goes.
        if count == len(self._segments):
            self._roll(now_ms, self.log_end_offset)
        # The start moves first: nobody may be sent to a segment whose files are going.
        self.increase_log_start_offset(self._segments[count].base_offset)
        for gone in range(1, count + 1):  # the oldest first: where this breaks off the log is whole, and the next time goes on
            self._give_up(self._segments[0], now_ms)
            del self._segments[0]
            if is_enough():
                return gone
        return count

    def _give_up(self, segment: Segment, now_ms: int, *, keep_snapshot: bool = False) -> None:
        """Mark the files of a segment as deleted. OSError: it is as it was."""
        self.layout += 1
        due_ms = now_ms + self._config.file_delete_delay_ms
        paths = segment.give_up()
        self._name_changes += 1
        snapshot = None if keep_snapshot else self._snapshots.mark_deleted(segment.base_offset)
        for path in paths if snapshot is None else (*paths, snapshot):
            self.log_directory.remove_later(path, due_ms)

    @guarded
    def replace_segments(self, sources: Sequence[Source], cleaned: Segment, *, now_ms: int) -> bool:
        """Swap a compacted segment in for the ones it was made of; False if those are not what they were."""
        bases = [segment.base_offset for segment in self._segments[:-1]]
        # The cleaner worked in a thread meanwhile. Retention or a cut may have taken what it read, and then its work is
        # void.
        if sources[0].base_offset not in bases:
            return False
        first = bases.index(sources[0].base_offset)
        old = self._segments[first : first + len(sources)]
        if [(each.base_offset, each.size) for each in old] != [(each.base_offset, each.size) for each in sources]:
            return False
        # From here on a restart takes the compacted segment, so the old ones may go. If the process ends in between,
        # the next start finishes the exchange.
        if not self._announce(cleaned):
            return False
        try:
            for segment in old[1:]:
                self._give_up(segment, now_ms)
            # The compacted segment begins at the same offset, so this snapshot is true for it as well.
            self._give_up(old[0], now_ms, keep_snapshot=True)
            cleaned.change_suffix("")
        except OSError as error:
            raise Irreparable(f"A compacted segment of {self.name} cannot take its place", error) from error
        # The cleaner had its own open files. Those of a log are counted and bounded together.
        cleaned.use_files(self.log_directory.files)
        cleaned.defers_repair = old[0].defers_repair
        self._segments[first : first + len(sources)] = [cleaned]
        return True

    def _announce(self, cleaned: Segment) -> bool:
        """Give a compacted segment the names that make it count at a start; False if its files are gone."""
        try:
            cleaned.change_suffix(SWAP_SUFFIX)
        except FileNotFoundError:
            return False
        except OSError:
            # Files of these names would take the place of whatever is there at the next start.
            remove_files(self.log_directory.storage, [*cleaned.paths(SWAP_SUFFIX), *cleaned.paths()])
            raise
        return True

    # --- durability ---------------------------------------------------------------------------------------------------

    @guarded
    def close(self) -> None:
        """Leave the directory as an orderly shutdown does. Call `flush` first; the log stays readable."""
        for segment in self._segments:
            segment.close()
        # A log that never had a producer needs no snapshot. One that has old snapshots does, or a restart would begin
        # with the producers of one of those.
        if self._producers is not None or self._snapshots.offsets:
            self._snapshots.take(self.log_end_offset, self._producers)
        if self._epochs.is_dirty:
            self.epochs_to_write().write(self.log_directory.storage)

    @guarded
    def rename_directory(self, name: str) -> None:
        """Move the whole log to another name in the same log directory."""
        directory = partition_path(self.log_directory.path, name)
        self.log_directory.storage.rename(self.directory, directory)
        self.moved_to(directory)

    def take_over_from(self, log: PartitionLog) -> None:
        """Go on as `log`, which is not used any more: this one has its records, and now all else it knows."""
        self.config = log.config
        self.log_end_offset = log.log_end_offset  # there may be nothing between the last batch and the end
        self.increase_log_start_offset(log.log_start_offset)
        self._epochs, self._producers = log._epochs, log._producers
        # Their file lies in the other log's directory, so it has to be written here.
        self._epochs.mark_dirty()

    @guarded
    def note_producers_of(self, log: PartitionLog) -> None:
        """Write down what `log` knows of producers, before going on as that log: the records of some may be gone."""
        if log._producers is not None:
            self._snapshots.take(log.log_end_offset, log._producers, may_wait=True)

    @guarded
    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic's id down, where it is not known yet."""
        path = path_in(self.directory, PARTITION_METADATA)
        self.log_directory.storage.write(path, encode_partition_metadata(topic_id))
        self.topic_id = topic_id
        self._name_changes += 1  # the next flush syncs it, also if one is under way


