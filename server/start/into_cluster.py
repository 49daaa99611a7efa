"""Moving a broker that was alone into a cluster: its coordination tree goes to the cluster's, its logs stay where they are.

The first start with `zookeeper.connect` or `coordination.socket` finds the journal of the tree in the data directory. If the
tree there is new, it is filled with what the journal holds: topics with their ids, assignments and epochs, settings, the block of
producer ids. Then the cluster gets the id that the log directories have, and the journal is set aside. A crash in between
means that the next start does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, Operation, SetData
from ottla.server.coordination.embedded import JOURNAL_NAME, EmbeddedCoordination
from ottla.server.settings.passwords import KeptPasswords, has_passwords

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node

logger = logging.getLogger("ottla.cluster")

MOVED_SUFFIX = ".moved-to-zookeeper"
# ZooKeeper by default takes no request of more than about a megabyte.
BYTES_PER_MULTI = 256 * 1024
OPERATIONS_PER_MULTI = 1_000  # a served tree takes no more than some thousand
CLUSTER = "/cluster"


async def fill_from_journal(coordination: Coordination, directory: Path, passwords: KeptPasswords | None) -> None:
    """Copy the tree of a broker that was alone, if this is one's data directory, but for the cluster's id.

    `passwords` says how they are kept there, None: as they are. Raises KafkaError if they cannot be.
    """
    if not (directory / JOURNAL_NAME).exists():
        return
    alone = EmbeddedCoordination(directory)
    await trio.to_thread.run_sync(alone.open)
    try:
        nodes = [(path, node) async for path, node in _walk(alone, "")]
    finally:
        await trio.to_thread.run_sync(alone.close)
    # The cluster's id stays out. A tree without it counts as new, so that after a crash the next start fills it
    # again.
    kept = [
        (path, await trio.to_thread.run_sync(_encrypted, path, node, passwords))
        for path, node in nodes
        if path != CLUSTER and not path.startswith(CLUSTER + "/")
    ]
    present = await coordination.get_all([path for path, _ in kept])
    operations: list[Operation] = []
    for (path, node), known in zip(kept, present, strict=True):
        if known is None:
            operations.append(Create(path, node.data))
        elif known.data != node.data:
            # Some nodes are there already: those that every start makes, and those that an earlier try has copied.
            operations.append(SetData(path, node.data, known.version))
    for part in _parts(operations):
        await coordination.multi(part)
    logger.info("Moved %d nodes of a broker that was alone to the cluster's tree", len(operations))


async def set_journal_aside(directory: Path, suffix: str = MOVED_SUFFIX) -> None:
    """The tree is the cluster's: nobody may take the journal for the present any more."""
    journal = directory / JOURNAL_NAME
    if journal.exists():
        await trio.to_thread.run_sync(journal.rename, directory / (JOURNAL_NAME + suffix))
        logger.info("%s is set aside; this broker is in a cluster now", journal)


def _encrypted(path: str, node: Node, passwords: KeptPasswords | None) -> Node:
    """A node as it is kept there."""
    parent, _, name = path.rpartition("/")
    if passwords is None or parent != znodes.BROKER_CONFIGS or not name.isdecimal():
        return node
    texts = znodes.decode_config(node.data)
    return (
        node._replace(data=znodes.encode_config(passwords.to_keep(texts, int(name)))) if has_passwords(texts) else node
    )


async def _walk(tree: Coordination, path: str) -> AsyncIterator[tuple[str, Node]]:
    """All nodes below a path, parents first."""
    for name, node in sorted((await tree.children_data(path or "/")).items()):
        below = f"{path}/{name}"
        yield below, node
        async for each in _walk(tree, below):
            yield each


def _parts(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    part: list[Operation] = []
    size = 0
    for operation in operations:
        part.append(operation)
        size += 100 + len(operation.path) + len(getattr(operation, "data", b""))
        if size >= BYTES_PER_MULTI or len(part) >= OPERATIONS_PER_MULTI:
            yield part
            part, size = [], 0
    if part:
        yield part
