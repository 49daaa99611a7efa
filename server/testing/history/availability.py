"""The rule of availability: probes are served whenever a majority of brokers and ZooKeepers is well."""

from ottla.server.testing.history.history import ProbeBegan, Served, TroubleBegan, TroubleEnded
from ottla.server.testing.history.rules import Report, Rule

Target = tuple[str, str, int]


class Availability:
    """`served` and the others are called for every event of their kind, in order; `finish` at the end."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._away_max_s: dict[Target, float] = {}
        self._served: dict[Target, tuple[float, int]] = {}
        self._calm_since: tuple[float, int] | None = (0.0, 0)
        self._last = (0.0, 0)

    def began(self, event: ProbeBegan, number: int) -> None:
        target = (event.what, event.topic, event.partition)
        self._away_max_s[target] = event.away_max_s
        self._served[target] = self._last = event.at, number

    def served(self, event: Served, number: int) -> None:
        target = (event.what, event.topic, event.partition)
        self._last = event.at, number
        self._judge(target)
        self._served[target] = self._last

    def trouble_began(self, event: TroubleBegan, number: int) -> None:
        self._last = event.at, number
        self._judge_all()
        self._calm_since = None

    def trouble_ended(self, event: TroubleEnded, number: int) -> None:
        self._last = self._calm_since = event.at, number

    def finish(self) -> None:
        self._judge_all()

    def _judge_all(self) -> None:
        for target in self._served:
            self._judge(target)

    def _judge(self, target: Target) -> None:
        """Report a service that was away for too long before the last event."""
        if self._calm_since is None:
            return
        since = max(self._calm_since, self._served[target])
        away_s = self._last[0] - since[0]
        if away_s > self._away_max_s[target]:
            what, topic, partition = target
            self._report.add(Rule.AWAY, (topic, partition), f"{what}: {away_s:.1f} s", since[1], self._last[1])
