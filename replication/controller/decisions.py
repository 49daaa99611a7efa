"""Decisions of the controller: conditional writes to the tree, and the requests to brokers that follow them.

A `Decision` changes nothing until its writes have succeeded and `PartitionStates.commit` was called with it. Its
changes are independent of each other, so that a large one is written in several multis (`parts`), each a decision of its
own; only their order is kept. A decision whose writes failed is dropped.

    decide -> for each part: write it -> commit it -> tell the brokers -> (after all parts) `pending` -> ... -> None

A `ControlBatch` is filled while a decision is made and carried out, and then turned into requests in Kafka's order:
LeaderAndIsr before UpdateMetadata, StopReplica last (its class AbstractControllerBrokerRequestBatch). If a partition
comes up twice, the later state replaces the earlier one. A new replica stays new, and a replica to delete stays one.

A broker of Apache Kafka does not follow a leader that no UpdateMetadata has named, and does not try again later (its class
ReplicaManager). So UpdateMetadata with a new broker is sent before the LeaderAndIsr that makes it a leader to follow
(`introduce_brokers`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Check, Create, Delete, Operation, SetData
from ottla.replication.cluster.metadata_cache import (
    NO_BROKER_EPOCH,
    NO_PARTITION_EPOCH,
    BrokerRegistration,
    PartitionState,
)
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.wire.errors import KafkaError
from ottla.wire.messages.controller_requests import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.schema import ZERO_UUID

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Long work in steps, such as a decision about all partitions of a cluster: it yields after each, and returns the decision.

Others may run between two steps, but must not change what the work looks at. Inputs that count at once do so before the
first step.
"""


# Kafka's marks of a partition that is being deleted, in UpdateMetadata and in StopReplica.
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2


TopicPartition = tuple[str, int]
ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControlBatch:
    """The requests to send to each broker, by partition.

    `leader_and_isr` holds `(partition state, is new)`, `stop_replica` `(leader epoch, delete)` and `update_metadata`
    `(partition state, offline replicas)`. A broker in `update_metadata` without partitions gets only the list of live
    brokers. A broker in `introduced` gets its UpdateMetadata request before its LeaderAndIsr request.
    """

    __slots__ = ("introduced", "leader_and_isr", "stop_replica", "update_metadata")

    def __init__(self) -> None:
        self.leader_and_isr: dict[int, dict[TopicPartition, tuple[PartitionState, bool]]] = {}
        self.stop_replica: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self.update_metadata: dict[int, dict[TopicPartition, tuple[PartitionState, tuple[int, ...]]]] = {}
        self.introduced: set[int] = set()

    def lead_or_follow(self, broker: int, partition: TopicPartition, state: PartitionState, *, is_new: bool) -> None:
        announced = self.leader_and_isr.setdefault(broker, {})
        known = announced.get(partition)
        announced[partition] = (state, is_new or (known is not None and known[1]))

    def stop(self, broker: int, partition: TopicPartition, leader_epoch: int, *, delete: bool) -> None:
        announced = self.stop_replica.setdefault(broker, {})
        known = announced.get(partition)
        announced[partition] = (leader_epoch, delete or (known is not None and known[1]))

    def announce(
        self, brokers: Iterable[int], partition: TopicPartition, state: PartitionState, offline: tuple[int, ...]
    ) -> None:
        for broker in brokers:
            self.update_metadata.setdefault(broker, {})[partition] = (state, offline)

    def announce_brokers(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self.update_metadata.setdefault(broker, {})

    def introduce_brokers(self, brokers: Iterable[int]) -> None:
        """Send UpdateMetadata with all live brokers to `brokers`, before their LeaderAndIsr requests.

        These receivers do not know all live brokers yet.
        """
        for broker in brokers:
            self.update_metadata.setdefault(broker, {})
            self.introduced.add(broker)

    def receivers(self) -> list[int]:
        return sorted({*self.leader_and_isr, *self.update_metadata, *self.stop_replica})

    def __bool__(self) -> bool:
        return bool(self.leader_and_isr or self.update_metadata or self.stop_replica)


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Builder of the controller's requests; holds the controller's id and epoch, the brokers and the topic ids."""

    controller_id: int
    controller_epoch: int
    listener: str
    brokers: Mapping[int, BrokerRegistration]
    topic_ids: Mapping[str, bytes]

    def requests(self, batch: ControlBatch, receiver: int) -> Steps[list[ControlRequest]]:
        """Build the requests to one live broker, in the order in which they must be sent."""
        requests: list[ControlRequest] = []
        if (leading := batch.leader_and_isr.get(receiver)) is not None:
            requests.append((yield from self._leader_and_isr(receiver, leading)))
        if (known := batch.update_metadata.get(receiver)) is not None:
            # A broker that has just come serves clients as soon as it finds itself among the live brokers. It has to
            # know all topics by then, so they are in the same request.
            place = 0 if receiver in batch.introduced else len(requests)
            requests.insert(place, (yield from self._update_metadata(receiver, known)))
        if (stopped := batch.stop_replica.get(receiver)) is not None:
            requests.append((yield from self._stop_replica(receiver, stopped)))
        return requests

    def _epoch(self, broker: int) -> int:
        registration = self.brokers.get(broker)
        return NO_BROKER_EPOCH if registration is None else registration.epoch

    def _leader_and_isr(
        self, receiver: int, announced: Mapping[TopicPartition, tuple[PartitionState, bool]]
    ) -> Steps[LeaderAndIsrRequest]:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for (topic, index), (state, is_new) in announced.items():
            yield
            if topic not in topics:
                topic_id = self.topic_ids.get(topic, ZERO_UUID)
                topics[topic] = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[])
            topics[topic].partition_states.append(_leader_and_isr_state(index, state, is_new))
        leaders = sorted({state.leader for state, _ in announced.values()})
        return LeaderAndIsrRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self._epoch(receiver),
            topic_states=list(topics.values()),
            live_leaders=[live for leader in leaders if (live := self._live_leader(leader)) is not None],
        )

    def _live_leader(self, leader: int) -> LeaderAndIsrLiveLeader | None:
        registration = self.brokers.get(leader)
        endpoint = None if registration is None else registration.endpoints.get(self.listener)
        if endpoint is None:
            return None
        return LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)

    def _update_metadata(
        self, receiver: int, announced: Mapping[TopicPartition, tuple[PartitionState, tuple[int, ...]]]
    ) -> Steps[UpdateMetadataRequest]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for (topic, index), (state, offline) in announced.items():
            yield
            if topic not in topics:
                topic_id = self.topic_ids.get(topic, ZERO_UUID)
                topics[topic] = UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=[])
            topics[topic].partition_states.append(_update_metadata_state(index, state, offline))
        return UpdateMetadataRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self._epoch(receiver),
            topic_states=list(topics.values()),
            live_brokers=[_live_broker(broker) for broker in self.brokers.values()],
        )

    def _stop_replica(
        self, receiver: int, announced: Mapping[TopicPartition, tuple[int, bool]]
    ) -> Steps[StopReplicaRequest]:
        topics: dict[str, StopReplicaTopicState] = {}
        for (topic, index), (leader_epoch, delete) in announced.items():
            yield
            states = topics.setdefault(topic, StopReplicaTopicState(topic_name=topic, partition_states=[]))
            states.partition_states.append(
                StopReplicaPartitionState(partition_index=index, leader_epoch=leader_epoch, delete_partition=delete)
            )
        return StopReplicaRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self._epoch(receiver),
            topic_states=list(topics.values()),
        )


def _leader_and_isr_state(index: int, state: PartitionState, is_new: bool) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        is_new=is_new,
        leader_recovery_state=state.leader_recovery_state,
    )


def _update_metadata_state(index: int, state: PartitionState, offline: tuple[int, ...]) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.partition_epoch,
        replicas=list(state.replicas),
        offline_replicas=list(offline),
    )


def _live_broker(broker: BrokerRegistration) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=endpoint.port,
            host=endpoint.host,
            listener=listener,
            security_protocol=broker.security_protocols.get(listener, 0),
        )
        for listener, endpoint in broker.endpoints.items()
    ]
    return UpdateMetadataBroker(id=broker.node_id, endpoints=endpoints, rack=broker.rack)


# ZooKeeper refuses a multi beyond jute.maxbuffer, 1 MB by default. The `DecisionWriter` halves a part that it refuses.
OPERATIONS_PER_MULTI = 500


Answer = PartitionState | KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A partition's next state, which replaces the present state.

    `recipients` become leader or follower in this state; `newcomers` are the recipients that had no replica before.
    Brokers in `deleted` remove their replica with its log, brokers in `stopped` keep the log. All live brokers learn
    the new state. `completes` is True if the state ends a reassignment; the topic's node is then updated by the next
    decision. `parents` are the missing parent nodes to create together with a partition's first state.
    """

    partition: TopicPartition
    state: PartitionState
    recipients: tuple[int, ...] = ()
    newcomers: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    completes: bool = False
    parents: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of write operations."""
        return 1 + len(self.parents)

    @property
    def operations(self) -> list[Operation]:
        topic, index = self.partition
        data = znodes.encode_state(
            znodes.LeaderAndIsr(
                self.state.leader,
                self.state.leader_epoch,
                list(self.state.isr),
                self.state.controller_epoch,
                self.state.leader_recovery_state,
            )
        )
        path = znodes.state_path(topic, index)
        # `state` is the next state, so the node still has the version before it. The write fails if anybody else wrote
        # meanwhile, and the controller decides again on what it reads then.
        expected = self.state.partition_epoch - 1
        if expected != NO_PARTITION_EPOCH:
            return [SetData(path, data, expected)]
        return [*map(Create, self.parents), Create(path, data)]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """New replicas for some of a topic's partitions; `version` is the version of the topic's node before the change."""

    topic: str
    version: int
    data: bytes
    states: Mapping[int, PartitionState] = field(default_factory=dict)
    size = 1

    @property
    def operations(self) -> list[Operation]:
        return [SetData(znodes.topic_path(self.topic), self.data, self.version)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """A new topic with the first states of some partitions; later decisions add the states of the remaining partitions.

    Everything is written in one multi: if the write fails, the topic does not exist. `has_settings` is True if an
    earlier topic of this name has left its settings behind, which the new settings replace.
    """

    topic: str
    assignment: TopicAssignment
    configs: Mapping[str, str]
    states: tuple[StateChange, ...] = ()
    has_settings: bool = False

    @property
    def size(self) -> int:
        return 2 + sum([state.size for state in self.states])

    @property
    def operations(self) -> list[Operation]:
        path, data = znodes.topic_config_path(self.topic), znodes.encode_config(self.configs)
        return [
            SetData(path, data) if self.has_settings else Create(path, data),
            Create(znodes.topic_path(self.topic), znodes.encode_topic(self.assignment)),
            *(operation for state in self.states for operation in state.operations),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExtension:
    """New partitions of a topic with their first states, written in one multi."""

    change: TopicChange
    states: tuple[StateChange, ...]

    @property
    def topic(self) -> str:
        return self.change.topic

    @property
    def size(self) -> int:
        return 1 + sum([state.size for state in self.states])

    @property
    def operations(self) -> list[Operation]:
        return self.change.operations + [operation for state in self.states for operation in state.operations]


@dataclass(frozen=True, slots=True)
class NodeRemoval:
    """Removal of nodes of a topic under deletion, children first; `topic` is set if no node of the topic remains."""

    paths: tuple[str, ...]
    topic: str | None = None

    @property
    def size(self) -> int:
        return len(self.paths)

    @property
    def operations(self) -> list[Operation]:
        # Any version: the topic goes, whatever its nodes hold by now.
        return [Delete(path) for path in self.paths]


Change = StateChange | TopicChange | TopicCreation | TopicExtension | NodeRemoval


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Changes to write to the coordination service, and requests to send to brokers.

    `answers` holds the result for each partition that a client's request names; it is valid if the writes succeed.
    """

    changes: tuple[Change, ...] = ()
    batch: ControlBatch = field(default_factory=ControlBatch)
    answers: Mapping[TopicPartition, Answer] = field(default_factory=dict)

    def operations(self, controller_epoch_version: int) -> list[Operation]:
        """Return the writes of one multi, which fails if another controller was elected.

        The list is empty if the decision changes nothing.
        """
        operations = [operation for change in self.changes for operation in change.operations]
        # A controller that was replaced without hearing of it must not write: its successor has raised the epoch.
        fence = Check(znodes.CONTROLLER_EPOCH, controller_epoch_version)
        return [fence, *operations] if operations else []

    @property
    def is_refusable(self) -> bool:
        """True if the decision only creates topics or partitions; it may then be refused for lack of room."""
        return bool(self.changes) and all(isinstance(each, TopicCreation | TopicExtension) for each in self.changes)

    def parts(self, limit: int = OPERATIONS_PER_MULTI) -> Iterator[Decision]:
        """Split the decision into parts of about `limit` write operations each; yields at least one part."""
        batch, changes, size = self.batch, list[Change](), 0
        for change in self.changes:
            changes.append(change)
            size += change.size
            if size >= limit:
                yield Decision(changes=tuple(changes), batch=batch, answers=self.answers)
                # The first part carries the batch of the whole decision. The others tell only of their own changes.
                batch, changes, size = ControlBatch(), [], 0
        # A decision without changes may still have something to tell.
        if changes or batch is self.batch:
            yield Decision(changes=tuple(changes), batch=batch, answers=self.answers)
