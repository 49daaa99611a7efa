"""Names of files and directories in a log directory, exactly Kafka's.

A partition lives in `<topic>-<partition>`. On deletion the directory is first renamed to `<topic>-<partition>.<32 hex
digits>-delete`, which is atomic and makes room for a new topic of the same name; `-stray` marks partitions nobody
assigned to this broker, `-future` copies being moved between directories. Files are named by the offset they begin at, in
twenty digits, then the kind, then perhaps one of the suffixes that mark a file on its way in or out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

DELETE_MARK = "-delete"
STRAY_MARK = "-stray"
FUTURE_MARK = "-future"

DIRECTORY_NAME_LENGTH_MAX = 255

_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})", re.ASCII)
_MARKED_DIRECTORY = re.compile(r"(?P<plain>\S+)\.[^.\s]+(?P<mark>-delete|-stray|-future)", re.ASCII)
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")


class PartitionDirectory(NamedTuple):
    """What the name of a partition's directory says. `mark` is empty for one in use."""

    topic: str
    partition: int
    mark: str


class SegmentFile(NamedTuple):
    """What the name of a file in a partition's directory says."""

    offset: int
    kind: str
    suffix: str


def segment_path(directory: str, offset: int, kind: str, suffix: str = "") -> str:
    """Path of one of the files that belong to `offset`."""
    return f"{directory}/{offset:020d}{kind}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Take a file name apart; None for files that do not belong to a segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2], match[3] or "") if match else None


def partition_directory_name(topic: str, partition: int) -> str:
    """Directory of a partition in use."""
    return f"{topic}-{partition}"


def marked_directory_name(topic: str, partition: int, unique: str, mark: str) -> str:
    """Directory of a partition on its way out. A topic of the longest name is cut to leave room for the mark."""
    rest = f"-{partition}.{unique}{mark}"
    return topic[: DIRECTORY_NAME_LENGTH_MAX - len(rest)] + rest


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Take a directory name apart; None for directories that hold no partition."""
    mark = ""
    marked = _MARKED_DIRECTORY.fullmatch(name)
    if marked:
        name, mark = marked["plain"], marked["mark"]
    match = _DIRECTORY.fullmatch(name)
    if match is None:
        return None
    partition = int(match["partition"])
    return PartitionDirectory(match["topic"], partition, mark) if partition < 2**31 else None
