"""Unix sockets that only their user may use: where they are, who listens there, and who is at the other end.

Whoever listens holds a lock on the file `<socket>.lock`. The system lets go of it with the process, so that a socket whose
holder was killed is told from one whose holder lives. A name that is too long for a socket is reached by the open folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from ottla.replication import system

PATH_BYTES_MAX = 100  # what the systems take for the path of a socket
LOCK_SUFFIX = ".lock"
BACKLOG = 64


class HeldElsewhere(OSError):
    """Another process listens there. The message is a line for the operator."""


@contextlib.contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """A socket of this user at this path, as long as the context lasts. OSError: it cannot be, HeldElsewhere: another lives."""
    # Once the lock is had, whoever had the socket is dead.
    with _locked(path), bound(path) as listener:
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError), short_path(path) as short:
                os.unlink(short)


def bound(path: str) -> socket.socket:
    """A socket that listens at this path for its user alone, not blocking. OSError: it cannot be.

    It takes the path from whoever has it: call it with a lock that says that nobody listens there.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        with short_path(path) as short:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(short)
            before = os.umask(0o177)
            try:
                listener.bind(short)
            finally:
                os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    # The file stays: who would remove it could remove that of somebody who has locked it meanwhile.
    descriptor = os.open(path + LOCK_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldElsewhere(f"another process serves {path}") from None
        yield
    finally:
        os.close(descriptor)


def is_held(path: str) -> bool:
    """Whether a process lives that listens there, or did. OSError: the folder is not there."""
    try:
        with _locked(path):
            return False
    except HeldElsewhere:
        return True


def connected(path: str) -> socket.socket:
    """A connection to who listens there, not blocking. OSError: nobody does."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        with short_path(path) as short:
            sock.connect(short)
    except BaseException:
        sock.close()
        raise
    return sock


def is_own(sock: socket.socket) -> bool:
    """Whether the process at the other end is this user's. True if the system does not tell: its file has let in nobody else."""
    try:
        return system.peer_user(sock) in (None, os.geteuid())
    except OSError:
        return False  # it is gone


@contextlib.contextmanager
def short_path(path: str) -> Iterator[str]:
    """A path of the same file that is short enough for a socket: by the open folder, if its own is too long."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield path
        return
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY | system.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = system.path_of_open(descriptor)
        yield path if short is None else f"{short}/{name}"
    finally:
        os.close(descriptor)
