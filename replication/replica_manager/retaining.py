"""Retention of all partitions in turn: a few segments at a time, and never more reading than the event loop has time for.

A segment that has no index of its times has to be read through once after a start. A thread does that (`repairing.py`), and
retention of that partition waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.repairing import Repairer
from ottla.wire.errors import KafkaError
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.replication")

SEGMENTS_PER_TURN = 16  # that are looked at, or given up


async def apply_retention(partitions: Iterable[Partition], repairer: Repairer, clock_ms: Callable[[], int]) -> None:
    """Give up what the partitions need not keep any more."""
    # One budget for all partitions: ten thousand that each take a little would else hold the event loop.
    time_slice = TimeSlice()
    for partition in partitions:
        try:
            await _delete_old_segments(partition, repairer, clock_ms, time_slice)
        # One log that cannot be read must not keep the others from giving up what fills the disk.
        except KafkaError as error:
            logger.error("Retention of %s failed: %s", partition.log.directory, error)
        await time_slice.yield_if_over()


async def _delete_old_segments(
    partition: Partition, repairer: Repairer, clock_ms: Callable[[], int], time_slice: TimeSlice
) -> None:
    was_read: Segment | None = None
    # Asked anew after each turn, because the partition may be deleted, or its disk fail, while others run.
    while not partition.is_deleted and partition.log.log_directory.is_online:
        try:
            if not partition.delete_old_segments(clock_ms(), limit=SEGMENTS_PER_TURN, is_enough=time_slice.is_over):
                return
        except DamagedIndexes as damage:  # the log has asked the repairer
            # The repair did not help. To wait for it again would go on forever.
            if damage.segment is was_read:
                raise
            was_read = damage.segment
            await repairer.until_done(was_read)
        await time_slice.yield_if_over()
