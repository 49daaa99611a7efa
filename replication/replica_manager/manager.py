"""The partitions of this broker and the work behind them: the trio shell around `Partition` and `PartitionLog`.

Who owns what
    The event loop owns every partition and log; handlers call them directly and never await in between. Threads get work that is
    cut off from them: syncing files that are open already (`FlushJob`), loading logs that no other code refers to yet, making the
    files of new partitions, removing files that have been given up, writing checkpoints whose contents were taken on the loop. So
    there are no locks. Only what makes, discards or deletes logs waits for threads between its look and its change: it holds the
    lock of each topic's name (`KeyedLock`), or one would take a folder that is another's by then. The background loops
    (`housekeeping.py`) yield after a few milliseconds, so that ten thousand partitions can be looked after without a request
    noticing.

Forced flushes
    A partition whose topic sets flush.messages or flush.ms asks for a flush with every append, and its high watermark waits
    for it. The flusher takes all partitions that have asked since it last looked and syncs them side by side in threads:
    appends that arrive meanwhile share the next sync, which is group commit. Either setting means that acknowledged
    records are on disk; a flush starts at once instead of after so many records or milliseconds, because waiting would
    only delay acknowledgements. Partitions also ask when they roll: then the finished segment is synced, so that the
    recovery point moves on and a restart after a crash has less to read.

Failing disks
    The first I/O error that cannot be undone takes a log directory offline (`on_directory_failure`). Its partitions answer
    KAFKA_STORAGE_ERROR, everybody waiting for one is notified, and nothing is written there any more, not even the mark of an
    orderly shutdown. `all_directories_failed` is set when none is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster.metadata_cache import NO_TOPIC_ID
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.replication.fetcher.throttle import ReplicationThrottle
from ottla.replication.keyed_lock import KeyedLock
from ottla.replication.log.descriptors import Descriptors
from ottla.replication.log.names import partition_directory_name
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.removal import look_at_times, warm
from ottla.replication.log.storage import LogDirectory, OsStorage, Storage
from ottla.replication.partition.delayed_produce import ProducePurgatory
from ottla.replication.partition.followers import IsEligible
from ottla.replication.partition.partition import Partition, PartitionRegistry
from ottla.replication.partition.removals import RemovalRun, Removals
from ottla.replication.partition.retry_window import RetryWindow
from ottla.replication.partition.traffic import Traffic
from ottla.replication.random_ids import random_uuid
from ottla.replication.reminders import counted
from ottla.replication.replica_manager.directories import HeldDirectory, OffsetCheckpoints
from ottla.replication.replica_manager.flushing import CheckpointWriter, Flusher, NotedLog
from ottla.replication.replica_manager.housekeeping import Housekeeping, Repairer
from ottla.replication.replica_manager.loading import HostedPartition, LoadPlan, load_logs, plan_loads
from ottla.replication.replica_manager.log_dir_moves import LogDirMoves
from ottla.replication.replica_manager.log_directory_registry import LogDirectoryRegistry
from ottla.replication.replica_manager.log_lifecycle import LogCreation, LogDeletion, MadeLog
from ottla.replication.system import system_clock_ms
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import Note, note_nothing
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.log.removal import Removal

__all__ = ["HostedPartition", "ReplicaManager"]

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]


class ReplicaManager:
    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        node_id: int,
        config: ReplicationConfig,
        storage: Storage | None = None,
        clock_ms: Callable[[], int] = system_clock_ms,
        run_in_thread: RunInThread = trio.to_thread.run_sync,
        new_uuid: Callable[[], bytes] = random_uuid,
        descriptors: Descriptors | None = None,
        log_dirs_throttle: ReplicationThrottle | None = None,
        note: Note = note_nothing,
    ) -> None:
        self.config, self.node_id = config, node_id
        self.cluster_id: str | None = None
        self.all_directories_failed = trio.Event()
        self.produce_purgatory = ProducePurgatory()
        self.retry_window, self.removals = RetryWindow(), Removals(note)
        self.is_eligible: IsEligible = lambda broker, broker_epoch: True
        storage = OsStorage() if storage is None else storage
        descriptors = descriptors or Descriptors()
        self._clock_ms, self._run_in_thread, self.new_uuid = clock_ms, run_in_thread, new_uuid
        self._registry = PartitionRegistry()
        self.partition = self._registry.partition  # bound here, because handlers ask for every batch
        self.partitions, self.partitions_of = self._registry.partitions, self._registry.partitions_of
        self.partitions_in, self.topics = self._registry.partitions_in, self._registry.topics
        self.directories = LogDirectoryRegistry(
            log_dirs, node_id=node_id, storage=storage, descriptors=descriptors, run_in_thread=run_in_thread
        )
        self._checkpoints: dict[str, OffsetCheckpoints] = {}
        self._prepared: dict[tuple[str, int], MadeLog] = {}
        self._flusher, self._repairer = Flusher(run_in_thread, descriptors.flushed_files_max), Repairer(run_in_thread)
        self._locks, self._checkpoint_writer = KeyedLock(), CheckpointWriter(run_in_thread, self.noted_logs)
        self.on_directory_failure: Callable[[LogDirectory], None] | None = None
        self.moves = LogDirMoves(
            directories=self.directories.log_directories,
            note_offsets=lambda directories: self.housekeeping.note_offsets(directories),
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
            new_uuid=new_uuid,
            throttle=log_dirs_throttle,
        )
        self._deletion = LogDeletion(
            storage=storage,
            directories=self.directories.log_directories,
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
            new_uuid=new_uuid,
        )
        self._creation = LogCreation(
            directories=self.directories.log_directories,
            count_logs=self._count_logs,
            take_preferred=self.moves.take_preferred,
            forget_former=lambda names: self._checkpoint_writer.forget(names, self.directories.all),
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
            new_uuid=new_uuid,
        )
        self.housekeeping = Housekeeping(
            self._registry,
            self.directories,
            config=lambda: self.config,
            checkpoints=self._checkpoint_writer,
            repairer=self._repairer,
            moves=self.moves,
            removals=self.removals,
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
        )

    # --- start --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Lock the log directories. Raises LogDirectoryProblem if one cannot be used."""
        await self.directories.take()
        # Only now is there anybody to call. `load` looks at the directories that failed while they were taken.
        for held in self.directories.all:
            held.log_directory.on_failure = self._on_directory_failure
            held.log_directory.on_cut = partial(self._checkpoint_writer.note_cut, held)
            if held.meta is not None and held.meta.cluster_id is not None:
                self.cluster_id = held.meta.cluster_id

    async def load(self, hosted: Iterable[HostedPartition], *, cluster_id: str) -> None:
        """Load the logs of all hosted partitions; the partitions get their roles later.

        Missing logs are created, unless a directory has failed. Logs of partitions that are not hosted are set aside.
        """
        # Phase 1: every directory loads what it has.
        wanted = {(each.topic, each.index): each for each in hosted}
        futures: list[PartitionLog] = []
        if not self.directories.online():
            self.all_directories_failed.set()
        for held in self.directories.online():
            started = time.perf_counter()
            try:
                logs, future_logs = await self._load_directory(held, wanted, cluster_id)
            except OSError as error:
                # Even for a passing error: logs that are not loaded cannot be served.
                held.log_directory.take_offline(error)
                continue
            # Not yet: whether a future log goes on or takes over depends on what the other directories hold.
            futures += future_logs
            time_slice = TimeSlice()
            for log in logs:
                self._take_up(log, wanted[log.topic, log.partition])
                await time_slice.yield_if_over()
            took_s = time.perf_counter() - started
            logger.info("Loaded %s in %s in %.3f s", counted(len(logs), "log"), held.path, took_s)
        # Phase 2: logs that were moving between directories. Of several copies of a partition the longest one goes on.
        self.cluster_id = cluster_id
        for log in sorted(futures, key=lambda log: -log.log_end_offset):
            await self._take_up_future(log, wanted[log.topic, log.partition])
        self._checkpoints.clear()  # nobody needs them any more, and they name every log
        # Phase 3: what is nowhere is made, but only if it cannot be on a disk that failed.
        missing = [each for key, each in wanted.items() if self.partition(*key) is None]
        if all(directory.is_online for directory in self.log_directories):
            await self.create_partitions(missing)
        elif missing:
            # They are probably on the disk that failed. Beginning them again would lose what is there.
            logger.error("%d partitions are not available while a log directory is offline", len(missing))

    async def _load_directory(
        self, held: HeldDirectory, wanted: Mapping[tuple[str, int], HostedPartition], cluster_id: str
    ) -> tuple[list[PartitionLog], list[PartitionLog]]:
        # A thread looks through the directory: that waits for the disk, and nobody else uses it before it is loaded.
        plan = await self._run_in_thread(self._plan_loads, held, wanted, cluster_id)
        self._checkpoints[held.path] = plan.checkpoints
        return await load_logs(held, plan, self._run_in_thread, self.config.num_recovery_threads_per_data_dir)

    def _plan_loads(
        self, held: HeldDirectory, wanted: Mapping[tuple[str, int], HostedPartition], cluster_id: str
    ) -> LoadPlan:
        held.settle(node_id=self.node_id, cluster_id=cluster_id)
        return plan_loads(
            held,
            wanted,
            loaded_from=self._loaded_from,
            now_ms=self._clock_ms(),
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            new_uuid=self.new_uuid,
        )

    def _loaded_from(self, topic: str, index: int) -> str | None:
        partition = self.partition(topic, index)
        return None if partition is None else partition.log.log_directory.path

    def _take_up(self, log: PartitionLog, hosted: HostedPartition) -> None:
        """Create the partition of a loaded log, and register the partition."""
        if log.topic_id is None and hosted.topic_id != NO_TOPIC_ID:
            try:
                log.assign_topic_id(hosted.topic_id)
            except KafkaError as error:  # the log is served without it, and the next start tries again
                logger.warning("The topic id of %s cannot be written: %s", log.directory, error)
        checkpoints = self._checkpoints.get(log.log_directory.path)
        key = (log.topic, log.partition)
        # Without a checkpoint the high watermark begins at 0, which `Partition` raises to the start of
        # the log. It is only too low for a while: the leader finds it again from what its followers fetch.
        partition = Partition(
            log.topic,
            log.partition,
            log,
            local_id=self.node_id,
            high_watermark=checkpoints.high_watermarks.get(key, 0) if checkpoints is not None else 0,
            request_flush=self._flusher.request,
            lag_ms=self.config.replica_lag_time_max_ms,
            is_eligible=self.is_eligible,
            traffic=self.traffic.of(log.topic),
        )
        log.enter_service(self._repairer.request)
        if checkpoints is not None:
            # Of a log that lost its end nobody knows how far it is compacted, once other records have come there.
            noted = checkpoints.first_dirty_offsets.get(key, -1)
            log.first_dirty_offset = noted if noted <= log.log_end_offset else -1
        self._registry.add(partition)

    async def _take_up_future(self, log: PartitionLog, hosted: HostedPartition) -> None:
        """Resume the move of a future log; if its partition has no current log, make the future log the current one."""
        (directory,) = (each for each in self.log_directories if each.path == log.log_directory.path)
        partition = self.partition(log.topic, log.partition)
        if partition is not None:
            await self.moves.resume(partition, directory, log)
        # Else the current log may be on the disk that failed, with more records than this copy.
        elif all(each.is_online for each in self.log_directories):
            try:
                await self._run_in_thread(self.moves.promote, log, directory)
            except (OSError, KafkaError) as error:
                # The rename may or may not be on the disk, so nothing may be served or made there.
                directory.take_offline(error if isinstance(error, OSError) else OSError(str(error)))
            else:
                self._take_up(log, hosted)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def is_offline(self, topic: str, index: int) -> bool:
        """Tell whether the partition's log directory has failed.

        For a partition that is unknown here: whether any log directory has failed.
        """
        partition = self.partition(topic, index)
        if partition is not None:
            return not partition.log.log_directory.is_online
        return not all(directory.is_online for directory in self.log_directories)

    def noted_logs(self, held: HeldDirectory) -> Iterator[NotedLog]:
        """Yield the logs of a directory whose offsets go into its checkpoints."""
        for partition in self.partitions():
            if partition.log.log_directory is held.log_directory and not partition.is_deleted:
                yield NotedLog(partition.log, partition.high_watermark)
        for move in self.moves.moves_to(held.log_directory):
            # A thread may be appending to the future log, so it may not have all that is committed.
            yield NotedLog(move.log, min(move.partition.high_watermark, move.log.log_end_offset), is_future=True)

    @property
    def traffic(self) -> Traffic:
        """Counters of the topics with partitions on this broker."""
        return self._registry.traffic

    @property
    def log_directories(self) -> list[LogDirectory]:
        """Log directories, including offline ones."""
        return self.directories.log_directories()

    async def create_partitions(self, hosted: Sequence[HostedPartition]) -> None:
        """Create the logs of new partitions. Raises KafkaError, and creates nothing, if a name is impossible.

        Raises OSError if the disk fails for some logs; the remaining logs of their topics are not created then.
        """
        for each in hosted:
            if self.partition(each.topic, each.index) is None:
                # Refuses a name that cannot be, before any log is made.
                partition_directory_name(each.topic, each.index)
        async with self._locks.hold(each.topic for each in hosted):
            # Looked at within the turn: whoever had it before may have made some of them.
            missing = [each for each in hosted if self.partition(each.topic, each.index) is None]
            missing = self._take_up_prepared(missing)
            if missing:
                await self._make_missing(missing)

    async def _make_missing(self, missing: Sequence[HostedPartition]) -> None:
        await self._free_names(missing)
        failures = await self._creation.make(missing, self._take_up_some)
        for failure in failures.values():
            raise failure

    async def _free_names(self, wanted: Sequence[HostedPartition]) -> None:
        """Make the directory names of new logs available; the caller holds the locks of their topics."""
        names = [(each.topic, each.index) for each in wanted]
        # Logs that were prepared for another topic of the same name, or in vain: nobody has come for them.
        await self._creation.discard([each for name in names if (each := self._prepared.pop(name, None)) is not None])
        # A deleted topic of the same name may not have been renamed yet.
        await self._deletion.free_names_for_new_logs(names)

    def _count_logs(self) -> dict[str, int]:
        counts = {held.path: 0 for held in self.directories.online()}
        for partition in self.partitions():
            if partition.log.log_directory.path in counts:
                counts[partition.log.log_directory.path] += 1
        # Logs on their way into a directory count as well, or new ones would be piled on top of them.
        for directory in self.log_directories:
            if directory.path in counts:
                counts[directory.path] += len(self.moves.moves_to(directory))
        return counts

    def _take_up_some(self, made: Sequence[MadeLog]) -> None:
        for log, hosted in made:
            self._take_up(log, hosted)

    async def prepare_logs(self, hosted: Sequence[HostedPartition]) -> Mapping[str, OSError | KafkaError]:
        """Create logs in advance; `create_partitions` later puts them into service. Return the errors by topic."""
        async with self._locks.hold(each.topic for each in hosted):
            # A directory that is in use would be moved out of the way.
            in_use = {each.topic for each in hosted if self.partition(each.topic, each.index) is not None}
            refused = {
                name: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The logs of {name} are in use") for name in in_use
            }
            wanted = [each for each in hosted if each.topic not in in_use]
            await self._free_names(wanted)

            def keep(made: Sequence[MadeLog]) -> None:
                self._prepared.update({(each.hosted.topic, each.hosted.index): each for each in made})

            return refused | dict(await self._creation.make(wanted, keep))

    def _take_up_prepared(self, wanted: Sequence[HostedPartition]) -> list[HostedPartition]:
        """Register partitions whose logs were prepared; return the partitions without a prepared log."""
        missing = []
        for each in wanted:
            prepared = self._prepared.get((each.topic, each.index))
            if prepared is None or prepared.hosted.topic_id != each.topic_id:
                missing.append(each)
                continue
            del self._prepared[each.topic, each.index]
            if prepared.hosted.config != each.config:  # the settings were changed meanwhile
                prepared.log.config = each.config
            self._take_up(prepared.log, each)
        return missing

    async def discard_prepared(self, hosted: Sequence[HostedPartition]) -> None:
        """Discard prepared logs that are not needed; logs of another topic of the same name stay."""
        async with self._locks.hold(each.topic for each in hosted):
            found = [self._prepared.get((each.topic, each.index)) for each in hosted]
            gone = [
                made for made, each in zip(found, hosted, strict=True) if made and made.hosted.topic_id == each.topic_id
            ]
            for made in gone:
                self._prepared.pop((made.hosted.topic, made.hosted.index), None)
            await self._creation.discard(gone)

    async def delete_partitions(
        self, partitions: Sequence[tuple[str, int]], *, deleted_topics: Collection[str] = ()
    ) -> None:
        """Delete partitions: immediately for clients, on disk after file.delete.delay.ms.

        Records of `deleted_topics` are reported as removed; those of other topics live on at other brokers.
        """
        async with self._locks.hold(topic for topic, _ in partitions):
            with self.removals.run(self._clock_ms()) as run:
                await self._delete_partitions(partitions, deleted_topics, run)

    async def _delete_partitions(
        self, partitions: Sequence[tuple[str, int]], deleted_topics: Collection[str], run: RemovalRun
    ) -> None:
        touched: set[LogDirectory] = set()
        time_slice = TimeSlice()
        for topic, index in partitions:
            if (
                topic in deleted_topics
                and run.reads_next
                and (found := self._registry.partition(topic, index)) is not None
            ):
                await warm(partial(_look_at_all, found.log), self._run_in_thread)
            # No await between this and `_give_up`: a request finds
            # either the partition or none, never one half deleted.
            partition = self._registry.remove(topic, index)
            if partition is not None:
                touched.add(partition.log.log_directory)
                if topic in deleted_topics:
                    _account(run.of_topic(topic), partition.log)
                self._give_up(partition)
                if (move := self.moves.move_of(partition)) is not None:
                    touched.add(move.target)
                    await self.moves.cancel(partition)
                await time_slice.yield_if_over()
        # One thread renames many directories at a time. Nobody waits for their files to be removed.
        await self._deletion.free_names(partitions)
        # What the checkpoints say of these names must not be believed of a new topic that is called the same.
        for held in self.directories.all:
            if held.log_directory in touched:
                await self._checkpoint_writer.write_all(held)

    def _give_up(self, partition: Partition) -> None:
        partition.mark_deleted()
        self._flusher.forget(partition)
        self._deletion.give_up(partition.log)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Adopt a topic's changed settings in all its partitions on this broker."""
        for partition in self.partitions_of(topic):
            partition.set_config(config)

    async def wait_committed(
        self, partition: Partition, next_offset: int, *, timeout_s: float | None = None, required_acks: int = -1
    ) -> ErrorCode:
        """Wait until all records below `next_offset` are committed or cannot be; return the error code.

        Returns REQUEST_TIMED_OUT after `timeout_s` seconds; without `timeout_s` the wait has no limit.
        """
        outcome = partition.acknowledgement(next_offset, required_acks)
        if outcome is not None:
            return outcome
        outcomes: list[ErrorCode] = []
        decided = trio.Event()

        def settle(code: ErrorCode) -> None:
            outcomes.append(code)
            decided.set()

        wait = self.produce_purgatory.add(partition, next_offset, required_acks, settle)
        try:
            with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
                await decided.wait()
        finally:
            # Also when this is cancelled: nobody may stay in the queue whom no task waits for.
            wait.give_up()
        return outcomes[0] if outcomes else ErrorCode.REQUEST_TIMED_OUT

    def _on_directory_failure(self, directory: LogDirectory, error: OSError) -> None:
        logger.error("Log directory %s is offline: %s", directory.path, error)
        # Moves end first: one of them may hold back acknowledgements of a partition on a disk that is well.
        self.moves.on_directory_failure(directory)
        for partition in self.partitions_in(directory):
            # Producers and fetches that wait ask again, and get KAFKA_STORAGE_ERROR instead of a timeout.
            partition.notify_watchers()
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)
        if not any(each.is_online for each in self.log_directories):
            self.all_directories_failed.set()

    # --- background ---------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run background work until cancelled: flushes, checkpoints, repairs, deletions, moves, housekeeping."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self._checkpoint_writer.run)
            nursery.start_soon(self._repairer.run)
            nursery.start_soon(self._deletion.run)
            nursery.start_soon(self.moves.run)
            task_status.started()
            await self.housekeeping.run()

    # --- end ----------------------------------------------------------------------------------------------------------

    async def shutdown(self, broker_epoch: int = -1) -> None:
        """Flush and close all logs; write the clean-shutdown mark into directories where that succeeded."""
        # The order matters: records first, then the files that speak of them, and the mark of an orderly shutdown
        # last. A mark that is on the disk lets the next start skip the recovery of all logs in the directory.
        await self._flusher.flush(list(self.partitions()), include_active=True)
        await self.moves.close()
        for held in self.directories.all:
            await self._checkpoint_writer.write_epochs(held)
        left_behind = await self._close_logs()
        for held in self.directories.all:
            are_written = await self._checkpoint_writer.write_all(held)
            if held.log_directory not in left_behind and are_written:
                try:
                    await self._run_in_thread(held.leave_clean_shutdown_mark, broker_epoch)
                except OSError as error:
                    held.log_directory.judge(error, held.path)
            # Last of all: the next broker may read as soon as it has the lock.
            held.release()

    async def _close_logs(self) -> set[LogDirectory]:
        """Close all logs; return the directories with logs that could not be synced to their end."""
        left_behind = set()
        refused: dict[LogDirectory, list[tuple[str, KafkaError]]] = {}
        time_slice = TimeSlice()
        for partition in self.partitions():
            log = partition.log
            if log.log_directory.is_online:
                try:
                    log.close()
                except KafkaError as error:
                    refused.setdefault(log.log_directory, []).append((log.directory, error))
                    left_behind.add(log.log_directory)
                # Its last records may be in memory alone, so the next start has to check them.
                if log.recovery_point < log.log_end_offset:
                    left_behind.add(log.log_directory)
                await time_slice.yield_if_over()
        for logs in refused.values():
            others = f", and {counted(len(logs) - 1, 'other log')} beside it," if len(logs) > 1 else ""
            logger.error("%s cannot be closed: %s", logs[0][0] + others, logs[0][1])
        return left_behind


def _look_at_all(log: PartitionLog) -> None:
    look_at_times(log, log.log_start_offset, log.log_end_offset)


def _account(removal: Removal, log: PartitionLog) -> None:
    """Add all records of a log whose topic is deleted to the account of the topic."""
    start, end = log.log_start_offset, log.log_end_offset
    removal.add("deletion of the topic", log, start, end, is_compacted=log.config.is_compacted)
    removal.logs += end > start
