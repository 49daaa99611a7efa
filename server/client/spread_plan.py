"""Which replicas move, so that every broker has as many as the others. No I/O: `spreading.py` asks and has it done.

In this order, each step with as few moves as it needs:
    1. whatever lies on a broker that is to be emptied goes to another one
    2. within each topic no broker has two replicas more than another
    3. neither has it over all topics
    4. the same two rules for first replicas, which are those that lead; that moves no data

Each move makes a sum of squares smaller, so the steps end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Placed(NamedTuple):
    """A partition and its replicas, the preferred leader first."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


class Impossible(Exception):
    """There are fewer brokers than a partition has replicas; one sentence."""


def plan_spread(partitions: Sequence[Placed], brokers: Sequence[int]) -> list[Placed]:
    """The partitions that change, as they are to be. `brokers` are those that may have any."""
    for each in partitions:
        if len(each.replicas) > len(brokers):
            raise Impossible(
                f"{each.topic}-{each.partition} has {len(each.replicas)} replicas, which {len(brokers)} brokers cannot hold"
            )
    plan = _Plan(partitions, brokers)
    plan.empty_others()
    plan.level(plan.replicas, plan.move_replica)
    plan.count_leads()
    plan.level(plan.leads, plan.move_lead)
    return [after for before, after in zip(partitions, plan.result(), strict=True) if before != after]


class _Holdings:
    """Which partitions each broker has something of, by topic, and how many that are in each topic and in all."""

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
        self.replicas, self.leads = _Holdings(self._brokers), _Holdings(self._brokers)
        for number, each in enumerate(partitions):
            for broker in each.replicas:
                self.replicas.add(each.topic, broker, number)

    def result(self) -> list[Placed]:
        return [
            each._replace(replicas=tuple(replicas))
            for each, replicas in zip(self._partitions, self._replicas, strict=True)
        ]

    def count_leads(self) -> None:
        """The replicas are where they are to be: now it counts which of them come first."""
        for number, (each, replicas) in enumerate(zip(self._partitions, self._replicas, strict=True)):
            if replicas:
                self.leads.add(each.topic, replicas[0], number)

    # --- one move

    def move_replica(self, topic: str, source: int, target: int) -> bool:
        """Move one replica of a topic, if there is one that can."""
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
        """Let another replica of a partition come first, if there is a partition that can."""
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
        """Nothing stays on a broker that is not among those that may have any."""
        allowed = set(self._brokers)
        for number, each in enumerate(self._partitions):
            of_topic, of_all = self.replicas.of_topic.get(each.topic, Counter()), self.replicas.of_all
            for broker in each.replicas:
                if broker not in allowed:
                    free = [other for other in self._brokers if other not in self._replicas[number]]
                    self._replace(number, broker, min(free, key=lambda other: (of_topic[other], of_all[other])))

    def level(self, holdings: _Holdings, move: Callable[[str, int, int], bool]) -> None:
        """Steps 2 and 3."""
        for topic, of_topic in holdings.of_topic.items():
            self._level_topic(topic, of_topic, holdings, move)
        is_better = True
        while is_better:
            is_better = any(
                self._level_pair(source, target, holdings, move)
                for source in sorted(self._brokers, key=lambda each: -holdings.of_all[each])
                for target in sorted(self._brokers, key=lambda each: holdings.of_all[each])
            )

    def _level_topic(
        self, topic: str, of_topic: Counter[int], holdings: _Holdings, move: Callable[[str, int, int], bool]
    ) -> None:
        is_better = True
        while is_better:
            # From whoever has most to whoever has least, of all topics where the topic does not tell.
            by_load = sorted(self._brokers, key=lambda each: (of_topic[each], holdings.of_all[each]))
            is_better = any(
                of_topic[source] - of_topic[target] > 1 and move(topic, source, target)
                for source in reversed(by_load)
                for target in by_load
            )

    def _level_pair(self, source: int, target: int, holdings: _Holdings, move: Callable[[str, int, int], bool]) -> bool:
        """Let a broker give to another one what it has more, one of each topic in which it has more, too."""
        is_better = False
        for topic, of_topic in holdings.of_topic.items():
            if holdings.of_all[source] - holdings.of_all[target] <= 1:
                break
            if of_topic[source] > of_topic[target]:
                is_better |= move(topic, source, target)
        return is_better
