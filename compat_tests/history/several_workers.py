"""One start of several workers, whose processes are killed and stopped: one worker, all of them, the tree's holder, the supervisor.

A run ends by its own limit, or when `Wanted` is done. After every other fault all is well again before the next one. Else transactions come to nothing for minutes, since both of
their coordinators are never there for long, and the harness takes that for a client that is stuck.

A worker that ends more than five times within a minute stays down. That is meant for bugs, and not for this harness: a worker that
has had its share is left alone until the minute is over, or its supervisor is started anew.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from compat_tests.history.faults import HOLD_S, Fault
from compat_tests.history.members import ALL
from compat_tests.support.brokers import wait_until
from compat_tests.support.workers import TREE, WorkersProcess

from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.server.testing.history.replica_logs import Replicas, read_log

RESTARTS_MAX, RESTARTS_S = 5, 61.0
RECOVERY_S = 60.0
WORKER, ALL_WORKERS, SUPERVISOR = "a worker", "all workers", "the supervisor"
KILLED = (WORKER, WORKER, WORKER, ALL_WORKERS, TREE, SUPERVISOR)
PAUSED = (WORKER, WORKER, ALL_WORKERS, TREE, SUPERVISOR)
PAUSED_SHARE = 0.25
SESSION_TIMEOUT_MS = 3000  # which some of HOLD_S are longer than


class Wanted(NamedTuple):
    """How many SIGKILLs a run is to do."""

    of_workers: int
    of_supervisor: int


class SeveralWorkers:
    """A `Cluster` of `run.py`."""

    replication_factor = 1
    configs: ClassVar[dict[str, str]] = {}
    kinds_of_groups = ALL
    addresses: Sequence[
        tuple[str, int]
    ] = ()  # there is one replica of each partition, and when it is away nobody serves it

    def __init__(self, workers: WorkersProcess, wanted: Wanted | None = None) -> None:
        self._workers = workers
        self._wanted = wanted
        self._ends: dict[str, list[float]] = {}
        self.done: Counter[str] = Counter()
        """Signals, by their kind and what they hit, such as "SIGKILL of workers"."""

    @property
    def bootstrap(self) -> str:
        return self._workers.bootstrap

    def start(self) -> None:
        self._workers.start()

    def stop(self) -> None:
        self._workers.wait_until_all_lead()
        self._workers.stop()

    def kill(self) -> None:
        if self._workers.process is not None:
            self._workers.kill()

    def keep(self) -> None:
        """All of it lies in its directory anyway."""

    def discard(self) -> None:
        """Its directory can be removed."""

    def state(self) -> str:
        return self._workers.log[-8000:]

    def is_well(self) -> bool:
        return False

    def replicas(self, topic: str, partition: int) -> Replicas:
        data = self._workers.data_dir
        folders = [data, *(data / "workers").glob("[0-9]*")]
        [found] = [folder for folder in folders if (folder / f"{topic}-{partition}").is_dir()]
        return Replicas(topic, partition, None, {_name(found): read_log(found, topic, partition)})

    # --- faults

    def faults(self, topic: str, chance: random.Random) -> Iterator[Fault]:
        while self._wanted is None or any(self._left):
            fault = self._paused(chance) if chance.random() < PAUSED_SHARE else self._killed(chance)
            yield fault._replace(end=self._mended(fault.end)) if chance.random() < 0.5 else fault

    @property
    def _left(self) -> Wanted:
        """Of what is wanted, if anything is."""
        wanted = self._wanted or Wanted(0, 0)
        done = (self.done[f"{FaultKind.KILLED} of {each}"] for each in ("workers", SUPERVISOR))
        return Wanted(*(max(0, each - count) for each, count in zip(wanted, done, strict=True)))

    def _killed(self, chance: random.Random) -> Fault:
        who = chance.choice(KILLED)
        if self._wanted is not None and who in (WORKER, SUPERVISOR):
            # In proportion to what is left, so that both are done at about the same time.
            [who] = chance.choices((WORKER, SUPERVISOR), self._left)
        names = [name for name in self._names(who) if self._may_end(name)]
        if len(names) < (1 if who == WORKER else len(self._names(who))):
            # They have had their share of this minute. With another supervisor it begins anew.
            if self._wanted is not None and not self._left.of_supervisor:
                return self._paused(chance)
            who = SUPERVISOR
        if who == SUPERVISOR:
            return Fault(f"{FaultKind.KILLED} of {who}", self._kill_supervisor, self._start_again)
        begin, end = self._killing([chance.choice(names)] if who == WORKER else names)
        return Fault(f"{FaultKind.KILLED} of {who}", begin, end)

    def _paused(self, chance: random.Random) -> Fault:
        who = chance.choice(PAUSED)
        names = self._names(who)
        stopped: list[int] = []

        def begin() -> str:
            hit = [chance.choice(names)] if who == WORKER else names
            for name in hit:
                stopped.append(self._pid(name))
                os.kill(stopped[-1], signal.SIGSTOP)
            self._note(FaultKind.PAUSED, hit)
            return ", ".join(hit)

        def end() -> None:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

        return Fault(f"{FaultKind.PAUSED} of {who}", begin, end, chance.choice(HOLD_S))

    def _names(self, who: str) -> list[str]:
        return [who] if who in (TREE, SUPERVISOR) else [f"worker {number}" for number in range(self._workers.count)]

    def _pid(self, name: str) -> int:
        if name != SUPERVISOR:
            return self._workers.pid(name)
        assert self._workers.process is not None
        return self._workers.process.pid

    def _note(self, kind: FaultKind, names: Sequence[str]) -> None:
        self.done.update(f"{kind} of {name if name in (TREE, SUPERVISOR) else 'workers'}" for name in names)

    def _mended(self, end: Callable[[], None]) -> Callable[[], None]:
        def mend() -> None:
            end()
            self._workers.wait_until_all_lead()

        return mend

    def _may_end(self, name: str) -> bool:
        """Whether it is started again if it ends."""
        recent = [each for each in self._ends.get(name, []) if time.monotonic() - each < RESTARTS_S]
        self._ends[name] = recent
        return len(recent) < RESTARTS_MAX

    def _killing(self, names: Sequence[str]) -> tuple[Callable[[], str], Callable[[], None]]:
        before: dict[str, int] = {}

        def begin() -> str:
            for name in names:
                before[name] = self._workers.pid(name)
                self._ends.setdefault(name, []).append(time.monotonic())
                self._workers.signal(name, signal.SIGKILL)
            self._note(FaultKind.KILLED, names)
            return ", ".join(names)

        def end() -> None:
            for name in names:
                wait_until(lambda name=name: self._is_back(name, before[name]), f"{name} is back", RECOVERY_S)

        return begin, end

    def _is_back(self, name: str, before: int) -> bool:
        if name == TREE:
            return self._workers.pid(name) != before
        _, began, since = self._workers.present_log.rpartition(f"{name} begins as process ")
        return bool(began) and not since.startswith(f"{before}\n") and f"{name} serves again" in since

    def _kill_supervisor(self) -> str:
        self._ends.clear()
        self._workers.kill()
        self._note(FaultKind.KILLED, [SUPERVISOR])
        return "the supervisor, and with it all"

    def _start_again(self) -> None:
        self._workers.restart()


def _name(folder: Path) -> str:
    return "worker 0" if folder.name == "data" else f"worker {folder.name}"
