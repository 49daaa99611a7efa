"""What is done for all partitions again and again: retention, compaction, checkpoints, and producers that are forgotten.

Each of these goes round on its own. They give way to requests after a few milliseconds, and what fails is tried again in
the next round.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.hosting.retaining import apply_retention
from ottla.replication.log.cleaner import Cleanable, LogCleaner
from ottla.replication.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.replication.slices import Slices

if TYPE_CHECKING:
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.hosting.catalogue import Catalogue
    from ottla.replication.hosting.checkpointing import CheckpointWriter
    from ottla.replication.hosting.held_directories import HeldDirectories
    from ottla.replication.hosting.log_dir_moves import LogDirMoves
    from ottla.replication.hosting.repairing import Repairer
    from ottla.replication.log.storage import LogDirectory

logger = logging.getLogger("ottla.replication")

INITIAL_DELAY_S = 30  # Kafka's InitialTaskDelayMs; the first round waits no longer than that


class Housekeeping:
    """See the module's docstring. `config` tells the settings in force."""

    def __init__(
        self,
        catalogue: Catalogue,
        directories: HeldDirectories,
        *,
        config: Callable[[], ReplicationConfig],
        checkpoints: CheckpointWriter,
        repairer: Repairer,
        moves: LogDirMoves,
        clock_ms: Callable[[], int],
        run_in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._catalogue = catalogue
        self._directories = directories
        self._config = config
        self._checkpoints = checkpoints
        self._repairer = repairer
        self._moves = moves
        self._clock_ms = clock_ms
        self._cleaner = LogCleaner(run_in_thread, clock_ms)

    async def run(self) -> None:
        """Go round until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, self.apply_retention, self._retention_interval_s)
            nursery.start_soon(self._repeat, self._checkpoint_high_watermarks, self._watermark_interval_s)
            nursery.start_soon(self._repeat, self.checkpoint_all, self._checkpoint_interval_s)
            nursery.start_soon(self._repeat, self._expire_producers, self._expiry_interval_s)
            nursery.start_soon(self._repeat, self.compact, self._cleaner_pause_s)

    def _retention_interval_s(self) -> float:
        return self._config().log_retention_check_interval_ms / 1000

    def _expiry_interval_s(self) -> float:
        return self._config().producer_id_expiration_check_interval_ms / 1000

    def _watermark_interval_s(self) -> float:
        return self._config().replica_high_watermark_checkpoint_interval_ms / 1000

    def _cleaner_pause_s(self) -> float:
        # 0 is a valid setting and must not make a busy loop. The same holds for checkpoints below.
        return max(self._config().log_cleaner_backoff_ms / 1000, 0.1)

    def _checkpoint_interval_s(self) -> float:
        config = self._config()
        interval_ms = min(
            config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
        )
        return max(interval_ms / 1000, 0.1)

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval_s: Callable[[], float]) -> None:
        await trio.sleep(min(interval_s(), INITIAL_DELAY_S))
        while True:
            try:
                await work()
            # A bug in one round must not end the others, nor the broker.
            except Exception:
                logger.exception("Background work failed; it goes on in %s s", interval_s())
            await trio.sleep(interval_s())

    async def apply_retention(self) -> None:
        """Give up segments that are too old or too many."""
        await apply_retention(self._catalogue.partitions(), self._repairer, self._clock_ms)

    async def compact(self) -> None:
        """Compact the log that needs it most, then the next, as long as there is one."""
        while self._config().log_cleaner_enable:
            slices, found = Slices(), list[Cleanable]()
            for partition in self._catalogue.partitions():
                # A thread opens indexes that nobody has looked at yet: `look_at` would read them on the event loop.
                await self._cleaner.learn_times(partition.log)
                # A replica that moves to another disk is copied as it
                # is. Compaction would pull records away under the copy.
                is_at_rest = not partition.is_deleted and self._moves.move_of(partition) is None
                if is_at_rest and (each := self._cleaner.look_at(partition.log, partition.last_stable_offset)):
                    found.append(each)
                await slices.give_way()
            if not found:
                return
            # Looked for anew after each log, because a round over many logs takes long and the dirtiest one changes.
            dirtiest = max(found, key=lambda each: each.dirty_ratio)
            held = self._directories.of(dirtiest.log.log_directory)
            # Compaction leaves gaps between segments, which recovery takes for damage above the recovery point.
            if not await self._checkpoints.write(held, RECOVERY_POINT_CHECKPOINT):
                return
            await self._cleaner.clean(dirtiest, map_bytes_max=self._config().log_cleaner_dedupe_buffer_size)
            # After the work: a checkpoint that ran ahead of it would call records clean that are not.
            await self._checkpoints.write(held, CLEANER_OFFSET_CHECKPOINT)

    async def _expire_producers(self) -> None:
        slices = Slices()
        for partition in self._catalogue.partitions():
            expiration_ms = self._config().producer_id_expiration_ms
            # One log may know very many producers, so it gives way between them.
            for _ in partition.log.remove_expired_producers(self._clock_ms(), expiration_ms):
                await slices.give_way()
            await slices.give_way()

    async def _checkpoint_high_watermarks(self) -> None:
        for held in self._directories.all:
            await self._checkpoints.write(held, HIGH_WATERMARK_CHECKPOINT)

    async def checkpoint_all(self) -> None:
        """Write every checkpoint of every directory."""
        await self.note_offsets(self._directories.log_directories())

    async def note_offsets(self, directories: Iterable[LogDirectory]) -> None:
        """Write every checkpoint of some directories."""
        wanted = set(directories)
        for held in self._directories.all:
            if held.log_directory in wanted:
                await self._checkpoints.write_epochs(held)
                await self._checkpoints.write_all(held)
