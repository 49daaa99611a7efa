"""Keeps the ids of a broker's log directories in the coordination tree, and refuses to start on others.

The node is /ottla/log_dirs/<node id>, which brokers of Apache Kafka ignore. `replication/replica_manager/directory_identities.py` has the
rules. A broker that is alone keeps its tree in one of its log directories, so the tree can be lost with the disk.
`check_journal` finds out what it can then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, Operation, SetData
from ottla.replication.log.names import path_in
from ottla.replication.replica_manager.directories import HeldDirectory, LogDirectoryProblem
from ottla.replication.replica_manager.directory_identities import Known, identify
from ottla.server.coordination.journal import JOURNAL_NAME

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.replication.replica_manager.manager import ReplicaManager


async def settle_identities(
    coordination: Coordination,
    replicas: ReplicaManager,
    *,
    cluster_id: str,
    accepted: Collection[str],
    keep: Callable[[], Awaitable[None]],
) -> None:
    """Know every log directory by its id, and have the tree know it. Raises LogDirectoryProblem.

    `keep`: returns when the tree's changes outlive a power cut (`CoordinationTree.keep`).
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
    """LogDirectoryProblem if a new journal would be begun although there seems to be one already. Waits for the disk."""
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
