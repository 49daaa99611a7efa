"""What `ottla spread` asks of a cluster: where partitions are, to move them, and how far that is (KIP-455)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.server.client.cluster import NotNow
from ottla.server.client.failures import AskingFailed
from ottla.server.client.spread_plan import Placed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

if TYPE_CHECKING:
    from ottla.server.client.cluster import Cluster

PREFERRED = 0  # ElectLeaders' type
LOOK_AGAIN_S = 0.2
LOOK_AGAIN_S_MAX = 2.0


def placed_partitions(cluster: Cluster) -> tuple[list[Placed], list[str]]:
    """Every partition of the cluster in the order of its name, and the names of those without a leader."""
    placed, without_leader = [], []
    for topic in sorted(cluster.metadata(None).topics, key=lambda each: each.name or ""):
        for each in sorted(topic.partitions, key=lambda one: one.partition_index):
            placed.append(Placed(topic.name or "", each.partition_index, tuple(each.replica_nodes)))
            if each.leader_id < 0:
                without_leader.append(f"{topic.name}-{each.partition_index}")
    return placed, without_leader


def moving(cluster: Cluster, partitions: Sequence[Placed] | None = None) -> list[str]:
    """The names of those partitions (None: of all) that are being moved."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[each.partition for each in group])
            for name, group in _by_topic(partitions)
        ]

    def ask() -> list[str]:
        answer = cluster.controller().ask(ListPartitionReassignmentsRequest(topics=topics))
        cluster.check("partitions that are moved", answer.error_code, answer.error_message)
        return [f"{topic.name}-{each.partition_index}" for topic in answer.topics for each in topic.partitions]

    return cluster.patiently(ask)


def move(cluster: Cluster, partitions: Sequence[Placed], progress: Callable[[int], None]) -> None:
    """Give partitions these replicas, and return when they have them. `progress` hears how many are still moved."""
    _begin(cluster, partitions)
    wait_s = LOOK_AGAIN_S
    while left := moving(cluster, partitions):
        progress(len(left))
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, LOOK_AGAIN_S_MAX)
    cluster.patiently(lambda: _have_to_be_there(cluster, partitions))
    _lead_first(cluster, partitions)


def _begin(cluster: Cluster, partitions: Sequence[Placed]) -> None:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=each.partition, replicas=list(each.replicas)) for each in group
            ],
        )
        for name, group in _by_topic(partitions)
    ]

    def begin() -> None:
        answer = cluster.controller().ask(AlterPartitionReassignmentsRequest(topics=topics))
        cluster.check("moving partitions", answer.error_code, answer.error_message)
        for topic in answer.responses:
            for each in topic.partitions:
                cluster.check(f"moving {topic.name}-{each.partition_index}", each.error_code, each.error_message)

    cluster.patiently(begin)


def _have_to_be_there(cluster: Cluster, partitions: Sequence[Placed]) -> None:
    """NotNow until the broker that is asked tells of the new replicas."""
    wanted = {(each.topic, each.partition): set(each.replicas) for each in partitions}
    for topic in cluster.metadata({each.topic for each in partitions}).topics:
        for each in topic.partitions:
            expected = wanted.get((topic.name or "", each.partition_index))
            if expected is not None and set(each.replica_nodes) != expected:
                raise NotNow(
                    f"{topic.name}-{each.partition_index} has the replicas {sorted(each.replica_nodes)} as before"
                )


def _lead_first(cluster: Cluster, partitions: Sequence[Placed]) -> None:
    """Have each partition that has a choice led by its first replica. One that cannot keeps its leader."""
    several = [each for each in partitions if len(each.replicas) > 1]
    if not several:
        return
    topics = [
        TopicPartitions(topic=name, partitions=[each.partition for each in group]) for name, group in _by_topic(several)
    ]

    def elect() -> None:
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics)
        answer = cluster.controller().ask(request)
        if answer.error_code:
            cluster.check("electing leaders", answer.error_code)
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                if each.error_code == ErrorCode.NOT_CONTROLLER:
                    raise NotNow("the controller has just changed")

    cluster.patiently(elect)


def _by_topic(partitions: Sequence[Placed]) -> Iterator[tuple[str, Iterator[Placed]]]:
    return groupby(sorted(partitions), key=attrgetter("topic"))


def live_brokers(cluster: Cluster) -> list[int]:
    """The ids of the brokers that are there."""
    found = sorted(each.node_id for each in cluster.metadata(()).brokers)
    if not found:
        raise AskingFailed("the broker knows of no broker; it may just be starting")
    return found
