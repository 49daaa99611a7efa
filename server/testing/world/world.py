"""A world of the lab: brokers that can be asked inside the process, and waited for.

A request is served without a connection that a test's own clients would see (`ask`). What a test changes is done when all
brokers do what the controller has decided (`until_settled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import NO_PARTITION_EPOCH
from ottla.server.dispatch.context import THIS_BROKER, RequestContext
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.testing.errors import LabError
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.cluster import Cluster
from ottla.wire.answers import EncodedAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import DescribeGroupsRequest

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import PartitionState
    from ottla.server.broker import Broker
    from ottla.server.testing.world.node import Node
    from ottla.wire.schema import Message

SHOWN_LOOKS, SETTLED_LOOKS, PAUSE_S = 15_000, 2_500, 0.002
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors of a coordinator that has just been elected, or whose topic is being made."""
GROUP, TRANSACTION = 0, 1  # types of coordinators in FindCoordinator


class World(Cluster):
    """Brokers as the calls of a test reach them. Call its async methods in the lab's loop."""

    # ------------------------------------------------------------------ changes, and waits for their end

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
            if broker is None or broker.member.broker_epoch != epoch or self.is_off_tree(node_id):
                break
            await pause(PAUSE_S)
        await self.until_settled()

    async def until_shown(self, topic: str) -> None:
        """Wait until all brokers that run and are not cut off know a topic and its leaders serve it. Raises LabError after 30 s."""
        for _ in range(SHOWN_LOOKS):
            running = [(id, node.broker) for id, node in self.nodes.items() if node.broker is not None]
            if all(self._shows(broker, topic) for id, broker in running if not self.is_off_tree(id)):
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
        able = {id: each for id, each in running.items() if self.nodes[id].is_well and not self.is_off_tree(id)}
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
