"""What a row is: a workload, declared once with its metrics and targets, played to each broker in turns.

`measure()` plays it, round after round, in alternate order (A B, B A, ...), and makes a `Line` of each metric. The ratio is
Ottla's number over Apache Kafka's in the same round; a line has the median of these ratios with the least and the greatest.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.brokers import AGAINST, MAIN, YARDSTICK, Broker, Ottla


@dataclass(frozen=True)
class Target:
    """A bound for the ratio Ottla / Apache Kafka; with a unit, for Ottla's number itself."""

    bound: float
    at_least: bool
    unit: str = ""

    def met(self, ratio: float) -> bool:
        """Judged as it is printed, with two digits: 1.004 times the other's is not slower."""
        ratio = round(ratio, 2 if self.bound >= 0.2 else 3)
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g} {self.unit}".rstrip()


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


def at_most(bound: float) -> Target:
    return Target(bound, at_least=False)


def within(bound: float, unit: str) -> Target:
    """Whatever Apache Kafka needs."""
    return Target(bound, at_least=False, unit=unit)


@dataclass(frozen=True)
class Metric:
    """One number of a workload. `key` is its name in what the workload returns; `label` stands in the table."""

    key: str
    unit: str
    target: Target | None = None
    more_is_better: bool = False
    digits: int = 2
    label: str = ""


@dataclass(frozen=True)
class Row:
    """`run` plays the workload to one broker once and returns its numbers by key.

    `beside` are numbers that explain the others, such as what the client costs: told beside the first line.
    """

    name: str
    brokers: Sequence[Broker]
    run: Callable[[Broker], Mapping[str, float]]
    metrics: Sequence[Metric]
    rounds: int = 3
    limit: str = ""  # the physical limit it is near
    beside: Sequence[Metric] = ()


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, and the least and the greatest of them."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Spread":
        return cls(median(numbers), min(numbers), max(numbers))


@dataclass(frozen=True)
class Line:
    """One line of the table: a metric of a row."""

    group: str
    name: str
    metric: Metric
    limit: str
    numbers: Mapping[str, Sequence[float]]  # by the broker's name, in the order of the rounds
    errors: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()

    @property
    def ratio(self) -> Spread | None:
        pairs = zip(self.numbers.get(Ottla.name, ()), self.numbers.get(YARDSTICK.name, ()), strict=False)
        ratios = [ours / theirs for ours, theirs in pairs if theirs > 0]
        return Spread.of(ratios) if ratios else None

    @property
    def times_better(self) -> Spread | None:
        """The ratio turned so that more is better, whatever the metric."""
        ratio = self.ratio
        if ratio is None or self.metric.more_is_better or ratio.least <= 0:
            return ratio
        return Spread(1 / ratio.median, 1 / ratio.greatest, 1 / ratio.least)

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; None where there is none. Targets are about Apache Kafka."""
        if self.metric.target is None or AGAINST:
            return None
        if self.metric.target.unit:
            numbers = self.numbers.get(Ottla.name)
            return bool(numbers) and self.metric.target.met(median(numbers))
        ratio = self.ratio
        return ratio is not None and self.metric.target.met(ratio.median)

    @property
    def verdict(self) -> str:
        if Ottla.name in self.errors or YARDSTICK.name in self.errors:
            return "failed"
        return {None: "", True: "ok", False: "BEHIND"}[self.ok]


# So often at most are peers asked, which are judged by nothing.
PEER_ROUNDS = 2


def measure(group: str, row: Row, deadline: float) -> list[Line]:
    """Plays a row. Once `deadline` (of time.monotonic) has passed, one round has to do.

    A broker that fails is not asked again in this row; if its process has ended, it is started again for the next row.
    """
    numbers: dict[str, list[Mapping[str, float]]] = {broker.name: [] for broker in row.brokers}
    errors: dict[str, str] = {}
    for index in range(row.rounds):
        if index and time.monotonic() > deadline:
            break
        for broker in row.brokers if index % 2 == 0 else reversed(row.brokers):
            if broker.name not in errors and (index < PEER_ROUNDS or is_main(broker)):
                try:
                    numbers[broker.name].append(row.run(broker))
                except Exception as error:  # noqa: BLE001 - the other rows are still to be measured
                    errors[broker.name] = f"{type(error).__name__}: {error}"[:300]
    lines = [Line(group, row.name, metric, row.limit, by_key(numbers, metric.key), errors) for metric in row.metrics]
    beside = [told_beside(metric, by_key(numbers, metric.key)) for metric in row.beside]
    return [dataclasses.replace(lines[0], beside=[text for text in beside if text]), *lines[1:]]


def is_main(broker: Broker) -> bool:
    return broker.name in {kind.name for kind in MAIN}


def told_beside(metric: Metric, numbers: Mapping[str, Sequence[float]]) -> str:
    """Such as "client CPU: Ottla 1.60, Apache Kafka 1.75 s/GB"."""
    medians = ", ".join(f"{name} {median(values):,.{metric.digits}f}" for name, values in numbers.items())
    return f"{metric.label}: {medians} {metric.unit}" if medians else ""


def by_key(numbers: Mapping[str, Sequence[Mapping[str, float]]], key: str) -> dict[str, list[float]]:
    found = {name: [each[key] for each in rounds if key in each] for name, rounds in numbers.items()}
    return {name: values for name, values in found.items() if values}
