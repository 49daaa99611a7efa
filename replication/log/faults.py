"""What a failed system call means: the one place where errno is classified.

    TRANSIENT   the machine is short of something for a moment (descriptors, memory) or a signal came; the disk is well.
                The operation fails, nothing else does, and the same call may work when it is made again.
    FULL        there is no room. The operation is undone; everything serves again when there is room.
    BROKEN      the disk, or what is on it, is not what it was. The log directory goes offline, as with Kafka.

Whoever catches an `OSError` of a `Storage` asks `classify` and nobody compares errno.

A sync that failed is BROKEN whatever its errno (`SyncFailed`): the kernel takes the pages for written, and a second sync
that succeeds says nothing about them.
"""

from __future__ import annotations

import errno
from enum import Enum


class SyncFailed(OSError):
    """Bytes that were written to an open file may never reach the disk."""

    @classmethod
    def because_of(cls, error: OSError) -> SyncFailed:
        """The same failure, known to be one of a sync."""
        return cls(error.errno, error.strerror or str(error))


class Fault(Enum):
    """What the failure of a system call says about the disk."""

    TRANSIENT = "transient"
    FULL = "full"
    BROKEN = "broken"


_TRANSIENT = frozenset((errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def classify(error: OSError) -> Fault:
    """What `error` means. An errno nobody knows counts as a broken disk."""
    if isinstance(error, SyncFailed):
        return Fault.BROKEN
    if error.errno in _TRANSIENT:
        return Fault.TRANSIENT
    return Fault.FULL if error.errno in _FULL else Fault.BROKEN
