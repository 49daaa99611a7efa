"""Requests of `ottla reassign`, `ottla spread` and `ottla elect`.

They are reassignments (KIP-455), elections of leaders (KIP-460) and limits of replication traffic (KIP-73) with the settings that
kafka-reassign-partitions.sh uses.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.changes import setting_words, undo_command
from ottla.server.cli.client.cluster import Partition, TemporaryFailure, by_topic, check_answered
from ottla.server.cli.client.configs import BROKER, TOPIC, Resource, alter_settings, settings_of
from ottla.server.cli.client.output import ConnectionLost, RequestFailed
from ottla.server.cli.replicas.plans import Placed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

PREFERRED, UNCLEAN = 0, 1
"""ElectLeaders' types of elections."""

LOOK_AGAIN_S = 0.2
LOOK_AGAIN_S_MAX = 2.0

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


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

    _do_for_all(cluster, ask, "reassigning partitions", targets, done, "done")


def _do_for_all(
    cluster: Cluster,
    ask: Callable[[], None],
    what: str,
    places: Collection[Partition],
    done: Mapping[Partition, None],
    participle: str,
) -> None:
    """Ask until nothing hinders, which fills `done`. Raises RequestFailed, which names the partitions that are done all the same."""
    try:
        cluster.patiently(ask)
        check_answered(what, places, done)
    except RequestFailed as error:
        if not done:
            raise
        names = ", ".join(f"{topic}-{number}" for topic, number in done)
        raise type(error)(f"{error}; {participle} for {names}") from None


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

    _do_for_all(cluster, ask, "electing leaders", places, done, "elected")


# --- moves that are awaited


def placed_partitions(cluster: Cluster) -> tuple[list[Placed], list[str]]:
    """Return all partitions of the cluster, sorted, and the names of the partitions without a leader."""
    placed, without_leader = [], []
    for topic in sorted(cluster.metadata(None).topics, key=lambda each: each.name or ""):
        for each in sorted(topic.partitions, key=lambda one: one.partition_index):
            placed.append(Placed(topic.name or "", each.partition_index, tuple(each.replica_nodes)))
            if each.leader_id < 0:
                without_leader.append(f"{topic.name}-{each.partition_index}")
    return placed, without_leader


def moving(cluster: Cluster, partitions: Sequence[Placed] | None = None) -> list[str]:
    """Return the names of partitions that are being reassigned. `partitions` None: look at all partitions."""
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
    """Reassign partitions and wait for completion. `progress` is called with the number of unfinished partitions."""
    reassign(cluster, {(each.topic, each.partition): each.replicas for each in partitions})
    await_moves(cluster, partitions, progress)
    _lead_first(cluster, partitions)


def await_moves(cluster: Cluster, partitions: Sequence[Placed], progress: Callable[[int], None]) -> None:
    """Wait until reassignments are completed and the queried broker knows the new replicas. Raises RequestFailed.

    `progress` is called with the number of unfinished partitions.
    """
    wait_s = LOOK_AGAIN_S
    while left := moving(cluster, partitions):
        progress(len(left))
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, LOOK_AGAIN_S_MAX)
    cluster.patiently(lambda: _have_to_be_there(cluster, partitions))


def _have_to_be_there(cluster: Cluster, partitions: Sequence[Placed]) -> None:
    """Raise TemporaryFailure if the queried broker does not know the new replicas yet."""
    wanted = {(each.topic, each.partition): set(each.replicas) for each in partitions}
    for topic in cluster.metadata({each.topic for each in partitions}).topics:
        for each in topic.partitions:
            expected = wanted.get((topic.name or "", each.partition_index))
            if expected is not None and set(each.replica_nodes) != expected:
                raise TemporaryFailure(
                    f"{topic.name}-{each.partition_index} has the replicas {sorted(each.replica_nodes)} as before"
                )


def _lead_first(cluster: Cluster, partitions: Sequence[Placed]) -> None:
    """Elect the first replica of each partition as leader. If that replica cannot lead, the leader stays."""
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
                    raise TemporaryFailure("the controller has just changed")

    cluster.patiently(elect)


def _by_topic(partitions: Sequence[Placed]) -> Iterator[tuple[str, Iterator[Placed]]]:
    return groupby(sorted(partitions), key=attrgetter("topic"))


# --- throttle


class Throttle:
    """Throttle of the moves from `before` to `after`, each with the replicas of partitions; `rate`: bytes a second."""

    def __init__(
        self,
        cluster: Cluster,
        rate: int,
        before: Mapping[Partition, Sequence[int]],
        after: Mapping[Partition, Sequence[int]],
    ) -> None:
        self._cluster = cluster
        self._wanted = settings_for(rate, before, after)
        self._former: dict[Resource, dict[str, str | None]] = {}

    def set(self) -> None:
        """Set the throttle; if a part fails, what was set is removed again. Raises RequestFailed."""
        try:
            for resource, changes in self._wanted.items():
                former = self._own(resource, changes)
                self._former[resource] = former
                alter_settings(self._cluster, resource, changes, only_checks=False)
        except (RequestFailed, ConnectionLost):
            self.remove()
            raise

    def _own(self, resource: Resource, names: Mapping[str, str]) -> dict[str, str | None]:
        """Return the values that the resource itself has; None for those that it has not."""
        own = {
            each.name: each.value
            for each in settings_of(self._cluster, resource)
            if each.source == resource.own_source and each.value
        }
        return {name: own.get(name) for name in names}

    def remove(self) -> None:
        """Set the settings as they were. Raises RequestFailed."""
        while self._former:
            resource, changes = next(reversed(self._former.items()))
            alter_settings(self._cluster, resource, changes, only_checks=False)
            del self._former[resource]

    def commands(self, options: argparse.Namespace) -> list[str]:
        """Return the commands that remove what is still set."""
        return [
            undo_command(
                options,
                "configs",
                "topic" if resource.kind == TOPIC else "broker",
                *setting_words(changes.items()),
                names=[resource.name],
            )
            for resource, changes in self._former.items()
        ]


def settings_for(
    rate: int, before: Mapping[Partition, Sequence[int]], after: Mapping[Partition, Sequence[int]]
) -> dict[Resource, dict[str, str]]:
    """Return the settings of topics and brokers that throttle the moves: the replicas first, then the rates."""
    found: dict[Resource, dict[str, str]] = {}
    for topic, numbers in by_topic(sorted(after)).items():
        leaders, followers = [], []
        for number in numbers:
            present, planned = before[topic, number], after[topic, number]
            leaders += [f"{number}:{broker}" for broker in present]
            followers += [f"{number}:{broker}" for broker in planned if broker not in present]
        found[Resource(TOPIC, topic)] = {LEADERS: ",".join(leaders), FOLLOWERS: ",".join(followers)}
    brokers = {broker for each in (before, after) for place in after for broker in each[place]}
    found |= {Resource(BROKER, str(each)): dict.fromkeys(RATES, str(rate)) for each in sorted(brokers)}
    return found
