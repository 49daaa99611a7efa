"""A cluster whose brokers are puppets, for tests of the controller: they believe what they are told, as far as epochs allow.

The tree is a `MemoryService`, and all waiting is on virtual time.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, Delete, NoNode, SetData
from ottla.replication.cluster.metadata_cache import NO_LEADER, BrokerEndpoint, BrokerRegistration, PartitionState
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.cluster.znodes import LeaderAndIsr, TopicAssignment
from ottla.replication.controller.decisions import TopicPartition
from ottla.server.cluster.controller.active_controller import ActiveController
from ottla.server.cluster.controller.controller_election import ControllerElection
from ottla.server.config.broker_config import BrokerConfig, load_config
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import Link, MemoryService
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controller_requests import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

SESSION_S = 6.0
PATIENCE_S = 120.0  # of virtual time
LOOK_S = 0.05


class Puppet:
    """What one incarnation of a broker was told."""

    def __init__(self, node_id: int, epoch: int, random: random.Random) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.random = random
        self.requests: list[Any] = []
        self.replicas: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.live: set[int] = set()
        self.controller_epoch = 0
        self.is_reachable = True
        self.failed: set[TopicPartition] = set()  # whose log directory is offline
        self.new: set[TopicPartition] = set()
        self.left_alone: set[TopicPartition] = set()  # Kafka's brokers follow no leader of whom they have not heard
        self._topic_ids: dict[str, bytes] = {}

    def kinds(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.requests]

    def hear(self, request: Any, version: int) -> Any:
        self.requests.append(request)
        assert not request.is_kraft_controller
        if request.controller_epoch < self.controller_epoch:
            return self._refuse(request, ErrorCode.STALE_CONTROLLER_EPOCH)
        if request.broker_epoch < self.epoch:
            return self._refuse(request, ErrorCode.STALE_BROKER_EPOCH)
        self.controller_epoch = request.controller_epoch
        if isinstance(request, LeaderAndIsrRequest):
            assert version == 7
            return self._lead_or_follow(request)
        if isinstance(request, UpdateMetadataRequest):
            assert version == 8
            return self._know(request)
        assert version == 4
        return self._stop(request)

    def _refuse(self, request: Any, code: int) -> Any:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=code)
        if isinstance(request, UpdateMetadataRequest):
            return UpdateMetadataResponse(error_code=code)
        return StopReplicaResponse(error_code=code, partition_errors=[])

    def _lead_or_follow(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            self._topic_ids[topic.topic_name] = bytes(topic.topic_id)
            errors = []
            for state in topic.partition_states:
                code = self._follow((topic.topic_name, state.partition_index), state)
                errors.append(LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code))
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)

    def _follow(self, partition: TopicPartition, state: LeaderAndIsrPartitionState) -> int:
        known = self.replicas.get(partition)
        if partition in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known is not None and state.leader_epoch < known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if state.leader in (NO_LEADER, self.node_id, *self.live):
            self.left_alone.discard(partition)
        else:
            self.left_alone.add(partition)
        self.replicas[partition] = state
        if state.is_new:
            self.new.add(partition)
        return ErrorCode.NONE

    def _know(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.live = {broker.id for broker in request.live_brokers}
        for topic in request.topic_states:
            for state in topic.partition_states:
                self.metadata[topic.topic_name, state.partition_index] = state
                if state.leader == -2:
                    del self.metadata[topic.topic_name, state.partition_index]
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = (topic.topic_name, state.partition_index)
                code = ErrorCode.KAFKA_STORAGE_ERROR if partition in self.failed else ErrorCode.NONE
                if code == ErrorCode.NONE and state.delete_partition:
                    self.replicas.pop(partition, None)
                    self.left_alone.discard(partition)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)


class PuppetPeer:
    """A way to a puppet: everything goes through the codec, both ways."""

    def __init__(self, puppet: Puppet) -> None:
        self._puppet = puppet

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> Any:
        await self._travel()
        response = self._puppet.hear(type(request).decode(request.encode(version), version), version)
        response = type(response).decode(response.encode(version), version)
        await self._travel()
        return response

    async def _travel(self) -> None:
        await trio.sleep(self._puppet.random.uniform(0.0002, 0.002))
        if not self._puppet.is_reachable:
            raise PeerUnavailable("the strings are cut")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Candidate:
    """A broker's session, and its part in the elections."""

    def __init__(self, theatre: Theatre, node_id: int) -> None:
        self.theatre = theatre
        self.node_id = node_id
        self.link: Link = theatre.service.link()
        self.session = MemoryCoordination(self.link, timeout_s=SESSION_S)
        self.election = ControllerElection(
            self.session,
            node_id,
            peer=theatre.peer,
            inter_broker_listener="PLAINTEXT",
            is_unclean=lambda topic: topic in theatre.unclean,
            config=lambda: theatre.config,
            clock_ms=lambda: int(trio.current_time() * 1000),
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.session.run)
            await nursery.start(self.election.run)
            task_status.started()


class Theatre:
    """The cluster: a tree, puppets that are registered in it, and candidates for the office of the controller."""

    def __init__(self, nursery: trio.Nursery, service: MemoryService, operator: MemoryCoordination) -> None:
        self.nursery = nursery
        self.service = service
        self.operator = operator  # a session of its own
        self.random = service.random
        self.config: BrokerConfig = load_config({"auto.leader.rebalance.enable": "false"})
        self.unclean: set[str] = set()
        self.puppets: dict[int, Puppet] = {}
        self.candidates: dict[int, Candidate] = {}

    def set(self, **settings: str) -> None:
        texts = {"auto.leader.rebalance.enable": "false"}
        self.config = load_config(texts | {name.replace("_", "."): value for name, value in settings.items()})

    # ------------------------------------------------------------------ candidates

    async def stand(self, node_id: int = 1) -> Candidate:
        candidate = Candidate(self, node_id)
        await self.nursery.start(candidate.run)
        self.candidates[node_id] = candidate
        return candidate

    @property
    def active(self) -> ActiveController | None:
        """The controller, if there is exactly one."""
        found = [each.election.active for each in self.candidates.values() if each.election.active is not None]
        return found[0] if len(found) == 1 else None

    @property
    def controller(self) -> ActiveController:
        active = self.active
        assert active is not None
        return active

    # ------------------------------------------------------------------ brokers

    def peer(self, broker: BrokerRegistration) -> PuppetPeer:
        puppet = self.puppets.get(broker.node_id)
        if puppet is None or puppet.epoch != broker.epoch:
            raise PeerUnavailable(f"there is no broker {broker.node_id}")
        return PuppetPeer(puppet)

    async def up(self, *node_ids: int, port: int = 9092, features: Mapping[str, int] | None = None) -> None:
        """Register brokers, which support these levels."""
        for node_id in node_ids:
            endpoint = BrokerEndpoint(node_id, f"host{node_id}", port)
            data = znodes.encode_broker(
                BrokerRegistration(node_id, {"PLAINTEXT": endpoint}, features=features or {}), 0
            )
            path = znodes.broker_path(node_id)
            await self.operator.multi([Create(path, data, ephemeral=True)])
            epoch = (await self.operator.get(path)).creation_id
            self.puppets[node_id] = Puppet(node_id, epoch, self.random)

    async def down(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.puppets.pop(node_id).is_reachable = False
            await self.operator.multi([Delete(znodes.broker_path(node_id))])

    # ------------------------------------------------------------------ topics

    async def create(self, name: str, *replicas: tuple[int, ...], topic_id: bytes | None = None) -> None:
        assignment = TopicAssignment(
            topic_id or name.encode().rjust(16), {index: list(ids) for index, ids in enumerate(replicas)}
        )
        await self.operator.multi(
            [
                Create(znodes.topic_config_path(name), znodes.encode_config({})),
                Create(znodes.topic_path(name), znodes.encode_topic(assignment)),
            ]
        )

    async def delete(self, name: str) -> None:
        await self.operator.multi([Create(znodes.deleted_topic_path(name))])

    async def add_partitions(self, name: str, *replicas: tuple[int, ...]) -> None:
        node = await self.operator.get(znodes.topic_path(name))
        known = znodes.decode_topic(node.data)
        more = {len(known.partitions) + index: list(ids) for index, ids in enumerate(replicas)}
        assignment = TopicAssignment(known.topic_id, {**known.partitions, **more})
        await self.operator.multi([SetData(znodes.topic_path(name), znodes.encode_topic(assignment), node.version)])

    async def state(self, topic: str, index: int = 0) -> tuple[LeaderAndIsr, int] | None:
        try:
            node = await self.operator.get(znodes.state_path(topic, index))
        except NoNode:
            return None
        return znodes.decode_state(node.data), node.version

    def known(self, topic: str, index: int = 0) -> PartitionState | None:
        """What the controller knows."""
        active = self.active
        return None if active is None else active.states.partition((topic, index))

    # ------------------------------------------------------------------ waiting

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await trio.sleep(LOOK_S)

    async def until_told_of(self, *node_ids: int) -> None:
        """Every live broker knows that these are live, in their present incarnation."""
        await self.until(lambda: all({*node_ids} <= puppet.live for puppet in self.puppets.values()))

    async def until_led(self, leader: int, topic: str = "t", index: int = 0) -> None:
        """Every live broker knows this leader."""
        await self.until(
            lambda: all(
                (topic, index) in puppet.metadata and puppet.metadata[topic, index].leader == leader
                for puppet in self.puppets.values()
            )
        )

    # ------------------------------------------------------------------ what has to hold in the end

    def quarrels(self) -> list[str]:
        """Where the tree, the controller and the live brokers do not say the same."""
        active = self.active
        if active is None:
            return ["there is no controller"]
        found = [
            f"{each} is not live to {puppet.node_id}"
            for puppet in self.puppets.values()
            for each in self.puppets.keys() ^ puppet.live
        ]
        tree = self._tree_topics()
        if tree.keys() != active.states.topics.keys():
            return [*found, f"topics are {sorted(tree)} and {sorted(active.states.topics)}"]
        for name, topic in active.states.topics.items():
            if name in active.states.deletions:
                continue
            if tree[name] != topic.version:
                found.append(f"{name} has version {topic.version}")
            for index, state in topic.partitions.items():
                found += self._quarrels_over((name, index), state)
        return found

    def _tree_topics(self) -> Mapping[str, int]:
        nodes = self.service.tree.children_data(znodes.TOPICS)
        return {name: node.version for name, node in nodes.items()}

    def _quarrels_over(self, partition: TopicPartition, state: PartitionState) -> list[str]:
        (node,) = self.service.tree.get_all([znodes.state_path(*partition)])
        if node is None:
            return [] if state.partition_epoch == -1 else [f"{partition} has no state"]
        written = znodes.decode_state(node.data)
        found = []
        if (written.leader, written.leader_epoch, tuple(written.isr), node.version) != (
            state.leader,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
        ):
            found.append(f"{partition} is {state} and {written} v{node.version}")
        for node_id, puppet in self.puppets.items():
            known = puppet.metadata.get(partition)
            if known is None or (
                known.leader,
                known.leader_epoch,
                tuple(known.isr),
                known.zk_version,
                tuple(known.replicas),
            ) != (
                state.leader,
                state.leader_epoch,
                state.isr,
                state.partition_epoch,
                state.replicas,
            ):
                found.append(f"{node_id} knows {partition} as {known}, not {state}")
            replica = puppet.replicas.get(partition)
            if (replica is not None) != (node_id in state.replicas) and partition not in puppet.failed:
                found.append(f"{node_id} has {partition}: {replica}")
            if replica is None or partition in puppet.failed or state.leader == NO_LEADER:
                continue
            if partition in puppet.left_alone or (replica.leader, replica.leader_epoch) != (
                state.leader,
                state.leader_epoch,
            ):
                found.append(f"{node_id} follows {replica}, not {state}")
        return found


@asynccontextmanager
async def open_theatre(seed: int = 7) -> AsyncIterator[Theatre]:
    service = MemoryService(random.Random(seed))
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        operator = MemoryCoordination(service.link(), timeout_s=SESSION_S)
        await nursery.start(operator.run)
        await operator.multi([Create(path) for path in znodes.PERSISTENT_PATHS])
        yield Theatre(nursery, service, operator)
        nursery.cancel_scope.cancel()
