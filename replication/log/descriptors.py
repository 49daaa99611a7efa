"""The budget of file descriptors: the shares of connections, cached log files and answers in RLIMIT_NOFILE.

    limit = reserve + connections + files that the log keeps open + regions of files on their way to sockets

The reserve is for work that must never fail for want of a descriptor: checkpoints, rolls, flushes, the journal, compaction,
ZooKeeper and connections to other brokers. Regions on their way may have `regions_max`, because each may keep a file open that
the cache has given up. Of the rest the log always keeps some files; connections may have all others, and what they do not
need is the cache's. So at the limit only new connections wait, and answers to fetches become shorter.

The limit is looked up once, when the broker starts. `Descriptors()` is a budget that never runs out.
"""

from __future__ import annotations

import logging
import resource
from typing import Protocol

logger = logging.getLogger("ottla.replication")

LIMIT_MIN = 256
UNLIMITED = 1 << 20
HARD_LIMIT_TRIED = 10_240  # where the system does not say what it allows
RESERVE_MIN, RESERVE_MAX = 96, 1024
SHARE_MIN, FILES_KEPT_MAX, REGIONS_MAX = 32, 1024, 4096
CACHED_FILES_MAX = 4096
FLUSHED_FILES_MIN = 32


class FilesKeptOpen(Protocol):
    """A cache of open files."""

    def __len__(self) -> int:
        """Number of open files."""

    def shrink(self) -> None:
        """Close files until no more than `Descriptors.files_max` are open."""


class Descriptors:
    """Budget of file descriptors. It is counted on the event loop only; threads may read `files_max`."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.reserve = min(max(RESERVE_MIN, limit // 8), RESERVE_MAX)
        room = max(0, limit - self.reserve)
        self.regions_max = min(max(SHARE_MIN, room // 6), REGIONS_MAX)
        self._files_kept = min(max(SHARE_MIN, room // 6), FILES_KEPT_MAX)
        self._shared = max(0, room - self.regions_max - self._files_kept)
        self.regions: set[int] = set()  # what is on its way, by id
        self.connections = 0
        self._caches: list[FilesKeptOpen] = []

    @property
    def connections_max(self) -> int:
        """Maximum number of connections."""
        return self._shared

    @property
    def files_max(self) -> int:
        """Number of files that one cache may keep open at present."""
        # What connections do not use is lent to the caches. `connection_opened` takes it back.
        left = max(0, self._shared - self.connections)
        # Each log directory has a cache, and each cache needs one file to work at all.
        return max(1, min(self._files_kept + left, CACHED_FILES_MAX) // max(1, len(self._caches)))

    @property
    def flushed_files_max(self) -> int:
        """Maximum number of files open for a flush; the last log's files may exceed it."""
        return max(FLUSHED_FILES_MIN, self.reserve // 2)

    @property
    def regions_left(self) -> int:
        """Number of additional file regions that may be in flight."""
        return self.regions_max - len(self.regions)

    def register(self, cache: FilesKeptOpen) -> None:
        """Give a cache a share of the budget."""
        self._caches.append(cache)

    def connection_opened(self) -> None:
        """Count a new connection; close cached files to make room for it."""
        self.connections += 1
        # Now, and not when a cache opens its next file: the descriptor of this connection is in use already.
        allowed = self.files_max
        for cache in self._caches:
            if len(cache) > allowed:
                cache.shrink()

    def connection_closed(self) -> None:
        """Count the end of a connection."""
        # The caches take what is free by themselves, as they open files.
        self.connections -= 1


def present_limit() -> int:
    """Return this process's present limit of file descriptors."""
    return _counted(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_limit() -> int:
    """Raise this process's limit of file descriptors as far as allowed; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and soft != resource.RLIM_INFINITY:
        for wanted in (hard, HARD_LIMIT_TRIED):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            except (OSError, ValueError):
                continue  # some systems name a hard limit that they do not grant
            soft = wanted
            break
    return _counted(soft)


def _counted(soft: int) -> int:
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft
