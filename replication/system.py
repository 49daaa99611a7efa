"""What this operating system offers, looked up once, and what stands in for the rest.

    RWF_NOWAIT          a read that would have to wait for the disk says so (Linux 4.14; musl has the flag since 1.2.5). Without
                        it every page counts as being in memory, and the kernel may wait for some.
    sendfile            from the page cache to a socket. Without it, or where a file system refuses, pieces are read and sent.
    MSG_MORE            joins a header and the records after it in one packet. Without it they may be two.
    TCP_INFO            tells that a peer has closed its side although there are unread bytes of it. Without it such a peer is an
                        idle one.
    fdatasync           waits for contents only. Without it fsync; macOS means the disk itself only by F_FULLFSYNC.
    CLOCK_BOOTTIME      goes on while the machine is suspended. macOS's monotonic clock does so as well.
    epoll               lets sockets be served inside the event loop's wait (`server/net/readiness.py`). Without it tasks are woken.
    mallopt, malloc_trim    give memory back to the system that was needed once (glibc). Without them, as the C library likes.
    prctl               lets the kernel end child processes with their parent. Without it a killed `ottla cluster` leaves them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

COPIED_BYTES_MAX = 256 * 1024
EPOLLIN: int = getattr(select, "EPOLLIN", 1)
EPOLLOUT: int = getattr(select, "EPOLLOUT", 4)
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None) if hasattr(os, "preadv") else None
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_CLOSE_WAIT_AND_LATER = frozenset((7, 8, 9, 11))  # Linux's TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING
_SENDFILE_IS_REFUSED = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK))
_PR_SET_PDEATHSIG = 1
# glibc's numbers, and what they are set to. Left alone, glibc makes up to eight arenas for each processor, and after the
# first large block that is freed it keeps all smaller ones: a request of many MiB would be remembered for ever.
_MALLOPT = {
    -8: 1,  # M_ARENA_MAX: threads of Python take turns anyway
    -3: 12 << 20,  # M_MMAP_THRESHOLD, bytes: larger blocks are pages of their own, which the system clears each time
    -1: 16 << 20,  # M_TRIM_THRESHOLD, bytes: so much is kept for the next ones
}


def _sendfile(out: int, descriptor: int, position: int, count: int) -> int:
    try:
        return os.sendfile(out, descriptor, position, count)
    except OSError as error:
        if error.errno not in _SENDFILE_IS_REFUSED:
            raise
        return _copy(out, descriptor, position, count)


def _copy(out: int, descriptor: int, position: int, count: int) -> int:
    data = os.pread(descriptor, min(count, COPIED_BYTES_MAX), position)
    return os.write(out, data) if data else 0


send_file: Callable[[int, int, int, int], int] = _sendfile if hasattr(os, "sendfile") else _copy
"""(socket, file, position, count) -> how much was sent. BlockingIOError if the socket takes nothing now."""


def _full_sync(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]


def _find_data_sync() -> Callable[[int], None]:
    if hasattr(os, "fdatasync"):
        return os.fdatasync
    return _full_sync if hasattr(fcntl, "F_FULLFSYNC") else os.fsync


data_sync = _find_data_sync()
"""Waits until what was written to a descriptor is on the disk."""


def boot_time() -> float:
    """Seconds on a clock that also counts while the machine is suspended, where there is one."""
    return time.clock_gettime(_BOOTTIME)


def has_closed_its_side(sock: socket.socket) -> bool:
    """Whether the peer of a TCP connection will send nothing more; False if the system does not tell."""
    if _TCP_INFO is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in _CLOSE_WAIT_AND_LATER
    except OSError:
        return False  # no TCP connection


CAN_CUT_OFF = sys.platform == "linux"


def cut_off(sock: socket.socket) -> bool:
    """End a TCP connection at once, with all that has come and was not read. Any thread may call this. False: it cannot be."""
    # To connect to nowhere is to disconnect. Python itself has no address for that.
    nowhere = struct.pack("=H14x", socket.AF_UNSPEC)
    with contextlib.suppress(OSError, AttributeError):
        return CAN_CUT_OFF and ctypes.CDLL(None).connect(sock.fileno(), nowhere, len(nowhere)) == 0
    return False


def keep_little_memory() -> None:
    """Have the C library return free memory to the system, where it knows such a setting."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOPT.items():
            mallopt(parameter, value)


def give_free_memory_back() -> None:
    """Return to the system whatever is free now, if the C library can; takes some milliseconds."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def dying_with_this_process() -> Callable[[], None]:
    """What a child process calls first, to end when this one does, if the system can do that."""
    parent = os.getpid()
    prctl = None
    with contextlib.suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl

    def die_with_parent() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent
