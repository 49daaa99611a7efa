"""Making the directory of a new log.

The directory gets its name when it is complete, so half a log is never found under a name that counts. Until then it has
the name of a deleted partition's directory, one that no other attempt has: threads make several logs at a time, and long
names of topics are cut. What a failed attempt leaves is removed like any deleted partition, at the next start at the latest.
"""

from __future__ import annotations

import errno

from ottla.replication.log.checkpoints import encode_partition_metadata
from ottla.replication.log.names import (
    DELETE_MARK,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    marked_directory_name,
    partition_path,
    path_in,
)
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import LogDirectory
from ottla.replication.random_ids import random_uuid


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
    """Make the directory `name` of an empty log; returns its segment. OSError: there is none of that name."""
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
    # The segment knows its files by the old name; whoever opens them again needs the new one.
    segment.move_to(directory)
    return segment
