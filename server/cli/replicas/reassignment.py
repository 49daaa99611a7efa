"""Even distribution of partitions over brokers: plan the moves, then have them carried out (KIP-455).

The plan, each step with as few moves as it needs:
    1. replicas on a broker that is to be emptied go to another one
    2. within each topic no broker has two replicas more than another
    3. nor has it over all topics
    4. the same two rules for preferred leaders, the first replicas; that moves no data

Each move makes a sum of squares smaller, so the steps end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.client.cluster import TemporaryFailure
from ottla.server.cli.client.output import RequestFailed, ids
from ottla.server.cli.replicas.moves import PREFERRED, reassign
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster


class Placed(NamedTuple):
    """Partition with its replicas; the first replica is the preferred leader."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


class Impossible(Exception):
    """Error: no plan is possible, because a partition has more replicas than there are brokers."""


def plan_spread(partitions: Sequence[Placed], brokers: Sequence[int]) -> list[Placed]:
    """Plan an even spread over `brokers` (ids); return changed partitions with new replicas. Raises Impossible."""
    for each in partitions:
        if len(each.replicas) > len(brokers):
            raise Impossible(
                f"{each.topic}-{each.partition} has {len(each.replicas)} replicas, which {len(brokers)} brokers cannot hold"
            )
    planned, before = list(partitions), list[Placed]()
    # A move between brokers may allow another one within a topic. Each makes the counts more even, so that this ends.
    while planned != before:
        plan, before = _Plan(planned, brokers), planned
        plan.empty_others()
        plan.level(plan.replicas, plan.move_replica)
        plan.count_leads()
        plan.level(plan.leads, plan.move_lead)
        planned = plan.result()
    return [after for first, after in zip(partitions, planned, strict=True) if first != after]


class _Counts:
    """Index of partitions by topic and broker. It also counts them, per broker and topic, and per broker in total."""

    def __init__(self, brokers: Iterable[int]) -> None:
        self.of_topic: dict[str, Counter[int]] = {}
        self.of_all = Counter(dict.fromkeys(brokers, 0))
        self._numbers: dict[tuple[str, int], dict[int, None]] = {}

    def numbers(self, topic: str, broker: int) -> Iterable[int]:
        return self._numbers.get((topic, broker), ())

    def add(self, topic: str, broker: int, number: int) -> None:
        self._numbers.setdefault((topic, broker), {})[number] = None
        self._count(topic, broker, 1)

    def remove(self, topic: str, broker: int, number: int) -> None:
        del self._numbers[topic, broker][number]
        self._count(topic, broker, -1)

    def _count(self, topic: str, broker: int, more: int) -> None:
        self.of_topic.setdefault(topic, Counter())[broker] += more
        self.of_all[broker] += more


class _Plan:
    def __init__(self, partitions: Sequence[Placed], brokers: Sequence[int]) -> None:
        self._brokers = sorted(brokers)
        self._partitions = partitions
        self._replicas = [list(each.replicas) for each in partitions]
        self.replicas, self.leads = _Counts(self._brokers), _Counts(self._brokers)
        for number, each in enumerate(partitions):
            for broker in each.replicas:
                self.replicas.add(each.topic, broker, number)

    def result(self) -> list[Placed]:
        return [
            each._replace(replicas=tuple(replicas))
            for each, replicas in zip(self._partitions, self._replicas, strict=True)
        ]

    def count_leads(self) -> None:
        """Count how often each broker is preferred leader after the planned moves of replicas."""
        for number, (each, replicas) in enumerate(zip(self._partitions, self._replicas, strict=True)):
            if replicas:
                self.leads.add(each.topic, replicas[0], number)

    # --- one move

    def move_replica(self, topic: str, source: int, target: int) -> bool:
        """Move one replica of a topic from `source` to `target`; return False if that is not possible."""
        for number in self.replicas.numbers(topic, source):
            if target not in self._replicas[number]:
                self._replace(number, source, target)
                return True
        return False

    def _replace(self, number: int, source: int, target: int) -> None:
        topic, replicas = self._partitions[number].topic, self._replicas[number]
        replicas[replicas.index(source)] = target
        self.replicas.remove(topic, source, number)
        self.replicas.add(topic, target, number)

    def move_lead(self, topic: str, source: int, target: int) -> bool:
        """Make `target` preferred leader of one partition instead of `source`; return False if that is not possible."""
        for number in self.leads.numbers(topic, source):
            replicas = self._replicas[number]
            if target in replicas:
                replicas.remove(target)
                replicas.insert(0, target)
                self.leads.remove(topic, source, number)
                self.leads.add(topic, target, number)
                return True
        return False

    # --- the steps

    def empty_others(self) -> None:
        """Move replicas away from brokers that must not hold any (step 1)."""
        allowed = set(self._brokers)
        for number, each in enumerate(self._partitions):
            of_topic, of_all = self.replicas.of_topic.get(each.topic, Counter()), self.replicas.of_all
            for broker in each.replicas:
                if broker not in allowed:
                    free = [other for other in self._brokers if other not in self._replicas[number]]
                    self._replace(number, broker, min(free, key=lambda other: (of_topic[other], of_all[other])))

    def level(self, counts: _Counts, move: Callable[[str, int, int], bool]) -> None:
        """Even out each topic, then all topics together: steps 2 and 3 for replicas, step 4 for preferred leaders."""
        for topic, of_topic in counts.of_topic.items():
            self._level_topic(topic, of_topic, counts, move)
        is_better = True
        while is_better:
            is_better = any(
                self._level_pair(source, target, counts, move)
                for source in sorted(self._brokers, key=lambda each: -counts.of_all[each])
                for target in sorted(self._brokers, key=lambda each: counts.of_all[each])
            )

    def _level_topic(
        self, topic: str, of_topic: Counter[int], counts: _Counts, move: Callable[[str, int, int], bool]
    ) -> None:
        is_better = True
        while is_better:
            # From whoever has most to whoever has least, of all topics where the topic does not tell.
            by_load = sorted(self._brokers, key=lambda each: (of_topic[each], counts.of_all[each]))
            is_better = any(
                of_topic[source] - of_topic[target] > 1 and move(topic, source, target)
                for source in reversed(by_load)
                for target in by_load
            )

    def _level_pair(self, source: int, target: int, counts: _Counts, move: Callable[[str, int, int], bool]) -> bool:
        """Move partitions from `source` to `target` in topics where `source` has more; return True if any was moved."""
        is_better = False
        for topic, of_topic in counts.of_topic.items():
            if counts.of_all[source] - counts.of_all[target] <= 1:
                break
            if of_topic[source] > of_topic[target]:
                is_better |= move(topic, source, target)
        return is_better


LOOK_AGAIN_S = 0.2
LOOK_AGAIN_S_MAX = 2.0


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


def live_brokers(cluster: Cluster) -> list[int]:
    """Return the ids of the live brokers."""
    found = sorted(each.node_id for each in cluster.metadata(()).brokers)
    if not found:
        raise RequestFailed("the broker knows of no broker; it may just be starting")
    return found


def nothing_to_move(brokers: Sequence[int]) -> str:
    """Return the message that partitions are spread evenly over `brokers` already."""
    if len(brokers) == 1:
        return "nothing to move: there is 1 broker"
    return f"nothing to move: partitions are even over the brokers {ids(brokers)}"
