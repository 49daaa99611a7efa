"""What the controller tells the brokers after a decision: LeaderAndIsr, UpdateMetadata and StopReplica, by broker.

A batch is filled while a decision is made and carried out, and then turned into requests in Kafka's order: LeaderAndIsr
before UpdateMetadata, StopReplica last (its class AbstractControllerBrokerRequestBatch). If a partition
comes up twice, the later state replaces the earlier one. A new replica stays new, and a replica to delete stays one.

A broker of Apache Kafka does not follow a leader that no UpdateMetadata has named, and does not try again later (its class
ReplicaManager). So it hears of a new broker first, and then that it is to follow it (`introduce_brokers`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.replication.cluster.metadata_cache import NO_BROKER_EPOCH, BrokerRegistration, PartitionState
from ottla.replication.controller.steps import Steps
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.schema import ZERO_UUID

# Kafka's marks of a partition that is being deleted, in UpdateMetadata and in StopReplica.
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2

TopicPartition = tuple[str, int]
ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControlBatch:
    """The requests to each broker, as `(partition state, is new)`, `(leader epoch, delete)` and
    `(partition state, offline replicas)`. A broker in `update_metadata` without partitions hears of the live brokers; one in
    `introduced` hears of it all before it leads or follows anything.
    """

    __slots__ = ("introduced", "leader_and_isr", "stop_replica", "update_metadata")

    def __init__(self) -> None:
        self.leader_and_isr: dict[int, dict[TopicPartition, tuple[PartitionState, bool]]] = {}
        self.stop_replica: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self.update_metadata: dict[int, dict[TopicPartition, tuple[PartitionState, tuple[int, ...]]]] = {}
        self.introduced: set[int] = set()

    def lead_or_follow(self, broker: int, partition: TopicPartition, state: PartitionState, *, is_new: bool) -> None:
        told = self.leader_and_isr.setdefault(broker, {})
        known = told.get(partition)
        told[partition] = (state, is_new or (known is not None and known[1]))

    def stop(self, broker: int, partition: TopicPartition, leader_epoch: int, *, delete: bool) -> None:
        told = self.stop_replica.setdefault(broker, {})
        known = told.get(partition)
        told[partition] = (leader_epoch, delete or (known is not None and known[1]))

    def announce(
        self, brokers: Iterable[int], partition: TopicPartition, state: PartitionState, offline: tuple[int, ...]
    ) -> None:
        for broker in brokers:
            self.update_metadata.setdefault(broker, {})[partition] = (state, offline)

    def announce_brokers(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self.update_metadata.setdefault(broker, {})

    def introduce_brokers(self, brokers: Iterable[int]) -> None:
        """Announce the live brokers when some of them are new to these."""
        for broker in brokers:
            self.update_metadata.setdefault(broker, {})
            self.introduced.add(broker)

    def receivers(self) -> list[int]:
        return sorted({*self.leader_and_isr, *self.update_metadata, *self.stop_replica})

    def __bool__(self) -> bool:
        return bool(self.leader_and_isr or self.update_metadata or self.stop_replica)


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The controller as its requests name it, and what they say of brokers and topics besides."""

    controller_id: int
    controller_epoch: int
    listener: str
    brokers: Mapping[int, BrokerRegistration]
    topic_ids: Mapping[str, bytes]

    def requests(self, batch: ControlBatch, receiver: int) -> Steps[list[ControlRequest]]:
        """What to send to one live broker, in this order."""
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
        self, receiver: int, told: Mapping[TopicPartition, tuple[PartitionState, bool]]
    ) -> Steps[LeaderAndIsrRequest]:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for (topic, index), (state, is_new) in told.items():
            yield
            if topic not in topics:
                topic_id = self.topic_ids.get(topic, ZERO_UUID)
                topics[topic] = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[])
            topics[topic].partition_states.append(_leader_and_isr_state(index, state, is_new))
        leaders = sorted({state.leader for state, _ in told.values()})
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
        self, receiver: int, told: Mapping[TopicPartition, tuple[PartitionState, tuple[int, ...]]]
    ) -> Steps[UpdateMetadataRequest]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for (topic, index), (state, offline) in told.items():
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
        self, receiver: int, told: Mapping[TopicPartition, tuple[int, bool]]
    ) -> Steps[StopReplicaRequest]:
        topics: dict[str, StopReplicaTopicState] = {}
        for (topic, index), (leader_epoch, delete) in told.items():
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
