"""Identities of log directories in the coordination tree, and notices of failed ones."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError, Create, Operation, SetData
from ottla.replication.log.names import path_in
from ottla.replication.replica_manager.directories import HeldDirectory, LogDirectoryProblem
from ottla.replication.replica_manager.log_directory_registry import Known, identify
from ottla.server.cluster.coordination.journal import JOURNAL_NAME

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.replication.log.storage import LogDirectory
    from ottla.replication.replica_manager.manager import ReplicaManager

logger = logging.getLogger("ottla.cluster")


async def settle_identities(
    coordination: Coordination,
    replicas: ReplicaManager,
    *,
    cluster_id: str,
    accepted: Collection[str],
    keep: Callable[[], Awaitable[None]],
) -> None:
    """Assign an id to every log directory and record it in the coordination tree. Raises LogDirectoryProblem.

    The node is /ottla/log_dirs/<node id>, which Apache Kafka ignores; `log_directory_registry.py` has the rules. The
    tree of a lone broker is lost if its disk is lost; `check_journal` detects some of these losses. `keep` returns when
    the tree's changes would survive a power cut (`CoordinationTree.keep`).
    """
    path = znodes.log_dirs_path(replicas.node_id)
    (node,) = await coordination.get_all([path])
    try:
        before = None if node is None else znodes.decode_log_dirs(node.data)
    except znodes.MalformedNode as problem:
        raise LogDirectoryProblem(
            f"{path} cannot be read, perhaps because a newer Ottla has written it: {problem}"
        ) from None
    decided = identify(before, replicas.directories.seen(), accepted=accepted, new_uuid=replicas.new_uuid)
    # The tree hears of new ids before the directories get them, and once more afterwards. So the next start knows
    # about a crash in between.
    if decided.known != before:
        node = await _write(coordination, path, node, decided.known)
        await keep()
    if any(entry.is_new for entry in decided.known.values()):
        marked = await replicas.directories.mark(decided.ids, cluster_id)
        after = {
            key: entry._replace(is_new=entry.is_new and entry.path not in marked)
            for key, entry in decided.known.items()
        }
        await _write(coordination, path, node, after)


async def _write(coordination: Coordination, path: str, node: Node | None, known: Known) -> Node:
    data = znodes.encode_log_dirs(known)
    write: Operation = Create(path, data) if node is None else SetData(path, data, node.version)
    await coordination.multi([write])
    return await coordination.get(path)


def check_journal(held: Sequence[HeldDirectory], accepted: Collection[str]) -> None:
    """Raise LogDirectoryProblem if a coordination journal was there earlier and is missing now. Reads the disk."""
    first = held[0]
    if not first.log_directory.is_online or _has_journal(first):
        return
    for other in held[1:]:
        if other.log_directory.is_online and _has_journal(other):
            raise LogDirectoryProblem(
                f"The coordination journal is in {other.path}, which has to be the first of log.dirs; {first.path} has none"
            )
        if other.meta is not None and first.meta is None and first.path not in accepted:
            raise LogDirectoryProblem(
                f"Log directory {first.path} is empty, although {other.path} was in use. The coordination journal belongs "
                "into the first of log.dirs. Is its disk mounted? If what it held is gone for good, start once with "
                f"--accept-empty-log-dir {first.path}"
            )


def _has_journal(held: HeldDirectory) -> bool:
    return held.log_directory.storage.exists(path_in(held.path, JOURNAL_NAME))


PREFIX = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
RETRY_S = 0.1

NOTIFY_AGAIN_S = 5.0


class LogDirFailures:
    """Reporter of failed log directories to the controller, by nodes below /log_dir_event_notification (KIP-112).

    A node names the broker. The controller then sends LeaderAndIsr to this broker; replicas that the broker answers
    with KAFKA_STORAGE_ERROR are offline from then on. Directories that failed before the broker registered need no
    node: at a registration the controller sends LeaderAndIsr anyway. A log that could not be created for a transient
    reason counts as offline until the next LeaderAndIsr, so nodes are written repeatedly, with pauses, until all logs
    are created. `session` stays valid when the broker gets another session with the tree.
    """

    def __init__(self, session: Coordination, node_id: int) -> None:
        self._session, self._node_id = session, node_id
        self._unreported: list[LogDirectory] = []
        self._failed = trio.Event()
        # After the pause, so that one node stands for all that was noted until now. A log that fails once more is
        # noted once more.
        self._missing = trio.Event()

    def note_missing(self) -> None:
        """Record that logs could not be created although the disks work. `run` then notifies the controller."""
        self._missing.set()

    def note(self, directory: LogDirectory) -> None:
        """Queue a failed log directory; `run` will notify the controller."""
        self._unreported.append(directory)
        self._failed.set()

    async def run(self) -> None:
        """Notify the controller of failed log directories, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notify_again)
            await self._report_failures()

    async def _notify_again(self) -> None:
        while True:
            await self._missing.wait()
            await trio.sleep(NOTIFY_AGAIN_S)
            self._missing = trio.Event()
            await self._notify()

    async def _report_failures(self) -> None:
        while True:
            await self._failed.wait()
            self._failed = trio.Event()
            while self._unreported:
                await self._notify()
                logger.warning("Reported failed log directory %s to the controller", self._unreported.pop(0).path)

    async def _notify(self) -> None:
        """Write the notification node, with retries. Duplicate nodes do no harm."""
        node = Create(PREFIX, znodes.encode_log_dir_failure(self._node_id), sequential=True)
        while True:
            try:
                await self._session.multi([node])
                return
            except CoordinationError:
                await trio.sleep(RETRY_S)  # if the session has ended, the next one takes the node
