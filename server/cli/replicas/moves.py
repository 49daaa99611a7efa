"""Requests of `ottla reassign` and `ottla elect`: reassignments (KIP-455) and elections of leaders (KIP-460)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.client.cluster import Partition, by_topic, check_answered
from ottla.server.cli.client.output import RequestFailed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

PREFERRED, UNCLEAN = 0, 1
"""ElectLeaders' types of elections."""


class Ongoing(NamedTuple):
    """Partition that is being reassigned; `replicas` has the replicas that are added and those that are removed, too."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def place(self) -> Partition:
        return self.topic, self.partition

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Replicas before the reassignment."""
        return tuple(each for each in self.replicas if each not in self.adding)


def ongoing(cluster: Cluster) -> list[Ongoing]:
    """Return all partitions that are being reassigned, sorted. Raises RequestFailed."""

    def ask() -> list[Ongoing]:
        answer = cluster.controller().ask(ListPartitionReassignmentsRequest(topics=None))
        cluster.check("partitions that are moved", answer.error_code, answer.error_message)
        return sorted(
            Ongoing(
                topic.name,
                each.partition_index,
                tuple(each.replicas),
                tuple(each.adding_replicas),
                tuple(each.removing_replicas),
            )
            for topic in answer.topics
            for each in topic.partitions
        )

    return cluster.patiently(ask)


def reassign(cluster: Cluster, targets: Mapping[Partition, Sequence[int] | None]) -> None:
    """Begin reassignments; None: cancel one. Raises RequestFailed, which says what was begun or cancelled all the same."""
    done: dict[Partition, None] = {}

    def ask() -> None:
        left = {place: replicas for place, replicas in targets.items() if place not in done}
        answer = cluster.controller().ask(AlterPartitionReassignmentsRequest(topics=_topics(left)))
        cluster.check("reassigning partitions", answer.error_code, answer.error_message)
        refused = []
        for topic in answer.responses:
            for each in topic.partitions:
                if each.error_code:
                    refused.append((topic.name, each))
                else:
                    done[topic.name, each.partition_index] = None
        for name, each in refused:
            cluster.check(f"{name}-{each.partition_index}", each.error_code, each.error_message)

    try:
        cluster.patiently(ask)
        check_answered("reassigning partitions", targets, done)
    except RequestFailed as error:
        if not done:
            raise
        names = ", ".join(f"{topic}-{number}" for topic, number in done)
        raise type(error)(f"{error}; done for {names}") from None


def _topics(targets: Mapping[Partition, Sequence[int] | None]) -> list[ReassignableTopic]:
    return [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
                for (_, number), replicas in group
            ],
        )
        for topic, group in groupby(sorted(targets.items()), key=lambda each: each[0][0])
    ]


def elect(cluster: Cluster, kind: int, places: Sequence[Partition]) -> None:
    """Elect leaders, which may be elected already. Raises RequestFailed, which says who has a leader all the same."""
    done: dict[Partition, None] = {}

    def ask() -> None:
        left = by_topic([each for each in places if each not in done])
        topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in left.items()]
        answer = cluster.controller().ask(ElectLeadersRequest(election_type=kind, topic_partitions=topics))
        cluster.check("electing leaders", answer.error_code)
        refused = []
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                if each.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    done[topic.topic, each.partition_id] = None
                else:
                    refused.append((topic.topic, each))
        for name, each in refused:
            cluster.check(f"{name}-{each.partition_id}", each.error_code, each.error_message)

    try:
        cluster.patiently(ask)
        check_answered("electing leaders", places, done)
    except RequestFailed as error:
        if not done:
            raise
        names = ", ".join(f"{topic}-{number}" for topic, number in done)
        raise type(error)(f"{error}; elected for {names}") from None
