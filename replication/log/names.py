"""Names of files and directories in a log directory, exactly Kafka's.

A partition lives in `<topic>-<partition>`. On deletion the directory is first renamed to `<topic>-<partition>.<32 hex
digits>-delete`, which is atomic and makes room for a new topic of the same name; `-stray` marks partitions that are not assigned
to this broker, `-future` copies being moved between directories. Files are named by the offset they begin at, in
twenty digits, then the kind, then perhaps one of the suffixes that mark a file on its way in or out.

Every path in a log directory is made in this module, by `path_in`, and nowhere else. Names come from clients, controllers
and the coordination tree. Callers have checked them, but this module does not rely on that: it refuses a name that is not
Kafka's or that would lead out of its directory, so no file is ever made outside.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.wire.errors import ErrorCode, KafkaError

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
# Of the one segment of a log that begins again, as long as the old ones are there. A start removes what ends so, also that of
# Kafka. It has a name of its own because a slow thread of the cleaner may write to, or remove, a `.cleaned` file of that offset.
FRESH_SUFFIX = f".fresh{DELETED_SUFFIX}"
SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)

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
MARKS = (DELETE_MARK, STRAY_MARK, FUTURE_MARK)

DIRECTORY_NAME_LENGTH_MAX = 255  # of most file systems, and the limit that Kafka counts with
PARTITION_MAX = 2**31 - 1  # the protocol's partition field is a signed 32-bit number
NO_NAMES = frozenset(("", ".", ".."))

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)  # Kafka's letters, and its longest name
# No limit on the topic here: a marked directory may have a name that was cut, and `_is_topic` checks what is left.
_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})", re.ASCII)
# Kafka has a UUID between the dot and the mark, but its parser does not insist on that.
_MARKED_DIRECTORY = re.compile(r"(?P<plain>\S+)\.[^./\s\0]+(?P<mark>-delete|-stray|-future)", re.ASCII)
# What nearly every file is called, so that one look is enough. Anything else is judged by `path_in` step by step.
_ORDINARY_NAME = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,254}", re.ASCII)
_SEGMENT_FILE = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.(?:fresh\.)?deleted|\.cleaned|\.swap)?"
)


class PartitionDirectory(NamedTuple):
    """Parsed name of a partition's directory; `mark` is set if the directory is deleted, stray or a future log."""

    topic: str
    partition: int
    mark: str


class SegmentFile(NamedTuple):
    """Parsed name of a file in a partition's directory."""

    offset: int
    kind: str
    suffix: str


def path_in(directory: str, name: str) -> str:
    """Return the path of `name` in a directory. Raises KafkaError if the name is unsafe or invalid."""
    if _ORDINARY_NAME.fullmatch(name):
        return f"{directory}/{name}"
    # In bytes, as file systems count. Lone surrogates in a name must not end in an error of encoding.
    length = len(name.encode(errors="surrogatepass"))
    if name in NO_NAMES or "/" in name or "\0" in name or length > DIRECTORY_NAME_LENGTH_MAX:
        raise _refusal(name)
    return f"{directory}/{name}"


def partition_path(log_directory: str, name: str) -> str:
    """Return the path of a partition's directory. Raises KafkaError if the name is invalid."""
    if parse_partition_directory(name) is None:
        raise _refusal(name)
    return path_in(log_directory, name)


def segment_path(directory: str, offset: int, kind: str, suffix: str = "") -> str:
    """Return the path of the file of this kind and suffix that belongs to `offset`."""
    return path_in(directory, f"{offset:020d}{kind}{suffix}")


def is_partition_name(topic: str, partition: int) -> bool:
    """Tell whether a directory can be named after this topic and partition."""
    # Characters are bytes here, because `_is_topic` lets only ASCII through.
    fits = len(topic) + len(f"-{partition}") <= DIRECTORY_NAME_LENGTH_MAX
    return fits and 0 <= partition <= PARTITION_MAX and _is_topic(topic)


def _is_topic(name: str) -> bool:
    return name not in NO_NAMES and _TOPIC.fullmatch(name) is not None


def _refusal(name: str) -> KafkaError:
    # Cut, because a name from a request may be very long and goes into log lines and answers.
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{name[:DIRECTORY_NAME_LENGTH_MAX]!r} cannot be the name of a partition's directory",
    )


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse a file name; return None for files that do not belong to a segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2], match[3] or "") if match else None


def partition_directory_name(topic: str, partition: int) -> str:
    """Return the directory name of a partition. Raises KafkaError if topic or partition is invalid."""
    if not is_partition_name(topic, partition):
        raise _refusal(f"{topic}-{partition}")
    return f"{topic}-{partition}"


def marked_directory_name(topic: str, partition: int, unique: str, mark: str) -> str:
    """Return a directory name with a mark, such as that of deletion; long topic names are truncated."""
    partition_directory_name(topic, partition)  # refuses what cannot be
    # The topic is cut and not the rest: partition, unique part and mark are what a start needs to know.
    rest = f"-{partition}.{unique}{mark}"
    return topic[: DIRECTORY_NAME_LENGTH_MAX - len(rest)] + rest


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Parse a directory name; return None for directories that are not a partition's."""
    mark = ""
    # The expression takes long to find out that there is no mark.
    if name.endswith(MARKS) and (marked := _MARKED_DIRECTORY.fullmatch(name)):
        name, mark = marked["plain"], marked["mark"]
    match = _DIRECTORY.fullmatch(name)
    if match is None or not _is_topic(match["topic"]):
        return None
    partition = int(match["partition"])
    return PartitionDirectory(match["topic"], partition, mark) if partition <= PARTITION_MAX else None
