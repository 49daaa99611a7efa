"""Telling the controller of log directories that fail, by a node below /log_dir_event_notification for each (KIP-112).

The node names the broker and not the directory. The controller asks for all replicas of the broker with LeaderAndIsr, and
those that are answered with KAFKA_STORAGE_ERROR are offline from then on. Directories that failed before this broker
registered need no node: a broker that comes is asked in any case.

A log that could not be made for a passing reason counts as offline, too, until the controller asks for it again. So this
broker makes such a node again and again, after a pause, until all logs are made.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError, Create

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.replication.log.storage import LogDirectory

logger = logging.getLogger("ottla.cluster")

PREFIX = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
RETRY_S = 0.1
ASK_AGAIN_S = 5.0


class LogDirFailures:
    """See the module's docstring. `session` outlives the sessions behind it."""

    def __init__(self, session: Coordination, node_id: int) -> None:
        self._session = session
        self._node_id = node_id
        self._untold: list[LogDirectory] = []
        self._failed = trio.Event()
        # After the pause, so that one node stands for all that was noted until now. A log that fails once more is
        # noted once more.
        self._missing = trio.Event()

    def note_missing(self) -> None:
        """Logs could not be made, on disks that are well."""
        self._missing.set()

    def note(self, directory: LogDirectory) -> None:
        """A directory has failed just now."""
        self._untold.append(directory)
        self._failed.set()

    async def run(self) -> None:
        """Tell of what fails; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_again)
            await self._tell_of_failures()

    async def _ask_again(self) -> None:
        while True:
            await self._missing.wait()
            await trio.sleep(ASK_AGAIN_S)
            self._missing = trio.Event()
            await self._tell()

    async def _tell_of_failures(self) -> None:
        while True:
            await self._failed.wait()
            self._failed = trio.Event()
            while self._untold:
                await self._tell()
                logger.warning("Told the controller that log directory %s has failed", self._untold.pop(0).path)

    async def _tell(self) -> None:
        """Write the node, as often as it takes; a second one does no harm."""
        node = Create(PREFIX, znodes.encode_log_dir_failure(self._node_id), sequential=True)
        while True:
            try:
                await self._session.multi([node])
                return
            except CoordinationError:
                await trio.sleep(RETRY_S)  # if the session has ended, the next one takes the node
