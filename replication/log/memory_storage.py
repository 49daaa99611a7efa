"""A file system in memory that fails on request: the twin of `OsStorage` for tests and simulations.

What it models, beyond holding files: contents reach the disk only by `sync`, names only by `sync_directory` (in the order
they were changed), and what a power cut leaves of the rest is anybody's guess. `crash` guesses: of the bytes appended since
the last sync a part survives, perhaps followed by zeros where the file had grown but the data had not arrived; of the
renames, creations and removals since the last directory sync the first few, of each volume its own.

Faults are asked for by setting attributes: `space_left` makes the disk full (a write then stops half-way), `fail` is called
with every operation and its path and returns the error it is to end with, if any.
"""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Callable, Sequence
from random import Random

from ottla.replication.log.storage import TEMPORARY_SUFFIX, Buffer

Fail = Callable[[str, str], OSError | None]


class _File:
    __slots__ = ("data", "modified_ms", "path", "synced")

    def __init__(self, path: str) -> None:
        self.path = path
        self.data = bytearray()
        self.synced = b""
        self.modified_ms = 0


class _Directory:
    __slots__ = ()


_Node = _File | _Directory
_Names = dict[str, _Node]


class MemoryFile:
    """An open file of a `MemoryStorage`."""

    def __init__(self, storage: MemoryStorage, file: _File) -> None:
        self._storage = storage
        self._file = file

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def size(self) -> int:
        return len(self._file.data)

    def append(self, buffer: Buffer) -> None:
        self._storage.append_to(self._file, buffer)

    def read_at(self, position: int, length: int) -> bytes:
        self._storage.check("read", self._file.path)
        return bytes(self._file.data[position : position + length])

    def truncate(self, size: int) -> None:
        self._storage.check("truncate", self._file.path)
        del self._file.data[size:]

    def sync(self) -> None:
        self._storage.check("sync", self._file.path)
        self._file.synced = bytes(self._file.data)


class MemoryLock:
    """A lock file that is held."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class MemoryStorage:
    """Files in memory. `clock_ms` dates them; `volumes` are the directories that are disks of their own."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0, volumes: Sequence[str] = ()) -> None:
        self.space_left: int | None = None
        self.fail: Fail | None = None
        self._clock_ms = clock_ms
        self._volumes = volumes
        self._names: _Names = {"/": _Directory()}
        self._durable: _Names = dict(self._names)
        self._pending: dict[str, list[Callable[[_Names], None]]] = {}
        self._locks: set[str] = set()

    # --- what tests do to it ------------------------------------------------------------------------------------------

    def crash(self, random: Random) -> None:
        """The power goes and comes back: only what was synced is certain."""
        for pending in self._pending.values():
            for change in pending[: random.randint(0, len(pending))]:
                change(self._durable)
        self._pending.clear()
        self._locks.clear()
        self._names = dict(self._durable)
        for node in self._names.values():
            if isinstance(node, _File):
                node.data = _survivor(node, random)
                node.synced = bytes(node.data)

    def kill(self) -> None:
        """The process goes; what it has written stays."""
        self._locks.clear()

    def forget_locks(self) -> None:
        """The process that held them was killed; what it had written stays."""
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
        """Write at the end of a file, as far as there is room."""
        self.check("append", file.path)
        file.modified_ms = self._clock_ms()
        if self.space_left is not None:
            fits = min(self.space_left, len(buffer))
            self.space_left -= fits
            file.data += buffer[:fits]
            if fits < len(buffer):
                raise OSError(errno.ENOSPC, "No space left on device", file.path)
        else:
            file.data += buffer

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Overwrite bytes of a file behind everybody's back."""
        file = self._file(path)
        file.data[position : position + len(data)] = data
        file.synced = bytes(file.data)

    # --- Storage ------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.check("open", path)
        if create and path not in self._names:
            self._parent(path)
            self._put(path, _File(path))
        return MemoryFile(self, self._file(path))

    def names(self, directory: str) -> list[str]:
        self._directory(directory)
        prefix = directory.rstrip("/") + "/"
        return [path[len(prefix) :] for path in self._names if path.startswith(prefix) and _parent(path) == directory]

    def is_directory(self, path: str) -> bool:
        return isinstance(self._names.get(path), _Directory)

    def exists(self, path: str) -> bool:
        return path in self._names

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._parent(path)
        self._put(path, _Directory())

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._file(path).data)

    def write(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.check("write", path)
        self._parent(path)
        if path not in self._names:
            self._put(path, _File(path))
        file = self._file(path)
        file.data = bytearray()
        self.append_to(file, data)
        if sync:
            self.check("sync", path)
            file.synced = bytes(file.data)

    def replace(self, path: str, data: bytes) -> None:
        self.write(path + TEMPORARY_SUFFIX, data, sync=True)
        self.rename(path + TEMPORARY_SUFFIX, path)
        self.sync_directory(_parent(path))

    def replace_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        for path, data in files:
            with contextlib.suppress(FileNotFoundError):
                self.replace(path, data)

    def rename(self, path: str, new_path: str) -> None:
        self.check("rename", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._parent(new_path)
        self._change(path, lambda names: _rename(names, path, new_path))

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self._change(path, lambda names: _remove(names, path))

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)

        def change(names: _Names) -> None:
            for each in [each for each in names if each == path or each.startswith(path + "/")]:
                del names[each]

        self._change(path, change)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self._directory(path)
        for change in self._pending.pop(self._volume(path), ()):
            change(self._durable)

    def space(self, path: str) -> tuple[int, int]:
        self._directory(path)
        used = sum(len(node.data) for node in self._names.values() if isinstance(node, _File))
        free = 2**40 if self.space_left is None else self.space_left
        return used + free, free

    def lock(self, path: str) -> MemoryLock | None:
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

    def _put(self, path: str, node: _Node) -> None:
        def change(names: _Names) -> None:
            names[path] = node

        self._change(path, change)

    def _change(self, path: str, change: Callable[[_Names], None]) -> None:
        change(self._names)
        self._pending.setdefault(self._volume(path), []).append(change)

    def _volume(self, path: str) -> str:
        return next((volume for volume in self._volumes if path == volume or path.startswith(volume + "/")), "")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _rename(names: _Names, path: str, new_path: str) -> None:
    for each in [each for each in names if each == path or each.startswith(path + "/")]:
        node = names.pop(each)
        if isinstance(node, _File):
            node.path = new_path + each[len(path) :]
        names[new_path + each[len(path) :]] = node


def _remove(names: _Names, path: str) -> None:
    if isinstance(names.get(path), _File):
        del names[path]


def _survivor(file: _File, random: Random) -> bytearray:
    if not file.data.startswith(file.synced):  # cut or rewritten since; either state may be on the disk
        return bytearray(random.choice((file.synced, bytes(file.data))))
    end = random.randint(len(file.synced), len(file.data))
    survivor = file.data[:end]
    if random.random() < 0.3:
        survivor += bytes(random.randint(0, len(file.data) - end))
    return survivor
