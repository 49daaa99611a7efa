"""Failing the k-th system call of anything that works on a `Storage`.

How to use it
    Write a function that brings a world up, carries out one operation on it and checks what came of it. Each case wants a
    new world.

        def case(calls: FailingCalls) -> None:
            storage = MemoryStorage()
            ...                           # bring up what the operation needs; nothing fails yet
            storage.fail = calls          # from here on calls are counted, and the chosen one fails
            with suppress(OSError):
                operation()
            storage.fail = None
            ...                           # go on, restart (`storage.copy()`, `kill()`, `crash()`), compare

        count = run_every_case(case)      # every call with every error; returns how many cases there were

    `run_every_case` runs the case once without a fault to count the calls, then again for each call and each of `ERRNOS`;
    writes also end short. With `lasting` all calls from the chosen one on fail that the error can happen to, as when the
    descriptors have run out. An operation that goes on after a fault makes other calls than one without, so a second
    fault is counted anew (`run_pairs`).
    A case that finds something wrong raises; the exception gets a note that says which call failed, and how.

    Real files: `FailingStorage(OsStorage(), calls)` asks the same way before each system call. Where the code under test
    does not use a `Storage`, ask `calls(operation, path)` in whatever stands for its system calls.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ottla.replication.log.atomic_files import TEMPORARY_SUFFIX, IsStill, Replacement, always
from ottla.replication.log.storage import Buffer, DirectoryLock, Storage, StorageFile
from ottla.server.testing.memory.storage import ShortWrite

ERRNOS = (errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EINTR)
WRITES = frozenset(("append",))
SHARES = (0.0, 0.5, 1.0)  # of the bytes, written before a write fails; all of them: the call failed after its work

# The calls that fail with an error while its cause lasts.
_OPENING = frozenset(("open", "read", "write", "names", "sync_directory", "lock"))
_GROWING = frozenset(("append", "write", "make_directory", "create"))
_LASTING = {errno.EMFILE: _OPENING, errno.ENOSPC: _GROWING}


class Call(NamedTuple):
    """A system call that was made."""

    operation: str
    path: str


class Fault(NamedTuple):
    """How the call number `number` (from 0) fails. `share`: of a write's bytes that are written all the same."""

    number: int
    errno: int
    share: float = 0.0
    is_lasting: bool = False

    def error(self, call: Call) -> OSError:
        text = f"{os.strerror(self.errno)}: {call.operation} {call.path}"
        return ShortWrite(self.errno, text, self.share) if self.share else OSError(self.errno, text)

    def concerns(self, number: int, call: Call) -> bool:
        if not self.is_lasting:
            return number == self.number
        return number >= self.number and call.operation in _LASTING.get(self.errno, (call.operation,))

    def __str__(self) -> str:
        text = f"call {self.number} fails with {errno.errorcode[self.errno]}"
        return text + (f" after {self.share:.0%} of its bytes" if self.share else "") + (", lasting" * self.is_lasting)


class FailingCalls:
    """Counts system calls in `made` and fails those that `faults` say. Called before each; returns its error, if any."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        self.made: list[Call] = []
        self.failed: list[Call] = []

    def __call__(self, operation: str, path: str) -> OSError | None:
        number, call = len(self.made), Call(operation, path)
        self.made.append(call)
        for fault in self.faults:
            if fault.concerns(number, call):
                self.failed.append(call)
                return fault.error(call)
        return None

    def __str__(self) -> str:
        failed = ", ".join(f"{call.operation} {call.path}" for call in self.failed[:3])
        return f"{' and '.join(map(str, self.faults)) or 'no fault'}: {failed or 'nothing failed'}"


Case = Callable[[FailingCalls], None]


def run_case(case: Case, *faults: Fault) -> FailingCalls:
    """Run a case with these faults; an exception of the case gets a note that names them."""
    calls = FailingCalls(*faults)
    try:
        case(calls)
    except BaseException as error:
        error.add_note(str(calls))
        raise
    return calls


def single_faults(made: Sequence[Call], errnos: Iterable[int] = ERRNOS, *, lasting: bool = False) -> Iterator[Fault]:
    """Every way in which one of these calls can fail."""
    for number, call in enumerate(made):
        for each in errnos:
            for share in SHARES if call.operation in WRITES else SHARES[:1]:
                yield Fault(number, each, share)
            if lasting and call.operation in _LASTING.get(each, ()):
                yield Fault(number, each, is_lasting=True)


def run_every_case(case: Case, errnos: Iterable[int] = ERRNOS, *, lasting: bool = False, every: int = 1) -> int:
    """Fail each call of a case once, in each way, or in `every` so many-th of all; returns the number of cases."""
    made = run_case(case).made
    faults = some_faults(made, list(single_faults(made, errnos, lasting=lasting)), every)
    for fault in faults:
        run_case(case, fault)
    return len(faults)


def some_faults(made: Sequence[Call], faults: Sequence[Fault], every: int) -> list[Fault]:
    """One in `every` of these; as many kinds of calls fail in as many ways as there can be."""
    return [faults[number] for number in some([(made[each.number].operation, *each[1:]) for each in faults], every)]


def some(kinds: Sequence[Hashable], every: int) -> list[int]:
    """Numbers of one in `every` of what has these kinds, of as many kinds as there can be.

    Simply each so many-th would be of the same few: kinds come round, for each call or each file anew.
    """
    alike: dict[Hashable, list[int]] = {}
    for number, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(number)
    # Not the first of all, which are those at the beginning.
    differing = [numbers[place % len(numbers)] for place, numbers in enumerate(alike.values())]
    count = -(-len(kinds) // every)
    others = sorted({*range(len(kinds))}.difference(differing))
    return [*_spread(differing, count), *_spread(others, count - len(differing))]


def _spread(numbers: Sequence[int], count: int) -> list[int]:
    """So many of them, as far from each other as can be."""
    count = max(0, min(count, len(numbers)))
    return [numbers[place * len(numbers) // count] for place in range(count)]


def run_pairs(case: Case, first: Iterable[Fault], second_errno: int = errno.EIO, *, within: int = 3) -> int:
    """After each of these faults fail one of the next few calls as well, such as those that undo the operation."""
    count = 0
    for fault in first:
        made = len(run_case(case, fault).made)
        for number in range(fault.number + 1, min(fault.number + 1 + within, made)):
            run_case(case, fault, Fault(number, second_errno))
            count += 1
    return count


class FailingStorage:
    """Any storage, asking `calls` before every system call. What takes several is made of them here."""

    def __init__(self, storage: Storage, calls: FailingCalls | None = None) -> None:
        self._storage = storage
        self.calls = calls

    def check(self, operation: str, path: str) -> None:
        error = self.calls(operation, path) if self.calls is not None else None
        if error is not None:
            raise error

    @contextmanager
    def failing(self, calls: FailingCalls) -> Iterator[None]:
        self.calls = calls
        try:
            yield
        finally:
            self.calls = None

    def open(self, path: str, *, create: bool = False, private: bool = False) -> StorageFile:
        self.check("open", path)
        return FailingFile(self, self._storage.open(path, create=create, private=private), path)

    def names(self, directory: str) -> list[str]:
        self.check("names", directory)
        return self._storage.names(directory)

    def is_directory(self, path: str) -> bool:
        self.check("is_directory", path)
        return self._storage.is_directory(path)

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return self._storage.exists(path)

    def size(self, path: str) -> int:
        self.check("size", path)
        return self._storage.size(path)

    def modified_ms(self, path: str) -> int:
        self.check("modified_ms", path)
        return self._storage.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.check("set_modified_ms", path)
        self._storage.set_modified_ms(path, modified_ms)

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        self._storage.make_directory(path)

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return self._storage.read(path)

    def write(self, path: str, data: bytes, *, sync: bool = False, is_still: IsStill | None = None) -> None:
        self.check("write", path)
        self._storage.write(path, b"", is_still=is_still)
        FailingFile(self, self._storage.open(path), path).append(data)
        if sync:
            self.check("sync", path)
            self._storage.open(path).sync()

    def replace(self, path: str, data: bytes, is_still: IsStill = always) -> None:
        self.write(path + TEMPORARY_SUFFIX, data, sync=True, is_still=is_still)
        self.rename(path + TEMPORARY_SUFFIX, path)
        self.sync_directory(os.path.dirname(path))

    def replace_all(self, files: Sequence[Replacement]) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                self.replace(*file)

    def rename(self, path: str, new_path: str) -> None:
        self.check("rename", path)
        self._storage.rename(path, new_path)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self._storage.remove(path)

    def remove_tree(self, path: str) -> None:
        self.check("names", path)
        with contextlib.suppress(FileNotFoundError):
            for name in self._storage.names(path):
                if self._storage.is_directory(f"{path}/{name}"):
                    self.remove_tree(f"{path}/{name}")
                else:
                    self.remove(f"{path}/{name}")
        self.check("remove_directory", path)
        self._storage.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self._storage.sync_directory(path)

    def space(self, path: str) -> tuple[int, int]:
        self.check("space", path)
        return self._storage.space(path)

    def lock(self, path: str) -> DirectoryLock | None:
        self.check("lock", path)
        return self._storage.lock(path)


class FailingFile:
    """An open file of a `FailingStorage`."""

    def __init__(self, storage: FailingStorage, file: StorageFile, path: str) -> None:
        self._storage = storage
        self._file = file
        self._path = path

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        self._storage.check("size", self._path)
        return self._file.size()

    def append(self, buffer: Buffer) -> None:
        try:
            self._storage.check("append", self._path)
        except ShortWrite as error:
            self._file.append(memoryview(buffer)[: int(len(buffer) * error.share)])
            raise
        self._file.append(buffer)

    def read_at(self, position: int, length: int) -> bytes:
        self._storage.check("read", self._path)
        return self._file.read_at(position, length)

    def truncate(self, size: int) -> None:
        self._storage.check("truncate", self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._storage.check("sync", self._path)
        self._file.sync()
