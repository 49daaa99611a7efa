"""Plans of moves: even ones, and those of the command line (TOPIC:N=ID,ID) or of files of kafka-reassign-partitions.sh.

An even plan, each step with as few moves as it needs:
    1. replicas on a broker that is to be emptied go to another one
    2. within each topic no broker has two replicas more than another
    3. nor has it over all topics
    4. the same two rules for preferred leaders, the first replicas; that moves no data

Each move makes a sum of squares smaller, so the steps end.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.cli.client.output import UsageError, ids
from ottla.server.cli.command_line import is_number
from ottla.server.cli.on_cluster import read_input

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Partition


PLAN_BYTES_MAX = 64 << 20
Targets = dict["Partition", tuple[int, ...]]
"""Replicas that partitions are to have. The first one is the preferred leader."""


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


def with_number(partitions: Sequence[Placed], brokers: Sequence[int], number: int | None) -> list[Placed]:
    """Give each partition `number` replicas (None: as many as now): the last ones are dropped, new ones go to the emptiest brokers."""
    load = dict.fromkeys(brokers, 0)
    found = []
    for each in partitions:
        # Replicas on the chosen brokers come first, so that those on other brokers are dropped first.
        kept = sorted(each.replicas, key=lambda broker: broker not in load)[: number or len(each.replicas)]
        while number is not None and len(kept) < number:
            kept.append(min((one for one in load if one not in kept), key=load.__getitem__))
        for broker in kept:
            load[broker] = load.get(broker, 0) + 1
        # Kept replicas keep their order, because the first one is the preferred leader.
        order = {broker: index for index, broker in enumerate(each.replicas)}
        found.append(each._replace(replicas=tuple(sorted(kept, key=lambda one: order.get(one, len(order))))))
    return found


def nothing_to_move(brokers: Sequence[int]) -> str:
    """Return the message that partitions are spread evenly over `brokers` already."""
    if len(brokers) == 1:
        return "nothing to move: there is 1 broker"
    return f"nothing to move: partitions are even over the brokers {ids(brokers)}"


# --- plans that are given


def add_moves(parser: argparse.ArgumentParser) -> None:
    """Add the moves, as words or as --plan, to an action of `ottla reassign`."""
    one = "the replicas of one partition, the preferred leader first"
    parser.add_argument("moves", nargs="*", metavar="TOPIC:N=ID,ID", help=one)
    parser.add_argument("--plan", metavar="FILE", help="a plan; - is stdin")


def read_targets(options: argparse.Namespace) -> Targets:
    """Read the moves of the command line, or the plan. Raises UsageError."""
    if bool(options.moves) is (options.plan is not None):
        raise UsageError("which partitions? Give TOPIC:N=ID,ID, or --plan FILE")
    pairs = [_move(each) for each in options.moves] if options.moves else parse_plan(_text(options.plan), options.plan)
    targets: Targets = {}
    for place, replicas in pairs:
        if place in targets:
            raise UsageError(f"{place[0]}-{place[1]} is named twice")
        if len(set(replicas)) < len(replicas):
            raise UsageError(f"{place[0]}-{place[1]} is to have two replicas on one broker: {ids(replicas)}")
        targets[place] = replicas
    return targets


def _move(text: str) -> tuple[Partition, tuple[int, ...]]:
    place, _, replicas = text.rpartition("=")
    topic, _, number = place.rpartition(":")
    parts = replicas.split(",")
    if not topic or not is_number(number) or not all(is_number(each) for each in parts):
        raise UsageError(f"{text}: must be TOPIC:N=ID,ID")
    return (topic, int(number)), tuple(map(int, parts))


def _text(file: str) -> str:
    data = read_input("--plan", file, PLAN_BYTES_MAX + 1)
    if len(data) > PLAN_BYTES_MAX:
        raise UsageError(f"--plan {file}: is longer than {PLAN_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"--plan {file}: is not UTF-8") from None


def parse_plan(text: str, name: str) -> list[tuple[Partition, tuple[int, ...]]]:
    """Parse a plan of kafka-reassign-partitions.sh; `name` is that of its file. Raises UsageError."""
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--plan {name}: is no JSON") from None
    if not isinstance(plan, dict) or plan.get("version") != 1 or not isinstance(plan.get("partitions"), list):
        raise UsageError(f'--plan {name}: must be {{"version": 1, "partitions": [...]}}')
    return [_planned(each, name) for each in plan["partitions"]]


def _planned(entry: Any, name: str) -> tuple[Partition, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": int(number), "replicas": [*replicas]} if replicas and all(
            type(each) is int and 0 <= each < 1 << 31 for each in (number, *replicas)
        ):
            pass
        case _:
            told = json.dumps(entry)[:100]
            raise UsageError(f'--plan {name}: {told} must be {{"topic": ..., "partition": N, "replicas": [ID, ...]}}')
    # Kafka's tool moves replicas between directories of a broker, too, by another request.
    directories = entry.get("log_dirs", [])
    if not isinstance(directories, list) or any(each != "any" for each in directories):
        raise UsageError(f"--plan {name}: has log_dirs other than any, to which `ottla dirs move` moves replicas")
    return (topic, number), tuple(replicas)


def as_plan(targets: Mapping[Partition, Sequence[int]]) -> dict[str, Any]:
    """Return a plan that `parse_plan` reads."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(targets.items())
    ]
    return {"version": 1, "partitions": partitions}
