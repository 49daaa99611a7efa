"""Identities of log directories (`identify`, sans-IO), and the registry of those that this process has locked.

A disk that is not mounted looks like an empty directory. Without a check its partitions would restart at offset 0, and
acknowledged records would be lost. So each directory has an id, in its `meta.properties` and in the coordination tree,
which remembers the ids of a broker's directories; a start is refused when one of them is not what it was.

| found at a start                                        | what follows                                               |
|---------------------------------------------------------|------------------------------------------------------------|
| no ids in the tree (first start, upgrade, adoption)     | Every directory keeps its id or gets one.                  |
| ... but a directory is empty, and another has an id     | Refused: the tree was on the disk that is not there.       |
| the id that the tree knows, at any path                 | It is that directory; a disk may be mounted elsewhere.     |
| an empty directory at a path that the tree knows        | Refused, unless it is accepted: it gets a new id.          |
| an empty directory at a new path                        | It was added, and gets an id.                              |
| an id that the tree does not know                       | Refused, unless it is accepted: it keeps its id.           |
| no id, but the properties of this broker                | Another make of broker wrote them: the id of that path.    |
| an id of the tree is nowhere, its path not in log.dirs  | Refused, unless its path is accepted: it is forgotten.     |
| a directory that cannot be read                         | It is offline and the others go on; the tree keeps its id. |
| two directories with one id                             | Refused: one is a copy.                                    |

An id is in the tree before it is in the directory, as `is_new`, so that a crash in between is not taken for a lost disk.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.replication.cluster.znodes import KnownDirectory
from ottla.replication.log.checkpoints import MetaProperties
from ottla.replication.log.names import FUTURE_MARK
from ottla.replication.replica_manager.directories import (
    FoundPartition,
    HeldDirectory,
    LogDirectoryProblem,
    hold_directories,
)
from ottla.wire.text import uuid_text

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.replication.log.storage import LogDirectory, Storage

logger = logging.getLogger("ottla.replication")


Known = Mapping[bytes, KnownDirectory]


class SeenDirectory(NamedTuple):
    """State of a log directory at the start; `meta` is None if the directory is unclaimed or offline."""

    path: str
    is_online: bool
    meta: MetaProperties | None

    @property
    def directory_id(self) -> bytes | None:
        return None if self.meta is None else self.meta.directory_id


class Identities(NamedTuple):
    """Ids of the online log directories by path, and the directories to record in the tree by id."""

    ids: Mapping[str, bytes]
    known: Known


def identify(
    known: Known | None, seen: Sequence[SeenDirectory], *, accepted: Collection[str], new_uuid: Callable[[], bytes]
) -> Identities:
    """Assign ids to all log directories. Raises LogDirectoryProblem if a directory not in `accepted` has changed."""
    # A copy first: with two directories of one id no other question has an answer.
    _refuse_copies(seen)
    if known is None:
        _refuse_empty_beside_known(seen, accepted)
    return _Identification(known, seen, accepted, new_uuid).run()


class _Identification:
    def __init__(
        self,
        known: Known | None,
        seen: Sequence[SeenDirectory],
        accepted: Collection[str],
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._is_first = known is None
        self._seen = seen
        self._accepted = accepted
        self._new_uuid = new_uuid
        # Ids and not paths decide: a disk may be mounted elsewhere than before.
        present = {each.directory_id for each in seen}
        self._known = dict(known or {})
        # Ids of the tree that no directory has shown.
        self._missing = {key: entry for key, entry in self._known.items() if key not in present}

    def run(self) -> Identities:
        ids: dict[str, bytes] = {}
        after: dict[bytes, KnownDirectory] = {}
        # Phase 1: every directory that can be read gets its id.
        for each in self._seen:
            if each.is_online:
                ids[each.path] = self._id_of(each)
                after[ids[each.path]] = KnownDirectory(each.path, each.directory_id is None)
        # Phase 2: ids of the tree that nobody has. They may be on a
        # disk that cannot be read, or else their records are lost.
        offline = {each.path for each in self._seen if not each.is_online}
        for key, entry in self._missing.items():
            if entry.path in offline or (offline and entry.path not in ids):
                after[key] = entry  # it is, or may be, on the disk that cannot be read
            elif entry.path not in ids and not entry.is_new and entry.path not in self._accepted:
                raise _no_longer_configured(key, entry.path)
        return Identities(ids, after)

    def _id_of(self, each: SeenDirectory) -> bytes:
        # Case 1: the directory says who it is.
        if each.directory_id is not None:
            if not self._is_first and each.directory_id not in self._known and each.path not in self._accepted:
                raise _foreign(each)
            return each.directory_id
        # Case 2: it says nothing. Does the tree expect one at this path?
        expected = next((key for key, entry in self._missing.items() if entry.path == each.path), None)
        if expected is None:
            return self._new_uuid()
        # Properties without an id are of this broker, as `_hold` has checked.
        # With `is_new` a crash may have come before the id reached the directory.
        is_as_expected = each.meta is not None or self._missing[expected].is_new
        if not is_as_expected and each.path not in self._accepted:
            raise _empty(expected, each.path)
        del self._missing[expected]  # the path is settled: phase 2 of `run` must not complain of it again
        return expected if is_as_expected else self._new_uuid()


def _refuse_copies(seen: Sequence[SeenDirectory]) -> None:
    paths: dict[bytes, str] = {}
    for each in seen:
        if each.directory_id is not None:
            other = paths.setdefault(each.directory_id, each.path)
            if other != each.path:
                raise LogDirectoryProblem(f"The log directories {other} and {each.path} have the same directory.id")


def _refuse_empty_beside_known(seen: Sequence[SeenDirectory], accepted: Collection[str]) -> None:
    """Raise LogDirectoryProblem if a directory is empty although another one has an id: its disk may be missing.

    Directories in `accepted` may be empty.
    """
    with_id = next(
        (each for each in seen if each.meta is not None and not each.meta.version and each.directory_id), None
    )
    for each in seen:
        if with_id is not None and each.is_online and each.meta is None and each.path not in accepted:
            raise LogDirectoryProblem(
                f"Log directory {each.path} is empty, and nothing is known of it although {with_id.path} was in use. "
                f"Is its disk mounted? {_remedy(each.path)}"
            )


def _empty(expected: bytes, path: str) -> LogDirectoryProblem:
    return LogDirectoryProblem(
        f"Log directory {path} is empty, but this broker kept one there with directory.id {uuid_text(expected)}. Is its "
        f"disk mounted? {_remedy(path)}"
    )


def _foreign(each: SeenDirectory) -> LogDirectoryProblem:
    assert each.directory_id is not None
    return LogDirectoryProblem(
        f"Log directory {each.path} has directory.id {uuid_text(each.directory_id)}, which this broker does not know. Is "
        f"the right disk mounted? To take it as it is, start once with --accept-empty-log-dir {each.path}"
    )


def _no_longer_configured(key: bytes, path: str) -> LogDirectoryProblem:
    return LogDirectoryProblem(
        f"Log directory {path}, directory.id {uuid_text(key)}, is not among log.dirs any more, and what it held would "
        f"begin anew, empty. {_remedy(path)}"
    )


def _remedy(path: str) -> str:
    return f"If what it held is gone for good, start once with --accept-empty-log-dir {path}"


class LogDirectoryRegistry:
    """Log directories of this process: locked, identified and searched at the start, looked up afterwards."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        node_id: int,
        storage: Storage,
        descriptors: Descriptors,
        run_in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self.all: list[HeldDirectory] = []
        # Absolute: the tree compares paths between starts, which may have another working directory.
        self._paths = [os.path.abspath(path) for path in log_dirs]
        self._cordoned: set[str] = set()
        self._node_id = node_id
        self._storage = storage
        self._descriptors = descriptors
        self._run_in_thread = run_in_thread

    async def take(self) -> None:
        """Lock the log directories. Raises LogDirectoryProblem if one cannot be used."""
        self.all = await self._run_in_thread(self._hold)
        self._cordon()

    def cordon(self, log_dirs: Iterable[str]) -> None:
        """Cordon the directories `log_dirs`, which then get no new logs; uncordon all others."""
        self._cordoned = {os.path.abspath(path) for path in log_dirs}
        self._cordon()

    def _cordon(self) -> None:
        for each in self.all:
            each.log_directory.is_cordoned = each.path in self._cordoned

    @property
    def are_all_cordoned(self) -> bool:
        return bool(self.all) and all(each.log_directory.is_cordoned for each in self.all)

    def _hold(self) -> list[HeldDirectory]:
        return hold_directories(self._paths, self._storage, node_id=self._node_id, descriptors=self._descriptors)

    def log_directories(self) -> list[LogDirectory]:
        """Return all log directories, including offline ones."""
        return [held.log_directory for held in self.all]

    def online(self) -> list[HeldDirectory]:
        return [held for held in self.all if held.log_directory.is_online]

    def of(self, log_directory: LogDirectory) -> HeldDirectory:
        (held,) = (held for held in self.all if held.log_directory is log_directory)
        return held

    def seen(self) -> list[SeenDirectory]:
        """Return the state of all log directories as found at the start."""
        return [SeenDirectory(held.path, held.log_directory.is_online, held.meta) for held in self.all]

    async def mark(self, ids: Mapping[str, bytes], cluster_id: str) -> set[str]:
        """Write ids into the log directories; return the paths of the directories that have an id now."""
        # A directory whose disk fails here is left out of the answer, and stays `is_new` in the tree.
        for held in self.online():
            try:
                settle = partial(held.settle, node_id=self._node_id, cluster_id=cluster_id, directory_id=ids[held.path])
                await self._run_in_thread(settle)
            except OSError as error:
                held.log_directory.judge(error, held.path)
        return {held.path for held in self.online() if held.meta is not None and held.meta.directory_id is not None}

    def found_partitions(self) -> list[FoundPartition]:
        """Return the partitions on disk, registered or not; call this only before the logs are loaded.

        An unreadable directory goes offline; if it counted as empty, its logs would be set aside and new ones created.
        """
        found: list[FoundPartition] = []
        for held in self.online():
            try:
                found += held.found_partitions()
            except OSError as error:  # a thread tells nobody; the loading sees it
                logger.error("Log directory %s is offline: %s", held.path, error)
                held.log_directory.failure = error
        # A future log beside a current one is only a copy on its way, so the current one counts.
        current = {(each.parsed.topic, each.parsed.partition): each for each in found if not each.parsed.mark}
        for each in found:
            if each.parsed.mark == FUTURE_MARK:  # alone, it is what the next load makes the current one
                current.setdefault((each.parsed.topic, each.parsed.partition), each)
        return list(current.values())
