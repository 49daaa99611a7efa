"""What the controller reads in the coordination tree: brokers, topics with their states, and what is asked of it there.

A node that Kafka would not have written is left out, with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Node, NoNode, SetData
from ottla.replication.cluster.metadata_cache import BrokerRegistration
from ottla.replication.cluster.znodes import LeaderAndIsr, MalformedNode, TopicAssignment
from ottla.replication.controller.control_batch import TopicPartition
from ottla.server.cluster.controller.tree import ControllerTree

logger = logging.getLogger("ottla.controller")

T = TypeVar("T")

NODES_PER_STEP = 200  # decoded before others have a turn
TOPICS_PER_STEP = 50


class ReadTopic(NamedTuple):
    """A topic's node, its version, and the states of its partitions with theirs."""

    assignment: TopicAssignment
    version: int
    states: dict[int, tuple[LeaderAndIsr, int]]


class TreeReader:
    """See the module's docstring."""

    def __init__(self, tree: ControllerTree, make_topic_id: Callable[[], bytes]) -> None:
        self._tree = tree
        self._make_topic_id = make_topic_id

    async def broker_ids(self) -> list[int]:
        return sorted(int(name) for name in await self._tree.children(znodes.BROKER_IDS) if name.isdecimal())

    async def brokers(self, node_ids: Sequence[int]) -> dict[int, BrokerRegistration]:
        """Those of these brokers that have a session."""
        nodes = await self._tree.get_all([znodes.broker_path(node_id) for node_id in node_ids])
        found: dict[int, BrokerRegistration] = {}
        for node_id, node in zip(node_ids, nodes, strict=True):
            if node is not None:
                # The transaction that created the node is the broker epoch (KIP-380).
                broker = _decoded(
                    znodes.broker_path(node_id), znodes.decode_broker, node_id, node.data, node.creation_id
                )
                found |= {} if broker is None else {node_id: broker}
        return found

    async def topics(self, names: Iterable[str]) -> dict[str, ReadTopic]:
        """These topics as far as they exist. A topic without an id gets one (KIP-516)."""
        found = await self._assignments(list(names))
        named = [(name, index) for name, (assignment, _, _) in found.items() for index in assignment.partitions]
        nodes = await self._tree.get_all([znodes.state_path(name, index) for name, index in named])
        for number, ((name, index), node) in enumerate(zip(named, nodes, strict=True), 1):
            if node is not None:
                state = _decoded(znodes.state_path(name, index), znodes.decode_state, node.data)
                found[name].states.update({} if state is None else {index: (state, node.version)})
            if number % NODES_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return found

    async def _assignments(self, names: list[str]) -> dict[str, ReadTopic]:
        nodes = await self._tree.get_all([znodes.topic_path(name) for name in names])
        found: dict[str, ReadTopic] = {}
        for number, (name, node) in enumerate(zip(names, nodes, strict=True), 1):
            topic = None if node is None else await self._topic(name, node)
            found |= {} if topic is None else {name: topic}
            if number % TOPICS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return found

    async def _topic(self, name: str, node: Node) -> ReadTopic | None:
        path = znodes.topic_path(name)
        assignment = _decoded(path, znodes.decode_topic, node.data)
        if assignment is None or assignment.topic_id is not None:
            return None if assignment is None else ReadTopic(assignment, node.version, {})
        # A topic from before Kafka 2.8.
        assignment = replace(assignment, topic_id=self._make_topic_id())
        try:
            await self._tree.write([SetData(path, znodes.encode_topic(assignment), node.version)])
        except (BadVersion, NoNode):
            # Another controller or a tool was faster: what it wrote may have an id.
            changed = await self._tree.get(path)
            return None if changed is None else await self._topic(name, changed)
        return ReadTopic(assignment, node.version + 1, {})

    async def reassignments(self) -> tuple[dict[TopicPartition, list[int]], int] | None:
        """What /admin/reassign_partitions asks for, and its version; None if there is no such node."""
        node = await self._tree.get(znodes.REASSIGNMENTS)
        if node is None:
            return None
        return _decoded(znodes.REASSIGNMENTS, znodes.decode_reassignments, node.data) or {}, node.version

    async def preferred_elections(self) -> list[TopicPartition] | None:
        """What /admin/preferred_replica_election asks for; None if there is no such node."""
        node = await self._tree.get(znodes.PREFERRED_ELECTION)
        if node is None:
            return None
        return _decoded(znodes.PREFERRED_ELECTION, znodes.decode_partitions, node.data) or []

    async def log_dir_failures(self) -> tuple[set[int], list[str]]:
        """The brokers that lost a log directory, and the nodes that say so."""
        brokers: set[int] = set()
        nodes = await self._tree.children_data(znodes.LOG_DIR_EVENTS)
        for name, node in nodes.items():
            broker = _decoded(name, znodes.decode_log_dir_failure, node.data)
            brokers |= set() if broker is None else {broker}
        return brokers, [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in nodes]

    async def isr_changes(self) -> tuple[set[TopicPartition], list[str]]:
        """The partitions whose leaders wrote their state themselves (before Kafka 2.7), and the nodes that say so."""
        partitions: set[TopicPartition] = set()
        nodes = await self._tree.children_data(znodes.ISR_CHANGES)
        for name, node in nodes.items():
            partitions.update(_decoded(name, znodes.decode_partitions, node.data) or ())
        return partitions, [f"{znodes.ISR_CHANGES}/{name}" for name in nodes]


def _decoded(path: str, decode: Callable[..., T], *data: object) -> T | None:
    try:
        return decode(*data)
    except MalformedNode as problem:
        logger.error("The controller leaves out %s: %s", path, problem)
        return None
