"""The log directories of this process. It takes, searches and marks them at its start, and looks them up afterwards."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.replication.log.names import FUTURE_MARK
from ottla.replication.replica_manager.directories import FoundPartition, HeldDirectory, hold_directories
from ottla.replication.replica_manager.directory_identities import SeenDirectory

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.replication.log.storage import LogDirectory, Storage

logger = logging.getLogger("ottla.replication")


class HeldDirectories:
    """See the module's docstring."""

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
        """Take the directories. LogDirectoryProblem says what stands in the way."""
        self.all = await self._run_in_thread(self._hold)
        self._cordon()

    def cordon(self, log_dirs: Iterable[str]) -> None:
        """These get no new logs from now on, and all others may."""
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
        """The log directories, offline ones too."""
        return [held.log_directory for held in self.all]

    def online(self) -> list[HeldDirectory]:
        return [held for held in self.all if held.log_directory.is_online]

    def of(self, log_directory: LogDirectory) -> HeldDirectory:
        (held,) = (held for held in self.all if held.log_directory is log_directory)
        return held

    def seen(self) -> list[SeenDirectory]:
        """The log directories as they were found."""
        return [SeenDirectory(held.path, held.log_directory.is_online, held.meta) for held in self.all]

    async def mark(self, ids: Mapping[str, bytes], cluster_id: str) -> set[str]:
        """Write their ids into the log directories; answers the paths of those that have them now."""
        # A directory whose disk fails here is left out of the answer, and stays `is_new` in the tree.
        for held in self.online():
            try:
                await self._run_in_thread(self._mark_one, held, ids[held.path], cluster_id)
            except OSError as error:
                held.log_directory.judge(error, held.path)
        return {held.path for held in self.online() if held.meta is not None and held.meta.directory_id is not None}

    def _mark_one(self, held: HeldDirectory, directory_id: bytes, cluster_id: str) -> None:
        held.settle(node_id=self._node_id, cluster_id=cluster_id, directory_id=directory_id)

    def found_partitions(self) -> list[FoundPartition]:
        """The partitions on disk, whether anybody knows of them or not; only before they are loaded.

        A directory that cannot be read is offline from then on. A broker that took it for empty would put its logs aside
        and begin them anew.
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
