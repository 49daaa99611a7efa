"""Lays siege to a broker, prints what every attack did, and fails where a limit is broken.

    make siege                                  every request in its newest version, a few minutes
    make siege MINUTES=60                       goes on with all versions and sizes, drawn by a seed
    make siege ARGS="--only Fetch --only tags"  attacks whose name has one of these words
    make siege ARGS="--in-cluster"              a member of a cluster, so that what brokers ask each other is there too

A line is printed for each attack: the longest hold of the event loop, how long its thread ran in one turn, and how long the machine gave it no
processor (`watched_broker.py` tells them apart); how much the broker's memory grew at most, the sockets that were left, the longest wait
of the bystander, and the limits that were broken. In the end, also if it is stopped before: the worst of each request, the
bystander's 99th percentile, and the objects that only a full collection of garbage found.
"""

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from compat_tests.siege.attacks import SIZES, Attack, fullest_of_route, of_many_peers, of_records, of_route
from compat_tests.siege.siege import Damage, Limits, Siege, laid
from compat_tests.siege.state_attacks import of_states
from compat_tests.support.zookeepers import Ensemble

from ottla.server.dispatch.dispatch import Route, served_routes

BYSTANDERS_P99_MS = 60.0
GARBAGE_MAX = 20_000
"""Objects in circles that attacks may leave altogether. There are always some that are young."""


def first_round(routes: Sequence[Route]) -> Iterator[Attack]:
    """Every request in its newest version, what many peers do, records, and what is built up."""
    for route in routes:
        yield from of_route(route, [route.versions.last], SIZES[:1])
    yield from of_many_peers()
    yield from of_records()
    yield from of_states()


def later_rounds(routes: Sequence[Route], dice: random.Random) -> Iterator[Attack]:
    """Without end: any version, any size, and now and then many peers and records."""
    crowds = [*of_many_peers(), *of_records()]
    while True:
        route = dice.choice(routes)
        version = dice.randint(route.versions.first, route.versions.last)
        yield dice.choice(list(of_route(route, [version], [dice.choice((*SIZES, 300 << 10))])))
        if dice.random() < 0.2:
            yield dice.choice(list(fullest_of_route(route, version)))
        if dice.random() < 0.05:
            yield dice.choice(crowds)


class Report:
    """Prints as it goes, and in the end what was worst."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._worst: dict[str, Damage] = {}
        self.attacks = 0
        self.broken = 0

    def add(self, attack: Attack, damage: Damage) -> None:
        broken = damage.breaks(self._limits)
        self.attacks += 1
        self.broken += bool(broken)
        worst = self._worst.get(attack.api)
        if worst is None or damage.hold_ms > worst.hold_ms:
            self._worst[attack.api] = damage
        print(_line(damage), f"   BROKEN: {'; '.join(broken)}\n{damage.stack}" if broken else "", flush=True)

    def end(self, waits_ms: list[float], garbage: int) -> bool:
        """Print the summary; returns whether all limits hold. `garbage`: -1 if the broker is not there to be asked."""
        print("\nthe longest hold by each request:")
        for damage in sorted(self._worst.values(), key=lambda damage: -damage.hold_ms):
            print(_line(damage))
        p99 = sorted(waits_ms)[int(len(waits_ms) * 0.99)] if waits_ms else 0.0
        holds = not self.broken and p99 <= BYSTANDERS_P99_MS and 0 <= garbage <= GARBAGE_MAX
        print(
            f"\n{self.attacks} attacks, {self.broken} broke a limit; bystander: {len(waits_ms)} requests,"
            f" p99 {p99:.1f} ms (limit {BYSTANDERS_P99_MS:.0f}), longest {max(waits_ms, default=0.0):.0f} ms;"
            f" {garbage} objects were left in circles (limit {GARBAGE_MAX})"
        )
        return holds


def _line(damage: Damage) -> str:
    return (
        f"{damage.hold_ms:6.0f} ms ({damage.busy_ms:.0f} busy, {damage.away_ms:.0f} away) {damage.memory_mib:5.0f} MiB"
        f" {damage.sockets_left:4} left"
        f" {damage.slowest_ms:6.0f} ms bystander {damage.seconds:5.1f} s   {damage.attack}"
    )


def carry_out(siege: Siege, attacks: Iterator[Attack], words: Sequence[str], report: Report, until: float) -> None:
    """One attack after the other until there are no more or the time is over."""
    for attack in attacks:
        if words and not any(word.lower() in str(attack).lower() for word in words):
            continue
        report.add(attack, siege.carry_out(attack))
        if time.monotonic() > until:
            return


def lay(siege: Siege, report: Report, rounds: Callable[[], None]) -> bool:
    """Carry out `rounds`; whether all limits hold. The summary is printed whatever ends them, a signal or a broker that has died."""
    is_whole = False
    try:
        rounds()
        is_whole = True
    except (KeyboardInterrupt, SystemExit):
        print("\nstopped before its end")
    finally:
        holds = report.end(siege.all_waits_ms, -1 if siege.broker.died() else siege.garbage())
    return holds and is_whole


@contextlib.contextmanager
def besieged(directory: Path, *, in_cluster: bool) -> Iterator[Siege]:
    """A broker alone, or one that is the only member of a cluster."""
    if not in_cluster:
        with laid(directory) as siege:
            yield siege
        return
    ensemble = Ensemble(directory / "zookeeper")
    ensemble.start()
    try:
        with laid(directory, cluster_settings(ensemble.address)) as siege:
            yield siege
    finally:
        ensemble.stop()


def cluster_settings(zookeeper: str) -> dict[str, str]:
    """What makes the broker a member of a cluster."""
    return {"zookeeper.connect": zookeeper, "broker.id": "0", "default.replication.factor": "1"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0, help="how long in all, if more than the first round")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--in-cluster", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    routes = [route for _, route in sorted(served_routes(is_in_cluster=options.in_cluster).items())]
    report = Report(Limits())
    began = time.monotonic()
    until = began + options.minutes * 60
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as name, besieged(Path(name), in_cluster=options.in_cluster) as siege:

        def rounds() -> None:
            carry_out(siege, first_round(routes), options.only, report, float("inf"))
            if time.monotonic() < until:
                carry_out(siege, later_rounds(routes, random.Random(options.seed)), options.only, report, until)

        return 0 if lay(siege, report, rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
