"""Rehearsal of a start: the start itself, on an overlay storage that reads the disk and changes nothing there.

`OverlayStorage.changes` lists the changes that the start would make. Its writes go to one temporary file without a name, so that
a start that rebuilds gigabytes of indexes takes no memory for them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import NamedTuple

import trio

from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.replication.log.atomic_files import IsStill, Replacement, always, another_directory
from ottla.replication.log.storage import Buffer, Storage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.broker import Broker
from ottla.server.cluster.session import JoinProblem
from ottla.server.config.broker_config import BrokerConfig
from ottla.server.environment import Environment
from ottla.wire.settings import InvalidSetting

COMPARED_BYTES = 1024 * 1024


class NoRoomForCheck(Exception):
    """Error: the check failed because the folder for temporary files is full."""


class Change(NamedTuple):
    """Change on disk that a start would make. `kind`: created, removed, cut, rewritten or renamed.

    `before` and `after`: the file's sizes in bytes; None if there is no file. `source`: former path of a renamed file.
    """

    kind: str
    path: str
    before: int | None = None
    after: int | None = None
    source: str | None = None


class _Arena:
    """Temporary file that holds all written bytes, appended one after the other."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._fd = os.dup(file.fileno())
        self._end = 0

    def __del__(self) -> None:
        os.close(self._fd)

    def add(self, data: Buffer) -> int:
        start, view = self._end, memoryview(data)
        try:
            while view:
                written = os.pwrite(self._fd, view, self._end)
                self._end, view = self._end + written, view[written:]
        except OSError as error:
            raise NoRoomForCheck(f"{tempfile.gettempdir()}: {error.strerror}") from None
        return start

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)


class _Content:
    """Content of a file in the overlay: `kept` bytes from the beginning of the file `source`, then written pieces."""

    def __init__(self, arena: _Arena, source: str | None = None, size: int = 0) -> None:
        self.source = source
        self.kept = size
        self.size = size
        self.modified_ms: int | None = None
        self._arena = arena
        self._starts: list[int] = []
        self._pieces: list[tuple[int, int]] = []  # position in the arena, and length

    def append(self, data: Buffer) -> None:
        if not len(data):
            return
        position = self._arena.add(data)
        if self._pieces and sum(self._pieces[-1]) == position:
            self._pieces[-1] = (self._pieces[-1][0], self._pieces[-1][1] + len(data))
        else:
            self._starts.append(self.size)
            self._pieces.append((position, len(data)))
        self.size += len(data)

    def truncate(self, size: int) -> None:
        self.kept = min(self.kept, size)
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._pieces.pop()
        if self._starts:
            self._pieces[-1] = (self._pieces[-1][0], min(self._pieces[-1][1], size - self._starts[-1]))
        self.size = size

    def read_at(self, fd: int, position: int, length: int) -> bytes:
        end, found = min(position + length, self.size), []
        while position < end:
            if position < self.kept:
                data = os.pread(fd, min(end, self.kept) - position, position)
            else:
                slot = bisect_right(self._starts, position) - 1
                start, (place, size) = self._starts[slot], self._pieces[slot]
                data = self._arena.read(place + position - start, min(end, start + size) - position)
            if not data:
                break
            found.append(data)
            position += len(data)
        return b"".join(found)


class _Directory(NamedTuple):
    source: str | None
    """Path of the directory on the disk; None: it was made in the overlay."""


_Entry = _Content | _Directory


class OverlayFile:
    """Open file in an overlay: its bytes on disk do not change."""

    def __init__(self, content: _Content, lock: RLock) -> None:
        self._fd = -1
        self._content, self._lock = content, lock
        if content.source is not None:
            self._fd = os.open(content.source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file that is only looked at is sent to nobody")

    def size(self) -> int:
        return self._content.size

    def append(self, buffer: Buffer) -> None:
        with self._lock:
            self._content.append(buffer)

    def read_at(self, position: int, length: int) -> bytes:
        with self._lock:
            return self._content.read_at(self._fd, position, length)

    def truncate(self, size: int) -> None:
        with self._lock:
            self._content.truncate(size)

    def sync(self) -> None:
        """Do nothing, because the check writes nothing to disk."""


class _NoLock:
    def release(self) -> None:
        """Do nothing, because nothing was locked."""


class OverlayStorage:
    """Storage that keeps all writes in an overlay and changes nothing on disk. Paths are absolute; thread-safe."""

    def __init__(self) -> None:
        self._arena = _Arena()
        self._lock = RLock()
        # By the path of the directory, then by the name: what is not as on the disk. None: it is gone.
        self._changed: dict[str, dict[str, _Entry | None]] = {}

    # ------------------------------------------------------------------ finding

    def _find(self, path: str) -> _Entry | None:
        parent, name = os.path.split(path)
        if name in (changed := self._changed.get(parent, {})):
            return changed[name]
        source = self._source_of(path)
        if source is None:
            return None
        try:
            status = os.stat(source)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _Directory(source) if stat.S_ISDIR(status.st_mode) else _Content(self._arena, source, status.st_size)

    def _source_of(self, path: str) -> str | None:
        """Return the path on disk of a file or directory that is unchanged; None if there is none."""
        parent, name = os.path.split(path)
        if not name:
            return path
        grandparent, parent_name = os.path.split(parent)
        changed = self._changed.get(grandparent, {}) if parent_name else {}
        if parent_name in changed:
            entry = changed[parent_name]
            above = entry.source if isinstance(entry, _Directory) else None
        else:
            above = self._source_of(parent)
        return None if above is None else os.path.join(above, name)

    def _file(self, path: str) -> _Content:
        entry = self._find(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(entry, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return entry

    def _directory(self, path: str) -> _Directory:
        entry = self._find(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(entry, _Content):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return entry

    def _put(self, path: str, entry: _Entry | None) -> None:
        parent, name = os.path.split(path)
        if entry is not None:
            self._directory(parent)
        self._changed.setdefault(parent, {})[name] = entry

    # ------------------------------------------------------------------ the port

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OverlayFile:
        with self._lock:
            if create and self._find(path) is None:
                self._put(path, _Content(self._arena))
            content = self._file(path)
            self._put(path, content)  # all who open it see what one of them changes
            return OverlayFile(content, self._lock)

    def names(self, directory: str) -> list[str]:
        with self._lock:
            source = self._directory(directory).source
            found = dict.fromkeys(os.listdir(source) if source is not None else ())
            for name, entry in self._changed.get(directory, {}).items():
                found.pop(name, None)
                if entry is not None:
                    found[name] = None
            return list(found)

    def is_directory(self, path: str) -> bool:
        with self._lock:
            return isinstance(self._find(path), _Directory)

    def exists(self, path: str) -> bool:
        with self._lock:
            return self._find(path) is not None

    def size(self, path: str) -> int:
        with self._lock:
            return self._file(path).size

    def modified_ms(self, path: str) -> int:
        with self._lock:
            content = self._file(path)
            if content.modified_ms is not None or content.source is None:
                return content.modified_ms or 0
            return os.stat(content.source).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self._lock:
            content = self._file(path)
            content.modified_ms = modified_ms
            self._put(path, content)

    def make_directory(self, path: str) -> None:
        with self._lock:
            if self._find(path) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._put(path, _Directory(None))

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(0, file.size())

    def write(self, path: str, data: bytes, *, sync: bool = False, is_still: IsStill | None = None) -> None:
        with self._lock:
            if is_still is not None and not is_still():
                raise another_directory(path)
            content = _Content(self._arena)
            content.append(data)
            self._put(path, content)

    def replace(self, path: str, data: bytes, is_still: IsStill = always) -> None:
        self.write(path, data, is_still=is_still)

    def replace_all(self, files: Sequence[Replacement]) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                self.replace(*file)

    def rename(self, path: str, new_path: str) -> None:
        with self._lock:
            entry = self._find(path)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if new_path == path:
                return
            self._put(new_path, entry)
            self._put(path, None)
            if isinstance(entry, _Directory):
                for each in [each for each in self._changed if each == path or each.startswith(f"{path}/")]:
                    self._changed[new_path + each[len(path) :]] = self._changed.pop(each)

    def remove(self, path: str) -> None:
        with self._lock:
            if isinstance(self._find(path), _Content):
                self._put(path, None)

    def remove_tree(self, path: str) -> None:
        with self._lock:
            if self._find(path) is None:
                return
            self._directory(path)
            self._put(path, None)
            for each in [each for each in self._changed if each == path or each.startswith(f"{path}/")]:
                del self._changed[each]

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self._directory(path)

    def space(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: str) -> _NoLock:
        """Lock nothing: the check has already verified that no broker uses the directory."""
        return _NoLock()

    # ------------------------------------------------------------------ what came of it

    def changes(self) -> list[Change]:
        """Return the differences from the disk, sorted by path. A file rewritten with equal content does not count."""
        with self._lock:
            found = [
                change
                for directory, names in self._changed.items()
                for name, entry in names.items()
                if (change := self._change(os.path.join(directory, name), entry)) is not None
            ]
        moved = {each.source for each in found}
        return sorted(each for each in found if each.kind != "removed" or each.path not in moved)

    def _change(self, path: str, entry: _Entry | None) -> Change | None:
        before = _size_on_disk(path)
        if entry is None:
            return None if before is None else Change("removed", path, before)
        if entry.source not in (None, path):
            return Change("renamed", path, source=entry.source)
        if isinstance(entry, _Directory):
            return None if before is not None else Change("created", path)
        if before is None:
            return Change("created", path, None, entry.size)
        if entry.source == path and entry.kept == entry.size:
            return None if entry.size == before else Change("cut", path, before, entry.size)
        return None if self._is_same(path, entry, before) else Change("rewritten", path, before, entry.size)

    def _is_same(self, path: str, content: _Content, before: int) -> bool:
        if content.size != before:
            return False
        with open(path, "rb") as file:
            return all(
                content.read_at(file.fileno(), position, COMPARED_BYTES)
                == os.pread(file.fileno(), COMPARED_BYTES, position)
                for position in range(0, before, COMPARED_BYTES)
            )

    def walk(self, directory: str) -> Iterator[tuple[str, int | None]]:
        """Yield (path, size in bytes) of each file and directory below `directory` in the overlay.

        Directories have the size None.
        """
        for name in sorted(self.names(directory)):
            path = os.path.join(directory, name)
            if self.is_directory(path):
                yield path, None
                yield from self.walk(path)
            else:
                yield path, self.size(path)


def _size_on_disk(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


SAID_MAX = 1_000
_REFUSALS = (LogDirectoryProblem, JoinProblem, InvalidSetting, CoordinationUnavailable, OSError)


class LoadedRange(NamedTuple):
    """Log that a start would recover, with its offsets."""

    name: str
    directory: str
    log_start_offset: int
    log_end_offset: int


class Rehearsal(NamedTuple):
    """Result of a simulated start. `refusal`: why the start would fail; None: it would succeed and serve `logs`."""

    refusal: str | None
    changes: list[Change]
    logs: list[LoadedRange]
    said: list[str]
    """Its log lines from WARNING on, up to SAID_MAX."""


def rehearse(config: BrokerConfig, storage: OverlayStorage) -> Rehearsal:
    """Simulate the start of a broker, up to serving. The simulation does not listen, or contact other brokers."""
    with _listening() as said:
        logs: list[LoadedRange] = []
        refusal = None
        try:
            logs = trio.run(open_broker, config, storage)
        except BaseExceptionGroup as group:
            problem: BaseException = group
            while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
                problem = problem.exceptions[0]
            if not isinstance(problem, _REFUSALS):
                raise problem from None
            refusal = str(problem)
        except _REFUSALS as problem:
            refusal = str(problem)
    return Rehearsal(refusal, storage.changes(), logs, said)


async def open_broker(config: BrokerConfig, storage: Storage) -> list[LoadedRange]:
    """Open a broker whose writes all go to `storage`; return the broker's logs."""
    broker = Broker(config, Environment(storage=storage))
    async with trio.open_nursery() as sessions:
        await broker.open(sessions)
        await broker.member.keep()
        found = [
            LoadedRange(
                f"{each.topic}-{each.index}", each.log.directory, each.log.log_start_offset, each.log.log_end_offset
            )
            for each in broker.replicas.partitions()
        ]
        sessions.cancel_scope.cancel()
    return sorted(found)


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._said) < SAID_MAX:
            self._said.append(record.getMessage())


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect the warnings of this block, and keep them out of the log."""
    said: list[str] = []
    handler, logger = _Listener(said), logging.getLogger("ottla")
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
