"""Replacement of small files as a whole, in directories that may be renamed meanwhile.

A thread may be so slow that the directory it is to write into has been renamed, and another log's has its name. So a writer
says how it knows (`IsStill`). The directory is opened, then the writer checks it, and all files are written through its
descriptor. So they get into the intended directory or nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.replication.system import O_DIRECTORY, SYNC_WAITS, full_sync

IsStill = Callable[[], bool]

TEMPORARY_SUFFIX = ".tmp"
PRIVATE_FILE = 0o600
"""The mode of a file that is its user's only."""

SYNCS_MAX = 32  # files that are synced one by one; for more, syncing the whole file system takes less time


def always() -> bool:
    """Return True; stands in for `is_still` where a directory is never renamed."""
    return True


class HasDirectory(Protocol):
    """Owner of a directory; `directory` changes when the directory is renamed."""

    @property
    def directory(self) -> str: ...


def keeps_directory(owner: HasDirectory) -> IsStill:
    """Return a function that says whether `owner` still has its present directory; any thread may call it."""
    directory = owner.directory
    return lambda: owner.directory == directory


def another_directory(path: str) -> FileNotFoundError:
    """Return the error for a write after another directory has taken over the name of the log's directory."""
    return FileNotFoundError(errno.ENOENT, "Another directory has this name now", path)


class Replacement(NamedTuple):
    """New contents of a file; `is_still` says whether the directory still belongs to the same log."""

    path: str
    data: bytes
    is_still: IsStill = always


def write_file(path: str, data: bytes, *, sync: bool, is_still: IsStill | None, mode: int = PRIVATE_FILE) -> None:
    """Overwrite a file in place; a new file gets `mode`. Without `is_still` any directory of that name is accepted."""
    if is_still is None:
        _write(path, data, mode, sync=sync)
        return
    with _directory_of(path, is_still) as (directory, name):
        _write(name, data, mode, sync=sync, directory=directory)


def replace_file(file: Replacement, mode: int = PRIVATE_FILE) -> None:
    """Replace a file atomically: after a crash it has the old or the new contents, after the return the new ones."""
    # The contents are on the disk before the name leads to them, and the name before this returns.
    with _directory_of(file.path, file.is_still) as (directory, name):
        _write(name + TEMPORARY_SUFFIX, file.data, mode, sync=True, directory=directory)
        _give_name(name, directory)
        full_sync(directory)


def replace_files(files: Sequence[Replacement], mode: int = PRIVATE_FILE) -> None:
    """Replace many files atomically with few syncs; skip files whose directory was replaced."""
    if len(files) <= SYNCS_MAX or not SYNC_WAITS:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                replace_file(file, mode)
        return
    written = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            write_file(file.path + TEMPORARY_SUFFIX, file.data, sync=False, is_still=file.is_still, mode=mode)
            written.append(file)
    os.sync()  # one for all of them, before any old contents are given up
    for file in written:
        # Opened and asked again: so many directories cannot stay open during the sync.
        with contextlib.suppress(FileNotFoundError), _directory_of(file.path, file.is_still) as (directory, name):
            _give_name(name, directory)
    # The new names have to be on the disk, too, before the caller believes so.
    os.sync()


@contextlib.contextmanager
def _directory_of(path: str, is_still: IsStill) -> Iterator[tuple[int, str]]:
    """Open a file's directory; yield its descriptor and the file's name in it."""
    parent, name = os.path.split(path)
    directory = os.open(parent, os.O_RDONLY | O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Asked when it is open. If it is the right one now, it stays so, whatever becomes of its name.
        if not is_still():
            raise another_directory(parent)
        yield directory, name
    finally:
        os.close(directory)


def _give_name(name: str, directory: int) -> None:
    os.replace(name + TEMPORARY_SUFFIX, name, src_dir_fd=directory, dst_dir_fd=directory)


def _write(path: str, data: bytes, mode: int, *, sync: bool, directory: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode, dir_fd=directory)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            full_sync(fd)
    finally:
        os.close(fd)
