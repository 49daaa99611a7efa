"""A world of the lab: one broker, or a cluster with its tree, from nothing.

Worlds do not know each other: each has its own disks, tree, ports and cluster id. A request can be served inside the process
(`ask`), without a connection that a test's own clients would see.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import NO_PARTITION_EPOCH
from ottla.server.dispatch.context import THIS_BROKER, RequestContext
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.testing.errors import LabError
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import Link, MemoryService
from ottla.server.testing.profiles.profiles import PROFILE, default_settings
from ottla.server.testing.wire_tap.wire import Wire
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.cuts import Cuts
from ottla.server.testing.world.node import HOST, Node
from ottla.wire.answers import EncodedAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import DescribeGroupsRequest

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import PartitionState
    from ottla.server.broker import Broker
    from ottla.server.testing.wire_tap.rules import Rule
    from ottla.server.testing.wire_tap.wire_request import WireRequest
    from ottla.server.testing.world.loop import LabLoop
    from ottla.wire.happenings import Happening
    from ottla.wire.schema import Message

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

SESSION_TIMEOUT_S = 18.0
SILENCE_S = 1e9
"""Seconds for which requests are held back that are to be held until somebody says so."""

ADVANCE_PATIENCE_S = 60.0
"""Real time after which an advance of the clock fails, as in a world whose clients never let it rest."""
SHOWN_LOOKS, SETTLED_LOOKS, PAUSE_S = 15_000, 2_500, 0.002
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors of a coordinator that has just been elected, or whose topic is being made."""
GROUP, TRANSACTION = 0, 1  # types of coordinators in FindCoordinator


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


class World:
    """Brokers 1 to `brokers`, or one that is alone, with the id 0 or that of its settings.

    Call its async methods in the lab's loop.
    """

    def __init__(self, loop: LabLoop, *, brokers: int = 1, settings: Mapping[str, str] | None = None) -> None:
        if brokers < 1:
            raise LabError(f"A world of {brokers} brokers is none; ask for 1 or more.")
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
        self._off_tree: set[int] = set()
        """Brokers that are cut off from the tree."""
        self._silenced: dict[tuple[tuple[str, Any], ...], Rule] = {}
        self.held_replicas: dict[tuple[str, int, int], Rule] = {}
        """Rules that keep followers from fetching, by topic, partition and broker (`server/testing/in_sync.py`)."""
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

    async def until_shown(self, topic: str) -> None:
        """Wait until all brokers that run and are not cut off know a topic and its leaders serve it. Raises LabError after 30 s."""
        for _ in range(SHOWN_LOOKS):
            running = [(id, node.broker) for id, node in self.nodes.items() if node.broker is not None]
            if all(self._shows(broker, topic) for id, broker in running if not self._is_off_tree(id)):
                return
            await pause(PAUSE_S)
        raise LabError(
            f"Not all brokers know topic {topic} after {SHOWN_LOOKS * PAUSE_S:.0f} s; are enough of them up?"
        )

    async def until_settled(self, topics: Iterable[str] | None = None) -> None:
        """Wait until the controller knows who runs, and the brokers in its reach have done what it has decided.

        It gives up after SETTLED_LOOKS looks. `topics`: whose partitions are looked at; None: all of them.
        """
        wanted = None if topics is None else set(topics)
        for _ in range(SETTLED_LOOKS):
            if self.tree is None or await self._is_settled(wanted):
                return
            await pause(PAUSE_S)

    async def _is_settled(self, topics: set[str] | None) -> bool:
        running = {id: node.broker for id, node in self.nodes.items() if node.broker is not None}
        able = {id: each for id, each in running.items() if self.nodes[id].is_well and not self._is_off_tree(id)}
        controller = next((id for id, each in able.items() if each.member.controller is not None), None)
        if controller is None:
            # One that is cut off stays the controller until its session ends.
            return len(able) < len(running) or not running
        active = able[controller].member.controller
        assert active is not None
        known = active.states.brokers
        if any(id not in known or known[id].epoch != each.member.broker_epoch for id, each in able.items()):
            return False
        if any(not self.nodes[id].is_alive for id in known):
            return False
        try:
            await active.reassignments()  # answered when all is decided that the controller has heard of by now
        except KafkaError:  # it resigns
            return False
        ears = {id: each for id, each in able.items() if not self.is_cut(id, controller)}
        if any(self.nodes[id].is_fenced for id in ears):
            return False
        return all(
            self._is_carried_out(ears, name, index, state)
            for (name, index), state in active.states.partitions()
            if topics is None or name in topics
        )

    @staticmethod
    def _is_carried_out(brokers: Mapping[int, Broker], topic: str, index: int, state: PartitionState) -> bool:
        if state.partition_epoch == NO_PARTITION_EPOCH:  # nobody has heard of it
            return True
        for broker in brokers.values():
            shown = broker.cluster.partition(topic, index)
            if shown is None or (shown.leader_epoch, shown.isr) != (state.leader_epoch, state.isr):
                return False
        if state.leader not in brokers:
            return True
        held = brokers[state.leader].replicas.partition(topic, index)
        if held is None or not held.is_leader or held.must_hear or held.leader_epoch != state.leader_epoch:
            return False
        # Until its followers have fetched, a new leader does not know that all before it was acknowledged, and shows it to nobody.
        can_know = len(state.isr) >= held.min_isr and brokers.keys() >= {*state.isr}
        return not can_know or held.high_watermark >= held.leader_epoch_start_offset

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
        """Return a node that serves, if possible one that hears of changes. Raises LabError if all brokers are down."""
        return min(self.running(), key=lambda each: self._is_off_tree(each.node_id))

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

    async def kill(self, node_id: int) -> None:
        """Kill a broker; its session with the tree ends at once, so that others are elected."""
        node, session = self.node(node_id), self._sessions.get(node_id)
        if node.is_running and session is not None:
            session.abandon()
        await node.kill()
        self.resume(node_id)  # SIGKILL ends a process that was stopped
        if self.tree is not None:
            self.expire(node_id)
            await self.until_settled()

    async def renew_session(self, node_id: int) -> None:
        """End the session of a broker with the tree; return when it is registered in another one. Raises LabError."""
        self.expire(node_id)
        broker = self.node(node_id).broker
        epoch = None if broker is None else broker.member.broker_epoch
        for _ in range(SETTLED_LOOKS):
            broker = self.node(node_id).broker
            if broker is None or broker.member.broker_epoch != epoch or self._is_off_tree(node_id):
                break
            await pause(PAUSE_S)
        await self.until_settled()

    def expire(self, node_id: int) -> None:
        """End the session of a broker with the tree. Raises LabError for a broker that is alone."""
        if self.tree is None:
            raise LabError("A broker that is alone has no session with a tree; use Kafka(3) or kafka_cluster.")
        if (session := self._sessions.get(node_id)) is not None:
            self.tree.expire(session.session_id)

    def cut(self, node_id: int, others: Iterable[int] | None) -> None:
        """Cut a broker off from others, or with None from all others and the tree. Raises LabError."""
        if self.tree is None:
            raise LabError("A broker that is alone has nobody to be cut off from; use Kafka(3) or kafka_cluster.")
        if others is None:
            self._off_tree.add(node_id)
            self._links[node_id].cut()
        for other in [each for each in self.nodes if each != node_id] if others is None else others:
            self._cuts.cut(node_id, self.node(other).node_id)

    def heal(self, node_id: int) -> None:
        """End all cuts of a broker."""
        self._cuts.heal(node_id)
        self._off_tree.discard(node_id)
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
        if node_id in self._links and not self._is_off_tree(node_id):
            self._links[node_id].heal()

    def _is_off_tree(self, node_id: int) -> bool:
        return node_id in self._off_tree or node_id in self._cuts.paused

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

    # ------------------------------------------------------------------ requests without a connection

    async def ask(self, request: Message, node: Node | None = None, *, version: int | None = None) -> Any:
        """Serve `request` in a broker and return its response. `version`: None for the latest. Raises KafkaError.

        `node`: None for any that runs. Requests that only the controller serves go to the controller. Raises LabError
        if the broker ends meanwhile.
        """
        route = all_routes()[type(request).api_key]
        asked = node or (self.controller() if route.forwarded else None) or self.any_node()
        broker = asked.serving()
        context: RequestContext[Any] = RequestContext(
            broker,
            api_version=route.versions.last if version is None else version,
            client_id="ottla.testing",
            client_host=f"/{THIS_BROKER}",
            principal=THIS_BROKER,
            listener_name=broker.listeners[0].name,
            now_ms=broker.now_ms(),
            complaints=broker.listeners[0].complaints,
        )
        answer = await asked.while_it_runs(lambda: finished(route.handler(request, context)))
        if isinstance(answer, EncodedAnswer):  # a long one
            return await trio.to_thread.run_sync(route.response_class.decode, answer.body, context.api_version)
        return answer

    def controller(self) -> Node | None:
        """Return the node that is the controller; None while there is none."""
        for node in self.nodes.values():
            if node.broker is not None and node.broker.administration.is_controller:
                return node
        return None

    def leader(self, topic: str, partition: int) -> Node:
        """Return the node that leads a partition. Raises LabError."""
        found: tuple[int, Node] | None = None
        for node in self.nodes.values():
            held = node.broker.replicas.partition(topic, partition) if node.broker is not None else None
            # One that is cut off may still believe that it leads.
            if held is not None and held.is_leader and (found is None or held.leader_epoch > found[0]):
                found = held.leader_epoch, node
        if found is not None:
            return found[1]
        if self.any_node().serving().cluster.partition(topic, partition) is None:
            raise LabError(f"There is no partition {topic}-{partition}; kafka.topic({topic!r}) makes topics.")
        raise LabError(f"Partition {topic}-{partition} has no leader at present.")

    async def coordinator(self, key: str, key_type: int = GROUP) -> Node:
        """Return the node that coordinates a group or a transactional id, once it has loaded it. Raises KafkaError."""
        for _ in range(SHOWN_LOOKS):
            answer = await self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
            (found,) = answer.coordinators
            code = ErrorCode.of(found.error_code)
            if code and code not in LOADING:
                raise KafkaError(code, found.error_message)
            if not code and not (node := self.nodes[found.node_id]).is_running:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # until the controller has elected another one
            if not code and (code := await self._readiness_of(node, key, key_type)) not in LOADING:
                return node
            await pause(PAUSE_S)
        raise KafkaError(code)

    async def ask_coordinators(self, topic: str, request: Message) -> list[tuple[Node, Any]]:
        """Ask all brokers that run for what they coordinate, once they have loaded it; return their answers.

        `topic`: internal topic; the leader of a partition coordinates what the partition holds. Raises KafkaError.
        """
        await self.until_settled([topic])
        answers = []
        for node in self.running():
            for _ in range(SHOWN_LOOKS):
                answer = await self.ask(request, node)
                if (code := ErrorCode.of(answer.error_code)) not in LOADING or node.is_fenced:  # who loads nothing
                    break
                await pause(PAUSE_S)
            if code and not node.is_fenced:
                raise KafkaError(code)
            answers.append((node, answer))
        return answers

    async def _readiness_of(self, node: Node, key: str, key_type: int) -> ErrorCode:
        if key_type == TRANSACTION:
            answer = await self.ask(DescribeTransactionsRequest(transactional_ids=[key]), node)
            return ErrorCode.of(answer.transaction_states[0].error_code)
        answer = await self.ask(DescribeGroupsRequest(groups=[key]), node)
        return ErrorCode.of(answer.groups[0].error_code)
