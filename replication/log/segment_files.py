"""Renaming and removing the files of a segment, so that a failure on the way leaves no doubt whether the segment is there.

The `.log` decides: it comes first in every list of paths. Without it the other files are nothing, and loading removes them;
without them it gets new ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from ottla.replication.log.faults import Fault, Irreparable, classify, insist
from ottla.replication.log.index import IndexCut
from ottla.replication.log.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from ottla.replication.log.storage import Storage, StorageFile


class SegmentCut(NamedTuple):
    """Everything that has to be known to cut a segment. `position` is None where no batch goes."""

    file: StorageFile
    position: int | None
    offset_index: IndexCut
    time_index: IndexCut
    transactions: int


def rename_files(storage: Storage, paths: Sequence[str], new_paths: Sequence[str]) -> None:
    """Give files other names; only the `.log` has to be there. OSError: some have the new name and some the old one."""
    log, *others = zip(paths, new_paths, strict=True)
    # First the `.log`: as long as it has its old name, the segment is there as before.
    insist(storage.rename, *log)
    for path, new_path in others:
        # Indexes may be missing: a log that was loaded without them makes them when they are needed.
        with contextlib.suppress(FileNotFoundError):
            insist(storage.rename, path, new_path)


def give_up_files(storage: Storage, paths: Sequence[str]) -> list[str]:
    """Mark files as deleted; returns which are to be removed later. OSError: the `.log` is as it was."""
    given_up = [_give_up(storage, paths[0])]
    # The segment is gone with its `.log`. Loading removes what is left of the others.
    for path in paths[1:]:
        with contextlib.suppress(OSError):
            given_up.append(_give_up(storage, path))
    return [path for path in given_up if path is not None]


def _give_up(storage: Storage, path: str) -> str | None:
    # One suffix replaces another: loading knows no file that has two of them.
    new_path = path.removesuffix(CLEANED_SUFFIX).removesuffix(SWAP_SUFFIX) + DELETED_SUFFIX
    try:
        insist(storage.rename, path, new_path)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A rename may need room in the directory. A broken disk is another matter: there nothing more is tried.
        if classify(error) is Fault.BROKEN:
            raise
        storage.remove(path)  # which needs no room
        return None
    return new_path


def remove_files(storage: Storage, paths: Sequence[str]) -> None:
    """Remove files that must not be found again. The error is `Irreparable`."""
    for path in paths:
        try:
            insist(storage.remove, path)
        except OSError as error:
            # The next start would find a file that stays.
            raise Irreparable(f"{path} cannot be removed", error) from error


def remove_unfinished(storage: Storage, paths: Sequence[str]) -> None:
    """Remove the files of a segment that could not be made. Without its `.log` the rest counts for nothing."""
    remove_files(storage, paths[:1])
    for path in paths[1:]:
        with contextlib.suppress(OSError):
            storage.remove(path)
