"""Which partitions of a session a fetch may leave idle (`replication/partition/fetch_targets.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.partition.partition import NO_LEADER_EPOCH
from ottla.server.fetch.parked_partitions import role_of

if TYPE_CHECKING:
    from ottla.replication.partition.fetch_targets import FetchTarget
    from ottla.replication.partition.partition import Partition
    from ottla.server.fetch.partition_reader import PartitionReader
    from ottla.server.fetch.reading import Reading


def confirm_idle(reading: Reading) -> None:
    """Leave the idle partitions idle, if this request asks in the same way as the last one of its session."""
    # A fenced broker refuses what it leads, and only a read finds that out. So it may leave nothing unread.
    is_certain = not reading.reader.broker.member.is_fenced
    reading.opened.confirm(_circumstances(reading) if is_certain else None, reading.reader.now_ms)


def let_idle(reading: Reading) -> None:
    """Let the partitions without news be idle from now on."""
    circumstances, reader = _circumstances(reading), reading.reader
    if circumstances is None:
        return
    for target, _, size, _, is_settled, partition, _ in reading.reads:
        # There was news in this answer, or there is by now: the next fetch has to read the partition.
        if partition is None or size or is_settled or target.told_high_watermark != partition.high_watermark:
            continue
        follower = None
        if reader.is_follower:
            followers = partition.followers
            # A follower that rests counts as one that holds the whole log. So it has to be in sync, and the leader
            # must have noted this very offset (a fetch from before a restart of the follower is not noted).
            follower = None if followers is None else followers.in_sync(reader.replica_id)
            if follower is None or follower.log_end_offset != target.asked.fetch_offset:
                continue
        # A watcher hears only of what comes after it. So what has changed since the read is looked at here.
        if _has_all(reader, target, partition):
            reading.opened.let_idle(
                target, partition, role=role_of(partition), follower=follower, circumstances=circumstances
            )


def _circumstances(reading: Reading) -> object:
    """Everything beside a partition on which its answer depends. None: no partition may be idle."""
    reader = reading.reader
    # With a rack another replica may be preferred each time. With a limit below zero an answer may be an error.
    if reader.rack or reading.bytes_max < 0:
        return None
    # A request that differs in one of these may be owed another answer for the same partition.
    asks = (reader.version, reader.replica_id, reader.replica_epoch, reading.request.isolation_level)
    # By other rules a partition may have to be refused, although nothing has happened to it.
    rules = None if reader.rights is None else reader.rights.rules
    return *asks, reading.cluster_version, rules


def _has_all(reader: PartitionReader, target: FetchTarget, partition: Partition) -> bool:
    """Whether the reader knows all that it may, also if the partition has changed since it was read."""
    asked = target.asked
    return (
        asked.fetch_offset == reader.end_of(partition)
        and target.told_log_start_offset == partition.log_start_offset
        and not partition.is_deleted
        and asked.current_leader_epoch in (NO_LEADER_EPOCH, partition.leader_epoch)
        and partition.log.log_directory.failure is None
        and (partition.is_leader or not reader.only_from_leader)
    )
