"""A world of the lab: one broker, or a cluster with its tree, from nothing.

Worlds do not know each other: each has its own disks, tree, ports and cluster id. A request can be served inside the process
(`ask`), without a connection that a test's own clients would see.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.server.dispatch.context import THIS_BROKER, RequestContext
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.testing.errors import LabError
from ottla.server.testing.memory_coordination import MemoryCoordination, MemoryService
from ottla.server.testing.node import Node
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.testing.loop import LabLoop
    from ottla.wire.schema import Message

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""Settings of a world in place of Kafka's defaults, so that a test does not wait; a test may give others."""

SESSION_TIMEOUT_S = 18.0
STEP_MAX_S = SESSION_TIMEOUT_S / 6
"""Longest step of an advance of a cluster's clock in seconds: the brokers' sessions live on."""
TREE_DELAY_S = (0.0, 0.0)
SHOWN_LOOKS, SHOWN_PAUSE_S = 15_000, 0.002
GROUP, TRANSACTION, SHARE = 0, 1, 2  # types of coordinators in FindCoordinator


class World:
    """Brokers 0 to `brokers` - 1, or 1 to `brokers` for a cluster. Call its async methods in the lab's loop."""

    def __init__(self, loop: LabLoop, *, brokers: int = 1, settings: Mapping[str, str] | None = None) -> None:
        if brokers < 1:
            raise LabError(f"A world of {brokers} brokers is none; ask for 1 or more.")
        self.loop = loop
        self._life: trio.CancelScope | None = None
        self._tree = MemoryService(random.Random(0), delay_s=TREE_DELAY_S) if brokers > 1 else None
        given = QUICK | (self._of_cluster(brokers) if self._tree else {}) | dict(settings or {})
        ids = range(1, brokers + 1) if self._tree else range(1)
        self.nodes = {node_id: Node(node_id, loop, given, self._way_to_tree()) for node_id in ids}

    @staticmethod
    def _of_cluster(brokers: int) -> dict[str, str]:
        copies = str(min(3, brokers))
        return {
            "zookeeper.connect": "memory:2181",
            "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "share.coordinator.state.topic.replication.factor": copies,
        }

    def _way_to_tree(self) -> Any:
        if self._tree is None:
            return None
        link = self._tree.link()

        def open_session(_: object) -> MemoryCoordination:
            return MemoryCoordination(link, timeout_s=SESSION_TIMEOUT_S, connection_timeout_s=SESSION_TIMEOUT_S)

        return open_session

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, HOST:PORT,HOST:PORT."""
        return ",".join(node.address for node in self.nodes.values())

    async def open(self) -> None:
        """Start all brokers; return when all serve clients. Raises StartupError."""
        if not self.loop.worlds:
            self.loop.clock.synchronize()
        self.loop.worlds[self] = STEP_MAX_S if self._tree else math.inf
        if self._tree is not None:
            self.loop.nursery.start_soon(self._keep_tree)
        try:
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    nursery.start_soon(node.start)
        except* Exception as problems:  # noqa: BLE001 - raised again
            await self.close()
            raise problems.exceptions[0] from None

    async def close(self) -> None:
        """End all brokers at once; nothing of this world is left."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    nursery.start_soon(node.kill)
            if self._life is not None:
                self._life.cancel()
            self.loop.worlds.pop(self, None)

    async def _keep_tree(self) -> None:
        assert self._tree is not None
        with trio.CancelScope() as self._life:
            await self._tree.run()

    async def until_shown(self, topic: str) -> None:
        """Wait until all brokers that run know a topic and its leaders serve it. Raises LabError after 30 s."""
        for _ in range(SHOWN_LOOKS):
            if all(self._shows(node.broker, topic) for node in self.nodes.values() if node.broker is not None):
                return
            # Not the lab's time, which a test may have frozen.
            await trio.to_thread.run_sync(time.sleep, SHOWN_PAUSE_S)
        raise LabError(
            f"Not all brokers know topic {topic} after {SHOWN_LOOKS * SHOWN_PAUSE_S:.0f} s; are enough of them up?"
        )

    def _shows(self, broker: Broker, topic: str) -> bool:
        state = broker.cluster.topics.get(topic)
        if state is None:
            return False
        ours = [index for index, each in enumerate(state.partitions) if each.leader == broker.node_id]
        held = [broker.replicas.partition(topic, index) for index in ours]
        return all(each is not None and each.is_leader for each in held)

    def node(self, node_id: int) -> Node:
        """Return a node. Raises LabError if there is no such broker."""
        if node_id not in self.nodes:
            raise LabError(f"There is no broker {node_id}; the brokers are {', '.join(map(str, self.nodes))}.")
        return self.nodes[node_id]

    def any_node(self) -> Node:
        """Return a node that serves. Raises LabError if all brokers are down."""
        for node in self.nodes.values():
            if node.is_running:
                return node
        failures = [node.failure for node in self.nodes.values() if node.failure is not None]
        because = f": {failures[0]}" if failures else ""
        raise LabError(f"All brokers are down{because}; start() one first.")

    # ------------------------------------------------------------------ requests without a connection

    async def ask(self, request: Message, node: Node | None = None, *, version: int | None = None) -> Any:
        """Serve `request` in a broker and return its response. `version`: None for the latest. Raises KafkaError.

        `node`: None for any that runs. Requests that only the controller serves go to the controller.
        """
        route = all_routes()[type(request).api_key]
        broker = (self._controller() if node is None and route.forwarded else node or self.any_node()).serving()
        context: RequestContext[Any] = RequestContext(
            broker,
            api_version=route.versions.last if version is None else version,
            client_id="ottla.testing",
            client_host=f"/{THIS_BROKER}",
            principal=THIS_BROKER,
            listener_name=broker.listeners[0].name,
            now_ms=broker.now_ms(),
        )
        return await finished(route.handler(request, context))

    def _controller(self) -> Node:
        for node in self.nodes.values():
            if node.broker is not None and node.broker.administration.is_controller:
                return node
        return self.any_node()

    def leader(self, topic: str, partition: int) -> Node:
        """Return the node that leads a partition. Raises LabError."""
        state = self.any_node().serving().cluster.partition(topic, partition)
        if state is None:
            raise LabError(f"There is no partition {topic}-{partition}; kafka.topic({topic!r}) makes topics.")
        if state.leader not in self.nodes or not self.nodes[state.leader].is_running:
            raise LabError(f"Partition {topic}-{partition} has no leader at present.")
        return self.nodes[state.leader]

    async def coordinator(self, key: str, key_type: int = GROUP) -> Node:
        """Return the node that coordinates a group or a transactional id. Raises KafkaError."""
        answer = await self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        (found,) = answer.coordinators
        if found.error_code:
            raise KafkaError(ErrorCode.of(found.error_code), found.error_message)
        return self.nodes[found.node_id]
