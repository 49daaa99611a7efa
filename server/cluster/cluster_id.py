"""The nodes that a coordination tree has from its first day on: those that Kafka expects, and the cluster's id."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Coordination, Create, NodeExists, NoNode, Operation
from ottla.replication.random_ids import random_uuid

NOTHING: Mapping[str, bytes] = MappingProxyType({})


async def settle_cluster_id(
    coordination: Coordination,
    make_cluster_id: Callable[[], str],
    fill: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """The cluster's id: the one in the tree, or a new one that is now there.

    `fill` puts what is known already into a tree that is new, which it is until it has a cluster id: a crash halfway
    means that the next start fills it again.
    """
    # The epoch as well, which whoever stands for controller would make: another write, and another wait for the disk.
    epoch = {znodes.CONTROLLER_EPOCH: znodes.encode_controller_epoch(0)}
    await make_missing(coordination, [*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS, *epoch], epoch)
    try:
        return znodes.decode_cluster_id((await coordination.get(znodes.CLUSTER_ID)).data)
    except NoNode:
        cluster_id = make_cluster_id()
    if fill is not None:
        await fill()
    try:
        await coordination.multi([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
    except NodeExists:
        # Another broker was faster, and its id counts.
        return znodes.decode_cluster_id((await coordination.get(znodes.CLUSTER_ID)).data)
    return cluster_id


async def make_missing(
    coordination: Coordination, paths: Iterable[str], contents: Mapping[str, bytes] = NOTHING
) -> None:
    """Make the nodes that are not there yet, with what is in `contents`; parents come first."""
    wanted = list(paths)
    while True:
        found = await coordination.get_all(wanted)
        missing: list[Operation] = [
            Create(path, contents.get(path, b"")) for path, node in zip(wanted, found, strict=True) if node is None
        ]
        try:
            await coordination.multi(missing)
            return
        except NodeExists:
            continue  # another broker starts at the same time; look again


def random_cluster_id() -> str:
    """A random uuid in Kafka's spelling: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(random_uuid()).decode().rstrip("=")
