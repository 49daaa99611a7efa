"""The brokers of a world, from nothing: their tree, the way of their time, and the cuts between them.

Worlds do not know each other: each has its own disks, tree, ports and cluster id. A broker that is alone is a cluster of one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.testing.errors import LabError
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import Link, MemoryService
from ottla.server.testing.profiles.profiles import PROFILE, default_settings
from ottla.server.testing.wire_tap.wire import Wire
from ottla.server.testing.world.cuts import Cuts
from ottla.server.testing.world.node import HOST, Node

if TYPE_CHECKING:
    from ottla.server.testing.wire_tap.rules import Rule
    from ottla.server.testing.wire_tap.wire_request import WireRequest
    from ottla.server.testing.world.loop import LabLoop
    from ottla.wire.happenings import Happening

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""Settings of a world in place of Kafka's defaults, so that a test does not wait; a test may give others."""

OF_BROKERS = {
    "listeners": f"PLAINTEXT://{HOST}:0,BROKERS://{HOST}:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}
"""Listeners of a cluster with a profile: brokers speak to each other as they are, on a port of their own."""

BROKERS_MAX = 100
"""So many start within some 10 s, with 500 descriptors. Each tells each other one whatever changes."""

SESSION_TIMEOUT_S = 18.0
TEST, CHAOS = "test", "chaos"
"""Those who cut brokers off from each other. The faults of a seed end their own cuts alone."""

SILENCE_S = 1e9
"""Seconds for which requests are held back that are to be held until somebody says so."""

ADVANCE_PATIENCE_S = 60.0
"""Real time after which an advance of the clock fails, as in a world whose clients never let it rest."""


def _ids(brokers: int, settings: Mapping[str, str]) -> Iterable[int]:
    """Return the ids of so many brokers; only one that is alone may be given another. Raises LabError."""
    chosen = next((name for name in ("broker.id", "node.id") if name in settings), None)
    if chosen is None:
        return range(1, brokers + 1) if brokers > 1 else (0,)
    if brokers > 1:
        raise LabError(f"The brokers of a cluster have the ids 1 to {brokers}; {chosen} is for a broker that is alone.")
    if not settings[chosen].isdecimal():
        raise LabError(f"{chosen} is a number from 0, not {settings[chosen]!r}.")
    return (int(settings[chosen]),)


class Cluster:
    """Brokers 1 to `brokers`, or one that is alone, with the id 0 or that of its settings.

    Call its async methods in the lab's loop.
    """

    def __init__(self, loop: LabLoop, *, brokers: int = 1, settings: Mapping[str, str] | None = None) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise LabError(f"A Kafka of {brokers} brokers cannot be made; ask for 1 to {BROKERS_MAX}.")
        self.loop = loop
        self.restoring = trio.Lock()
        """Held while a snapshot is put back."""
        self._life: trio.CancelScope | None = None
        self._advances: set[trio.CancelScope] = set()
        self._tree_ended = trio.Event()
        self.produced = 0
        """Number of batches without a key that a test has produced, so that partitions take turns."""
        self.tree = MemoryService(random.Random(0), delay_s=(0.0, 0.0)) if brokers > 1 else None
        """Tree of a cluster; None for a broker that is alone, whose tree is on its disk."""
        given = dict(settings or {})
        of_cluster = self._of_cluster(brokers, has_profile=PROFILE in given) if self.tree else {}
        self.settings = {**default_settings(given), **QUICK, **of_cluster, **given}
        ids = _ids(brokers, given)
        self._links: dict[int, Link] = {}
        self._sessions: dict[int, MemoryCoordination] = {}
        self._cuts = Cuts()
        self._off_tree: set[tuple[str, int]] = set()
        """Brokers that are cut off from the tree, each with who has cut it off."""
        self._silenced: dict[tuple[tuple[str, Any], ...], Rule] = {}
        self.held_replicas: dict[tuple[str, int, int], Rule] = {}
        """Rules that keep followers from fetching, by topic, partition and broker (`server/testing/in_sync.py`)."""
        self.is_damaged = False
        """True once a test has damaged a batch, which followers may need."""
        self.wire = Wire(loop.clock.now_ms, topic_name=self._topic_name)
        """Tap of the connections of all brokers."""
        self.restored_after: WireRequest | None = None
        """Last request before a snapshot was put back."""
        self.nodes = {
            each: Node(
                each,
                loop,
                self.settings,
                self._way_to_tree(each),
                self._cuts,
                self.wire.acceptor(each),
                self.wire.acceptor_over_tls(each),
            )
            for each in ids
        }

    @staticmethod
    def _of_cluster(brokers: int, *, has_profile: bool) -> dict[str, str]:
        copies = str(min(3, brokers))
        return {
            **(OF_BROKERS if has_profile else {}),
            "auto.leader.rebalance.enable": "false",  # leaders change by what a test does, not 5 s later
            "zookeeper.connect": "memory:2181",
            "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "share.coordinator.state.topic.replication.factor": copies,
        }

    def _way_to_tree(self, node_id: int) -> Callable[[Any], MemoryCoordination] | None:
        if self.tree is None:
            return None
        link = self._links[node_id] = self.tree.link(is_steady=True)

        def open_session(_: object) -> MemoryCoordination:
            session = MemoryCoordination(link, timeout_s=SESSION_TIMEOUT_S, connection_timeout_s=SESSION_TIMEOUT_S)
            self._sessions[node_id] = session
            return session

        return open_session

    def _topic_name(self, topic_id: bytes) -> str | None:
        for node in self.nodes.values():
            if node.broker is not None and (topic := node.broker.cluster.topic_by_id.get(topic_id)) is not None:
                return topic.name
        return None

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, HOST:PORT,HOST:PORT."""
        return ",".join(node.address for node in self.nodes.values())

    async def open(self) -> None:
        """Start all brokers; return when all serve clients. Raises StartupError."""
        self.begin()
        try:
            await self.start(self.nodes.values())
        except BaseException:  # nobody else could end them
            await self.close()
            raise

    def begin(self) -> None:
        """Begin to keep the tree of a cluster. No broker runs yet."""
        if not self.loop.worlds:
            self.loop.clock.synchronize()
        self.loop.worlds[self] = None
        if self.tree is not None:
            self.loop.nursery.start_soon(self._keep_tree)

    async def start(self, nodes: Iterable[Node], *, reserved: bool = False) -> None:
        """Start brokers; return when all of them serve clients. If some cannot, raise an error of one; the others serve.

        `reserved`: whether they are reserved for this start.
        """
        problems: list[Exception] = []

        async def start(node: Node) -> None:
            try:
                await node.start(reserved=reserved)
            except Exception as problem:  # noqa: BLE001 - raised when the others serve
                problems.append(problem)

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(start, node)
        if problems:
            raise problems[0]

    async def close(self) -> None:
        """End all brokers at once, and advances of the clock under way; nothing of this world is left."""
        for scope in self._advances:
            scope.cancel()
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    nursery.start_soon(node.close)
            if self._life is not None:
                self._life.cancel()
                await self._tree_ended.wait()
            self.loop.worlds.pop(self, None)
            if self.loop.paced_by is self:  # or tests with another Kafka would have a clock that stands still
                self.loop.paced_by = None
                self.loop.clock.set_factor(1.0)

    def close_sockets(self) -> None:
        """Close the sockets in a forked child, so that clients see when the parent closes its own."""
        for node in self.nodes.values():
            node.close_sockets()

    async def _keep_tree(self) -> None:
        assert self.tree is not None
        try:
            with trio.CancelScope() as self._life:
                await self.tree.run()
        finally:
            self._tree_ended.set()

    def node(self, node_id: int) -> Node:
        """Return a node. Raises LabError if there is no such broker."""
        if node_id not in self.nodes:
            raise LabError(f"There is no broker {node_id}; the brokers are {', '.join(map(str, self.nodes))}.")
        return self.nodes[node_id]

    def any_node(self) -> Node:
        """Return a node that serves, if possible one that hears of changes. Raises LabError if all brokers are down."""
        return min(self.running(), key=lambda each: self.is_off_tree(each.node_id))

    def running(self) -> list[Node]:
        """Return the nodes that serve, one or more. Raises LabError if all brokers are down."""
        if running := [node for node in self.nodes.values() if node.is_running]:
            return running
        failures = [node.failure for node in self.nodes.values() if node.failure is not None]
        because = f": {failures[0]}" if failures else ""
        raise LabError(f"All brokers are down{because}; start() one first.")

    # ------------------------------------------------------------------ time

    def speed(self, factor: float) -> None:
        """Let time pass `factor` times as fast as real time, until this world is closed. Raises LabError."""
        self.loop.clock.set_factor(factor)
        self.loop.paced_by = self

    def advance(self, seconds: float) -> None:
        """Advance the clock, for a thread that waits until all that was due has run. Raises LabError."""
        try:
            self.loop.call(self._advance, seconds, patience_s=ADVANCE_PATIENCE_S)
        except TimeoutError:
            raise LabError(
                f"The clock could not be advanced by {seconds:g} s within {ADVANCE_PATIENCE_S:g} s, as the brokers were never "
                "idle; pause their clients first."
            ) from None

    async def _advance(self, seconds: float) -> None:
        with trio.CancelScope() as scope:
            self._advances.add(scope)
            try:
                await self.loop.clock.advance(seconds, self.loop.on_jump)
                return
            finally:
                self._advances.discard(scope)
        raise LabError("This Kafka was closed while its clock was advanced; make a new Kafka().")

    def on_jump(self, seconds: float) -> None:
        """Let the brokers of a cluster be as if their fetches had come while the clock jumped, as far as they are in reach."""
        if self.tree is None:
            return
        self._cuts.put_off()
        now_ms, jump_ms = self.loop.clock.now_ms(), int(seconds * 1000)
        for leader in self.nodes.values():
            in_reach = {
                id for id, each in self.nodes.items() if each.is_running and not self.is_cut(id, leader.node_id)
            }
            for partition in leader.broker.replicas.partitions() if leader.broker is not None else ():
                for broker, follower in partition.followers.by_id.items() if partition.followers is not None else ():
                    if broker in in_reach:
                        follower.excuse(jump_ms, now_ms)

    # ------------------------------------------------------------------ trouble

    def expire(self, node_id: int) -> None:
        """End the session of a broker with the tree. Raises LabError for a broker that is alone."""
        if self.tree is None:
            raise LabError("A broker that is alone has no session with a tree; use Kafka(3) or kafka_cluster.")
        if (session := self._sessions.get(node_id)) is not None:
            self.tree.expire(session.session_id)

    def cut(self, node_id: int, others: Iterable[int] | None, by: str = TEST) -> None:
        """Cut a broker off from others, or with None from all others and the tree; `by`: who does that. Raises LabError."""
        if self.tree is None:
            raise LabError("A broker that is alone has nobody to be cut off from; use Kafka(3) or kafka_cluster.")
        if others is None:
            self._off_tree.add((by, node_id))
            self._links[node_id].cut()
        for other in [each for each in self.nodes if each != node_id] if others is None else others:
            self._cuts.cut(node_id, self.node(other).node_id, by)

    def heal(self, node_id: int, by: str | None = None) -> None:
        """End the cuts of a broker that `by` has made; None: all of them."""
        self._cuts.heal(node_id, by)
        self._off_tree = {(maker, id) for maker, id in self._off_tree if id != node_id or by not in (None, maker)}
        self._open_link(node_id)

    def pause(self, node_id: int) -> None:
        """Let a broker give no answer to anybody, until `resume`."""
        self._cuts.paused.add(node_id)
        if node_id in self._links:
            self._links[node_id].cut()
        self.silence(node=node_id)

    def resume(self, node_id: int) -> None:
        """End `pause`; cuts remain."""
        self._cuts.resume(node_id)
        self._open_link(node_id)
        self.let_speak(node=node_id)

    def _open_link(self, node_id: int) -> None:
        if node_id in self._links and not self.is_off_tree(node_id):
            self._links[node_id].heal()

    def is_paused(self, node_id: int) -> bool:
        return node_id in self._cuts.paused

    def is_off_tree(self, node_id: int) -> bool:
        return self.is_paused(node_id) or any(id == node_id for _, id in self._off_tree)

    def silence(self, **conditions: Any) -> None:
        """Hold back the requests of clients that meet conditions of the tap, and answers to earlier ones, until `let_speak` with the same conditions."""
        key = tuple(sorted(conditions.items()))
        if key not in self._silenced:
            rule = self._silenced[key] = self.wire.on(**conditions).delay(SILENCE_S, times=None, before=True)
            for node in self.nodes.values():
                for each in node.conversations():
                    each.hold_answers(rule.wanted)

    def let_speak(self, **conditions: Any) -> None:
        """End a `silence`. Connections on which it holds something break, and their clients send their requests again."""
        rule = self._silenced.pop(tuple(sorted(conditions.items())), None)
        if rule is None:
            return
        rule.remove()
        for node in self.nodes.values():
            node.cut_connections(lambda each: each.holds_back)

    def is_cut(self, one: int, other: int) -> bool:
        """True if two brokers cannot reach each other."""
        return self._cuts.is_cut(one, other)

    def happenings(self) -> list[tuple[int, list[Happening]]]:
        """Return what each broker noted since the world began, also before it was killed, with the broker's id."""
        return [(node_id, [each for life in node.lives for each in life]) for node_id, node in self.nodes.items()]
