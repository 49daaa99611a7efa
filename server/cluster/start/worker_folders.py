"""The folders of several workers below the log directories, and who may use them.

    <log.dir>              worker 0, and a broker that is alone
    <log.dir>/workers/1    worker 1, and so on, in each of log.dirs
    <log.dir>/workers/.lock  in the first of log.dirs: held by the start that runs the workers, because it holds the journal

Only who holds both locks of the first log directory, or one and has seen the other one free, opens the journal there:

    a broker that is alone takes .lock, and then workers/.lock if there is a folder `workers`
    a start of several workers makes that folder, takes workers/.lock, and then looks whether .lock is free

Of two that begin at the same moment at least one sees the other.

No two workers may have the same folder by another name, such as `<log.dir>/workers/1` among log.dirs: a start on such is refused.

A worker that is left out owns partitions that no other worker has. So a start with fewer workers is refused while such a
worker exists. Directories that are to be deleted, or were put aside, do not count.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.replication.log.names import LOCK, parse_partition_directory, path_in
from ottla.replication.log.storage import ACCESS, OsStorage
from ottla.replication.replica_manager.directories import LogDirectoryProblem, hold_directories, make_directories
from ottla.server.cluster.coordination.sockets import is_held
from ottla.server.cluster.log_dirs import check_journal
from ottla.server.config.server_config import FOLDER
from ottla.server.config.worker_places import tree_socket, worker_folder

if TYPE_CHECKING:
    from ottla.replication.log.storage import DirectoryLock, Storage

LOOK_AGAIN_S: Final = 0.02
PATIENCE_S: Final = 5.0  # for the workers of a start that was killed, which the kernel is just ending
NAMES_MAX: Final = 3
DIGITS_MAX: Final = 4


def looks(patience_s: float) -> Iterator[int]:
    """Yield attempt numbers from 0, with pauses, for `patience_s` seconds. There is at least one attempt.

    This is for resources that the kernel frees late, such as the lock or port of a killed process. Attempts are
    counted, not timed: if the process got no CPU for two seconds, a clock would leave only one attempt.
    """
    for number in range(1 + max(0, math.ceil(patience_s / LOOK_AGAIN_S))):
        if number:
            time.sleep(LOOK_AGAIN_S)
        yield number


def hold_folders(
    log_dirs: Sequence[Path],
    count: int,
    *,
    node_id: int,
    accepted: Collection[str],
    has_journal: bool,
    readable_by: str = "user",
) -> DirectoryLock:
    """Lock the journal and the folders of `count` workers until this process ends. Raises LogDirectoryProblem, OSError.

    First wait briefly for the end of former workers. Call this before opening the journal, which the lock protects;
    `has_journal` False: the workers' coordination tree is elsewhere. `readable_by` is log.dirs.readable.by.
    """
    refuse_shared(log_dirs, count)
    storage = OsStorage(ACCESS[readable_by])
    home = log_dirs[0] / FOLDER
    make_directories(str(home), storage)
    lock = _patiently_locked(storage, home)
    try:
        # Worker 0 takes it later. Here it only has to be seen that no broker which is alone has it.
        _patiently_locked(storage, log_dirs[0]).release()
        _await_former_holder(log_dirs[0])
        for number in range(1, count):
            _await_former_worker(storage, worker_folder(log_dirs[0], number))
        refuse_fewer(storage, [str(each) for each in log_dirs], count)
        held = hold_directories([str(each) for each in log_dirs], storage, node_id=node_id)
        try:
            if has_journal:
                check_journal(held, accepted)
        finally:
            for each in held:
                each.release()
    except BaseException:
        lock.release()
        raise
    return lock


def _patiently_locked(storage: Storage, folder: Path) -> DirectoryLock:
    for _ in looks(PATIENCE_S):
        if (lock := storage.lock(path_in(str(folder), LOCK))) is not None:
            return lock
    raise _used(str(folder))


def _await_former_holder(log_dir: Path) -> None:
    """Wait until no process serves the journal's tree. Raises LogDirectoryProblem after PATIENCE_S seconds.

    The tree's former server owns the journal until it ends, and it may outlive the former supervisor.
    """
    for _ in looks(PATIENCE_S):
        if not is_held(str(tree_socket(log_dir))):
            return
    raise _used(str(log_dir))


def _await_former_worker(storage: Storage, folder: Path) -> None:
    """Wait until no process holds the worker's folder. A former worker may outlive its supervisor."""
    # Without the disk there is no worker to wait for, and the worker itself says what is wrong with it.
    with suppress(OSError):
        if storage.is_directory(str(folder)):
            _patiently_locked(storage, folder).release()


def keep_out_workers(storage: Storage, log_dirs: Sequence[str]) -> DirectoryLock | None:
    """Return the workers' lock, taken for a lone broker; None if there are no workers' folders.

    The caller holds the locks of its log directories. Raises LogDirectoryProblem if workers run or have partitions.
    """
    home = path_in(log_dirs[0], FOLDER)
    lock = None
    if storage.is_directory(home) and (lock := storage.lock(path_in(home, LOCK))) is None:
        raise _used(home)
    try:
        refuse_fewer(storage, log_dirs, 1)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return lock


def _used(folder: str) -> LogDirectoryProblem:
    return LogDirectoryProblem(
        f"Failed to acquire lock on file {LOCK} in {folder}. A broker in another process is using this directory."
    )


def refuse_shared(log_dirs: Sequence[Path], count: int) -> None:
    """Raise LogDirectoryProblem if two workers share a folder, or a worker's folder contains a log directory.

    Symbolic links are resolved.
    """
    homes = {os.path.realpath(each / FOLDER): each for each in log_dirs}
    for each in log_dirs:
        real = os.path.realpath(each)
        for home, above in homes.items():
            if os.path.commonpath((real, home)) == home:
                raise LogDirectoryProblem(
                    f"log.dirs: {each} is where the workers of {above} have their folders. Leave one of the two out"
                )
    owners: dict[str, tuple[int, Path]] = {}
    for number, each in itertools.product(range(count), log_dirs):
        folder = worker_folder(each, number)
        other, by_name = owners.setdefault(os.path.realpath(folder), (number, folder))
        if other != number:
            raise LogDirectoryProblem(
                f"log.dirs: {folder} of worker {number} is the same as {by_name} of worker {other}"
            )


def refuse_fewer(storage: Storage, log_dirs: Sequence[str], count: int) -> None:
    """Raise LogDirectoryProblem if partitions belong to a worker that is left out: its number is `count` or more."""
    left_out: dict[int, list[str]] = {}
    for log_dir in log_dirs:
        names_of_folders = _directories(storage, path_in(log_dir, FOLDER))
        for number in [int(name) for name in names_of_folders if name.isdecimal() and len(name) <= DIGITS_MAX]:
            if number >= count and (names := _partitions(storage, str(worker_folder(Path(log_dir), number)))):
                left_out.setdefault(number, []).extend(names)
    if left_out:
        number, names = max(left_out.items())
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        shown = f"{', '.join(sorted(names)[:NAMES_MAX])}{more}"
        raise LogDirectoryProblem(
            f"Worker {number} has partitions below {log_dirs[0]}/{FOLDER} ({shown}), which num.workers={count} leaves out."
            f" Start with num.workers={number + 1}, and move them away first: ottla spread --workers {count}"
        )


def _partitions(storage: Storage, folder: str) -> list[str]:
    found = []
    for name in _directories(storage, folder):
        parsed = parse_partition_directory(name)
        if parsed is not None and not parsed.mark:
            found.append(name)
    return found


def _directories(storage: Storage, folder: str) -> list[str]:
    # A disk that cannot be read keeps no worker from serving what is on the others.
    with suppress(OSError):
        if storage.is_directory(folder):
            return [name for name in storage.names(folder) if storage.is_directory(path_in(folder, name))]
    return []
