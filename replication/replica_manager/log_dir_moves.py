"""Moving replicas between the log directories of this broker (KIP-113): the trio shell around `FutureReplica`.

A few workers, one per log directory, take the moves in the order they were asked for and see each through. Copying is
throttled by replica.alter.log.dirs.io.max.bytes.per.second. Moves that were under way when the broker stopped go on after
it has started: their future logs are on disk, and nothing else need be remembered.

| AlterReplicaLogDirs for a replica                 | result                                                                  |
|---------------------------------------------------|-------------------------------------------------------------------------|
| that is here, to another directory                | moves there; a move elsewhere that is under way ends                    |
| ... to the directory it is in                     | a move that is under way ends                                           |
| ... while a log directory is offline              | KAFKA_STORAGE_ERROR, because its future log may be there                |
| that is on a directory that failed                | KAFKA_STORAGE_ERROR                                                     |
| that is not here                                  | UNKNOWN_TOPIC_OR_PARTITION or REPLICA_NOT_AVAILABLE, and the directory  |
|                                                   | is remembered for when it comes                                         |
| to a directory that is no log directory           | LOG_DIR_NOT_FOUND                                                       |
| to one that failed                                | KAFKA_STORAGE_ERROR                                                     |
| of a topic whose future log would have a name     | INVALID_TOPIC_EXCEPTION                                                 |
| that is too long                                  |                                                                         |
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import trio

from ottla.replication.fetcher.throttle import ReplicationThrottle
from ottla.replication.log.names import (
    DELETE_MARK,
    DIRECTORY_NAME_LENGTH_MAX,
    FUTURE_MARK,
    marked_directory_name,
    partition_directory_name,
    partition_path,
)
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.future_replica import FutureReplica
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]
Key = tuple[str, int]

RETRY_S = 1.0  # replica.fetch.backoff.ms
THROTTLED_S = 0.1  # between two looks at a throttle, which nobody reports
UUID_HEX_LENGTH = 32  # as in Kafka's names; part of the length that a topic's name leaves
PREFERRED_MAX = 10_000  # directories remembered for replicas that may never come


class LogDirMoves:
    """Moves of replicas between log directories; `note_offsets` writes the checkpoints of the given directories."""

    def __init__(
        self,
        *,
        directories: Callable[[], Sequence[LogDirectory]],
        note_offsets: Callable[[Iterable[LogDirectory]], Awaitable[None]],
        clock_ms: Callable[[], int],
        run_in_thread: RunInThread,
        new_uuid: Callable[[], bytes],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self._directories = directories
        self._note_offsets = note_offsets
        self._clock_ms = clock_ms
        self._run_in_thread = run_in_thread
        self._new_uuid = new_uuid
        self._throttle = throttle
        self._moves: dict[Key, FutureReplica] = {}  # in the order in which workers take them
        # Moves that have taken over, while their names are not on the disk yet.
        self._settling: dict[Key, trio.Event] = {}
        self._preferred: OrderedDict[Key, str] = OrderedDict()
        self._lock = trio.Lock()  # one request at a time: each awaits between its look and its change
        self._at_work: set[FutureReplica] = set()  # each move has one worker at most, or none while it is prepared
        self._work = trio.Event()

    # --- what is going on ---------------------------------------------------------------------------------------------

    def move_of(self, partition: Partition) -> FutureReplica | None:
        """Return the move of a partition; None if it is not being moved."""
        return self._moves.get((partition.topic, partition.index))

    def moves_to(self, directory: LogDirectory) -> list[FutureReplica]:
        """Return the moves into a directory."""
        return [move for move in self._moves.values() if move.target is directory]

    def take_preferred(self, topic: str, index: int) -> LogDirectory | None:
        """Return and forget the directory that an operator chose for a new replica.

        Returns None if no directory was chosen, or if it has failed.
        """
        path = self._preferred.pop((topic, index), None)
        found = next((each for each in self._directories() if each.path == path), None)
        # A directory that has failed since is no reason to refuse the replica: it goes where there are fewest.
        return found if found is not None and found.is_online else None

    # --- requests -----------------------------------------------------------------------------------------------------

    def destination(self, topic: str, index: int, path: str) -> LogDirectory:
        """Return the directory at `path` if a replica may move there, otherwise raise KafkaError."""
        # Kafka refuses such a topic in this way.
        length = len(f"{topic}-{index}.{'-' * UUID_HEX_LENGTH}{FUTURE_MARK}")
        if length > DIRECTORY_NAME_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        found = next((each for each in self._directories() if each.path == path), None)
        if found is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        found.check_online()
        if found.is_cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        return found

    def prefer(self, topic: str, index: int, directory: LogDirectory) -> None:
        """Remember the directory in which to create a replica that this broker does not have yet."""
        # Clients name partitions that may never come here. The oldest wishes go, so that the table stays bounded.
        while len(self._preferred) >= PREFERRED_MAX:
            self._preferred.popitem(last=False)
        self._preferred[topic, index] = directory.path

    async def move(self, partition: Partition, target: LogDirectory) -> None:
        """Begin to move a replica to `target`; if it is there already, only cancel its move elsewhere.

        Raises KafkaError if the replica cannot move.
        """
        async with self._lock:
            key = (partition.topic, partition.index)
            # The former move still renames directories of this partition. Another one would look for names that change.
            if key in self._settling:
                await self._settling[key].wait()
            partition.log.log_directory.check_online()
            current = self._moves.get(key)
            # Phase 1: a move elsewhere ends, and one to the same place simply goes on.
            if current is not None and current.target is not target:
                await self.cancel(partition)
                current = None
            if current is not None or partition.log.log_directory is target:
                return
            self._check_all_online(partition)
            # Whoever asked may go away. Nobody else would know of a log that is made but not given to a worker.
            with trio.CancelScope(shield=True):
                await self._begin(partition, target)

    async def _begin(self, partition: Partition, target: LogDirectory) -> None:
        # Phase 2: the future log, made by a thread while the partition is in use.
        log = await self._create(partition, target)
        # Meanwhile the topic may have been deleted or the disk may have failed. Nobody would ever finish this log.
        if partition.is_deleted or not target.is_online:
            await self._delete(target, log.directory, log)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name} is gone")
        # Phase 3: workers get it. Until the checkpoints are written it counts as being at work, so that none begins.
        move = FutureReplica(partition, target, log, self._clock_ms)
        self._moves[partition.topic, partition.index] = move
        self._at_work.add(move)
        try:
            # What the checkpoints say of an earlier log of this name must not be believed of the new one.
            await self._note_offsets([target])
        finally:
            self._at_work.discard(move)
            self._work.set()

    def _check_all_online(self, partition: Partition) -> None:
        # A future log of this partition may be on the disk that
        # failed. With two of them the next start would have to choose.
        offline = [each.path for each in self._directories() if not each.is_online]
        if offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {partition.log.name} because log directories {', '.join(offline)} are offline",
            )

    async def _create(self, partition: Partition, target: LogDirectory) -> PartitionLog:
        now_ms = self._clock_ms()
        name = marked_directory_name(partition.topic, partition.index, self._new_uuid().hex(), FUTURE_MARK)

        def create() -> PartitionLog:
            return FutureReplica.create_log(partition.log, target, name, now_ms=now_ms)

        try:
            log: PartitionLog = await self._run_in_thread(create)
        except OSError as error:
            raise target.judge(error, partition.log.name) from error
        return log

    async def resume(self, partition: Partition, target: LogDirectory, log: PartitionLog) -> None:
        """Resume a move whose future log was found on disk; delete the future log if it is not needed any more."""
        # The partition is in that directory already, or a longer future log of it goes on.
        if partition.log.log_directory is target or self.move_of(partition) is not None:
            await self._delete(target, log.directory, log)
            return
        logger.info("Going on to move %s to %s", partition.log.name, target.path)
        # `is_new=False`: the current log may have been cut since. Leader epochs decide how much of the future log stays.
        move = FutureReplica(partition, target, log, self._clock_ms, is_new=False)
        self._moves[partition.topic, partition.index] = move
        self._work.set()

    def promote(self, log: PartitionLog, directory: LogDirectory) -> None:
        """Make a future log the current log by renaming it, if the current one is missing; blocks on the disk.

        Raises OSError or KafkaError.
        """
        logger.info("%s had taken over when the broker stopped", log.directory)
        log.rename_directory(partition_directory_name(log.topic, log.partition))
        directory.storage.sync_directory(directory.path)
        log.log_directory = directory  # it was loaded with one of its own, because threads work on future logs

    async def cancel(self, partition: Partition) -> None:
        """Cancel a partition's move, if any, and delete the future log."""
        # Removed before the await, so no worker and no second request takes it up again.
        move = self._moves.pop((partition.topic, partition.index), None)
        if move is not None:
            move.give_up()
            await self._delete(move.target, move.log.directory, move.log)

    async def _delete(self, target: LogDirectory, directory: str, log: PartitionLog) -> None:
        if not target.is_online:  # the next start finds the future log and decides
            return
        deleted = marked_directory_name(log.topic, log.partition, self._new_uuid().hex(), DELETE_MARK)
        path = partition_path(target.path, deleted)
        try:
            with trio.CancelScope(shield=True):  # if it were cancelled, the next start would go on with the move
                await self._run_in_thread(target.storage.rename, directory, path)
        except OSError as error:
            target.judge(error, log.name)
            path = directory  # which is nobody else's name: it can go as it is
        target.remove_later(path, self._clock_ms() + log.config.file_delete_delay_ms)

    def on_directory_failure(self, directory: LogDirectory) -> None:
        """End moves from and to a failed directory; their future logs stay on disk for the next start."""
        # The partition goes on in its present directory if that is well.
        for key, move in list(self._moves.items()):
            if directory in (move.source, move.target):
                del self._moves[key]
                move.give_up()

    # --- work ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run one worker per log directory, which carry out the moves; until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in self._directories()[1:]:
                nursery.start_soon(self._work_on_moves)
            await self._work_on_moves()

    async def _work_on_moves(self) -> None:
        while True:
            move = next((move for move in self._moves.values() if move not in self._at_work), None)
            # No await between the look and this wait, so no move is missed.
            if move is None:
                await self._work.wait()
                self._work = trio.Event()
                continue
            self._at_work.add(move)
            try:
                await self._work_on(move)
            finally:
                self._at_work.discard(move)

    async def _work_on(self, move: FutureReplica) -> None:
        while not move.is_over:
            if self._throttle is not None and self._throttle.is_exceeded(self._clock_ms()):
                # While finishing, acknowledgements may wait for the copy. They must not wait for a throttle.
                move.pause()
                await trio.sleep(THROTTLED_S)
                continue
            try:
                await self._carry_on(move)
            except (OSError, KafkaError) as error:
                # A log that was cut or given up under the thread's hands
                # is no disk's fault. The next step cuts the copy, too.
                if not move.is_over and not move.was_cut:
                    self._judge(move, error)
                    move.pause()
                    await trio.sleep(RETRY_S)
                    # Others get their turn: one log that cannot be read must not keep a worker for good.
                    self._put_last(move)
                    return

    def _put_last(self, move: FutureReplica) -> None:
        key = (move.partition.topic, move.partition.index)
        if self._moves.get(key) is move:
            self._moves[key] = self._moves.pop(key)
            self._work.set()

    async def _carry_on(self, move: FutureReplica) -> None:
        """Run the next job of a move, or finish the move."""
        job = move.next_job()
        if job is None:
            await self._finish(move)
            return
        await self._run_in_thread(job.run)
        if self._throttle is not None:
            self._throttle.record(job.size, self._clock_ms())
        # The move may have ended while the thread worked. Then the partition does not care for this log any more.
        if not move.is_over:
            move.finish_job()

    def _judge(self, move: FutureReplica, error: OSError | KafkaError) -> None:
        """Report an I/O error of a move to the source or target directory in which it happened."""
        logger.warning("%r cannot go on: %s", move, error)
        # Both directories are read or written in one job, and only the one that failed may go offline.
        if move.source_failure is not None:
            failure, move.source_failure = move.source_failure, None
            move.source.judge(failure, move.log.name)
        elif isinstance(error, OSError):
            move.target.judge(error, move.log.name)
        # The copy notes its failures apart, because a thread works on it. Here they reach the directory itself.
        elif move.log.log_directory.failure is not None:
            move.target.take_offline(move.log.log_directory.failure)

    async def _finish(self, move: FutureReplica) -> None:
        partition, key = move.partition, (move.partition.topic, move.partition.index)
        deleted = marked_directory_name(partition.topic, partition.index, self._new_uuid().hex(), DELETE_MARK)
        # From here the future log takes the appends. What is left to do is to make the names say so.
        old = move.take_over(deleted)
        del self._moves[key]
        settled = self._settling[key] = trio.Event()
        # A stop of the broker must not leave the names half changed.
        with trio.CancelScope(shield=True):
            try:
                await self._settle(move, old)
            finally:
                del self._settling[key]
                settled.set()
        logger.info("Moved %s from %s to %s", old.name, old.log_directory.path, move.target.path)
        # The target's checkpoints tell of the new log, and those of the source forget the old one.
        await self._note_offsets([old.log_directory, move.target])

    async def _settle(self, move: FutureReplica, old: PartitionLog) -> None:
        """Give the future log the current log's name, after the old log's new name is durable.

        The old log's files are removed later.
        """
        # Phase 1: as long as the old name may come back after a power cut, the old log
        # would count. Where the topic asks for flushes, acknowledgements wait for that.
        await self._sync_names(old.log_directory)
        move.let_acknowledge()
        # Phase 2: the future log gets the plain name. If its topic has just been deleted, the removal renames it.
        if not move.partition.is_deleted:
            try:
                move.log.rename_directory(partition_directory_name(old.topic, old.partition))
            except KafkaError as error:
                # It keeps its name until the next start. If the disk is broken, the old log stays for that start, too.
                logger.error("%s cannot be renamed: %s", move.log.directory, error)
            else:
                await self._sync_names(move.target)
        # Phase 3: the old log is not needed any more.
        if move.target.is_online:
            old.log_directory.remove_later(old.directory, self._clock_ms() + old.config.file_delete_delay_ms)

    async def _sync_names(self, directory: LogDirectory) -> None:
        while directory.is_online:
            try:
                await self._run_in_thread(directory.storage.sync_directory, directory.path)
                return
            except OSError as error:
                # A broken disk ends this loop, because `judge` takes its directory offline. A shortage passes.
                directory.judge(error, directory.path)
            await trio.sleep(RETRY_S)

    async def close(self) -> None:
        """Sync and close future logs at shutdown; the next start resumes their moves."""
        # The next start goes on with these moves, and trusts a synced copy without reading it through.
        for move in list(self._moves.values()):
            if move.target.is_online:
                try:
                    await self._run_in_thread(move.close)
                except (OSError, KafkaError) as error:
                    self._judge(move, error)
