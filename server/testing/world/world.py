"""A world of the lab: brokers that can be asked inside the process, and waited for.

A request is served without a connection that a test's own clients would see (`ask`). What a test changes is done when all
brokers do what the controller has decided (`until_settled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from ottla.replication.partition.partition import Partition
    from ottla.server.broker import Broker
    from ottla.server.testing.world.node import Node
    from ottla.wire.schema import Message

SHOWN_LOOKS, SETTLED_LOOKS, FROZEN_LOOKS, PAUSE_S = 15_000, 2_500, 500, 0.002
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors of a coordinator that has just been elected, or whose topic is being made."""
GROUP, TRANSACTION = 0, 1  # types of coordinators in FindCoordinator


def is_look_to_urge(number: int) -> bool:
    """True for the looks at which followers are to fetch anew: rarer and rarer, as an answer that takes long would never come."""
    return number & (number - 1) == 0


class Problem(NamedTuple):
    """Obstacle to a settled state; of followers that have to fetch: the partition that their leader holds, and their ids."""

    text: str
    led: Partition | None = None
    followers: Sequence[int] = ()


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

    async def stop(self, node_id: int) -> None:
        """Stop a broker as SIGTERM does. Raises LabError if it is paused."""
        if self.is_paused(node_id):
            raise LabError(f"Broker {node_id} is paused, so that it hears no stop(); resume() it first, or kill() it.")
        await self.node(node_id).stop()

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
        await self.until_settled(back=node_id)

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

    async def until_settled(self, topics: Iterable[str] | None = None, *, back: int | None = None) -> None:
        """Wait until the controller knows who runs, and the brokers in its reach have done what it has decided.

        `topics`: whose partitions are looked at; None: all of them. `back`: id of a broker that has to be in sync with each
        leader that it reaches, and its followers with it, unless `shrink_isr` keeps them out; on a frozen clock they are
        waited for a second. Raises LabError after 30 s, but gives up after 5 s while rules of a test change what brokers say
        to each other, or a disk is full, or once a batch is damaged.
        """
        wanted = None if topics is None else set(topics)
        number = 0
        while self.tree is not None and (problems := await self._unsettled(wanted, back)):
            for each in problems if is_look_to_urge(number) else ():
                self._urge(each)
            number += 1
            if number == FROZEN_LOOKS and not self.loop.clock.factor:
                back = None  # its leader may have to ask the controller again, and nobody does so now
            if number == SETTLED_LOOKS and self._is_disturbed:
                return
            if number == SHOWN_LOOKS:
                raise LabError(f"{problems[0].text} after {SHOWN_LOOKS * PAUSE_S:.0f} s; are enough of the brokers up?")
            await pause(PAUSE_S)

    def _urge(self, problem: Problem) -> None:
        led = problem.led
        if led is None or led.followers is None:
            return
        for id in problem.followers:
            # The controller may have refused the follower a moment before it was registered.
            led.followers.by_id[id].ineligible_until_ms = 0
            self.nodes[id].fetch_anew(led.topic, led.index)

    @property
    def _is_disturbed(self) -> bool:
        """True while rules of a test change what brokers say to each other, or a disk is full, or once a batch is damaged."""
        rules = {*self.wire.rules.active} - {*self.held_replicas.values()}
        is_full = any(each.storage.space_left is not None for each in self.nodes.values())
        return is_full or self.is_damaged or any(each.wanted.of_brokers for each in rules)

    async def _unsettled(self, topics: set[str] | None, back: int | None = None) -> list[Problem]:
        running = {id: node.broker for id, node in self.nodes.items() if node.broker is not None}
        able = {id: each for id, each in running.items() if self.nodes[id].is_well and not self.is_off_tree(id)}
        controller = next((id for id, each in able.items() if each.member.controller is not None), None)
        if controller is None:
            # One that is cut off stays the controller until its session ends.
            is_awaited = len(able) == len(running) > 0
            return [Problem("There is no controller")] if is_awaited else []
        active = able[controller].member.controller
        assert active is not None
        known = active.states.brokers
        for id in self.nodes:
            if id in able and (id not in known or known[id].epoch != able[id].member.broker_epoch):
                return [Problem(f"The controller does not know that broker {id} is up")]
            if id in known and not self.nodes[id].is_alive and not self.is_off_tree(id):
                return [Problem(f"The controller does not know that broker {id} is down")]
        try:
            await active.reassignments()  # answered when all is decided that the controller has heard of by now
        except KafkaError:
            return [Problem(f"Broker {controller} resigns as the controller")]
        ears = {id: each for id, each in able.items() if not self.is_cut(id, controller)}
        if fenced := [id for id in ears if self.nodes[id].is_fenced]:
            return [Problem(f"Broker {fenced[0]} is fenced")]
        return [
            problem
            for (name, index), state in active.states.partitions()
            if (topics is None or name in topics)
            and (problem := self._unsettled_partition(ears, name, index, state, back)) is not None
        ]

    def _unsettled_partition(
        self, brokers: Mapping[int, Broker], topic: str, index: int, state: PartitionState, back: int | None
    ) -> Problem | None:
        if state.partition_epoch == NO_PARTITION_EPOCH:  # nobody has heard of it
            return None
        for id, broker in brokers.items():
            shown = broker.cluster.partition(topic, index)
            if shown is None or (shown.leader_epoch, shown.isr) != (state.leader_epoch, state.isr):
                return Problem(f"Broker {id} does not know the leader and the ISR of {topic}-{index}")
        if state.leader not in brokers:
            return None
        held = brokers[state.leader].replicas.partition(topic, index)
        if held is None or not held.is_leader or held.must_hear or held.leader_epoch != state.leader_epoch:
            return Problem(f"Broker {state.leader} does not know that it leads {topic}-{index}")
        in_reach = {id for id in brokers if not self.is_cut(id, state.leader)}
        free = [id for id in state.replicas if id != state.leader and (topic, index, id) not in self.held_replicas]
        # Until its followers have fetched, a new leader does not know that all before it was acknowledged, and shows it to nobody.
        can_know = len(state.isr) >= held.min_isr and in_reach >= {*state.isr}
        if can_know and held.high_watermark < held.leader_epoch_start_offset:
            late = [id for id in free if id in state.isr]
            return Problem(f"Not all followers fetch {topic}-{index} from broker {state.leader}", held, late)
        wanted = free if back == state.leader else [id for id in free if id == back]
        has_room = [id for id in wanted if self.nodes[id].storage.space_left is None]
        if away := [id for id in has_room if id in in_reach and id not in state.isr]:
            return Problem(f"Broker {away[0]} is not in the ISR of {topic}-{index}", held, away)
        return None

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
