"""Classification of failed system calls: the one place that looks at errno.

    TRANSIENT   the machine is short of something for a moment (descriptors, memory) or a signal came; the disk is well.
                The operation fails, nothing else does, and the same call may work when it is made again.
    FULL        there is no room: no blocks, no place for another name in a directory, or none for a name of that length
                (some file systems take less than 255 bytes). The operation is undone, and everything else goes on.
    BROKEN      the disk, or what is on it, is not what it was. The log directory goes offline, as with Kafka.

Code that catches an `OSError` of a `Storage` asks `classify`; no other code compares errno.

Some operations can be neither finished nor undone once a call in the middle has failed. They raise `Irreparable`, which is
BROKEN whatever its errno. So does a sync that failed (`SyncFailed`): the kernel takes the pages for written, and a second
sync that succeeds says nothing about them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import Enum


class Irreparable(OSError):
    """Failure after which memory and files may disagree."""

    def __init__(self, what: str, error: OSError) -> None:
        super().__init__(error.errno, f"{what}: {error}")


def insist(call: Callable[..., None], *arguments: object) -> None:
    """Call a rename, removal or truncation that must succeed and needs no space; retry one transient error."""
    try:
        call(*arguments)
    except OSError as error:
        # A second try on a broken disk could not be trusted. For a passing shortage it is the only way not to stop
        # half way.
        if classify(error) is Fault.BROKEN:
            raise
        call(*arguments)


class SyncFailed(Irreparable):
    """Error of a sync: bytes written to an open file may never reach the disk."""

    @classmethod
    def because_of(cls, error: OSError) -> SyncFailed:
        """Return a SyncFailed for the `error` of a sync."""
        return cls("What was written may be lost", error)


class Fault(Enum):
    """State of the disk according to a failed system call."""

    TRANSIENT = "transient"
    FULL = "full"
    BROKEN = "broken"


# Otherwise any client could take a log directory offline, by using up descriptors or memory.
_TRANSIENT = frozenset((errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
# With names that are too long for the file system, a client that may create topics could do the same.
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMLINK, errno.ENAMETOOLONG))


def classify(error: OSError) -> Fault:
    """Classify `error`. An unknown errno counts as a broken disk."""
    # First, because it carries the errno of its cause, which may be a passing one.
    if isinstance(error, Irreparable):
        return Fault.BROKEN
    if error.errno in _TRANSIENT:
        return Fault.TRANSIENT
    return Fault.FULL if error.errno in _FULL else Fault.BROKEN
