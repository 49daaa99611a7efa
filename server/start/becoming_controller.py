"""Becoming the controller: read the coordination tree, elect leaders, and know topics and settings.

Order: make the nodes Kafka expects, settle the cluster id, raise the controller epoch (which fences an earlier
controller), finish deletions that a crash cut short (creations too, which are marked as deletions until they are whole),
read settings and topics, then give every partition a new leader epoch. Nothing else has to be repaired, because a topic
exists exactly if its node does and has the partitions that the node names: states that are missing are made, and those of
partitions that an extension did not come to name are removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    Coordination,
    Create,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SetData,
)
from ottla.replication.cluster.state import PartitionState, TopicState, is_internal_topic
from ottla.replication.control.topics import Controller
from ottla.server.settings.repository import ConfigRepository, Overrides

OPERATIONS_PER_MULTI = 2_000


async def settle_cluster_id(
    coordination: Coordination,
    make_cluster_id: Callable[[], str],
    fill: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """The cluster's id: the one in the tree, or a new one that is now there.

    `fill` puts what is known already into a tree that is new, which it is until it has a cluster id: a crash halfway
    means that the next start fills it again.
    """
    await _make_missing(coordination, znodes.PERSISTENT_PATHS + znodes.OWN_PATHS)
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


async def take_over(coordination: Coordination, controller: Controller, configs: ConfigRepository) -> None:
    """Make `controller` the one that may write, and let it and `configs` know what the tree holds."""
    await _raise_epoch(coordination, controller)
    await _finish_deletions(coordination, controller)
    await read_settings(coordination, configs)
    writes: list[Operation] = []
    for topic, operations in await _elected(coordination, controller, configs):
        controller.adopt(topic)
        writes += operations
    for start in range(0, len(writes), OPERATIONS_PER_MULTI):
        # Every part checks the epoch, so that a controller that was replaced in between writes nothing more.
        fence = Check(znodes.CONTROLLER_EPOCH, controller.epoch_version)
        await coordination.multi([fence, *writes[start : start + OPERATIONS_PER_MULTI]])


async def _make_missing(coordination: Coordination, paths: Iterable[str]) -> None:
    wanted = list(paths)
    while True:
        found = await coordination.get_all(wanted)
        missing: list[Operation] = [Create(path) for path, node in zip(wanted, found, strict=True) if node is None]
        try:
            await coordination.multi(missing)
            return
        except NodeExists:
            continue  # another broker starts at the same time; look again


async def _raise_epoch(coordination: Coordination, controller: Controller) -> None:
    while True:
        (node,) = await coordination.get_all([znodes.CONTROLLER_EPOCH])
        try:
            if node is None:
                await coordination.multi([Create(znodes.CONTROLLER_EPOCH, b"1")])
                controller.epoch, controller.epoch_version = 1, 0
            else:
                epoch = int(node.data) + 1
                await coordination.multi([SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version)])
                controller.epoch, controller.epoch_version = epoch, node.version + 1
            return
        except (NodeExists, BadVersion):
            continue  # another broker was faster; look again


async def _finish_deletions(coordination: Coordination, controller: Controller) -> None:
    """Go on where an earlier controller stopped while it deleted topics, or created them."""
    for name in await coordination.children(znodes.DELETED_TOPICS):
        await finish_deletion(coordination, controller, name)


async def finish_deletion(coordination: Coordination, controller: Controller, name: str) -> None:
    """Remove what is left of a topic that is marked as to be deleted, if it is."""
    node, mark = await coordination.get_all([znodes.topic_path(name), znodes.deleted_topic_path(name)])
    if mark is None:
        return
    partitions = [] if node is None else list(znodes.decode_topic(node.data).partitions)
    # Children before parents, because the tree removes only nodes without children.
    paths = [
        each for index in partitions for each in (znodes.state_path(name, index), znodes.partition_path(name, index))
    ]
    paths += (znodes.partitions_path(name), znodes.topic_path(name), znodes.topic_config_path(name))
    found = await coordination.get_all(paths)
    left = [path for path, present in zip(paths, found, strict=True) if present is not None]
    for operations in controller.deletion_rest(name, left):
        await coordination.multi(operations)


async def forget_unnamed_partitions(coordination: Coordination, controller: Controller, name: str) -> None:
    """Remove the nodes of partitions that a topic's node does not name: an extension has not come to its end."""
    node, states = await coordination.get_all([znodes.topic_path(name), znodes.partitions_path(name)])
    if node is None or states is None:
        return
    named = znodes.decode_topic(node.data).partitions
    present = await coordination.children(znodes.partitions_path(name))
    unnamed = sorted(int(child) for child in present if child.isdecimal() and int(child) not in named)
    for operations in controller.extension_rest(name, unnamed):
        await coordination.multi(operations)


async def read_settings(coordination: Coordination, configs: ConfigRepository) -> None:
    """The settings of this broker, of all brokers, and of every topic."""
    await _read_broker_settings(coordination, configs)
    await _read_topic_settings(coordination, configs)


async def _read_broker_settings(coordination: Coordination, configs: ConfigRepository) -> None:
    paths = [znodes.broker_config_path(None), znodes.broker_config_path(configs.started_with.node_id)]
    for node, for_all in zip(await coordination.get_all(paths), (True, False), strict=True):
        if node is not None:
            # Another broker may have written settings that this one cannot take. It starts without them.
            texts = configs.takeable(znodes.decode_config(node.data), for_all=for_all)
            configs.put_broker(Overrides(texts, node.version), for_all=for_all)


async def _read_topic_settings(coordination: Coordination, configs: ConfigRepository) -> None:
    for element, node in (await coordination.children_data(znodes.TOPIC_CONFIGS)).items():
        configs.put_topic(znodes.entity_name(element), Overrides(znodes.decode_config(node.data), node.version))


async def _elected(
    coordination: Coordination, controller: Controller, configs: ConfigRepository
) -> list[tuple[TopicState, list[Operation]]]:
    """Every topic with leaders elected, and what must be written so that the tree says the same."""
    nodes = await coordination.children_data(znodes.TOPICS)
    assignments = {name: znodes.decode_topic(node.data) for name, node in nodes.items()}
    paths = [path for name, found in assignments.items() for path in _paths(name, found.partitions)]
    present = iter(await coordination.get_all(paths))
    elected = []
    for name, assignment in assignments.items():
        operations: list[Operation] = []
        # A topic exists if its node does. What a crash kept from being made around it is made now.
        if configs.topic_overrides(name).version is None:
            operations.append(Create(znodes.topic_config_path(name), znodes.encode_config({})))
            configs.put_topic(name, Overrides({}, 0))
        if next(present) is None:
            operations.append(Create(znodes.partitions_path(name)))
        # There are more partitions than the topic names: a crash cut an extension short.
        elif len(await coordination.children(znodes.partitions_path(name))) > len(assignment.partitions):
            await forget_unnamed_partitions(coordination, controller, name)
        partitions = []
        for partition, replicas in assignment.partitions.items():
            state, writes = _election(controller, name, partition, replicas, next(present))
            partitions.append(state)
            operations += writes
        # Older trees have no topic ids.
        topic_id = assignment.topic_id or bytes(16)
        elected.append((TopicState(name, topic_id, tuple(partitions), is_internal_topic(name)), operations))
    return elected


def _paths(name: str, partitions: Iterable[int]) -> Iterator[str]:
    yield znodes.partitions_path(name)
    for partition in partitions:
        yield znodes.state_path(name, partition)


def _election(
    controller: Controller, name: str, partition: int, replicas: Sequence[int], node: Node | None
) -> tuple[PartitionState, list[Operation]]:
    known = None if node is None else znodes.decode_state(node.data)
    state = controller.elect(replicas, known, 0 if node is None else node.version)
    return state, controller.state_operation(name, partition, state, exists=node is not None)
