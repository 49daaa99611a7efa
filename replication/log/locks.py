"""Locks between processes: a record lock on a file in a directory says that a process uses the directory.

These are lockf locks, not flock: the JVM takes POSIX record locks too, so Kafka and Ottla lock each other out. A record
lock belongs to the process and is released when any descriptor of the file is closed. So no other code may open the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from ottla.replication import system
from ottla.replication.log.atomic_files import PRIVATE_FILE


class FileLock:
    """File lock, held until it is released or garbage collected; with descriptor -1 it locks nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def take(self, kind: int) -> bool:
        """Take the lock; `kind` is LOCK_EX or LOCK_SH. Returns False if another process has it. Raises OSError."""
        try:
            fcntl.lockf(self._descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            self.release()
            return False
        return True

    def release(self) -> None:
        """Release the lock; may be called twice."""
        # Forgotten first: the number is free even if closing fails, and may be that of another file when this is called again.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def lock_file(path: str) -> FileLock | None:
    """Take an exclusive lock on a file and create the file if missing; None if another process has the lock.

    Raises OSError. Whoever can read the file can lock it and keep a broker from starting. So only the broker's user may
    read it.
    """
    lock = FileLock(open_to_lock(path))
    try:
        return lock if lock.take(fcntl.LOCK_EX) else None
    except OSError:
        lock.release()  # here, because the error may be kept, and with it this frame
        raise


def open_to_lock(path: str, flags: int = os.O_RDWR) -> int:
    """Open a lock file, which only its owner may open; create it if missing. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    # Kafka or an earlier version may have made it. That of another user stays as it is, and not every file system has modes.
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def share_lock(path: str) -> FileLock | None:
    """Take a shared lock, which needs no write permission; None if another process has an exclusive lock.

    If the file cannot be opened or locked, the returned lock has no effect, and the directory may be in use.
    """
    try:
        # Not blocking, as whatever lies there under that name may be a pipe.
        lock = FileLock(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return FileLock(-1)
    try:
        return lock if lock.take(fcntl.LOCK_SH) else None
    except OSError:
        return lock


def holder_of(path: str) -> int | None:
    """Return the pid of the process that has an exclusive lock on a file; None if nobody has, or there is no file.

    0 means a process that is not visible from here, as in another container. Raises OSError. A process that holds a
    lock on the file itself must not call this, because closing the file releases it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return system.record_lock_holder(descriptor)
    finally:
        os.close(descriptor)
