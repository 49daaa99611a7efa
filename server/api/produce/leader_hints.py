"""Hints in the answers to Produce and Fetch: the leader of a refused partition, and its address (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.server.ports import BrokerParts

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint

UNKNOWN_LEADER = (-1, -1)


def current_leader(broker: BrokerParts, topic: str, index: int) -> tuple[int, int]:
    """A partition's leader and epoch: from the replica here, which the controller keeps up to date, else from the metadata."""
    partition = broker.replicas.partition(topic, index)
    # LeaderAndIsr changes the replica before UpdateMetadata changes the metadata, so the replica knows the new leader
    # first.
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    state = broker.cluster.partition(topic, index)
    return UNKNOWN_LEADER if state is None else (state.leader, state.leader_epoch)


def endpoints(broker: BrokerParts, leaders: Iterable[int], listener: str) -> list[BrokerEndpoint]:
    """Endpoints of these brokers, of those that live."""
    # A broker that leads several of the partitions is named once.
    found = [broker.cluster.endpoint(node_id, listener) for node_id in sorted(set(leaders))]
    return [each for each in found if each is not None]
