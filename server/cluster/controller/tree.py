"""The active controller's access to the coordination tree: retries while the tree is unavailable, and fenced writes.

While the service cannot be reached, reads are tried again. If it is unknown whether a write happened, the nodes are read: a
multi is done as a whole or not at all, so if they are as it would have left them it was done, and otherwise it is tried
again, under the same conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    Coordination,
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    WriteRefused,
)
from ottla.replication.cluster.metadata_cache import BrokerRegistration
from ottla.replication.cluster.znodes import LeaderAndIsr, MalformedNode, TopicAssignment
from ottla.replication.controller.decisions import OPERATIONS_PER_MULTI, TopicPartition

logger = logging.getLogger("ottla.controller")

T = TypeVar("T")

RETRY_S = 0.1


class Deposed(Exception):
    """Another broker was elected controller: the version of /controller_epoch is newer than this controller's."""


class ControllerTree:
    """The controller's access to the coordination tree. /controller_epoch fences its writes. Raises SessionExpired."""

    def __init__(self, session: Coordination, epoch_version: int) -> None:
        self._session, self.epoch_version = session, epoch_version

    # ------------------------------------------------------------------ reading

    async def get(self, path: str) -> Node | None:
        (node,) = await self.get_all([path])
        return node

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._patiently(lambda: self._session.get_all(paths))

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children; empty if the node does not exist."""
        try:
            return await self._patiently(lambda: self._session.children(path))
        except NoNode:
            return []

    async def children_data(self, path: str) -> Mapping[str, Node]:
        try:
            return await self._patiently(lambda: self._session.children_data(path))
        except NoNode:
            return {}

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except CoordinationUnavailable:
                await self._until_available()

    async def _until_available(self) -> None:
        await self._session.until_available()
        await trio.sleep(RETRY_S)  # a service that is back and fails again is not asked without a pause

    # ------------------------------------------------------------------ writing

    async def write(self, operations: Sequence[Operation], *, can_be_refused: bool = False) -> None:
        """Write all `operations` if this broker is still the controller. Raises Deposed, or an operation's error.

        If the store has no room, wait until it has; with `can_be_refused`, raise WriteRefused instead.
        """
        fenced = [Check(znodes.CONTROLLER_EPOCH, self.epoch_version), *operations]
        while operations:  # none at all: there was only something to tell
            try:
                await self._session.multi(fenced)
                return
            except CoordinationUnavailable as problem:
                if can_be_refused and isinstance(problem, WriteRefused):
                    raise
                await self._until_available()
                # The port promises that a lost write is not done after this read. If it was not done it can be tried
                # again.
                if await self._is_done(operations):
                    return
            except (BadVersion, NoNode) as error:
                if error.path == znodes.CONTROLLER_EPOCH:
                    raise Deposed from error
                raise

    async def _is_done(self, operations: Sequence[Operation]) -> bool:
        nodes = await self.get_all([operation.path for operation in operations])
        return all(map(_shows, nodes, operations))

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes; skip nodes that do not exist."""
        # A multi fails as a whole if one of its nodes is missing.
        present = [path for path, node in zip(paths, await self.get_all(paths), strict=True) if node is not None]
        for start in range(0, len(present), OPERATIONS_PER_MULTI):
            some = present[start : start + OPERATIONS_PER_MULTI]
            try:
                await self.write([Delete(path) for path in some])
            except NoNode:
                await self.delete(some)  # somebody else has removed one of them: look again

    async def delete_below(self, path: str) -> None:
        """Delete all nodes below a node."""
        for name in await self.children(path):
            child = f"{path}/{name}"
            try:
                await self.delete([child])
            except NotEmpty:
                await self.delete_below(child)
                await self.delete([child])


def _shows(node: Node | None, operation: Operation) -> bool:
    """Return True if `node` looks as if `operation` had been applied to it. `node` None: there is no node."""
    match operation:
        case Create(data=data):
            return node is not None and (node.data, node.version) == (data, 0)  # nobody has written it since
        case SetData(data=data, version=version):
            return node is not None and node.data == data and version in (ANY_VERSION, node.version - 1)
        case Delete():
            return node is None
    return True  # a check leaves nothing behind


NODES_PER_STEP = 200  # decoded before others have a turn
TOPICS_PER_STEP = 50


class ReadTopic(NamedTuple):
    """Topic as read from the tree: its assignment and its partitions' states, each with the version of its node."""

    assignment: TopicAssignment
    version: int
    states: dict[int, tuple[LeaderAndIsr, int]]


class TreeReader:
    """Reader of brokers, topics with partition states, and requests in the tree. It logs and skips malformed nodes."""

    def __init__(self, tree: ControllerTree, make_topic_id: Callable[[], bytes]) -> None:
        self._tree, self._make_topic_id = tree, make_topic_id

    async def broker_ids(self) -> list[int]:
        return sorted(int(name) for name in await self._tree.children(znodes.BROKER_IDS) if name.isdecimal())

    async def brokers(self, node_ids: Sequence[int]) -> dict[int, BrokerRegistration]:
        """Return the registrations of brokers; ids that are not registered are omitted."""
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
        """Read topics; those that do not exist are omitted. A topic without an id gets one (KIP-516)."""
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
        """Return the content of /admin/reassign_partitions and the node's version; None if there is no node."""
        node = await self._tree.get(znodes.REASSIGNMENTS)
        if node is None:
            return None
        return _decoded(znodes.REASSIGNMENTS, znodes.decode_reassignments, node.data) or {}, node.version

    async def preferred_elections(self) -> list[TopicPartition] | None:
        """Return the partitions in /admin/preferred_replica_election; None if there is no node."""
        node = await self._tree.get(znodes.PREFERRED_ELECTION)
        if node is None:
            return None
        return _decoded(znodes.PREFERRED_ELECTION, znodes.decode_partitions, node.data) or []

    async def log_dir_failures(self) -> tuple[set[int], list[str]]:
        """Return the ids of brokers that reported failed log directories, and the paths of their reports' nodes."""
        brokers: set[int] = set()
        nodes = await self._tree.children_data(znodes.LOG_DIR_EVENTS)
        for name, node in nodes.items():
            broker = _decoded(name, znodes.decode_log_dir_failure, node.data)
            brokers |= set() if broker is None else {broker}
        return brokers, [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in nodes]

    async def isr_changes(self) -> tuple[set[TopicPartition], list[str]]:
        """Return partitions whose leaders wrote the ISR to the tree (before Kafka 2.7), and the notices' paths."""
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
