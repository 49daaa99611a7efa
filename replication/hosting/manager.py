"""The partitions of this broker and the work behind them: the trio shell around `Partition` and `PartitionLog`.

Who owns what
    The event loop owns every partition and log; handlers call them directly and never await in between. Threads get work
    that is cut off from them: syncing files that are open already (`FlushJob`), loading logs nobody knows yet, making the
    files of new partitions, removing files that have been given up, writing checkpoints whose contents were taken on the
    loop. So there are no locks. The loops below give way after a few milliseconds, so that ten thousand partitions
    can be looked after without a request noticing.

Forced flushes
    A partition whose topic sets flush.messages or flush.ms asks for a flush with every append, and its high watermark waits
    for it. The flusher takes all partitions that have asked since it last looked and syncs them side by side in threads:
    appends that arrive meanwhile share the next sync, which is group commit. Either setting means that acknowledged
    records are on disk; a flush starts at once instead of after so many records or milliseconds, because waiting would
    only delay acknowledgements. Partitions also ask when they roll: then the finished segment is synced, so that the
    recovery point moves on and a restart after a crash has less to read.

Failing disks
    The first I/O error that cannot be undone takes a log directory offline (`on_directory_failure`). Its partitions answer
    KAFKA_STORAGE_ERROR, everybody waiting for one is told, and nothing is written there any more, not even the mark of an
    orderly shutdown. `all_directories_failed` is set when none is left.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.clock import system_clock_ms
from ottla.replication.cluster.state import NO_TOPIC_ID
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.replication.following.throttle import ReplicationThrottle
from ottla.replication.hosting.checkpointing import CheckpointWriter, NotedLog
from ottla.replication.hosting.directories import FoundPartition, HeldDirectory, OffsetCheckpoints, hold_directories
from ottla.replication.hosting.directory_identities import SeenDirectory
from ottla.replication.hosting.flushing import Flusher
from ottla.replication.hosting.loading import HostedPartition, LoadPlan, plan_loads
from ottla.replication.hosting.log_dir_moves import LogDirMoves
from ottla.replication.hosting.new_logs import MadeLog, NewLogs
from ottla.replication.hosting.removals import Removals
from ottla.replication.hosting.repairing import Repairer
from ottla.replication.hosting.retaining import apply_retention
from ottla.replication.log.cleaner import Cleanable, LogCleaner
from ottla.replication.log.descriptors import Descriptors
from ottla.replication.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    FUTURE_MARK,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    partition_directory_name,
)
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory, OsStorage, Storage
from ottla.replication.partition.commit_waits import CommitWaits
from ottla.replication.partition.followers import IsEligible
from ottla.replication.partition.partition import Partition
from ottla.replication.partition.refused_sequences import RefusedSequences
from ottla.replication.slices import Slices
from ottla.wire.errors import ErrorCode, KafkaError, bare

if TYPE_CHECKING:
    from ottla.replication.cluster.state import PartitionState

__all__ = ["HostedPartition", "ReplicaManager"]

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]

INITIAL_DELAY_S = 30


class ReplicaManager:
    """See the module's docstring."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        node_id: int,
        config: ReplicationConfig,
        default_log_config: LogConfig | None = None,
        storage: Storage | None = None,
        clock_ms: Callable[[], int] = system_clock_ms,
        run_in_thread: RunInThread = trio.to_thread.run_sync,
        new_uuid: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
        descriptors: Descriptors | None = None,
        log_dirs_throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.cluster_id: str | None = None
        self.all_directories_failed = trio.Event()
        self.commit_waits = CommitWaits()
        self.refused_sequences = RefusedSequences()
        self.is_eligible: IsEligible = lambda broker, broker_epoch: True
        self._paths = [os.path.abspath(path) for path in log_dirs]
        self._default_log_config = default_log_config or LogConfig()
        self._storage: Storage = OsStorage() if storage is None else storage
        self._clock_ms = clock_ms
        self._run_in_thread = run_in_thread
        self.new_uuid = new_uuid
        self._descriptors = descriptors or Descriptors()
        self._held: list[HeldDirectory] = []
        self._topics: dict[str, dict[int, Partition]] = {}
        self._checkpoints: dict[str, OffsetCheckpoints] = {}
        self._flusher = Flusher(run_in_thread, self._descriptors.flushed_files_max)
        self._repairer = Repairer(run_in_thread)
        self._checkpoint_writer = CheckpointWriter(run_in_thread, self._noted_logs)
        self._cleaner = LogCleaner(run_in_thread, clock_ms)
        self.on_directory_failure: Callable[[LogDirectory], None] | None = None
        self.moves = LogDirMoves(
            directories=lambda: self.log_directories,
            note_offsets=self._note_offsets,
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
            new_uuid=new_uuid,
            throttle=log_dirs_throttle,
        )
        self._removals = Removals(
            storage=self._storage,
            directories=lambda: self.log_directories,
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
            new_uuid=new_uuid,
        )
        self._new_logs = NewLogs(
            directories=lambda: self.log_directories,
            count_logs=self._count_logs,
            take_preferred=self.moves.take_preferred,
            forget_former=lambda names: self._checkpoint_writer.forget(names, self._held),
            clock_ms=clock_ms,
            run_in_thread=run_in_thread,
            new_uuid=new_uuid,
        )

    # --- start --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the log directories. LogDirectoryProblem says what stands in the way."""
        self._held = await self._run_in_thread(self._hold)
        for held in self._held:
            held.log_directory.on_failure = self._on_directory_failure
            held.log_directory.on_cut = partial(self._checkpoint_writer.note_cut, held)
            if held.meta is not None and held.meta.cluster_id is not None:
                self.cluster_id = held.meta.cluster_id

    def _hold(self) -> list[HeldDirectory]:
        return hold_directories(self._paths, self._storage, node_id=self.node_id, descriptors=self._descriptors)

    def seen_directories(self) -> list[SeenDirectory]:
        """The log directories as they were found."""
        return [SeenDirectory(held.path, held.log_directory.is_online, held.meta) for held in self._held]

    async def mark_directories(self, ids: Mapping[str, bytes], cluster_id: str) -> set[str]:
        """Write their ids into the log directories; answers the paths of those that have them now."""
        for held in self._online():
            try:
                await self._run_in_thread(self._mark_directory, held, ids[held.path], cluster_id)
            except OSError as error:
                held.log_directory.judge(error, held.path)
        return {held.path for held in self._online() if held.meta is not None and held.meta.directory_id is not None}

    def _mark_directory(self, held: HeldDirectory, directory_id: bytes, cluster_id: str) -> None:
        held.settle(node_id=self.node_id, cluster_id=cluster_id, directory_id=directory_id)

    def found_partitions(self) -> list[FoundPartition]:
        """The partitions on disk, whether anybody knows of them or not; only before `load`.

        A directory that cannot be read is offline from then on. A broker that took it for empty would put its logs aside
        and begin them anew.
        """
        found: list[FoundPartition] = []
        for held in self._online():
            try:
                found += held.found_partitions()
            except OSError as error:  # a thread tells nobody; `load` sees it
                logger.error("Log directory %s is offline: %s", held.path, error)
                held.log_directory.failure = error
        current = {(each.parsed.topic, each.parsed.partition): each for each in found if not each.parsed.mark}
        for each in found:
            if each.parsed.mark == FUTURE_MARK:  # alone, it is what the next `load` makes the current one
                current.setdefault((each.parsed.topic, each.parsed.partition), each)
        return list(current.values())

    def _online(self) -> list[HeldDirectory]:
        return [held for held in self._held if held.log_directory.is_online]

    async def load(self, hosted: Iterable[HostedPartition], *, cluster_id: str) -> None:
        """Bring back every log and lead or follow as `hosted` says. Partitions nobody hosts are put aside."""
        wanted = {(each.topic, each.index): each for each in hosted}
        futures: list[PartitionLog] = []
        if not self._online():
            self.all_directories_failed.set()
        for held in self._online():
            started = time.perf_counter()
            try:
                logs, future_logs = await self._load_directory(held, wanted, cluster_id)
            except OSError as error:
                held.log_directory.take_offline(error)  # even for a passing error: logs that are not loaded cannot be served
                continue
            futures += future_logs
            slices = Slices()
            for log in logs:
                self._take_up(log, wanted[log.topic, log.partition])
                await slices.give_way()
            logger.info("Loaded %d logs in %s in %.3f s", len(logs), held.path, time.perf_counter() - started)
        self.cluster_id = cluster_id
        for log in sorted(futures, key=lambda log: -log.log_end_offset):
            await self._take_up_future(log, wanted[log.topic, log.partition])
        self._checkpoints.clear()
        missing = [each for key, each in wanted.items() if self.partition(*key) is None]
        if all(directory.is_online for directory in self.log_directories):
            await self.create_partitions(missing)
        elif missing:
            # They are probably on the disk that failed. Beginning them anew would lose what is there.
            logger.error("%d partitions are not available while a log directory is offline", len(missing))

    async def _load_directory(
        self, held: HeldDirectory, wanted: Mapping[tuple[str, int], HostedPartition], cluster_id: str
    ) -> tuple[list[PartitionLog], list[PartitionLog]]:
        plan = await self._run_in_thread(self._plan_loads, held, wanted, cluster_id)
        self._checkpoints[held.path] = plan.checkpoints
        logs: list[PartitionLog] = []
        futures: list[PartitionLog] = []
        loads = [*((each, logs) for each in plan.loads), *((each, futures) for each in plan.futures)]
        threads = min(self.config.num_recovery_threads_per_data_dir, len(loads))
        errors: list[OSError] = []

        def load(start: int) -> None:
            try:
                for each, loaded in loads[start::threads]:
                    directory = held.log_directory if loaded is logs else held.log_directory.apart()
                    loaded.append(PartitionLog.load(directory, *each))
            except OSError as error:
                errors.append(bare(error))

        async with trio.open_nursery() as nursery:
            for start in range(threads):
                nursery.start_soon(self._run_in_thread, load, start)
        if errors:
            raise errors[0]
        return logs, futures

    def _plan_loads(
        self, held: HeldDirectory, wanted: Mapping[tuple[str, int], HostedPartition], cluster_id: str
    ) -> LoadPlan:
        held.settle(node_id=self.node_id, cluster_id=cluster_id)
        return plan_loads(
            held,
            wanted,
            is_loaded=lambda topic, index: self.partition(topic, index) is not None,
            now_ms=self._clock_ms(),
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            new_uuid=self.new_uuid,
        )

    def _take_up(self, log: PartitionLog, hosted: HostedPartition) -> None:
        """Let a log be known as a partition."""
        if log.topic_id is None and hosted.topic_id != NO_TOPIC_ID:
            try:
                log.assign_topic_id(hosted.topic_id)
            except KafkaError as error:  # the log is served without it, and the next start tries again
                logger.warning("The topic id of %s cannot be written: %s", log.directory, error)
        checkpoints = self._checkpoints.get(log.log_directory.path)
        key = (log.topic, log.partition)
        partition = Partition(
            log.topic,
            log.partition,
            log,
            local_id=self.node_id,
            high_watermark=checkpoints.high_watermarks.get(key, 0) if checkpoints is not None else 0,
            request_flush=self._flusher.request,
            lag_ms=self.config.replica_lag_time_max_ms,
            is_eligible=self.is_eligible,
        )
        log.enter_service(self._repairer.request)
        if checkpoints is not None:
            log.first_dirty_offset = checkpoints.first_dirty_offsets.get(key, -1)
        self._apply_state(partition, hosted.state)
        self._topics.setdefault(log.topic, {})[log.partition] = partition

    async def _take_up_future(self, log: PartitionLog, hosted: HostedPartition) -> None:
        """A log that was on its way into its directory: it goes on, or is the current one if the old one has gone."""
        (directory,) = (each for each in self.log_directories if each.path == log.log_directory.path)
        partition = self.partition(log.topic, log.partition)
        if partition is not None:
            await self.moves.resume(partition, directory, log)
        elif all(each.is_online for each in self.log_directories):
            try:
                await self._run_in_thread(self.moves.promote, log, directory)
            except (OSError, KafkaError) as error:
                directory.take_offline(error if isinstance(error, OSError) else OSError(str(error)))
            else:
                self._take_up(log, hosted)

    def _apply_state(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self.node_id:
            partition.make_leader(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr,
                now_ms=self._clock_ms(),
            )
        else:
            epochs = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
            partition.make_follower(leader_id=state.leader, replicas=state.replicas, **epochs)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition this broker has a log of."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether a partition is, or may be, on a log directory that has failed."""
        partition = self.partition(topic, index)
        if partition is not None:
            return not partition.log.log_directory.is_online
        return not all(directory.is_online for directory in self.log_directories)

    def partitions_of(self, topic: str) -> list[Partition]:
        """The partitions of one topic that are here."""
        return list(self._topics.get(topic, {}).values())

    def partitions(self) -> Iterator[Partition]:
        """All partitions, also those that come or go meanwhile."""
        for topic in list(self._topics):
            yield from self.partitions_of(topic)

    def partitions_in(self, log_directory: LogDirectory) -> list[Partition]:
        """The partitions whose log is in one directory."""
        return [partition for partition in self.partitions() if partition.log.log_directory is log_directory]

    def _noted_logs(self, held: HeldDirectory) -> Iterator[NotedLog]:
        for partition in self.partitions():
            if partition.log.log_directory is held.log_directory and not partition.is_deleted:
                yield NotedLog(partition.log, partition.high_watermark)
        for move in self.moves.moves_to(held.log_directory):
            yield NotedLog(move.log, min(move.partition.high_watermark, move.log.log_end_offset), is_future=True)

    @property
    def held_directories(self) -> Sequence[HeldDirectory]:
        """The log directories that this process has, offline ones too."""
        return self._held

    @property
    def log_directories(self) -> list[LogDirectory]:
        """The log directories, offline ones too."""
        return [held.log_directory for held in self._held]

    async def create_partitions(self, hosted: Sequence[HostedPartition]) -> None:
        """Make the logs of new partitions. OSError if the disk will not have some; then the rest of their topics is not made.

        KafkaError if one of them has a name that cannot be; then none is made.
        """
        missing = []
        for each in hosted:
            partition = self.partition(each.topic, each.index)
            if partition is None:
                partition_directory_name(each.topic, each.index)  # refuses a name that cannot be, before any log is made
                missing.append(each)
            else:
                self._apply_state(partition, each.state)
        await self._removals.free_names_for_new_logs([(each.topic, each.index) for each in missing])
        failures = await self._new_logs.make(missing, self._take_up_some)
        for failure in failures.values():
            raise failure

    def _count_logs(self) -> dict[str, int]:
        counts = {held.path: 0 for held in self._held if held.log_directory.is_online}
        for partition in self.partitions():
            if partition.log.log_directory.path in counts:
                counts[partition.log.log_directory.path] += 1
        for directory in self.log_directories:
            if directory.path in counts:
                counts[directory.path] += len(self.moves.moves_to(directory))
        return counts

    def _take_up_some(self, made: Sequence[MadeLog]) -> None:
        for log, hosted in made:
            self._take_up(log, hosted)

    async def make_logs(
        self, hosted: Sequence[HostedPartition], made: list[MadeLog]
    ) -> Mapping[str, OSError | KafkaError]:
        """Make logs that nobody sees before `adopt_logs`; `made` gets them. Answers which topics' could not be made, and why."""
        await self._removals.free_names_for_new_logs([(each.topic, each.index) for each in hosted])
        return await self._new_logs.make(hosted, made.extend)

    async def adopt_logs(self, made: Sequence[MadeLog]) -> None:
        """Let logs that were made be known as partitions."""
        slices = Slices()
        for each in made:
            self._take_up(*each)
            await slices.give_way()

    async def discard_logs(self, made: Sequence[MadeLog]) -> None:
        """Remove logs that were made in vain."""
        await self._new_logs.discard(made)

    async def delete_partitions(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Give partitions up: gone for everybody at once, off the disk after file.delete.delay.ms."""
        touched: set[LogDirectory] = set()
        slices = Slices()
        for topic, index in partitions:
            of_topic = self._topics.get(topic, {})
            partition = of_topic.pop(index, None)
            if not of_topic:
                self._topics.pop(topic, None)
            if partition is not None:
                touched.add(partition.log.log_directory)
                self._give_up(partition)
                if (move := self.moves.move_of(partition)) is not None:
                    touched.add(move.target)
                    await self.moves.cancel(partition)
                await slices.give_way()
        await self._removals.free_names(partitions)
        # What the checkpoints say of these names must not be believed of a new topic that is called the same.
        for held in self._held:
            if held.log_directory in touched:
                await self._checkpoint_writer.write_all(held)

    def _give_up(self, partition: Partition) -> None:
        partition.mark_deleted()
        self._flusher.forget(partition)
        self._removals.give_up(partition.log)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """The settings of a topic have changed."""
        for partition in self.partitions_of(topic):
            partition.set_config(config)

    async def wait_committed(
        self, partition: Partition, next_offset: int, *, timeout_s: float | None = None, required_acks: int = -1
    ) -> ErrorCode:
        """Wait until everything below `next_offset` is acknowledged, or cannot be; REQUEST_TIMED_OUT if that takes long."""
        outcome = partition.acknowledgement(next_offset, required_acks)
        if outcome is not None:
            return outcome
        outcomes: list[ErrorCode] = []
        decided = trio.Event()

        def settle(code: ErrorCode) -> None:
            outcomes.append(code)
            decided.set()

        wait = self.commit_waits.add(partition, next_offset, required_acks, settle)
        try:
            with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
                await decided.wait()
        finally:
            wait.give_up()
        return outcomes[0] if outcomes else ErrorCode.REQUEST_TIMED_OUT

    def _on_directory_failure(self, directory: LogDirectory, error: OSError) -> None:
        logger.error("Log directory %s is offline: %s", directory.path, error)
        self.moves.on_directory_failure(directory)
        for partition in self.partitions_in(directory):
            partition.notify_watchers()
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)
        if not any(each.is_online for each in self.log_directories):
            self.all_directories_failed.set()

    # --- background ---------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush, apply retention, write checkpoints, remove files, forget producers; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self._checkpoint_writer.run)
            nursery.start_soon(self._repairer.run)
            nursery.start_soon(self._removals.run)
            nursery.start_soon(self.moves.run)
            nursery.start_soon(self._repeat, self._apply_retention, self._retention_interval_s)
            nursery.start_soon(self._repeat, self._checkpoint_high_watermarks, self._watermark_interval_s)
            nursery.start_soon(self._repeat, self._checkpoint_all, self._checkpoint_interval_s)
            nursery.start_soon(self._repeat, self._expire_producers, self._expiry_interval_s)
            nursery.start_soon(self._repeat, self._compact, lambda: max(self.config.log_cleaner_backoff_ms / 1000, 0.1))
            task_status.started()

    def _retention_interval_s(self) -> float:
        return self.config.log_retention_check_interval_ms / 1000

    def _expiry_interval_s(self) -> float:
        return self.config.producer_id_expiration_check_interval_ms / 1000

    def _watermark_interval_s(self) -> float:
        return self.config.replica_high_watermark_checkpoint_interval_ms / 1000

    def _checkpoint_interval_s(self) -> float:
        config = self.config
        interval_ms = min(
            config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
        )
        return max(interval_ms / 1000, 0.1)

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval_s: Callable[[], float]) -> None:
        await trio.sleep(min(interval_s(), INITIAL_DELAY_S))
        while True:
            try:
                await work()
            except Exception:
                logger.exception("Background work failed; it goes on in %s s", interval_s())
            await trio.sleep(interval_s())

    async def _apply_retention(self) -> None:
        await apply_retention(self.partitions(), self._repairer, self._clock_ms)

    async def _compact(self) -> None:
        """Compact the log that needs it most, then the next, as long as there is one."""
        while self.config.log_cleaner_enable:
            slices, found = Slices(), list[Cleanable]()
            for partition in self.partitions():
                await self._cleaner.learn_times(partition.log)
                is_at_rest = not partition.is_deleted and self.moves.move_of(partition) is None
                if is_at_rest and (each := self._cleaner.look_at(partition.log, partition.last_stable_offset)):
                    found.append(each)
                await slices.give_way()
            if not found:
                return
            dirtiest = max(found, key=lambda each: each.dirty_ratio)
            (held,) = (held for held in self._held if held.log_directory is dirtiest.log.log_directory)
            # Compaction leaves gaps between segments, which recovery takes for damage above the recovery point.
            if not await self._checkpoint_writer.write(held, RECOVERY_POINT_CHECKPOINT):
                return
            await self._cleaner.clean(dirtiest, map_bytes_max=self.config.log_cleaner_dedupe_buffer_size)
            await self._checkpoint_writer.write(held, CLEANER_OFFSET_CHECKPOINT)

    async def _expire_producers(self) -> None:
        slices = Slices()
        for partition in self.partitions():
            for _ in partition.log.remove_expired_producers(self._clock_ms(), self.config.producer_id_expiration_ms):
                await slices.give_way()
            await slices.give_way()

    async def _checkpoint_high_watermarks(self) -> None:
        for held in self._held:
            await self._checkpoint_writer.write(held, HIGH_WATERMARK_CHECKPOINT)

    async def _checkpoint_all(self) -> None:
        await self._note_offsets(self.log_directories)

    async def _note_offsets(self, directories: Iterable[LogDirectory]) -> None:
        wanted = set(directories)
        for held in self._held:
            if held.log_directory in wanted:
                await self._checkpoint_writer.write_epochs(held)
                await self._checkpoint_writer.write_all(held)

    # --- end ----------------------------------------------------------------------------------------------------------

    async def shutdown(self, broker_epoch: int = -1) -> None:
        """Everything to disk and closed; directories where all of that worked get the mark of an orderly shutdown."""
        await self._flusher.flush(list(self.partitions()), include_active=True)
        await self.moves.close()
        for held in self._held:
            await self._checkpoint_writer.write_epochs(held)
        left_behind = await self._close_logs()
        for held in self._held:
            are_written = await self._checkpoint_writer.write_all(held)
            if held.log_directory not in left_behind and are_written:
                try:
                    await self._run_in_thread(held.leave_clean_shutdown_mark, broker_epoch)
                except OSError as error:
                    held.log_directory.judge(error, held.path)
            held.release()

    async def _close_logs(self) -> set[LogDirectory]:
        """Close all logs; the directories of those that are not on the disk to their end."""
        left_behind = set()
        slices = Slices()
        for partition in self.partitions():
            log = partition.log
            if log.log_directory.is_online:
                try:
                    log.close()
                except KafkaError as error:
                    logger.error("%s cannot be closed: %s", log.directory, error)
                    left_behind.add(log.log_directory)
                if log.recovery_point < log.log_end_offset:
                    left_behind.add(log.log_directory)
                await slices.give_way()
        return left_behind
