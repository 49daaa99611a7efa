"""In-memory file system with faults on request: a substitute for `OsStorage` in tests and simulations.

The model of durability: contents reach the disk only by `sync`, and names only by `sync_directory` (in the order of the
changes). `crash` simulates a power cut by a random choice of the other changes: of the bytes appended since the last sync a
part survives, perhaps followed by zeros where the file had grown but the data had not arrived; of the renames, creations
and removals since the last directory sync the first few, of each volume its own.

Faults are asked for by setting attributes: `space_left` makes the disk full (a write then stops half-way), `fail` is called
with every system call and its path, before the call does anything, and returns the error it is to end with, if any; a
`ShortWrite` lets a part of the bytes be written first. An operation of several system calls calls `fail` once for each.
`evict` empties the page cache, as a system short of memory does. A read of such a page waits for the disk; with
`only_cached` it raises NotCached. A failed sync loses the data that it should have written, like a kernel that reports such
a failure only once: later syncs of that file succeed and do not help.
"""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ottla.replication.log.atomic_files import TEMPORARY_SUFFIX, IsStill, Replacement, always, another_directory
from ottla.replication.log.faults import Fault, classify
from ottla.replication.log.storage import Buffer, NotCached, may_wait

_PAGE_BYTES = 4096  # what a system keeps or drops as a whole

Fail = Callable[[str, str], OSError | None]


class ShortWrite(OSError):
    """The error of a write that ends after `share` of its bytes."""

    def __init__(self, number: int, text: str, share: float) -> None:
        super().__init__(number, text)
        self.share = share


class _File:
    __slots__ = ("cold_pages", "data", "has_lost_writes", "modified_ms", "path", "synced")

    def __init__(self, path: str) -> None:
        self.path = path
        self.data = bytearray()
        self.synced = b""  # what a power cut leaves for certain
        self.has_lost_writes = False
        self.modified_ms = 0
        self.cold_pages: set[int] = set()

    def copy(self) -> _File:
        copy = _File(self.path)
        copy.data, copy.synced = self.data[:], self.synced
        copy.has_lost_writes, copy.modified_ms = self.has_lost_writes, self.modified_ms
        return copy


class _Directory:
    __slots__ = ()


_Node = _File | _Directory
_Names = dict[str, _Node]


# Changes of names are objects, so that they can be made twice: at once for the process, and for the disk at a sync.
class _Put(NamedTuple):
    path: str
    node: _Node

    def apply(self, names: _Names) -> None:
        names[self.path] = self.node


class _Rename(NamedTuple):
    path: str
    new_path: str

    def apply(self, names: _Names) -> None:
        _rename(names, self.path, self.new_path)


class _Remove(NamedTuple):
    path: str

    def apply(self, names: _Names) -> None:
        names.pop(self.path, None)


_Change = _Put | _Rename | _Remove


class MemoryFile:
    """An open file of a `MemoryStorage`."""

    def __init__(self, storage: MemoryStorage, file: _File) -> None:
        self._storage, self._file = storage, file

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def size(self) -> int:
        self._storage.check("size", self._file.path)
        return len(self._file.data)

    def append(self, buffer: Buffer) -> None:
        self._storage.append_to(self._file, buffer)

    def read_at(self, position: int, length: int) -> bytes:
        self._storage.check("read", self._file.path)
        first, last = position // _PAGE_BYTES, (position + length - 1) // _PAGE_BYTES
        if cold := self._file.cold_pages.intersection(range(first, last + 1)):
            # The event loop must not wait for the disk. It gets NotCached and lets a thread read.
            if not may_wait():
                raise NotCached(self, position, length)
            self._file.cold_pages -= cold
            self._storage.on_wait(self._file.path)
        return bytes(self._file.data[position : position + length])

    def truncate(self, size: int) -> None:
        self._storage.check("truncate", self._file.path)
        # `synced` stays as it is: until the next sync the disk may have either size.
        del self._file.data[size:]

    def sync(self) -> None:
        self._storage.sync_file(self._file)


class MemoryLock:
    """A lock file that is held."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks, self._path = locks, path

    def release(self) -> None:
        self._locks.discard(self._path)


class MemoryStorage:
    """Files in memory. `clock_ms` dates them; `volumes` are the directories that are disks of their own."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0, volumes: Sequence[str] = ()) -> None:
        self.space_left: int | None = None
        self.fail: Fail | None = None
        self.on_wait: Callable[[str], None] = lambda path: None  # called when a read waits for the disk
        self._clock_ms, self._volumes = clock_ms, volumes
        self._names: _Names = {"/": _Directory()}  # as the process sees them
        self._durable: _Names = dict(self._names)  # as a power cut leaves them at least
        self._pending: dict[str, list[_Change]] = {}  # changes that only `_names` has, by volume
        self._locks: set[str] = set()

    # --- what tests do to it ------------------------------------------------------------------------------------------

    def crash(self, random: Random) -> None:
        """Simulate a power cut: only synced data is certain to remain."""
        # Journals of file systems keep the order of changes, so the first few survive and never some from the middle.
        for pending in self._pending.values():
            for change in pending[: random.randint(0, len(pending))]:
                change.apply(self._durable)
        self._pending.clear()
        self._locks.clear()
        self._names = dict(self._durable)
        for node in self._names.values():
            if isinstance(node, _File):
                node.data = _survivor(node, random)
                node.synced = bytes(node.data)
                # The pages that were lost are gone with the memory. What is read from now on is what the disk has.
                node.has_lost_writes = False

    def copy(self) -> MemoryStorage:
        """Copy of this storage without faults and locks."""
        copy = MemoryStorage(self._clock_ms, self._volumes)
        copy.space_left = self.space_left
        # A file may be in the names of the process, of the disk, and in pending changes. It has to stay one file.
        nodes: dict[int, _Node] = {}

        def copied(node: _Node) -> _Node:
            if isinstance(node, _Directory):
                return node
            if id(node) not in nodes:
                nodes[id(node)] = node.copy()
            return nodes[id(node)]

        copy._names = {path: copied(node) for path, node in self._names.items()}
        copy._durable = {path: copied(node) for path, node in self._durable.items()}
        copy._pending = {
            volume: [
                change._replace(node=copied(change.node)) if isinstance(change, _Put) else change for change in changes
            ]
            for volume, changes in self._pending.items()
        }
        return copy

    def kill(self) -> None:
        """Simulate the end of the process; written data remains."""
        self._locks.clear()

    def files(self) -> list[str]:
        """The paths of all files."""
        return [path for path, node in self._names.items() if isinstance(node, _File)]

    def check(self, operation: str, path: str) -> None:
        """Raise what `fail` says."""
        error = self.fail(operation, path) if self.fail is not None else None
        if error is not None:
            raise error

    def append_to(self, file: _File, buffer: Buffer) -> None:
        """Append to a file, as far as there is room."""
        file.modified_ms = self._clock_ms()
        error = self.fail("append", file.path) if self.fail is not None else None
        if error is not None:
            # Real writes may stop half-way, too, and callers have to take back what was written.
            if isinstance(error, ShortWrite):
                file.data += buffer[: int(len(buffer) * error.share)]
            raise error
        if self.space_left is not None:
            # As on a real disk, what still fits is written before the error comes.
            fits = min(self.space_left, len(buffer))
            self.space_left -= fits
            file.data += buffer[:fits]
            if fits < len(buffer):
                raise OSError(errno.ENOSPC, "No space left on device", file.path)
        else:
            file.data += buffer

    def sync_file(self, file: _File) -> None:
        """Make a file's contents durable."""
        try:
            self.check("sync", file.path)
        except OSError as error:
            # After a failed sync the kernel takes the pages for written.
            # A later sync succeeds, and the disk still lacks them.
            file.has_lost_writes = file.has_lost_writes or classify(error) is not Fault.TRANSIENT
            raise
        if not file.has_lost_writes:
            file.synced = bytes(file.data)

    def evict(self) -> None:
        """Drop all file contents from the simulated page cache."""
        for node in self._names.values():
            if isinstance(node, _File):
                node.cold_pages = set(range(-(-len(node.data) // _PAGE_BYTES)))

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Overwrite bytes of a file without its users' knowledge."""
        file = self._file(path)
        file.data[position : position + len(data)] = data
        file.synced = bytes(file.data)

    # --- Storage ------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, private: bool = False) -> MemoryFile:
        self.check("open", path)
        if create and path not in self._names:
            self._parent(path)
            self._change(_Put(path, _File(path)))
        return MemoryFile(self, self._file(path))

    def names(self, directory: str) -> list[str]:
        self.check("names", directory)
        self._directory(directory)  # raises where there is none, as a real file system does
        prefix = directory.rstrip("/") + "/"
        return [path[len(prefix) :] for path in self._names if path.startswith(prefix) and _parent(path) == directory]

    def is_directory(self, path: str) -> bool:
        self.check("is_directory", path)
        return isinstance(self._names.get(path), _Directory)

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return path in self._names

    def size(self, path: str) -> int:
        self.check("size", path)
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        self.check("modified_ms", path)
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.check("set_modified_ms", path)
        self._file(path).modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._parent(path)
        self._change(_Put(path, _Directory()))

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._file(path).data)

    def write(self, path: str, data: bytes, *, sync: bool = False, is_still: IsStill | None = None) -> None:
        if is_still is not None and not is_still():
            raise another_directory(path)
        self.check("write", path)
        self._parent(path)
        if path not in self._names:
            self._change(_Put(path, _File(path)))
        file = self._file(path)
        file.data = bytearray()
        self.append_to(file, data)
        # The content is new as a whole, so nothing that an earlier sync has lost matters any more.
        file.has_lost_writes = False
        if sync:
            self.sync_file(file)

    def replace(self, path: str, data: bytes, is_still: IsStill = always) -> None:
        # Three calls that can fail and that a power cut can separate, as on real files.
        self.write(path + TEMPORARY_SUFFIX, data, sync=True, is_still=is_still)
        self.rename(path + TEMPORARY_SUFFIX, path)
        self.sync_directory(_parent(path))

    def replace_all(self, files: Sequence[Replacement]) -> None:
        for file in files:
            # A directory may be renamed or removed meanwhile, as logs are that were given up.
            with contextlib.suppress(FileNotFoundError):
                self.replace(*file)

    def rename(self, path: str, new_path: str) -> None:
        self.check("rename", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._parent(new_path)
        self._change(_Rename(path, new_path))

    def remove(self, path: str) -> None:
        self.check("remove", path)
        if isinstance(self._names.get(path), _File):
            self._change(_Remove(path))

    def remove_tree(self, path: str) -> None:
        self.check("names", path)
        for each in [each for each in self._names if _parent(each) == path]:
            if isinstance(self._names[each], _Directory):
                self.remove_tree(each)
            else:
                self.remove(each)
        self.check("remove_directory", path)
        if path in self._names:
            self._change(_Remove(path))

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self._directory(path)
        # The whole volume, because one journal of the file system holds the changes of all its directories.
        for change in self._pending.pop(self._volume(path), ()):
            change.apply(self._durable)

    def space(self, path: str) -> tuple[int, int]:
        self.check("space", path)
        self._directory(path)
        used = sum(len(node.data) for node in self._names.values() if isinstance(node, _File))
        free = 2**40 if self.space_left is None else self.space_left
        return used + free, free

    def lock(self, path: str) -> MemoryLock | None:
        self.check("lock", path)
        self._parent(path)
        if path in self._locks:
            return None
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    # --- names --------------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> _File:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, _File):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return node

    def _directory(self, path: str) -> None:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)

    def _parent(self, path: str) -> None:
        self._directory(_parent(path))

    def _change(self, change: _Change) -> None:
        # At once for the process; for the disk only with the next `sync_directory` or a lucky crash.
        change.apply(self._names)
        self._pending.setdefault(self._volume(change.path), []).append(change)

    def _volume(self, path: str) -> str:
        return next((volume for volume in self._volumes if path == volume or path.startswith(volume + "/")), "")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _rename(names: _Names, path: str, new_path: str) -> None:
    for each in [each for each in names if each == path or each.startswith(path + "/")]:
        # Removed and put in again: with a directory, everything below it has another path.
        node = names.pop(each)
        if isinstance(node, _File):
            node.path = new_path + each[len(path) :]
        names[new_path + each[len(path) :]] = node


def _survivor(file: _File, random: Random) -> bytearray:
    if not file.data.startswith(file.synced):  # cut or rewritten since; either state may be on the disk
        return bytearray(random.choice((file.synced, bytes(file.data))))
    # Only appended to since the last sync: some of the rest may have reached the disk.
    end = random.randint(len(file.synced), len(file.data))
    survivor = file.data[:end]
    # The file had grown, but the data had not arrived: file systems then show zeros.
    if random.random() < 0.3:
        survivor += bytes(random.randint(0, len(file.data) - end))
    return survivor
