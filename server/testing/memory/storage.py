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

`snapshot` keeps all files as they are now, without a copy of their bytes, and `from_snapshot` makes a storage of them. Any
number of storages may be made of one snapshot; no change of a storage is seen in another, or in the snapshot.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from random import Random

from ottla.replication.log.atomic_files import TEMPORARY_SUFFIX, IsStill, Replacement, always, another_directory
from ottla.replication.log.faults import Fault, classify
from ottla.replication.log.storage import Buffer, NotCached, may_wait
from ottla.server.testing.memory.contents import Contents
from ottla.server.testing.memory.names import (
    Change,
    File,
    Names,
    Put,
    Remove,
    Rename,
    StorageSnapshot,
    copied_names,
    files_in,
    frozen_names,
    node_at,
    thawed_names,
)

_PAGE_BYTES = 4096  # what a system keeps or drops as a whole

Fail = Callable[[str, str], OSError | None]


class ShortWrite(OSError):
    """The error of a write that ends after `share` of its bytes."""

    def __init__(self, number: int, text: str, share: float) -> None:
        super().__init__(number, text)
        self.share = share


class MemoryFile:
    """An open file of a `MemoryStorage`."""

    def __init__(self, storage: MemoryStorage, file: File) -> None:
        self._storage, self._file = storage, file

    @property
    def path(self) -> str:
        """Path of the file at present."""
        return self._file.path

    def fileno(self) -> int:
        return self._file.data.descriptor()

    def size(self) -> int:
        self._storage.check("size", self._file.path)
        return len(self._file.data)

    def append(self, buffer: Buffer) -> None:
        self._storage.append_to(self._file, buffer)

    def read_at(self, position: int, length: int) -> bytes:
        self._prepare_read(position, length)
        return self._file.data.read(position, length)

    def view_at(self, position: int, length: int) -> memoryview:
        """Return a view of some of these bytes, at least one if there is any, which spares a copy.

        Release it before anything is appended: the file cannot grow while a view of it exists.
        """
        self._prepare_read(position, length)
        return self._file.data.first_view(position, length)

    def _prepare_read(self, position: int, length: int) -> None:
        self._storage.check("read", self._file.path)
        if not self._file.cold_pages:
            return
        first, last = position // _PAGE_BYTES, (position + length - 1) // _PAGE_BYTES
        if cold := self._file.cold_pages.intersection(range(first, last + 1)):
            # The event loop must not wait for the disk. It gets NotCached and lets a thread read.
            if not may_wait():
                raise NotCached(self, position, length)
            self._file.cold_pages -= cold
            self._storage.on_wait(self._file.path)

    def truncate(self, size: int) -> None:
        self._storage.check("truncate", self._file.path)
        # `synced` stays as it is: until the next sync the disk may have either size.
        self._file.data.truncate(size)

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
        self._root: Names = {}  # as the process sees it
        self._durable: Names = {}  # as a power cut leaves it at least
        self._pending: dict[str, list[Change]] = {}  # changes that only `_root` has, by volume
        self._locks: set[str] = set()

    @classmethod
    def from_snapshot(
        cls, snapshot: StorageSnapshot, clock_ms: Callable[[], int] = lambda: 0, volumes: Sequence[str] = ()
    ) -> MemoryStorage:
        """Create a storage with the files of a snapshot, all on the disk. Its size makes no difference."""
        storage = cls(clock_ms, volumes)
        storage._root = thawed_names("", snapshot.root)
        storage._durable = copied_names(storage._root)
        return storage

    # --- what tests do to it ------------------------------------------------------------------------------------------

    def crash(self, random: Random) -> None:
        """Simulate a power cut: only synced data is certain to remain."""
        # Journals of file systems keep the order of changes, so the first few survive and never some from the middle.
        for pending in self._pending.values():
            for change in pending[: random.randint(0, len(pending))]:
                change.apply(self._durable)
        self._pending.clear()
        self._locks.clear()
        self._root = copied_names(self._durable)
        for path, file in files_in("", self._root):
            file.path = path
            file.set(_survivor(file, random))
            # The pages that were lost are gone with the memory. What is read from now on is what the disk has.
            file.has_lost_writes = False

    def snapshot(self) -> StorageSnapshot:
        """Return all files as the process sees them now, without faults and locks. Their sizes make no difference."""
        return StorageSnapshot(frozen_names(self._root))

    def copy(self) -> MemoryStorage:
        """Copy of this storage without faults and locks."""
        copy = MemoryStorage(self._clock_ms, self._volumes)
        copy.space_left = self.space_left
        # A file may be in the names of the process, of the disk, and in pending changes. It has to stay one file.
        files: dict[int, File] = {}

        def copied(file: File) -> File:
            if id(file) not in files:
                files[id(file)] = file.copy()
            return files[id(file)]

        copy._root, copy._durable = copied_names(self._root, copied), copied_names(self._durable, copied)
        copy._pending = {
            volume: [
                change._replace(file=copied(change.file)) if isinstance(change, Put) and change.file else change
                for change in changes
            ]
            for volume, changes in self._pending.items()
        }
        return copy

    @contextlib.contextmanager
    def without_faults(self) -> Iterator[None]:
        """Let the calls of this block succeed, whatever faults are set."""
        faults = self.fail, self.space_left
        self.fail = self.space_left = None
        try:
            yield
        finally:
            self.fail, self.space_left = faults

    def kill(self) -> None:
        """Simulate the end of the process; written data remains."""
        self._locks.clear()

    def discard(self) -> None:
        """Forget the bytes of all but tiny files. The objects of a broker that has ended stay until garbage is collected."""
        self._durable = {}
        for _, file in files_in("", self._root):
            if len(file.data) > _PAGE_BYTES or file.synced.length > _PAGE_BYTES:
                file.set(b"")

    def files(self) -> list[str]:
        """The paths of all files."""
        return [path for path, _ in files_in("", self._root)]

    def check(self, operation: str, path: str) -> None:
        """Ask `fail` about a call to the disk, and raise the error that it returns."""
        error = self.fail(operation, path) if self.fail is not None else None
        if error is not None:
            raise error

    def append_to(self, file: File, buffer: Buffer) -> None:
        """Append to a file, as far as there is room."""
        file.modified_ms = self._clock_ms()
        error = self.fail("append", file.path) if self.fail is not None else None
        if error is not None:
            # Real writes may stop half-way, too, and callers have to take back what was written.
            if isinstance(error, ShortWrite):
                file.data.append(buffer[: int(len(buffer) * error.share)])
            raise error
        if self.space_left is not None:
            # As on a real disk, what still fits is written before the error comes.
            fits = min(self.space_left, len(buffer))
            self.space_left -= fits
            file.data.append(buffer[:fits])
            if fits < len(buffer):
                raise OSError(errno.ENOSPC, "No space left on device", file.path)
        else:
            file.data.append(buffer)

    def sync_file(self, file: File) -> None:
        """Make a file's contents durable."""
        try:
            self.check("sync", file.path)
        except OSError as error:
            # After a failed sync the kernel takes the pages for written.
            # A later sync succeeds, and the disk still lacks them.
            file.has_lost_writes = file.has_lost_writes or classify(error) is not Fault.TRANSIENT
            raise
        if not file.has_lost_writes:
            file.synced = file.data.freeze()

    def evict(self) -> None:
        """Drop all file contents from the simulated page cache."""
        for _, file in files_in("", self._root):
            file.cold_pages = frozenset(range(-(-len(file.data) // _PAGE_BYTES)))

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Overwrite bytes of a file without its users' knowledge."""
        file = self._file(path)
        changed = bytearray(bytes(file.data))
        changed[position : position + len(data)] = data
        file.set(changed)

    # --- Storage ------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, private: bool = False) -> MemoryFile:
        self.check("open", path)
        node = node_at(self._root, path)
        if node is None and create:
            self._check_parent(path)
            node = File(path)
            self._change(Put(path, node))
        return MemoryFile(self, node if isinstance(node, File) else self._file(path))

    def names(self, directory: str) -> list[str]:
        self.check("names", directory)
        return list(self._directory(directory))

    def is_directory(self, path: str) -> bool:
        self.check("is_directory", path)
        return isinstance(node_at(self._root, path), dict)

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return node_at(self._root, path) is not None

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
        if node_at(self._root, path) is not None:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._check_parent(path)
        self._change(Put(path, None))

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._file(path).data)

    def write(self, path: str, data: bytes, *, sync: bool = False, is_still: IsStill | None = None) -> None:
        if is_still is not None and not is_still():
            raise another_directory(path)
        self.check("write", path)
        self._check_parent(path)
        if node_at(self._root, path) is None:
            self._change(Put(path, File(path)))
        file = self._file(path)
        file.data = Contents()
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
        node = node_at(self._root, path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._check_parent(new_path)
        if isinstance(node, File):
            node.path = new_path
        else:
            if node_at(self._root, new_path):
                raise OSError(errno.ENOTEMPTY, "Directory not empty", new_path)
            for below, file in files_in(new_path, node):
                file.path = below
        self._change(Rename(path, new_path))

    def remove(self, path: str) -> None:
        self.check("remove", path)
        if isinstance(node_at(self._root, path), File):
            self._change(Remove(path))

    def remove_tree(self, path: str) -> None:
        self.check("names", path)
        node = node_at(self._root, path)
        for name, below in list(node.items()) if isinstance(node, dict) else ():
            if isinstance(below, dict):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.check("remove_directory", path)
        if node is not None:
            self._change(Remove(path))

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self._directory(path)
        # The whole volume, because one journal of the file system holds the changes of all its directories.
        for change in self._pending.pop(self._volume(path), ()):
            change.apply(self._durable)

    def space(self, path: str) -> tuple[int, int]:
        self.check("space", path)
        self._directory(path)
        used = sum(len(file.data) for _, file in files_in("", self._root))
        free = 2**40 if self.space_left is None else self.space_left
        return used + free, free

    def lock(self, path: str) -> MemoryLock | None:
        self.check("lock", path)
        self._check_parent(path)
        if path in self._locks:
            return None
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    # --- names --------------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> File:
        node = node_at(self._root, path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return node

    def _directory(self, path: str) -> Names:
        node = node_at(self._root, path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, dict):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node

    def _check_parent(self, path: str) -> None:
        self._directory(_parent(path))

    def _change(self, change: Change) -> None:
        # At once for the process; for the disk only with the next `sync_directory` or a lucky crash.
        change.apply(self._root)
        self._pending.setdefault(self._volume(change.path), []).append(change)

    def _volume(self, path: str) -> str:
        return next((volume for volume in self._volumes if path == volume or path.startswith(volume + "/")), "")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _survivor(file: File, random: Random) -> bytes | bytearray:
    data, synced = bytes(file.data), bytes(file.synced)
    if not data.startswith(synced):  # cut or rewritten since; either state may be on the disk
        return random.choice((synced, data))
    # Only appended to since the last sync: some of the rest may have reached the disk.
    end = random.randint(len(synced), len(data))
    survivor = data[:end]
    # The file had grown, but the data had not arrived: file systems then show zeros.
    if random.random() < 0.3:
        survivor += bytes(random.randint(0, len(data) - end))
    return survivor
