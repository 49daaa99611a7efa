"""Update the metadata cache as the controller's UpdateMetadata says, as far as the coordination tree agrees.

Kafka's class ZkMetadataCache of 3.9. `controller_requests.py` has the table of what becomes of each part of a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.replication.cluster.metadata_cache import (
    UNKNOWN_STATE,
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
    is_internal_topic,
)
from ottla.replication.controller.decisions import LEADER_DURING_DELETE
from ottla.replication.log.names import is_partition_name
from ottla.replication.replica_manager.controller_fencing import Claim, ControllerFencing, KnownTopic
from ottla.wire.schema import ZERO_UUID
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.wire.messages.controller_requests import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataTopicState,
    )

logger = logging.getLogger("ottla.replication.controller")

PARTITIONS_PER_TOPIC_MAX = 200_000
"""A topic's node in the tree (1 MB at most, by default) has no room for so many. The metadata cache is as long as the
highest number of a partition."""


class MetadataUpdates:
    """Handler of admitted UpdateMetadata requests, one request at a time."""

    def __init__(
        self,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        fencing: ControllerFencing | None,
        *,
        resign: Callable[[Partition], None],
    ) -> None:
        """Create a handler; it calls `resign` for a partition that was reassigned to other brokers."""
        self._replicas = replicas
        self._cluster = cluster
        self._fencing = fencing
        self._resign = resign

    async def update(self, request: UpdateMetadataRequest) -> Mapping[str, bytes]:
        """Apply a request; return the ids of the deleted topics by name."""
        deleted: dict[str, bytes] = {}
        time_slice = TimeSlice()
        await self._update_brokers(request, time_slice)
        bounds = await self._bounds(request, time_slice)
        for topic in request.topic_states:
            states = await self._possible(topic, bounds.get(topic.topic_name), time_slice)
            self._update_topic(topic.topic_name, topic.topic_id, states, deleted)
            await time_slice.yield_if_over()
        if self._fencing is not None:
            for name in deleted:
                self._fencing.forget_topic(name)
        return deleted

    async def _update_brokers(self, request: UpdateMetadataRequest, time_slice: TimeSlice) -> None:
        known = self._cluster.brokers  # stays as it is: `put_brokers` replaces the mapping
        received: dict[int, BrokerRegistration] = {}
        for broker in request.live_brokers:
            received[broker.id] = _registration(broker)
            await time_slice.yield_if_over()
        live: Mapping[int, BrokerRegistration] = received
        if self._fencing is not None:
            live = await self._fencing.live_brokers(received, known.keys())
        self._cluster.put_brokers(live.values(), controller_id=request.controller_id)
        # The high watermark does not wait for brokers that are gone, and nothing else tells the partitions.
        if known.keys() - live.keys():
            for partition in self._replicas.partitions():
                partition.reconsider()

    async def _bounds(self, request: UpdateMetadataRequest, time_slice: TimeSlice) -> Mapping[str, KnownTopic]:
        """Read topics from the tree if the request has partitions new to the metadata cache; return them by name."""
        claims: dict[str, Claim] = {}
        for topic in request.topic_states:
            known = self._cluster.topics.get(topic.topic_name)
            is_known = known is not None and topic.topic_id in (ZERO_UUID, known.topic_id)
            count = len(known.partitions) if known is not None and is_known else 0
            # What is being deleted adds nothing to the metadata cache.
            received = [each.partition_index for each in topic.partition_states if each.leader != LEADER_DURING_DELETE]
            # Only numbers that are new here cost a read.
            if received and (min(received) < 0 or max(received) >= count):
                claims[topic.topic_name] = Claim(topic.topic_id, max(received))
            await time_slice.yield_if_over()
        return {} if self._fencing is None or not claims else await self._fencing.topics(claims)

    async def _possible(
        self, topic: UpdateMetadataTopicState, bound: KnownTopic | None, time_slice: TimeSlice
    ) -> list[UpdateMetadataPartitionState]:
        """Return the states of a topic's partitions that can exist; log how many were dropped.

        `bound` is the topic in the tree; None: the partitions are not compared with the tree.
        """
        possible = []
        for state in topic.partition_states:
            index = state.partition_index
            if (
                0 <= index < PARTITIONS_PER_TOPIC_MAX
                and (bound is None or state.leader == LEADER_DURING_DELETE or not bound.refusal(topic.topic_id, index))
                and is_partition_name(topic.topic_name, index)
            ):
                possible.append(state)
            await time_slice.yield_if_over()
        if len(possible) < len(topic.partition_states):
            logger.warning(
                "Passed over %d partitions of topic %.249r that are not in the coordination tree",
                len(topic.partition_states) - len(possible),
                topic.topic_name,
            )
        return possible

    def _update_topic(
        self, name: str, topic_id: bytes, received: Sequence[UpdateMetadataPartitionState], deleted: dict[str, bytes]
    ) -> None:
        known = self._cluster.topics.get(name)
        if known is not None and topic_id not in (ZERO_UUID, known.topic_id):
            known = None  # another topic that has the same name
        states = dict(enumerate(known.partitions)) if known is not None else {}
        for each in received:
            if each.leader == LEADER_DURING_DELETE:
                states.pop(each.partition_index, None)
            # Without an id this may be another topic of the same name, whose epochs have begun again.
            elif topic_id == ZERO_UUID or not _is_older(each, states.get(each.partition_index, UNKNOWN_STATE)):
                states[each.partition_index] = _partition_state(each)
                self._resign_if_moved(name, each)
        # Nothing is known of any partition, or none is left: the topic is gone.
        if all(state is UNKNOWN_STATE for state in states.values()):
            if known is not None:
                self._cluster.remove_topic(name)
                deleted[name] = known.topic_id
            return
        partitions = tuple(states.get(index, UNKNOWN_STATE) for index in range(max(states) + 1))
        self._cluster.put_topic(TopicState(name, topic_id, partitions, is_internal_topic(name)))

    def _resign_if_moved(self, topic: str, received: UpdateMetadataPartitionState) -> None:
        """Resign from a partition that was reassigned away while the controller could not reach this broker.

        A former replica gets no LeaderAndIsr or StopReplica about the partition. The log stays, as in Kafka.
        """
        partition = self._replicas.partition(topic, received.partition_index)
        if (
            partition is not None
            and received.leader_epoch > partition.leader_epoch
            and self._replicas.node_id not in received.replicas
        ):
            partition.make_follower(
                leader_id=received.leader,
                leader_epoch=received.leader_epoch,
                partition_epoch=received.zk_version,
                replicas=tuple(received.replicas),
            )
            self._resign(partition)


def _registration(broker: UpdateMetadataBroker) -> BrokerRegistration:
    endpoints = {
        each.listener: BrokerEndpoint(broker.id, each.host, each.port, broker.rack) for each in broker.endpoints
    }
    protocols = {each.listener: each.security_protocol for each in broker.endpoints}
    return BrokerRegistration(broker.id, endpoints, broker.rack, security_protocols=protocols)


def _is_older(received: UpdateMetadataPartitionState, known: PartitionState) -> bool:
    """Tell whether a resent state is older than the known one; Kafka would accept it and show a former leader."""
    return (received.leader_epoch, received.zk_version) < (known.leader_epoch, known.partition_epoch)


def _partition_state(received: UpdateMetadataPartitionState) -> PartitionState:
    return PartitionState(
        leader=received.leader,
        leader_epoch=received.leader_epoch,
        replicas=tuple(received.replicas),
        isr=tuple(received.isr),
        partition_epoch=received.zk_version,
        controller_epoch=received.controller_epoch,
        offline_replicas=tuple(received.offline_replicas),
    )
