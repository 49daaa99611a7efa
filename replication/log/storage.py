"""The port for files, as far as a log needs a file system, and the adapter for the real one.

Everything under `replication/log` reaches the disk through a `Storage`, so that the same code runs on `OsStorage` (real
files) and on `MemoryStorage` of server/testing (a twin that tears writes, fails syncs and loses power on demand). A storage
raises `OSError` and nothing else.

Two kinds of object stand between a log and its files. A `StorageFile` is one open file; it closes when no object refers to it
any more, so a `FileRegion` on its way into a socket keeps its descriptor alive even when the segment has been deleted
or its descriptor has been given to another file meanwhile. A `LazyFile` is a name that opens on first use: a broker with
ten thousand partitions holds ten thousand of those but only a bounded number of open files. `FileCache` bounds them with
the clock algorithm (a file used since the hand last passed gets a second chance), because that costs the append path one
attribute write where an LRU list would cost a dictionary move.

A page that is not in memory takes the disk's time to read. The event loop must not wait for that: `with only_cached:` its
reads raise `NotCached` instead, and a thread brings the page into memory before the loop tries again.

`LogDirectory` is one entry of `log.dirs` as the logs inside it see it: its storage, its cache of open files, and whether it
is still online. The first I/O error that cannot be reverted takes the directory offline; from then on everything in it
answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from threading import Lock, local
from typing import Final, NamedTuple, Protocol

from ottla.replication.log.atomic_files import (
    PRIVATE_FILE,
    IsStill,
    Replacement,
    always,
    replace_file,
    replace_files,
    write_file,
)
from ottla.replication.log.descriptors import CACHED_FILES_MAX, Descriptors
from ottla.replication.log.faults import Fault, classify
from ottla.replication.log.locks import FileLock, lock_file
from ottla.replication.reminders import Reminder
from ottla.replication.system import O_DIRECTORY, RWF_NOWAIT, data_sync, full_sync
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.replication")

Buffer = bytes | bytearray | memoryview

REMOVALS_MAX = 1000  # paths that are removed by one call of a thread
CLOSED_BY_A_THREAD_FROM_BYTES = 16 * 1024 * 1024
READ_BYTES = 64 * 1024  # of a small file, at a time


class StorageFile(Protocol):
    """An open file; it is closed when the last reference is dropped."""

    def fileno(self) -> int:
        """Return the file descriptor, for sendfile."""

    def size(self) -> int:
        """Return the present length in bytes."""

    def append(self, buffer: Buffer) -> None:
        """Write the whole buffer at the end; after an OSError any part of it may have been written."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read `length` bytes from `position`; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Wait until the contents are on the disk."""


class DirectoryLock(Protocol):
    """Exclusive lock between processes; dropping the last reference releases the lock."""

    def release(self) -> None:
        """Release the lock."""


class Storage(Protocol):
    """File system operations of a log; paths are absolute strings."""

    def open(self, path: str, *, create: bool = False, private: bool = False) -> StorageFile:
        """Open a file for reading and appending; only its owner can open a private file."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, in no particular order."""

    def is_directory(self, path: str) -> bool:
        """Tell whether `path` is an existing directory."""

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory exists at `path`."""

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time in ms since 1970."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""

    def make_directory(self, path: str) -> None:
        """Create a directory, whose parent must exist."""

    def read(self, path: str) -> bytes:
        """Read a small file."""

    def write(self, path: str, data: bytes, *, sync: bool = False, is_still: IsStill | None = None) -> None:
        """Overwrite a file in place. Raises FileNotFoundError if the directory is gone or was replaced (`is_still`)."""

    def replace(self, path: str, data: bytes, is_still: IsStill = always) -> None:
        """Replace a file atomically and durably. Raises FileNotFoundError if the directory is gone or was replaced."""

    def replace_all(self, files: Sequence[Replacement]) -> None:
        """Replace many files like `replace`; skip files whose directory is gone."""

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file or directory; an existing file at `new_path` is replaced."""

    def remove(self, path: str) -> None:
        """Delete a file; no error if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and its contents; no error if it does not exist."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""

    def space(self, path: str) -> tuple[int, int]:
        """Return total and usable bytes of the file system that contains `path`."""

    def lock(self, path: str) -> DirectoryLock | None:
        """Take the lock file at `path`, created if missing; None if another process holds it."""


class NotCached(Exception):
    """Error raised if a read would block on the disk."""

    def __init__(self, file: StorageFile, position: int, length: int) -> None:
        super().__init__(f"{length} bytes at {position} are not in memory")
        self._file = file
        self._position = position
        self._length = length

    def warm(self) -> None:
        """Read the bytes into the page cache, in a thread; disk errors appear when the caller reads again."""
        with contextlib.suppress(OSError):
            self._file.read_at(self._position, self._length)


class _Blocks(local):
    """Nesting depth of `only_cached` blocks in this thread."""

    depth = 0


class _OnlyCached:
    """Context in which this thread's reads raise NotCached instead of blocking on the disk; may be nested."""

    def __enter__(self) -> None:
        _blocks.depth += 1

    def __exit__(self, *failure: object) -> None:
        _blocks.depth -= 1


_blocks = _Blocks()
only_cached = _OnlyCached()


def may_wait() -> bool:
    """Tell whether this thread's reads may block on the disk."""
    return not _blocks.depth


class OsFile:
    """A file of the operating system, opened for reading and appending."""

    __slots__ = ("_fd",)

    def __init__(self, path: str, *, create: bool = False, private: bool = False, mode: int = PRIVATE_FILE) -> None:
        # `__del__` runs also when the open below fails.
        self._fd = -1
        # With O_APPEND a write goes to the end of the file as it is, also after it was cut. Nobody has to keep a
        # position.
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, PRIVATE_FILE if private else mode)
        if private and os.fstat(self._fd).st_mode & 0o077:
            os.fchmod(self._fd, PRIVATE_FILE)  # it was made by an earlier version, or copied

    def __del__(self) -> None:
        if self._fd >= 0:
            _close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def append(self, buffer: Buffer) -> None:
        # One call and no view of the buffer: nearly every write takes all of it.
        written = os.write(self._fd, buffer)
        if written != len(buffer):
            self._append_rest(memoryview(buffer), written)

    def _append_rest(self, buffer: memoryview, written: int) -> None:
        # A short write to a regular file means a full disk or a write above 2 GiB; asking again tells which.
        while written < len(buffer):
            count = os.write(self._fd, buffer[written:])
            if count == 0:
                raise OSError(errno.EIO, "write made no progress")
            written += count

    def read_at(self, position: int, length: int) -> bytes:
        if RWF_NOWAIT is None or may_wait():
            return os.pread(self._fd, length, position)
        return self._read_cached(position, length, RWF_NOWAIT)

    def _read_cached(self, position: int, length: int, flags: int) -> bytes:
        data = bytearray(length)
        try:
            count = os.preadv(self._fd, [data], position, flags)
        except BlockingIOError:
            raise NotCached(self, position, length) from None
        except OSError:
            return os.pread(self._fd, length, position)  # a file system that cannot tell
        if count == length:
            return bytes(data)
        # The system gives what it has in memory. Fewer bytes than asked for are all only at the end of the file.
        if position + count < self.size():
            raise NotCached(self, position, length)
        return bytes(data[:count])

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        data_sync(self._fd)


def _close(fd: int) -> None:
    """Close a file; a large deleted one is closed by a thread, because freeing a gigabyte takes 100 ms."""
    # OSError: the disk does not tell. RuntimeError: the process ends, or can have no more threads.
    with contextlib.suppress(OSError, RuntimeError):
        about = os.fstat(fd)
        if not about.st_nlink and about.st_size >= CLOSED_BY_A_THREAD_FROM_BYTES:
            _thread.start_new_thread(os.close, (fd,))  # takes no lock, as a finalizer may be called anywhere
            return
    os.close(fd)


class Access(NamedTuple):
    """Permission modes for new files and new directories; the process's umask still applies to them."""

    file: int
    directory: int


ACCESS: Final = {"user": Access(PRIVATE_FILE, 0o700), "group": Access(0o640, 0o750), "all": Access(0o644, 0o755)}
"""Modes of new files and folders, by the users who may read them."""


class OsStorage:
    """File system of the operating system."""

    def __init__(self, access: Access = ACCESS["user"]) -> None:
        self._access = access

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        return OsFile(path, create=create, private=private, mode=self._access.file)

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def is_directory(self, path: str) -> bool:
        # Not os.path.isdir, to which a disk that fails and a name that is not there are the same.
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def exists(self, path: str) -> bool:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        os.mkdir(path, self._access.directory)

    def read(self, path: str) -> bytes:
        # Not a file object, which asks the system twice as much: a broker reads two small files of each partition when it
        # starts.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while piece := os.read(fd, READ_BYTES):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, *, sync: bool = False, is_still: IsStill | None = None) -> None:
        write_file(path, data, sync=sync, is_still=is_still, mode=self._access.file)

    def replace(self, path: str, data: bytes, is_still: IsStill = always) -> None:
        replace_file(Replacement(path, data, is_still), self._access.file)

    def replace_all(self, files: Sequence[Replacement]) -> None:
        replace_files(files, self._access.file)

    def rename(self, path: str, new_path: str) -> None:
        os.replace(path, new_path)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self.remove_tree(entry.path)
                    else:
                        self.remove(entry.path)
            os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | O_DIRECTORY | os.O_CLOEXEC)
        try:
            full_sync(fd)
        finally:
            os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: str) -> FileLock | None:
        return lock_file(path)


class FileCache:
    """Cache of open `LazyFile`s; their number is limited by `open_files_max`, or by a share of `descriptors`."""

    def __init__(
        self, storage: Storage, open_files_max: int = CACHED_FILES_MAX, descriptors: Descriptors | None = None
    ) -> None:
        self.storage = storage
        self.on_read_failure: Callable[[OSError], object] | None = None  # of what is read past the log
        self._open_files_max = max(1, open_files_max)
        self._descriptors = descriptors
        if descriptors is not None:
            descriptors.register(self)
        self._ring: deque[LazyFile] = deque()
        self._lock = Lock()  # logs are loaded in threads

    def __len__(self) -> int:
        return len(self._ring)

    def admit(self, lazy: LazyFile) -> None:
        """Register a file as open; first close files that were not used recently if the limit is reached."""
        with self._lock:
            # Room for the new one is made before it comes, so the limit holds at any time.
            self._close_down_to(self._allowed() - 1)
            self._ring.append(lazy)

    def shrink(self) -> None:
        """Close files beyond the present share of the descriptor budget."""
        with self._lock:
            self._close_down_to(self._allowed())

    def _allowed(self) -> int:
        descriptors = self._descriptors
        return self._open_files_max if descriptors is None else min(self._open_files_max, descriptors.files_max)

    def _close_down_to(self, count: int) -> None:
        ring = self._ring
        while len(ring) > count:
            candidate = ring.popleft()
            # Each file passes at most once, because its flag is cleared. One that its owner has closed only leaves
            # the ring.
            if candidate.used and candidate.file is not None:
                candidate.used = False
                ring.append(candidate)
            else:
                # This closes the file, unless a region on its way to a socket still holds it.
                candidate.file = None


class LazyFile:
    """File that is open only while in use; `file` is None while closed.

    Hot paths call `lazy.file or lazy.open()`, and set `used`.
    """

    __slots__ = ("_cache", "file", "path", "used")

    def __init__(self, cache: FileCache, path: str, file: StorageFile | None = None) -> None:
        self._cache = cache
        self.path = path
        self.file: StorageFile | None = None
        self.used = False
        if file is not None:
            self._admit(file)

    def open(self, *, create: bool = False) -> StorageFile:
        """Return the open file; opens it if necessary."""
        self.used = True
        file = self.file
        if file is None:
            file = self._admit(self._cache.storage.open(self.path, create=create))
        return file

    def _admit(self, file: StorageFile) -> StorageFile:
        self._cache.admit(self)
        self.file = file
        return file

    def close(self) -> None:
        """Close the file unless others still use it; the next use opens it again."""
        self.file = None
        self.used = False


class FileRegion:
    """Part of a file, to be sent to a socket; `len` is its length in bytes."""

    __slots__ = ("_counted_in", "_files", "file", "length", "position")

    def __init__(self, file: StorageFile, position: int, length: int, files: FileCache | None = None) -> None:
        self._files = files
        self.file = file
        self.position = position
        self.length = length
        self._counted_in: set[int] | None = None

    def count_in(self, regions: set[int]) -> None:
        """Keep this region's id in `regions` as long as the region exists and keeps its file open."""
        self._counted_in = regions
        # Its id, because a reference would keep the region, and its file, for ever.
        regions.add(id(self))

    def __del__(self) -> None:
        if self._counted_in is not None:
            self._counted_in.discard(id(self))

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRegion(position={self.position}, length={self.length})"

    def fail(self, error: OSError) -> None:
        """Report to the log directory that the file cannot be read. Call this on the event loop."""
        if self._files is not None and self._files.on_read_failure is not None:
            self._files.on_read_failure(error)

    def read(self) -> bytes:
        """Read the bytes, where sendfile cannot be used."""
        return self.file.read_at(self.position, self.length)


class LogDirectory:
    """A directory of `log.dirs`, shared by its logs."""

    def __init__(
        self,
        path: str,
        storage: Storage,
        *,
        open_files_max: int = CACHED_FILES_MAX,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.path = path
        self.storage = storage
        self.files = FileCache(storage, open_files_max, descriptors)
        self.files.on_read_failure = lambda error: self.judge(error, path)
        self.failure: OSError | None = None
        self.is_cordoned = False
        """True if it gets no new logs (KIP-1066)."""
        self.on_failure: Callable[[LogDirectory, OSError], None] | None = None
        self.on_cut: Callable[[], None] | None = (
            None  # a recovery point, or the end of what is compacted, has gone down
        )
        self._removals: list[tuple[int, str]] = []
        self._no_room = Reminder()

    @property
    def is_online(self) -> bool:
        """False after an I/O error that could not be undone."""
        return self.failure is None

    def take_offline(self, error: OSError) -> KafkaError:
        """Take the directory offline because of `error`, which cannot be undone; return the KafkaError to raise.

        For other errors call `judge`.
        """
        # The first failure is the cause. Failures that follow from it are not reported again.
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(self, error)
        return self.error()

    def judge(self, error: OSError, name: str) -> KafkaError:
        """Return the KafkaError to raise for an `error` of log `name`; a broken disk takes the directory offline."""
        fault = classify(error)
        if fault is Fault.FULL:
            self._no_room.tell(
                logger.warning, "no room in %s, so writes such as to %s fail: %s", self.path, name, error
            )
        if fault is not Fault.BROKEN:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: {error}")
        return self.take_offline(error)

    def error(self) -> KafkaError:
        """Return the error for requests to a log in an offline directory."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {self.path} is offline")

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline."""
        if self.failure is not None:
            raise self.error()

    def remove_later(self, path: str, due_ms: int) -> None:
        """Schedule the removal of a file or directory at `due_ms`."""
        heappush(self._removals, (due_ms, path))

    def removals_due(self, now_ms: int, *, limit: int = REMOVALS_MAX) -> list[str]:
        """Return at most `limit` paths whose removal is due, and forget them; the caller must remove them."""
        due: list[str] = []
        while self._removals and self._removals[0][0] <= now_ms and len(due) < limit:
            due.append(heappop(self._removals)[1])
        return due

    def apart(self) -> LogDirectory:
        """Return a copy of this directory for a log that a thread uses; the copy has its own failures and removals."""
        # The thread must not call `on_failure`, nor change the heap of removals, which belong to the event loop.
        apart = LogDirectory(self.path, self.storage)
        apart.files = self.files
        apart._no_room = self._no_room
        return apart

    def reunite(self, apart: LogDirectory) -> None:
        """Take over failures and removals from `apart`, a copy of this directory."""
        for due_ms, path in apart._removals:
            self.remove_later(path, due_ms)
        apart._removals.clear()
        if apart.failure is not None:
            self.take_offline(apart.failure)
