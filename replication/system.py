"""Features of this operating system, looked up once, and stand-ins for those it lacks.

    RWF_NOWAIT          a read that would have to wait for the disk says so (Linux 4.14; musl has the flag since 1.2.5). Without
                        it every page counts as being in memory, and the kernel may wait for some.
    sendfile            from the page cache to a socket. Without it, or where a file system refuses, pieces are read and sent.
    splice              hands a longer piece of a file to a socket in one go than sendfile does, which takes 64 KiB at a time. Without
                        it, or where a pipe is refused, sendfile does.
    MSG_MORE            joins a header and the records after it in one packet. Without it they may be two.
    TCP_INFO            tells that a peer has closed its side although there are unread bytes of it. Without it such a peer is an
                        idle one.
    fdatasync           waits for contents only. Without it fsync; macOS means the disk itself only by F_FULLFSYNC.
    sync                waits for everything. Elsewhere it may only begin to write, so that each file is synced by itself.
    CLOCK_BOOTTIME      goes on while the machine is suspended. macOS's monotonic clock does so as well.
    epoll               lets sockets be served inside the event loop's wait (`server/network/readiness.py`). Without it tasks are woken.
    mallopt, malloc_trim    give memory back to the system that was needed once (glibc). Without them, as the C library likes.
    MADV_FREE           lets the kernel take back memory that is kept to be used again. Without it the lab keeps none.
    SO_PEERCRED         tells who is on the other side of a Unix socket. macOS and the BSDs have getpeereid. Without both the
                        rights of the socket's file decide.
    SO_REUSEPORT lets several processes accept at one port; the kernel distributes connections among them. Others know it, and
                        give all of them to one process.
    sched_getaffinity   tells which processors this process may use. Without it all that there are count.
    prctl               lets the kernel end child processes with their parent. Without it a killed `ottla cluster` leaves them.
    pidfd_open          lets the event loop wait for the end of a process. Without it a thread waits.
    /proc               tells of memory and disks, and has short paths. Without it both are unknown, and long paths are refused.
    SO_RCVLOWAT         spares wake-ups for parts of a large frame. Without it, and before Linux 4.18, each part is one.
    memfd_create        files in memory, by their names in /proc. Without it temporary files that only their user can read.
    kernel TLS          lets sendfile encrypt. Without it OpenSSL does.
    glibc               has its threads in a library of one name. Elsewhere Python starts a program to look for it.
    connect to nobody   ends a TCP connection from any thread. Without it a peer that sends too much is noticed later.

OTTLA_PORTABLE=1 takes away whatever only Linux has, so that the broker does on Linux what it does elsewhere. All other modules
ask here. macOS and the BSDs have a sendfile and a TCP_INFO of their own: the first one is used as Python presents it, the other
one has other numbers and is not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

IS_PORTABLE = os.environ.get("OTTLA_PORTABLE") == "1"
IS_LINUX = sys.platform == "linux" and not IS_PORTABLE


def _of_linux(module: ModuleType, name: str, otherwise: Any = None) -> Any:
    return getattr(module, name, otherwise) if IS_LINUX else otherwise


COPIED_BYTES_MAX = 256 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# As much as a socket takes at once with `server/network/transport.py`'s size, which the kernel doubles.
_PIPE_BYTES = 512 * 1024
SPLICED_BYTES_MAX = _PIPE_BYTES - _PAGE_BYTES  # has room wherever it begins within a page
_PIECES_WITHOUT_PIPE = 1000  # before one that was refused is asked for again
SENDFILE_BYTES = 16 * _PAGE_BYTES  # what the kernel's own pipe for sendfile holds
EPOLLIN: int = getattr(select, "EPOLLIN", 1)
EPOLLOUT: int = getattr(select, "EPOLLOUT", 4)
MADV_FREE: int | None = _of_linux(mmap, "MADV_FREE")
MSG_MORE: int = _of_linux(socket, "MSG_MORE", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
RWF_NOWAIT: int | None = _of_linux(os, "RWF_NOWAIT") if hasattr(os, "preadv") else None
SYNC_WAITS = IS_LINUX
"""Whether os.sync returns when everything is on the disk."""
pidfd_open: Callable[[int], int] | None = _of_linux(os, "pidfd_open")
pidfd_send_signal: Callable[[int, int], None] | None = _of_linux(signal, "pidfd_send_signal")
_BOOTTIME: int = _of_linux(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TCP_INFO: int | None = _of_linux(socket, "TCP_INFO")
_CLOSE_WAIT_AND_LATER = frozenset((7, 8, 9, 11))  # Linux's TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING
_SENDFILE_IS_REFUSED = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK))
# A filter of system calls, of systemd or of a container.
_FILTER_REFUSES = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS))
_FULL_SYNC_IS_REFUSED = frozenset((errno.EINVAL, errno.ENOTSUP, errno.ENOTTY))  # by file systems of a network
_PR_SET_PDEATHSIG = 1
_ENDLESS_BYTES = 1 << 30
# glibc's numbers, and what they are set to. Left alone, glibc makes up to eight arenas for each processor, and after the
# first large block that is freed it keeps all smaller ones: a request of many MiB would be remembered for ever.
_MALLOPT = {
    -8: 1,  # M_ARENA_MAX: threads of Python take turns anyway
    -3: 12 << 20,  # M_MMAP_THRESHOLD, bytes: larger blocks are pages of their own, which the system clears each time
    -1: 16 << 20,  # M_TRIM_THRESHOLD, bytes: so much is kept for the next ones
}


def _sendfile(out: int, descriptor: int, position: int, count: int) -> int:
    if count == 0:
        return 0  # to macOS and FreeBSD it means all that there is
    try:
        return os.sendfile(out, descriptor, position, count)
    except OSError as error:
        if error.errno not in _SENDFILE_IS_REFUSED:
            raise
        return _copy(out, descriptor, position, count)


def _copy(out: int, descriptor: int, position: int, count: int) -> int:
    data = os.pread(descriptor, min(count, COPIED_BYTES_MAX), position)
    return os.write(out, data) if data else 0


send_file: Callable[[int, int, int, int], int] = _sendfile if hasattr(os, "sendfile") and not IS_PORTABLE else _copy
"""(socket, file, position, count) -> how much was sent. BlockingIOError if the socket takes nothing now."""


class FilePipe:
    """Pipe that moves pages from files to sockets; each thread has its own. Raises OSError if the system refuses it.

    After every 64 KiB sendfile checks whether another process wants the processor. A local peer wakes up with the first
    pages, takes them, sleeps, and is woken by the next ones. Through a longer pipe the socket gets as much as it has
    room for before the peer runs, which halves the number of context switches for a MiB.
    """

    __slots__ = ("_descriptors", "is_empty")

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self.is_empty = True
        """False after something went wrong: what is left in it would go out in somebody else's answer."""
        try:
            self._descriptors += os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            if fcntl.fcntl(self._descriptors[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES) < _PIPE_BYTES:
                raise OSError(errno.EPERM, "the pipe is too short")
            self._descriptors.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
            # A file that somebody has left there would grow.
            if not stat.S_ISCHR(os.fstat(self._descriptors[2]).st_mode):
                raise OSError(errno.EPERM, "is no device", os.devnull)
        except OSError:
            self.close()
            raise

    def send(self, out: int, descriptor: int, position: int, count: int) -> int:
        """Send like `send_file`, but at most SPLICED_BYTES_MAX bytes."""
        reader, writer, _ = self._descriptors
        # Until it is known to be empty, so that it is not used again whatever ends this call, Ctrl-C as well.
        self.is_empty = False
        try:
            held = os.splice(descriptor, writer, min(count, SPLICED_BYTES_MAX), position, flags=os.SPLICE_F_NONBLOCK)
        except OSError:
            self.is_empty = True
            raise
        try:
            sent = os.splice(reader, out, held, flags=os.SPLICE_F_NONBLOCK) if held else 0
        except OSError:
            self._drop(held)
            raise
        self._drop(held - sent)
        return sent

    def _drop(self, count: int) -> None:
        """Discard pages that the socket did not accept; the page cache still holds them."""
        with contextlib.suppress(OSError):
            while count and (dropped := os.splice(self._descriptors[0], self._descriptors[2], count)):
                count -= dropped
        self.is_empty = not count

    def close(self) -> None:
        """Close the pipe's descriptors; dropping the last reference does so, too."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    __del__ = close


class _Pipes(threading.local):
    """A thread's pipe, and the number of pieces to send without a pipe after the system has refused one."""

    pipe: FilePipe | None = None
    pieces_without = 0


_pipes = _Pipes()


def _forget_pipe() -> None:
    _pipes.pipe = None  # of the parent process, which goes on with it


os.register_at_fork(after_in_child=_forget_pipe)


def _spliced(out: int, descriptor: int, position: int, count: int) -> int:
    if count <= SENDFILE_BYTES:
        return send_file(out, descriptor, position, count)
    if _pipes.pieces_without:
        _pipes.pieces_without -= 1
        return send_file(out, descriptor, position, count)
    try:
        if (pipe := _pipes.pipe) is None or not pipe.is_empty:
            pipe = _pipes.pipe = FilePipe()
    except OSError:
        # Too many pipes, or descriptors: perhaps later. It is not asked for again with every answer.
        _pipes.pieces_without = _PIECES_WITHOUT_PIPE
        return send_file(out, descriptor, position, count)
    try:
        return pipe.send(out, descriptor, position, count)
    except OSError as error:
        if error.errno in _FILTER_REFUSES:
            _pipes.pieces_without = _PIECES_WITHOUT_PIPE
        elif error.errno not in _SENDFILE_IS_REFUSED:
            raise
        # Whatever it is, sendfile has the last word.
        return send_file(out, descriptor, position, count)


CAN_SPLICE = IS_LINUX and hasattr(os, "splice") and hasattr(fcntl, "F_SETPIPE_SZ")
send_much_of_file: Callable[[int, int, int, int], int] = _spliced if CAN_SPLICE else send_file
"""Send like `send_file`; a region longer than SENDFILE_BYTES wakes the peer less often. At most SPLICED_BYTES_MAX go at once."""


def _full_sync(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]
    except OSError as error:
        if error.errno not in _FULL_SYNC_IS_REFUSED:
            raise
        os.fsync(descriptor)


full_sync: Callable[[int], None] = _full_sync if hasattr(fcntl, "F_FULLFSYNC") else os.fsync
"""Waits until a file or a directory is on the disk, with its length and times."""


data_sync: Callable[[int], None] = _of_linux(os, "fdatasync", full_sync)
"""Waits until what was written to a descriptor is on the disk."""


def boot_time() -> float:
    """Return the time in seconds of a clock that, if the system has one, runs while the machine is suspended, too."""
    return time.clock_gettime(_BOOTTIME)


def has_closed_its_side(sock: socket.socket) -> bool:
    """Return True if a TCP peer has closed its sending side; False if it has not, or the system cannot tell."""
    if _TCP_INFO is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in _CLOSE_WAIT_AND_LATER
    except OSError:
        return False  # no TCP connection


CAN_CUT_OFF = IS_LINUX


def cut_off(sock: socket.socket) -> bool:
    """Reset a TCP connection and discard unread data; thread-safe. Return False if the system cannot."""
    # To connect to nowhere is to disconnect. Python itself has no address for that.
    nowhere = struct.pack("=H14x", socket.AF_UNSPEC)
    with contextlib.suppress(OSError, AttributeError):
        return CAN_CUT_OFF and ctypes.CDLL(None).connect(sock.fileno(), nowhere, len(nowhere)) == 0
    return False


_SO_PEERCRED: int | None = _of_linux(socket, "SO_PEERCRED")
_PEERCRED = struct.Struct("=iII")  # process, user, group


def peer_pid(sock: socket.socket) -> int | None:
    """Return the pid of the process that listens at the other end of a Unix socket; None if the system does not tell.

    0: a process of another PID namespace. Raises OSError.
    """
    if _SO_PEERCRED is None:
        return None
    pid, _, _ = _PEERCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _PEERCRED.size))
    return int(pid)


def peer_user(sock: socket.socket) -> int | None:
    """Return the user id of a Unix socket's peer; None if the system cannot tell. Raises OSError."""
    if _SO_PEERCRED is not None:
        _, user, _ = _PEERCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _PEERCRED.size))
        return int(user)
    getpeereid = getattr(ctypes.CDLL(None, use_errno=True), "getpeereid", None)
    if getpeereid is None:
        return None
    found, group = ctypes.c_uint(), ctypes.c_uint()
    if getpeereid(sock.fileno(), ctypes.byref(found), ctypes.byref(group)):
        raise OSError(ctypes.get_errno(), "getpeereid")
    return found.value


def file_in_memory() -> tuple[int, str] | None:
    """Create a file in memory; return its descriptor and a path for this user alone, or None if unsupported."""
    memfd_create = _of_linux(os, "memfd_create")
    if memfd_create is None:
        return None
    descriptor = memfd_create("ottla")
    path = f"/proc/self/fd/{descriptor}"
    if os.path.exists(path):
        return descriptor, path
    os.close(descriptor)
    return None


def path_of_open(folder: int) -> str | None:
    """Return a short path of the open directory with this descriptor; None if unsupported."""
    return f"/proc/self/fd/{folder}" if IS_LINUX else None


def memory_bytes() -> tuple[int, int] | None:
    """Return the resident and the virtual memory of this process in bytes; None if the system cannot tell."""
    if not IS_LINUX:
        return None
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            virtual, resident = map(int, file.read().split()[:2])
    except OSError:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page, virtual * page


def disk_bytes() -> tuple[int, int] | None:
    """Return the numbers of bytes that this process has read from disks and written to disks.

    Returns None if the system cannot tell.
    """
    if not IS_LINUX:
        return None
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counts = dict(line.split(": ") for line in file)
        return int(counts["read_bytes"]), int(counts["write_bytes"])
    except (OSError, KeyError, ValueError):  # some systems keep this to themselves
        return None


def _of_c_library(name: str) -> Callable[..., int] | None:
    with contextlib.suppress(OSError, AttributeError):
        return getattr(ctypes.CDLL(None), name) if IS_LINUX else None
    return None


def keep_little_memory() -> None:
    """Make the C library return free memory to the system early, if it has such settings."""
    if (mallopt := _of_c_library("mallopt")) is not None:
        for parameter, value in _MALLOPT.items():
            mallopt(parameter, value)


def give_free_memory_back() -> None:
    """Return all free memory to the system now, if the C library can; takes some milliseconds."""
    if (malloc_trim := _of_c_library("malloc_trim")) is not None:
        malloc_trim(0)


SHARES_PORTS = IS_LINUX and hasattr(socket, "SO_REUSEPORT")
"""Whether the processes that accept at one port get connections in turn."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    affinity = _of_linux(os, "sched_getaffinity")
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def dying_with_this_process() -> Callable[[], None]:
    """Return a function that a child process calls first, so that it dies when this process dies.

    On systems that do not support this, the function only ends the child if this process is dead already.
    """
    parent, prctl = os.getpid(), _of_c_library("prctl")

    def die_with_parent() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent


@functools.cache
def bounds_expected_input() -> bool:
    """Tell whether the system limits SO_RCVLOWAT to the size of the socket's buffer (Linux 4.18+).

    Otherwise a socket that waits for more bytes than its buffer holds may never become readable.
    """
    if not IS_LINUX:
        return False
    try:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the system has a minimum
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _ENDLESS_BYTES)
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) < _ENDLESS_BYTES
    except OSError:
        return False


def system_clock_ms() -> int:
    return time.time_ns() // 1_000_000


# struct flock: type, whence, start, length, pid on Linux; start, length, pid, type, whence on macOS and the BSDs.
_FLOCK_OF_LINUX, _FLOCK_OF_BSD = struct.Struct("hhqqi4x"), struct.Struct("qqihh8x")


def record_lock_holder(descriptor: int) -> int | None:
    """Return the pid of the process with an exclusive record lock on an open file; None if there is none.

    0: a process of another PID namespace. Raises OSError.
    """
    # A shared lock that could not be taken is in the way of an exclusive one only.
    kind, whole = fcntl.F_RDLCK, (os.SEEK_SET, 0, 0, 0)
    if sys.platform == "linux":
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK_OF_LINUX.pack(kind, *whole))
        kind, *_, pid = _FLOCK_OF_LINUX.unpack(found)
    else:
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK_OF_BSD.pack(0, 0, 0, kind, os.SEEK_SET))
        _, _, pid, kind, _ = _FLOCK_OF_BSD.unpack(found)
    return None if kind == fcntl.F_UNLCK else max(0, pid)
